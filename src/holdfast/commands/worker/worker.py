"""`holdfast worker`: parse, call, print."""

import asyncio
import contextlib
import copy
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.commands import options as table
from holdfast.commands.clickoptions import SECTIONS, SectionedGroup, combine, home_option
from holdfast.commands.exec import make_option
from holdfast.commands.output import OneLine, fail, printable, show_data
from holdfast.commands.worker.connected import (
    EXITS,
    complete_worker,
    grant_options,
    host_options,
    json_option,
    on_worker,
    print_report,
    to_json,
    with_workers,
)
from holdfast.commands.worker.results import apply, diff, grant, prune, result, stop
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.agents.sdk import Workers
    from holdfast.agents.supervisor.messages import WorkerReport

_LOOK_S: Final = 0.2  # between reads of a worker's output: soon enough for a reader
_AT_ONCE: Final = 64 * 1024


@click.group(cls=SectionedGroup, sections=SECTIONS["worker"])
def worker() -> None:
    """Run agent CLIs in a sandbox, and know what each is doing.

    Workers belong to a supervisor in the background. It is started when needed, and found again after a
    crash. Exit code 0: done as asked; 1: the worker did not succeed.

    \b
    Examples:
      holdfast worker run codex "fix the failing test"
      holdfast worker list
      holdfast worker why codex-1f2e3d
    """


for _command in (apply, diff, grant, prune, result, stop):
    worker.add_command(_command)
_cancel = copy.copy(stop)
_cancel.hidden = True  # a synonym
worker.add_command(_cancel, "cancel")


@worker.command("run", cls=OneLine)
@click.argument("agent")
@click.argument("words", nargs=-1)
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    default=".",
    help="The directory to work in.",
)
@click.option(
    "--env",
    "host",
    metavar="ENV",
    help="Run it on another machine: an environment, or the address of a server. The directory is carried "
    "there, and what it changed comes back when it ends.",
)
@click.option("--id", "name", help="The id of the worker [default: made up].")
@click.option("--model", help="The model, as the agent names it.")
@click.option("--tty", is_flag=True, help="Run it on a terminal that you can attach to.")
@click.option("--tmux", is_flag=True, help="Run it on a terminal, shown in a tmux session.")
@click.option(
    "--acp", is_flag=True, help="Talk to it over the Agent Client Protocol; its questions are structured."
)
@click.option(
    "--network",
    type=click.Choice(["on", "off"]),
    help="Allow every host or none [default: the model provider's hosts; every host if they are unknown].",
)
@host_options
@click.option("--deny-host", metavar="HOST[:PORT]", multiple=True, help="Deny this host. Can be repeated.")
@click.option(
    "--net-limit",
    metavar="[HOST=]AMOUNT",
    multiple=True,
    help="Limit traffic to its hosts: 500M in total, 10M/s or 20conn/s. Can be repeated.",
)
@click.option(
    "--ask-network",
    is_flag=True,
    help="Let a connection to any other host wait until `worker approve` answers, for at most 10 minutes.",
)
@grant_options
@click.option(
    "--allow-credentials",
    is_flag=True,
    help="Let it read credentials such as ~/.ssh and ~/.aws; those of its own CLI it has anyway.",
)
@click.option(
    "--pass", "names", metavar="NAME", multiple=True, help="Pass this environment variable. Can be repeated."
)
@click.option("--provider", "base", metavar="URL", help="Use another provider's address.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the key of that provider.")
@click.option(
    "--secret",
    "secrets",
    metavar="NAME@HOST[:PORT]",
    multiple=True,
    help="Keep the secret NAME out of the sandbox, as `exec` does. Can be repeated.",
)
@click.option(
    "--keys-inside",
    is_flag=True,
    help="Let keys that the agent takes by variables enter; otherwise it has placeholders.",
)
@click.option("--wall", "wall_limit_s", type=float, metavar="SECONDS", help="End it after this time.")
@click.option(
    "--idle", "idle_limit_s", type=float, metavar="SECONDS", help="End it after this time without work."
)
@combine(*(make_option(option) for option in table.USAGE if option.name != "--timeout"))
@click.option("--ask", is_flag=True, help="Let it ask before it acts, instead of trusting the sandbox.")
@click.option("--no-relocate", is_flag=True, help="Use the agent's usual state directory.")
@click.option("--unconfined", is_flag=True, help="Run without any sandbox.")
@click.option("--no-watch", is_flag=True, help="Do not record which calls the sandbox refuses.")
@click.option("--trace", is_flag=True, help="Record every refused call with strace, reads too; slow.")
@click.option("--detach", is_flag=True, help="Start it and return.")
@click.option("--quiet", is_flag=True, help="Print its states only, and not what it says.")
@json_option
@home_option
@with_workers
async def run_command(workers: "Workers", /, agent: str, words: tuple[str, ...], **options: Any) -> int:
    """Start an agent CLI with a prompt, and follow it to its end.

    Its output and its states are printed as they come. On a terminal of its own it has a screen instead,
    which `holdfast worker attach` shows. With --json only states are printed.

    The prompt of the agent `shell` is a script. Without a prompt the agent's interactive program runs on a
    terminal.

    \b
    Examples:
      holdfast worker run codex "fix the failing test"
      holdfast worker run opencode --tmux --detach
    """
    from holdfast.agents.sdk import find_withheld, own_variables, select_variables
    from holdfast.exec.outcome import Withheld

    far = options["host"] is not None  # that machine has its own login and settings
    own = () if far else own_variables(agent, keys=options["base"] is None)
    as_asked = (
        *("acp", "base", "cwd", "host", "idle_limit_s", "model", "trace", "unconfined", "wall_limit_s"),
        *(
            "allow_host",
            "allow_net",
            "net_limit",
            "deny_host",
            "allow_private",
            "ask_network",
            "secrets",
            "keys_inside",
        ),
    )
    started = await workers.run(
        agent,
        prompt=" ".join(words) or None,
        env=select_variables([*options["names"], *own]),
        id=options["name"],
        tty=options["tty"] or options["tmux"],
        unattended=not options["ask"],
        network=None if options["network"] is None else options["network"] == "on",
        writable=list(options["writable"]),
        readable=list(options["readable"]),
        allow_credentials=options["allow_credentials"],
        relocate=not options["no_relocate"],
        key=os.environ.get(options["key_env"] or ""),
        watch=not options["no_watch"],
        limits={
            option.target: options[option.target]
            for option in table.USAGE
            if options.get(option.target) is not None
        },
        **{name: options[name] for name in as_asked},
    )
    if not (far or options["allow_credentials"] or options["unconfined"] or options["as_json"]):
        named = [*options["writable"], *options["readable"]]
        withheld = Withheld(tuple(find_withheld(agent, cwd=options["cwd"], granted=named)))
        for line in withheld.words("the worker"):
            click.echo(line, err=True)
    if options["tmux"]:
        await started.show_in_tmux()
    if options["detach"]:
        print_report(started.report, as_json=options["as_json"])
        return 0
    silent = options["quiet"] or options["as_json"] or options["tty"] or options["tmux"] or not words
    try:
        async with _showing_output(workers.home, started.id, silent=silent) as show:
            async for change in started.changes():
                show()
                print_report(change, as_json=options["as_json"])
    except asyncio.CancelledError:
        click.echo(f"holdfast: ending {started.id}", err=True)
        await asyncio.shield(started.stop())
        raise
    return EXITS.get(started.report.state, 1)


@contextlib.asynccontextmanager
async def _showing_output(home: Path, id: str, *, silent: bool) -> AsyncIterator[Callable[[], None]]:
    """Print a worker's output as it comes; the yielded function prints all present output at once."""
    from holdfast.agents.worker.book import LogReader, output_of

    if silent:
        yield lambda: None
        return
    reader = LogReader(output_of(home, id))

    def show() -> None:
        while data := reader.read(_AT_ONCE):
            show_data(data)

    async def follow() -> None:
        while True:
            show()
            await asyncio.sleep(_LOOK_S)

    following = asyncio.create_task(follow())
    try:
        yield show
    finally:
        following.cancel()
        reader.close()


@worker.command("agents", cls=OneLine)
@json_option
@home_option
def agents_command(home: Path, as_json: bool) -> None:
    """List the agents that can be run, and records that are wrong.

    \b
    Examples:
      holdfast worker agents
      holdfast worker agents --json
    """
    from holdfast.agents.catalog.known import list_agents

    rows = list_agents(home, os.environ.get("PATH", os.defpath))
    if as_json:
        click.echo(json.dumps(rows))
    for row in rows if not as_json else ():
        said = [row["source"], row["program"] or "not installed", row["tried"]]
        what = f"INVALID: {row['invalid']}" if row["invalid"] else "; ".join(part for part in said if part)
        click.echo(printable(f"{row['name']}  {what}"))


@worker.command("list", cls=OneLine)
@click.option("--all", "ended", is_flag=True, help="Include workers that have ended.")
@json_option
@home_option
@with_workers
async def list_command(workers: "Workers", ended: bool, as_json: bool) -> int:
    """List the workers and what each is doing.

    \b
    Examples:
      holdfast worker list
      holdfast worker list --all
    """
    reports = await workers.list(ended=ended)
    if as_json:
        click.echo(to_json(reports))
    for report in reports if not as_json else ():
        print_report(report, as_json=False)
    return 0


@worker.command(cls=OneLine)
@click.option("--until-ended", is_flag=True, help="Stop when every worker has ended.")
@json_option
@home_option
@with_workers
async def watch(workers: "Workers", until_ended: bool, as_json: bool) -> int:
    """Show all workers live, those that need a person first.

    With --json, one line for each change.

    \b
    Example:
      holdfast worker watch
    """
    if as_json:
        for report in await workers.subscribe():
            click.echo(to_json(report))
        async for report in workers.changes():
            click.echo(to_json(report))
        return 0
    from holdfast.commands.worker.watch import watch as show

    await show(workers, until_ended=until_ended)
    return 0


@worker.command(cls=OneLine)
@on_worker
async def status(workers: "Workers", id: str, as_json: bool) -> int:
    """Show what a worker is doing.

    \b
    Examples:
      holdfast worker status codex-1f2e3d
      holdfast worker status codex-1f2e3d --json
    """
    print_report((await workers.find(id)).report, as_json=as_json)
    return 0


@worker.command(cls=OneLine)
@on_worker
async def why(workers: "Workers", id: str, as_json: bool) -> int:
    """Explain the state of a worker: rule and evidence.

    \b
    Example:
      holdfast worker why codex-1f2e3d
    """
    answer = await (await workers.find(id)).why()
    if as_json:
        click.echo(to_json(answer))
    for line in answer.why if not as_json else ():
        click.echo(printable(line))
    return 0


@worker.command(cls=OneLine)
@on_worker
async def equivalence(workers: "Workers", id: str, as_json: bool) -> int:
    """Compare a worker's surroundings with a plain terminal.

    Exit code 0: nothing differs for it; 1: something differs; 2: that cannot be determined.

    \b
    Example:
      holdfast worker equivalence codex-1f2e3d
    """
    from holdfast.agents.worker.equivalence import EXITS, lines

    answer = await (await workers.find(id)).equivalence()
    for line in [to_json(answer)] if as_json else map(printable, lines(answer)):
        click.echo(line)
    return EXITS[answer.host_equivalent]


@worker.command(cls=OneLine)
@click.option(
    "--until",
    type=click.Choice(["ended", "waiting", "blocked"]),
    multiple=True,
    help="Also return when it waits for an answer, or is blocked. Can be repeated.",
)
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", help="Wait no longer than this.")
@on_worker
async def wait(
    workers: "Workers", id: str, until: tuple[str, ...], timeout_s: float | None, as_json: bool
) -> int:
    """Wait until a worker has ended, or needs a person.

    Exit code 0: it has ended as asked, or is in a state given by --until; 1: it did not succeed, or the
    timeout was over.

    \b
    Examples:
      holdfast worker wait codex-1f2e3d
      holdfast worker wait codex-1f2e3d --until waiting --until blocked
    """
    from holdfast.agents.sdk import WaitFor

    found = await workers.find(id)
    try:
        report = await found.wait([WaitFor(one) for one in until or ("ended",)], timeout_s=timeout_s)
    except TimeoutError:
        print_report(await found.status(), as_json=as_json)
        return 1
    print_report(report, as_json=as_json)
    return EXITS.get(report.state, 1) if report.state.ended else 0


@worker.command(cls=OneLine)
@click.argument("id")
@click.option(
    "--bytes",
    "max_bytes",
    type=click.IntRange(1),
    default=64 * 1024,
    show_default=True,
    help="Print at most this many bytes.",
)
@click.option("--raw", is_flag=True, help="Print escape sequences unchanged, even to a terminal.")
@home_option
@with_workers
async def logs(workers: "Workers", id: str, max_bytes: int, raw: bool) -> int:
    """Print the end of a worker's output.

    On a terminal, control sequences (colours, titles, the clipboard) are shown escaped.

    \b
    Example:
      holdfast worker logs codex-1f2e3d
    """
    show_data(await (await workers.find(id)).logs(max_bytes), raw=raw)
    return 0


@worker.command(cls=OneLine)
@click.argument("id")
@click.argument("text", required=False)
@click.option("--key", "keys", multiple=True, metavar="NAME", help="Press this key: enter, escape, ctrl-c …")
@json_option
@home_option
@with_workers
async def send(workers: "Workers", id: str, text: str | None, keys: tuple[str, ...], as_json: bool) -> int:
    """Type TEXT into a worker's terminal and submit it.

    The worker must wait for input.

    \b
    Example:
      holdfast worker send codex-1f2e3d "yes"
    """
    outcome = await (await workers.find(id)).send(text or "", keys)
    click.echo(json.dumps({"schemaVersion": 1, "id": id, "outcome": outcome}) if as_json else outcome)
    return 0 if outcome in ("submitted", "pressed") else 1


@worker.command(cls=OneLine)
@click.argument("id")
@click.option("--option", metavar="OPTION", help="The id of the answer [default: allow or deny this once].")
@click.option("--deny", is_flag=True, help="Deny the request.")
@click.option("--request", metavar="REQUEST", help="Answer only if this is still the open request.")
@json_option
@home_option
@with_workers
async def approve(
    workers: "Workers", id: str, option: str | None, deny: bool, request: str | None, as_json: bool
) -> int:
    """Allow or deny what a worker asks for.

    `worker status --json` shows the question and its options.

    \b
    Examples:
      holdfast worker approve codex-1f2e3d
      holdfast worker approve codex-1f2e3d --deny
    """
    found = await workers.find(id)
    given = await (found.deny if deny else found.approve)(option, request=request)
    words = f"{'denied' if given.denied else 'allowed'}: {printable(given.question)}"
    click.echo(to_json(given) if as_json else words)
    return 0


@worker.command(cls=OneLine)
@click.argument("id")
@home_option
def attach(home: Path, id: str) -> None:
    """Attach to the terminal of a worker; Ctrl-\\ detaches.

    \b
    Example:
      holdfast worker attach codex-1f2e3d
    """
    from holdfast.agents.attaching import attach as look
    from holdfast.agents.sdk import Workers
    from holdfast.local.relay import on_terminal

    async def run() -> "WorkerReport":
        whole = id
        if on_terminal():  # without a terminal, do not start a supervisor just for this
            async with Workers.connect(home) as workers:
                whole = await complete_worker(workers, id)
        return await look(home, whole)

    print_report(asyncio.run(run()), as_json=False)


@worker.command(hidden=True)
@click.option(
    "--idle",
    "idle_s",
    type=float,
    default=600.0,
    metavar="SECONDS",
    help="Exit after this time without workers and clients.",
)
@home_option
def supervise(home: Path, idle_s: float) -> None:
    """Run the supervisor of a home in the foreground.

    `worker run` starts one in the background when it needs one.

    \b
    Example:
      holdfast worker supervise
    """
    from holdfast import log
    from holdfast.agents.supervisor.background import ALREADY
    from holdfast.agents.supervisor.service import serve

    log.set_up(style="text", level=os.environ.get("HOLDFAST_LOG_LEVEL", "warning"))
    try:
        mine = asyncio.run(serve(home, idle_s=idle_s))
    except HoldfastError as exc:
        fail(exc)
    sys.exit(0 if mine else ALREADY)
