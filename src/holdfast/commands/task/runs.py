"""`holdfast task`: the runs of a task, and their files. Parse, call, print.

For a finished run the board has the files that the dispatcher stored. A run that is still active here is
queried at the supervisor of this home, which is not started for that.
"""

from typing import TYPE_CHECKING, Any, Final

import click

from holdfast import decoding
from holdfast.commands.output import Answer, AnswerCommand
from holdfast.commands.store import current_home, run_line, run_said, used_words, with_store
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Run
    from holdfast.board.store import Store

DIFF: Final = "diff.patch"
OUTPUT: Final = "output"
END: Final = "end.json"
MAX_LIVE: Final = 1 << 20  # bytes at the end of a live worker's output
# Members of a worker's report about its confinement and its denials.
POLICY: Final = (
    *("backend", "weakened", "network", "hosts", "deniedHosts", "commandHosts", "byName", "cwd"),
    *("writable", "environment", "denials", "unwatched", "ownSandbox"),
)
WORDS: Final = {"cwd": "writable", "writable": "also writable"}  # for people


_run_option = click.option("--run", metavar="RUN", help="The run [default: the newest].")


@click.command(cls=AnswerCommand)
@click.argument("id")
@with_store()
def runs(store: "Store", id: str) -> Answer:
    """List the runs of a task.

    \b
    Example:
      holdfast task runs 1f2e
    """
    from holdfast.board.rules.budget import of_run, to_json

    found = store.runs(id)
    return {
        "runs": found,
        "used": {run.id: to_json(of_run(run)) for run in found},
        "text": [run_line(run) for run in found],
        "table": (
            ("run", "no", "outcome", "profile", "host", "used", "said"),
            [
                (
                    *(run.id, str(run.generation), run.ending, run.profile, run.host),
                    used_words(run),
                    run_said(run),
                )
                for run in found
            ],
        ),
    }


@click.command(cls=AnswerCommand)
@click.argument("id")
@_run_option
@with_store()
def log(store: "Store", id: str, run: str | None) -> Answer:
    """Print the output of a run.

    For a run that is still active here, it prints the end of its worker's log.

    \b
    Example:
      holdfast task log 1f2e
    """
    import asyncio

    from holdfast.dispatch import runview

    chosen = runview.choose_run(store, id, run)
    if (kept := runview.read_kept(store, chosen, OUTPUT)) is not None:
        return {"run": chosen.id, "live": False, "data": kept}
    said = asyncio.run(runview.live_output(current_home(), chosen, MAX_LIVE))
    if said is None:
        raise _not_kept(chosen, "output")
    return {"run": chosen.id, "live": True, "data": said}


@click.command(cls=AnswerCommand)
@click.argument("id")
@_run_option
@with_store()
def diff(store: "Store", id: str, run: str | None) -> Answer:
    """Print what a run changed in its workspace.

    \b
    Examples:
      holdfast task diff 1f2e
      holdfast task diff 1f2e | git apply
    """
    from holdfast.dispatch import runview

    chosen = runview.choose_run(store, id, run)
    if (kept := runview.read_kept(store, chosen, DIFF)) is None:
        raise _not_kept(chosen, "diff")
    return {"run": chosen.id, "data": kept}


@click.command(cls=AnswerCommand)
@click.argument("id")
@_run_option
@with_store()
def policy(store: "Store", id: str, run: str | None) -> Answer:
    """Show the sandbox of a run, and what it denied.

    \b
    Example:
      holdfast task policy 1f2e
    """
    import asyncio

    import msgspec

    from holdfast.dispatch import runview

    chosen = runview.choose_run(store, id, run)
    end = runview.read_kept(store, chosen, END)
    live = end is None
    live_report = asyncio.run(runview.live_report(current_home(), chosen)) if end is None else None
    report = msgspec.to_builtins(live_report) if end is None else _read_ended(end)
    if report is None:
        raise _not_kept(chosen, "record of its worker")
    told = {name: report[name] for name in POLICY if name in report}
    text = [f"{chosen.id} {'is' if live else 'was'} confined by {told.get('backend') or 'nothing'}"]
    text += [
        f"  {WORDS.get(name, name)}: {_words(value)}" for name, value in told.items() if name != "backend"
    ]
    return {"run": chosen.id, "live": live, "policy": told, "text": text}


@click.command("file", cls=AnswerCommand)
@click.argument("id")
@click.argument("name", required=False)
@click.option("--run", metavar="RUN", help="Print what is kept of this run instead.")
@with_store()
def file(store: "Store", id: str, name: str | None, run: str | None) -> Answer:
    """Print an attachment of a task, or list them.

    \b
    Examples:
      holdfast task file 1f2e
      holdfast task file 1f2e design.png > design.png
    """
    if name is not None:
        return {"name": name, "data": store.file(store.task(id).id, run, name)}
    from holdfast.dispatch import runview

    found = store.attachments(id) if run is None else store.kept_files(runview.choose_run(store, id, run).id)
    return {
        "files": found,
        "text": [f"{each.name}  {each.size} bytes  by {each.author}" for each in found],
        "table": (("file", "bytes", "by"), [(each.name, str(each.size), each.author) for each in found]),
    }


def _not_kept(run: "Run", what: str) -> NotFound:
    if run.outcome is not None:
        return NotFound(f"no {what} is kept of {run.id}, which is {run.outcome}")
    where = f" in {run.workspace}" if run.workspace else ""
    return NotFound(f"no {what} is kept of {run.id} yet: it runs on {run.host or 'an unnamed host'}{where}")


def _read_ended(data: bytes) -> dict[str, Any] | None:
    """The worker's report that the dispatcher stored at the end of a run."""
    import msgspec

    try:
        worker = decoding.decode(data, dict[str, object]).get("worker")
    except msgspec.MsgspecError:
        return None
    return worker if isinstance(worker, dict) else None


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        words = (f"{one['access']} {one['path']}" if isinstance(one, dict) else str(one) for one in value)
        return ", ".join(words) or "none"
    return "-" if value is None else str(value)


COMMANDS: Final = (runs, log, diff, policy, file)
