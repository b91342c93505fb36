"""`holdfast task`: what changes a task. Parse, call, print."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from holdfast.commands.boarding import Verb, me, with_store
from holdfast.commands.boardname import board_option
from holdfast.commands.budgets import Bound, cost_option, tokens_option, wishes
from holdfast.commands.duration import duration
from holdfast.commands.task_lines import answer
from holdfast.errors import NotFound, OperationFailed, UsageError

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Edit
    from holdfast.board.store import Store

# As in board/transitions.py, which is not imported before it is needed; a test compares.
MOVES: Final = (
    *("archive", "block", "cancel", "complete", "request_changes", "rethink", "retry", "schedule", "specify"),
    "unblock",
)


class Place(NamedTuple):
    """Where a task is worked on."""

    kind: str
    path: str


def _place(text: str) -> Place:
    """The type of an option: scratch, dir:PATH or worktree:PATH."""
    kind, _, path = text.partition(":")
    if kind not in ("scratch", "dir", "worktree") or (kind == "scratch") == bool(path):
        raise click.BadParameter(f"{text!r} is not scratch, dir:PATH or worktree:PATH")
    return Place(kind, os.path.abspath(path) if path else "")


in_option = click.option(
    "--in", "in_s", type=duration, metavar="DURATION", help="Not before then: 90s, 30m, 7d."
)
reason_option = click.option("--reason", default="", help="Why, for whoever reads the task later.")
pool_option = click.option(
    "--pool", metavar="NAME", help="What its runs use up besides; `board cap --pool` bounds it."
)
_workspace_option = click.option(
    "--workspace",
    "place",
    type=_place,
    metavar="WHERE",
    help="Where it is worked on: scratch, dir:PATH, or worktree:PATH of a git repository.",
)


@click.command(cls=Verb)
@click.argument("title")
@board_option
@click.option("--body", default="", help="What is to be done.")
@click.option("--assignee", default="", metavar="PROFILE", help="Whose workers run it.")
@click.option("--parent", "parents", multiple=True, metavar="ID", help="A task to wait for. Can be repeated.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher comes first.")
@click.option("--max-attempts", type=int, default=3, show_default=True, help="Runs of any kind, at most.")
@click.option(
    "--max-runtime", "runtime_s", type=duration, metavar="DURATION", help="Of one run: 90s, 30m, 7d."
)
@tokens_option
@cost_option
@_workspace_option
@pool_option
@click.option("--reviewer", default="", metavar="NAME", help="Who is asked to look at it.")
@click.option(
    "--check",
    "checks",
    multiple=True,
    metavar="COMMAND",
    help="Must succeed in its workspace before it is done. Can be repeated.",
)
@click.option("--triage", is_flag=True, help="Somebody must say first what is to be done.")
@click.option(
    "--key", metavar="KEY", help="Made once for this key; asked again, the first answer is repeated."
)
@in_option
@with_store()
def create(
    store: "Store",
    title: str,
    board: str,
    body: str,
    assignee: str,
    parents: tuple[str, ...],
    priority: int,
    max_attempts: int,
    runtime_s: float | None,
    max_tokens: Bound | None,
    max_cost: Bound | None,
    place: Place | None,
    pool: str | None,
    reviewer: str,
    checks: tuple[str, ...],
    triage: bool,
    key: str | None,
    in_s: float | None,
) -> dict[str, object]:
    """Make a task."""
    from holdfast.board.rules.rows import NewTask, WorkspaceKind

    where = place or Place("scratch", "")
    new = NewTask(
        title=title,
        body=body,
        assignee=assignee,
        parents=parents,
        priority=priority,
        max_attempts=max_attempts,
        triage=triage,
        wake_ms=_when(store, in_s),
        workspace_kind=WorkspaceKind(where.kind),
        workspace=where.path,
        max_runtime_s=None if runtime_s is None else round(runtime_s),
        pool=pool or "",
        **wishes(max_tokens, max_cost),
        reviewer=reviewer,
        checks=checks,
    )
    return answer(store.create(board, new, who=me(), key=key))


@click.command(cls=Verb)
@click.argument("parent")
@click.argument("child")
@click.option("--remove", is_flag=True, help="No longer.")
@with_store()
def link(store: "Store", parent: str, child: str, remove: bool) -> dict[str, object]:
    """Let CHILD wait for PARENT."""
    return answer((store.unlink if remove else store.link)(parent, child, who=me()))


@click.command(cls=Verb)
@click.argument("id")
@click.argument("text")
@with_store()
def comment(store: "Store", id: str, text: str) -> dict[str, object]:
    """Add a comment."""
    made = store.comment(id, text, who=me())
    return {"comment": made, "text": [f"comment {made.number} on {id}"]}


@click.command(cls=Verb)
@click.argument("id")
@click.argument("text")
@with_store()
def tell(store: "Store", id: str, text: str) -> dict[str, object]:
    """Say something to the worker that runs a task; `task show` says whether it has seen it."""
    made = store.tell(id, text, who=me())
    return {"message": made, "text": [f"message {made.number} to {made.run_id}"]}


@click.command(cls=Verb)
@click.argument("id")
@click.argument("move", type=click.Choice(MOVES), metavar="MOVE")
@reason_option
@in_option
@with_store()
def move(store: "Store", id: str, move: str, reason: str, in_s: float | None) -> dict[str, object]:
    """Move a task.

    MOVE is archive, block, cancel, complete, request_changes, rethink (back to triage), retry, schedule (with
    --in), specify (out of triage) or unblock.
    """
    return _moved(store, id, move, reason=reason, wake_ms=_when(store, in_s))


@click.command(cls=Verb)
@click.argument("id")
@click.argument("question")
@click.option(
    "--option", "options", multiple=True, metavar="TEXT", help="A possible answer. Can be repeated."
)
@click.option("--for", "waiting_for", default="", metavar="NAME", help="Who is asked.")
@with_store()
def block(
    store: "Store", id: str, question: str, options: tuple[str, ...], waiting_for: str
) -> dict[str, object]:
    """Stop a task until a person acts; a run that holds it is over."""
    return _moved(store, id, "block", question=question, options=options, waiting_for=waiting_for)


@click.command(cls=Verb)
@click.argument("id")
@reason_option
@with_store()
def unblock(store: "Store", id: str, reason: str) -> dict[str, object]:
    """Let a task go on that waits for a person or for the clock."""
    return _moved(store, id, "unblock", reason=reason)


@click.command(cls=Verb)
@click.argument("id")
@click.option("--result", help="What came out of it.")
@with_store()
def complete(store: "Store", id: str, result: str | None) -> dict[str, object]:
    """Say that a task is done; also accepts a review, or work whose report is missing."""
    return _moved(store, id, "complete", result=result)


@click.command(cls=Verb)
@click.argument("id")
@reason_option
@with_store()
def cancel(store: "Store", id: str, reason: str) -> dict[str, object]:
    """Give a task up for good."""
    return _moved(store, id, "cancel", reason=reason)


@click.command(cls=Verb)
@click.argument("id")
@click.option("--title")
@click.option("--body", help="What is to be done.")
@click.option("--priority", type=int, help="Higher comes first.")
@click.option("--max-attempts", type=int, help="Runs of any kind, at most.")
@click.option("--max-runtime", "runtime", metavar="DURATION", help="Of one run, or `none`.")
@tokens_option
@cost_option
@click.option("--reviewer", metavar="NAME", help="Who is asked to look at it.")
@click.option(
    "--check", "checks", multiple=True, metavar="COMMAND", help="These instead of its checks; '' is none."
)
@_workspace_option
@pool_option
@with_store()
def edit(
    store: "Store",
    id: str,
    title: str | None,
    body: str | None,
    priority: int | None,
    max_attempts: int | None,
    runtime: str | None,
    max_tokens: Bound | None,
    max_cost: Bound | None,
    reviewer: str | None,
    checks: tuple[str, ...],
    place: Place | None,
    pool: str | None,
) -> dict[str, object]:
    """Change what a task says; where it stands stays."""
    given: dict[str, object] = {
        "title": title,
        "body": body,
        "priority": priority,
        "max_attempts": max_attempts,
        "pool": pool,
        "reviewer": reviewer,
        "checks": tuple(check for check in checks if check) if checks else None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if runtime is not None:
        given["max_runtime_s"] = _bound(runtime)
    return answer(store.edit(id, _edit(given | wishes(max_tokens, max_cost), place), who=me()))


@click.command(cls=Verb)
@click.argument("id")
@click.argument("profile")
@with_store()
def assign(store: "Store", id: str, profile: str) -> dict[str, object]:
    """Let the workers of PROFILE run a task that is not running."""
    return answer(store.assign(id, profile, who=me()))


@click.command(cls=Verb)
@click.argument("id")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--name", help="What it is called on the board [default: as the file].")
@with_store()
def attach(store: "Store", id: str, file: Path, name: str | None) -> dict[str, object]:
    """Attach FILE to a task, for whoever works on it. `task file` prints it again."""
    from holdfast.board.rules.rows import MAX_FILE

    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except OSError as exc:
        raise OperationFailed(f"cannot read {file}: {exc.strerror}") from None
    made = store.attach(id, name or file.name, data, who=me())
    return {"file": made, "text": [f"{made.name}: {made.size} bytes on {id}"]}


@click.command(cls=Verb)
@click.argument("id")
@click.option(
    "--report-only", is_flag=True, help="The work is there: only ask for its report, where that is missing."
)
@reason_option
@with_store()
def retry(store: "Store", id: str, report_only: bool, reason: str) -> dict[str, object]:
    """Let a task run again that failed, or whose report is missing, with a new budget of attempts."""
    return _moved(store, id, "retry", reason=reason, report_only=report_only)


def _moved(store: "Store", id: str, move: str, **words: object) -> dict[str, object]:
    from holdfast.board.rules.transitions import Move

    return answer(store.move(id, Move(move), who=me(), **words))  # type: ignore[arg-type]  # named by each caller


def _when(store: "Store", in_s: float | None) -> int | None:
    """By the store's clock, whatever the one here says."""
    return None if in_s is None else store.now_ms() + round(in_s * 1000)


def _bound(text: str) -> int | None:
    try:
        return None if text == "none" else round(duration(text))
    except click.BadParameter as exc:
        raise UsageError(exc.format_message()) from None


def _edit(wishes: dict[str, object], place: Place | None) -> "Edit":
    from holdfast.board.rules.rows import Edit, WorkspaceKind

    if place is not None:
        wishes = wishes | {"workspace_kind": WorkspaceKind(place.kind), "workspace": place.path}
    return Edit(**wishes)  # type: ignore[arg-type]  # named by the command's options


COMMANDS: Final = (
    *(create, edit, assign, attach, link, comment, tell, move, block, unblock, complete, cancel, retry),
)
