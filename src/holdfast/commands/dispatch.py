"""`holdfast dispatch`: parse, call, print."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands.boarding import VerbGroup, json_option, refuse, say, store_option
from holdfast.commands.dispatch_status import status
from holdfast.commands.homeoption import home_option
from holdfast.commands.hostlimits import chosen, host_options
from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Run
    from holdfast.dispatch.dispatcher import DispatchOptions


@click.group(cls=VerbGroup, invoke_without_command=True, subcommand_metavar="[status]")
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
    as_json: bool,
) -> None:
    """Run the tasks of a board with sandboxed workers.

    A task's assignee is a worker profile: codex, claude, opencode, gemini, qwen, hermes, aider, script (the
    body is a shell script), or one of worker-profiles.toml in the home. Ended by a signal, it leaves the
    workers running; the next dispatcher of the home takes them over, and `holdfast down --workers` ends them.
    The file is read again when it changes, or on SIGHUP to a dispatcher without a terminal.

    Exit codes: 0 done; 1 refused; 2 usage; 3 not found; 4 another dispatcher is there; 5 the store is down;
    71 something that it needs does not start.

    \b
    Examples:
      holdfast dispatch --board crew
      holdfast dispatch --board crew --dry-run
    """
    if context.invoked_subcommand is not None:
        _check_nothing_given(context)
        return
    from holdfast.dispatch import hostload
    from holdfast.dispatch.dispatcher import DispatchOptions
    from holdfast.dispatch.rules import pressure

    try:
        if not boards:
            raise UsageError("say which board", remedy="--board NAME")
        if once + drain + dry_run > 1:
            raise UsageError("--once, --drain and --dry-run cannot be used together")
        held = hostload.watch_load(chosen(min_free, max_load))
        if dry_run:
            _foresee(home, address, boards, host, held(0, 0), as_json=as_json)
            return
        most = most or pressure.most_here(hostload.look())
        plan = DispatchOptions(boards, most, once=once, drain=drain, held=held, notify=_words(notify))
        _serve(home, address, plan, host, as_json=as_json)
    except HoldfastError as exc:
        refuse(exc, as_json=as_json)


dispatch.add_command(status)


def _check_nothing_given(context: click.Context) -> None:
    """Options before the name of a command below would be forgotten."""
    from click.core import ParameterSource

    given = [
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        refuse(
            UsageError(f"put options after `{context.invoked_subcommand}`"),
            as_json=bool(context.params["as_json"]),
        )


def _words(command: str | None) -> tuple[str, ...]:
    """A command line as its words; no shell reads it."""
    import shlex

    try:
        return tuple(shlex.split(command or ""))
    except ValueError as exc:
        raise UsageError(f"--notify: {exc}") from None


def _foresee(
    home: Path, address: str, boards: tuple[str, ...], host: str | None, held: str | None, *, as_json: bool
) -> None:
    from holdfast.board.store import open_store
    from holdfast.dispatch.installed import find_installed
    from holdfast.dispatch.startup import foresee, host_name

    profiles = frozenset(find_installed(home, os.environ))
    name = host or host_name(home)
    starts: list[dict[str, str]] = []
    waits: list[dict[str, str]] = []
    with open_store(address, create=False) as store:
        for board in boards:
            found = foresee(store, board, name, profiles, held)
            starts += [{"board": board, "task": claim.task} for claim in found.claims]
            waits += [
                {"board": board, "task": task, "reason": reason} for task, reason in found.waiting.items()
            ]
    text = [f"would start {one['task']}" for one in starts]
    text += [f"{one['task']} waits: {one['reason']}" for one in waits]
    say({"host": name, "starts": starts, "waits": waits, "text": text}, as_json=as_json)


def _serve(home: Path, address: str, plan: "DispatchOptions", host: str | None, *, as_json: bool) -> None:
    import asyncio
    import signal

    from holdfast import log
    from holdfast.dispatch.startup import serve

    log.set_up(style="text", level=os.environ.get("HOLDFAST_LOG_LEVEL", "warning"))

    def told(kind: str, run: "Run") -> None:
        line = {"kind": kind, "run": run.id, "task": run.task_id, "board": run.board, "profile": run.profile}
        say({**line, "text": [f"{kind} {run.task_id} {run.id} {run.profile}"]}, as_json=as_json)
        sys.stdout.flush()

    async def main() -> None:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("asyncio.run makes a task")
        loop, again = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        loop.add_signal_handler(signal.SIGUSR1, plan.leaving.set)  # `holdfast down --workers`
        if not os.isatty(0):  # there it says that the terminal is gone
            loop.add_signal_handler(signal.SIGHUP, again.set)
        await serve(home, address, plan, told=told, host=host, again=again)

    try:
        asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        return  # told to go: the workers stay
