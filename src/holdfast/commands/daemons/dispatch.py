"""`holdfast dispatch`: parse, call, print."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from holdfast.commands.clickoptions import choose_limits, home_option, host_options
from holdfast.commands.output import Answer, AnswerCommand, AnswerGroup, json_option, say
from holdfast.commands.store import name_boards, store_option
from holdfast.errors import UsageError
from holdfast.local.linux import ON_LINUX, require_linux

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Run
    from holdfast.dispatch.dispatcher import DispatchOptions
    from holdfast.dispatch.rules.dispatcherstatus import DispatcherReport

NO_DISPATCHER: Final = 3  # exit code of status without a dispatcher; the usual code for "not found"


@click.group(cls=AnswerGroup, invoke_without_command=True, subcommand_metavar="[status]")
@click.option(
    "--board", "boards", multiple=True, metavar="NAME", help="The board to dispatch. Can be repeated."
)
@click.option("--once", is_flag=True, help="Start what there is room for now, wait for it, and exit.")
@click.option("--drain", is_flag=True, help="Start nothing; wait for what runs, and exit.")
@click.option("--dry-run", is_flag=True, help="Show what would be started now, and why the rest waits.")
@host_options
@click.option(
    "--host", metavar="NAME", help="The name of this dispatcher [default: the machine and its home]."
)
@click.option(
    "--notify",
    metavar="COMMAND",
    help="Run when a task begins to wait for a person, with JSON about it on its standard input, and again "
    "until that is acknowledged [default: notify in the home, if it is executable].",
)
@home_option
@store_option
@json_option
@click.pass_context
def dispatch(
    context: click.Context,
    boards: tuple[str, ...],
    once: bool,
    drain: bool,
    dry_run: bool,
    most: int | None,
    min_free: int | None,
    max_load: float | None,
    host: str | None,
    notify: str | None,
    home: Path,
    address: str,
) -> Answer | None:
    """Run the tasks of a board with sandboxed workers.

    A task's assignee is a worker profile: codex, claude, opencode, gemini, qwen, hermes, aider, script (the
    body is a shell script), or one of worker-profiles.toml in the home. A signal ends the dispatcher but
    leaves the workers running. The next dispatcher of the home takes them over, and `holdfast down --workers`
    ends them. worker-profiles.toml is read again when it changes, or on SIGHUP to a dispatcher without a
    terminal.

    Exit codes: 0 done; 1 refused; 2 usage; 3 not found; 4 another dispatcher runs; 5 the store is down; 71
    something that it needs does not start.

    \b
    Examples:
      holdfast dispatch --board crew
      holdfast dispatch --board crew --dry-run
    """
    if context.invoked_subcommand is not None:
        _check_nothing_given(context)
        return None
    require_linux("holdfast dispatch", ON_LINUX)
    from holdfast.dispatch import hostload
    from holdfast.dispatch.dispatcher import DispatchOptions
    from holdfast.dispatch.rules import pressure

    if not boards:
        raise UsageError("say which board", remedy=f"--board NAME{name_boards(context)}")
    if once + drain + dry_run > 1:
        raise UsageError("--once, --drain and --dry-run cannot be used together")
    held = hostload.watch_load(choose_limits(min_free, max_load))
    if dry_run:
        return _foresee(home, address, boards, host, held(0, 0))
    most = most or pressure.most_here(hostload.look())
    plan = DispatchOptions(boards, most, once=once, drain=drain, held=held, notify=_words(notify))
    _serve(home, address, plan, host)
    return None


@dispatch.command(cls=AnswerCommand)
@home_option
@json_option
def status(home: Path) -> Answer:
    """Show whether a dispatcher runs, and what it does.

    Its lock shows whether it runs. The rest is its last report, written some seconds ago or before it ended.

    Exit codes: 0 one runs; 2 usage; 3 none runs.

    \b
    Example:
      holdfast dispatch status
    """
    import time

    from holdfast.dispatch import homefiles

    alive, told = homefiles.read_status(home.absolute())
    text = [f"{'a dispatcher' if alive else 'no dispatcher'} for {home}"]
    if told is not None:
        text += _status_lines(told, alive, time.time())
    elif alive:
        text.append("  it has not reported yet")
    code = 0 if alive else NO_DISPATCHER
    return {"home": str(home), "alive": alive, "dispatcher": told, "text": text, "exit": code}


def _check_nothing_given(context: click.Context) -> None:
    """Refuse options before the name of a subcommand, which would be ignored."""
    from click.core import ParameterSource

    sources = [context.get_parameter_source(option.name or "") for option in context.command.params]
    if ParameterSource.COMMANDLINE in sources:
        raise UsageError(f"put options after `{context.invoked_subcommand}`")


def _words(command: str | None) -> tuple[str, ...]:
    """Split a command line into words, without a shell."""
    import shlex

    try:
        return tuple(shlex.split(command or ""))
    except ValueError as exc:
        raise UsageError(f"--notify: {exc}") from None


def _foresee(home: Path, address: str, boards: tuple[str, ...], host: str | None, held: str | None) -> Answer:
    import time

    from holdfast.board.store import open_store
    from holdfast.dispatch.dispatcher import foresee, host_name
    from holdfast.dispatch.environments import FleetWatch
    from holdfast.dispatch.installed import find_installed

    profiles = find_installed(home, os.environ)
    fleet = FleetWatch(home, time.time)
    fleet.recall()
    places = fleet.make_places({}, profiles.values())
    name = host or host_name(home)
    starts: list[dict[str, str]] = []
    waits: list[dict[str, str]] = []
    with open_store(address, create=False) as store:
        for board in boards:
            found = foresee(store, board, name, frozenset(profiles), held, places)
            starts += [{"board": board, "task": claim.task} for claim in found.claims]
            waits += [
                {"board": board, "task": task, "reason": reason} for task, reason in found.waiting.items()
            ]
    text = [f"would start {one['task']}" for one in starts]
    text += [f"{one['task']} waits: {one['reason']}" for one in waits]
    return {"host": name, "starts": starts, "waits": waits, "text": text}


def _serve(home: Path, address: str, plan: "DispatchOptions", host: str | None) -> None:
    import asyncio
    import signal

    from holdfast import log
    from holdfast.dispatch.dispatcher import serve

    log.set_up(style="text", level=os.environ.get("HOLDFAST_LOG_LEVEL", "warning"))

    def report(kind: str, run: "Run") -> None:
        line = {"kind": kind, "run": run.id, "task": run.task_id, "board": run.board, "profile": run.profile}
        say({**line, "text": [f"{kind} {run.task_id} {run.id} {run.profile}"]})
        sys.stdout.flush()

    async def main() -> None:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("asyncio.run makes a task")
        loop, again = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        loop.add_signal_handler(signal.SIGUSR1, plan.leaving.set)  # `holdfast down --workers`
        if not os.isatty(0):  # with one, SIGHUP means that the terminal is gone
            loop.add_signal_handler(signal.SIGHUP, again.set)
        await serve(home, address, plan, told=report, host=host, again=again)

    try:
        asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        return  # ended on request: the workers go on


def _status_lines(told: "DispatcherReport", alive: bool, now: float) -> list[str]:
    rounded = "none yet" if told.round_at is None else f"{now - told.round_at:.1f} s ago"
    text = [
        f"  {'is' if alive else 'was'} {told.host}, pid {told.pid}, since {_clock(told.since)}",
        f"  boards {', '.join(told.boards)}; workers for {', '.join(told.profiles) or 'nobody'}",
        f"  {len(told.runs)} runs; last round {rounded}",
        f"  {told.claims} claims, {told.leases_renewed} leases renewed, {told.reloads} reloads",
    ]
    if told.start_p50_s is not None and told.start_p95_s is not None:
        text.append(f"  a start takes {told.start_p50_s:.2f} s (p50), {told.start_p95_s:.2f} s (p95)")
    if told.error_at is not None:
        text.append(f"  last error {now - told.error_at:.0f} s ago: {told.error}")
    if told.reload_error:
        text.append(f"  worker-profiles.toml is not in force: {told.reload_error}")
    return text


def _clock(at: float) -> str:
    from holdfast.board.rules.assign import clock

    return clock(round(at * 1000))
