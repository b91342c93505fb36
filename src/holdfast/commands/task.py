"""`holdfast task`: parse, call, print."""

from typing import TYPE_CHECKING, Final

import click

from holdfast.commands.boarding import Verb, me, with_store
from holdfast.commands.duration import duration

if TYPE_CHECKING:
    from holdfast.board.rows import Run, Task
    from holdfast.board.store import Store

# As in board/transitions.py, which is not imported before it is needed; a test compares.
STATUSES: Final = (
    *("triage", "todo", "scheduled", "ready", "running", "waiting_human", "waiting_system", "review"),
    *("handoff_failed", "done", "failed", "cancelled", "archived"),
)
MOVES: Final = (
    *("archive", "block", "cancel", "complete", "request_changes", "rethink", "retry", "schedule", "specify"),
    "unblock",
)

board_option = click.option("--board", required=True, metavar="NAME", help="Which board.")
in_option = click.option(
    "--in", "in_s", type=duration, metavar="DURATION", help="Not before then: 90s, 30m, 7d."
)
reason_option = click.option("--reason", default="", help="Why, for whoever reads the task later.")


@click.group()
def task() -> None:
    """Tasks on a board: make, find, move and explain them.

    Exit codes: 0 done; 1 refused; 2 usage; 3 not found; 4 conflict; 5 the store is down or damaged.
    """


@task.command(cls=Verb)
@click.argument("title")
@board_option
@click.option("--body", default="", help="What is to be done.")
@click.option("--assignee", default="", metavar="PROFILE", help="Whose workers run it.")
@click.option("--parent", "parents", multiple=True, metavar="ID", help="A task to wait for. Can be repeated.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher comes first.")
@click.option("--max-attempts", type=int, default=3, show_default=True, help="Runs of any kind, at most.")
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
    triage: bool,
    key: str | None,
    in_s: float | None,
) -> dict[str, object]:
    """Make a task."""
    from holdfast.board.rows import NewTask

    new = NewTask(
        title=title,
        body=body,
        assignee=assignee,
        parents=parents,
        priority=priority,
        max_attempts=max_attempts,
        triage=triage,
        wake_ms=_when(store, in_s),
    )
    return _answer(store.create(board, new, who=me(), key=key))


@task.command("list", cls=Verb)
@board_option
@click.option("--status", type=click.Choice(STATUSES), help="Only those.")
@click.option("--assignee", metavar="PROFILE", help="Only theirs.")
@click.option("--search", metavar="TEXT", help="Only with this in the title or body.")
@click.option("--limit", type=int, default=50, show_default=True)
@click.option("--cursor", help="As the page before ends with.")
@with_store()
def list_(
    store: "Store",
    board: str,
    status: str | None,
    assignee: str | None,
    search: str | None,
    limit: int,
    cursor: str | None,
) -> dict[str, object]:
    """Show tasks, the newest first, a page at a time."""
    from holdfast.board.transitions import Status

    page = store.page(
        board,
        status=Status(status) if status else None,
        assignee=assignee,
        search=search,
        limit=limit,
        cursor=cursor,
    )
    text = [_line(each) for each in page.tasks] + ([f"more: --cursor {page.cursor}"] if page.cursor else [])
    return {"tasks": page.tasks, "cursor": page.cursor, "text": text}


@task.command(cls=Verb)
@click.argument("id")
@with_store()
def show(store: "Store", id: str) -> dict[str, object]:
    """Show a task with its links, comments, runs and events."""
    detail = store.show(id)
    text = [_line(detail.task), *detail.task.body.splitlines()]
    text += [f"  result: {line}" for line in (detail.task.result or "").splitlines()]
    text += [f"  waits for {link.parent}{'' if link.open else ' (done)'}" for link in detail.parents]
    text += [f"  before {link.child}" for link in detail.children]
    text += [f"  {comment.author}: {comment.body}" for comment in detail.comments]
    text += [_run_line(run) for run in detail.runs]
    return {"detail": detail, "text": text}


@task.command(cls=Verb)
@click.argument("parent")
@click.argument("child")
@click.option("--remove", is_flag=True, help="No longer.")
@with_store()
def link(store: "Store", parent: str, child: str, remove: bool) -> dict[str, object]:
    """Let CHILD wait for PARENT."""
    return _answer((store.unlink if remove else store.link)(parent, child, who=me()))


@task.command(cls=Verb)
@click.argument("id")
@click.argument("text")
@with_store()
def comment(store: "Store", id: str, text: str) -> dict[str, object]:
    """Add a comment."""
    made = store.comment(id, text, who=me())
    return {"comment": made, "text": [f"comment {made.number} on {id}"]}


@task.command(cls=Verb)
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


@task.command(cls=Verb)
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


@task.command(cls=Verb)
@click.argument("id")
@reason_option
@with_store()
def unblock(store: "Store", id: str, reason: str) -> dict[str, object]:
    """Let a task go on that waits for a person or for the clock."""
    return _moved(store, id, "unblock", reason=reason)


@task.command(cls=Verb)
@click.argument("id")
@click.option("--result", help="What came out of it.")
@with_store()
def complete(store: "Store", id: str, result: str | None) -> dict[str, object]:
    """Say that a task is done; also accepts a review, or work whose report is missing."""
    return _moved(store, id, "complete", result=result)


@task.command(cls=Verb)
@click.argument("id")
@reason_option
@with_store()
def cancel(store: "Store", id: str, reason: str) -> dict[str, object]:
    """Give a task up for good."""
    return _moved(store, id, "cancel", reason=reason)


@task.command(cls=Verb)
@click.argument("id")
@with_store()
def why(store: "Store", id: str) -> dict[str, object]:
    """Say why a task is not running."""
    reason = store.why(id)
    return {"why": reason, "text": [f"{reason.task} {reason.status}: {reason.reason}"]}


@task.command(cls=Verb)
@click.argument("id")
@with_store()
def runs(store: "Store", id: str) -> dict[str, object]:
    """Show the attempts at a task."""
    found = store.runs(id)
    return {"runs": found, "text": [_run_line(run) for run in found]}


def _moved(store: "Store", id: str, move: str, **words: object) -> dict[str, object]:
    from holdfast.board.transitions import Move

    return _answer(store.move(id, Move(move), who=me(), **words))  # type: ignore[arg-type]  # named by each caller


def _when(store: "Store", in_s: float | None) -> int | None:
    """By the store's clock, whatever the one here says."""
    return None if in_s is None else store.now_ms() + round(in_s * 1000)


def _answer(task: "Task") -> dict[str, object]:
    return {"task": task, "text": [_line(task)]}


def _line(task: "Task") -> str:
    return f"{task.id}  {task.status:<15} {task.priority:>4}  {task.assignee or '-':<12} {task.title}"


def _run_line(run: "Run") -> str:
    said = run.error or run.summary or run.note
    return f"  run {run.generation} {run.id}  {run.outcome or 'running':<16} {said}"
