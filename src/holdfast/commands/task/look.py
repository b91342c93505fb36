"""`holdfast task`: show tasks, once or following their changes. Parse, call, print."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.commands.output import Answer, AnswerCommand
from holdfast.commands.store import (
    board_option,
    budget_lines,
    check_reader,
    event_line,
    host_lines,
    network_lines,
    run_line,
    task_line,
    with_store,
)

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Comment, Detail, Run, Task, TaskEvent
    from holdfast.board.store import Store

# Same as in board/transitions.py, which is imported only when needed; a test compares them.
STATUSES: Final = (
    *("triage", "todo", "scheduled", "ready", "running", "waiting_human", "waiting_system", "review"),
    *("handoff_failed", "done", "failed", "cancelled", "archived"),
)
STOPPED: Final = ("waiting_human", "review", "handoff_failed", "done", "failed", "cancelled", "archived")
LOOK_S: Final = 1.0  # polling interval, in case a notification of a change is missed


@click.command("list", cls=AnswerCommand)
@board_option
@click.option("--status", type=click.Choice(STATUSES), help="Show only tasks with this status.")
@click.option("--assignee", metavar="PROFILE", help="Show only tasks of this profile.")
@click.option("--search", metavar="TEXT", help="Show only tasks with this in title or body.")
@click.option("--limit", type=int, default=50, show_default=True, help="How many tasks to show.")
@click.option("--cursor", help="Start at the cursor that the previous page printed.")
@click.option("--follow", is_flag=True, help="Keep printing the board's events, until interrupted.")
@with_store()
def list_(store: "Store", /, board: str, status: str | None, follow: bool, **wished: Any) -> Iterator[Answer]:
    """List tasks, the newest first, with the reason why they wait.

    \b
    Examples:
      holdfast task list --board crew
      holdfast task list --status failed
      holdfast task list --follow
    """
    from holdfast.board.rules.transitions import TaskStatus

    after = store.stats(board).board.last_seq if follow else 0
    page = store.page(board, status=TaskStatus(status) if status else None, **wished)
    waiting = [task for task in page.tasks if task.ended_ms is None and task.run_id is None]
    reasons = store.reasons(board, waiting) if waiting else {}
    stuck = store.stuck_tasks(board) if any(task.run_id for task in page.tasks) else {}
    reasons |= {task.id: f"looks stuck: {stuck[task.id]}" for task in page.tasks if task.id in stuck}
    reasons |= _describe_asking(store, board, page.tasks)
    yield {
        "tasks": page.tasks,
        "reasons": reasons,
        "cursor": page.cursor,
        "text": [task_line(each) for each in page.tasks],
        "table": (
            ("task", "status", "prio", "profile", "title", "why"),
            [
                (
                    each.id,
                    each.status,
                    str(each.priority),
                    each.assignee,
                    each.title,
                    reasons.get(each.id, ""),
                )
                for each in page.tasks
            ],
        ),
        "after": [f"more: --cursor {page.cursor}"] if page.cursor else [],
    }
    if follow:
        for event in follow_events(store, board, after):
            yield {"event": event, "text": [event_line(event)]}


@click.command(cls=AnswerCommand)
@click.argument("id")
@click.option("--follow", is_flag=True, help="Keep printing its events, until it has ended.")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until it has ended or needs a person; exit code 0 only if it is done.",
)
@with_store()
def show(store: "Store", id: str, follow: bool, wait: bool) -> Iterator[Answer]:
    """Show everything about a task.

    Links, comments, messages, files, runs and events.

    \b
    Examples:
      holdfast task show 1f2e
      holdfast task show 1f2e --wait
    """
    from holdfast.board.rules.transitions import ENDS, TaskStatus

    board = store.task(id).board
    after = store.stats(board).board.last_seq
    if wait and not _is_stopped(store.task(id)):
        for event in follow_events(store, board, after):
            if event.task_id == id and _is_stopped(store.task(id)):
                break
    detail = store.show(id)
    yield _describe(detail) | {"exit": int(wait and detail.task.status is not TaskStatus.DONE)}
    if not follow or detail.task.status in ENDS:
        return
    for event in follow_events(store, board, after):
        if event.task_id == id:
            yield {"event": event, "text": [event_line(event)]}
            if event.payload.get("to") in ENDS:  # not its present status: there may be events before that one
                return


@click.command(cls=AnswerCommand)
@click.argument("id")
@with_store()
def why(store: "Store", id: str) -> Answer:
    """Explain why a task is not running, or looks stuck.

    \b
    Example:
      holdfast task why 1f2e
    """
    reason = store.why(id)
    return {"why": reason, "text": [f"{reason.task} {reason.status}: {reason.reason}"]}


def _describe_asking(store: "Store", board: str, tasks: "list[Task]") -> dict[str, str]:
    """The open questions of these tasks' workers."""
    if not any(task.run_id for task in tasks):
        return {}
    from holdfast.board.rules.rows import describe_asked

    asked = store.asking_tasks(board)
    return {
        task.id: f"waits for an answer: {describe_asked(asked[task.id])}"
        for task in tasks
        if task.id in asked
    }


def _is_stopped(task: "Task") -> bool:
    """Whether a task waits for a person; a review with running checks does not yet."""
    return task.status in STOPPED and not (task.status == "review" and task.waiting_for)


def _describe(detail: "Detail") -> Answer:
    from holdfast.board.verbs.messages import state, to_json

    task = detail.task
    text = [task_line(task), *task.body.splitlines()]
    if task.workspace:
        text.append(f"  in {task.workspace_kind} {task.workspace}")
    text += [f"  on environment {task.environment}"] if task.environment else []
    text += [f"  pool {task.pool}"] if task.pool else []
    text += [f"  result: {line}" for line in (task.result or "").splitlines()]
    text += budget_lines(task, detail.runs)
    text += [f"  asks {task.waiting_for or 'a person'}: {task.question}"] if task.question else []
    text += [f"    - {option}" for option in task.options]
    text += [line for question in detail.questions for line in host_lines(question)]
    text += [f"  waits for {link.parent}{'' if link.open else ' (done)'}" for link in detail.parents]
    text += [f"  before {link.child}" for link in detail.children]
    text += [f"  check: {check}" for check in task.checks]
    text += (
        [f"  in review by {task.reviewer or 'a person'}: {task.reason}"] if task.status == "review" else []
    )
    text += [f"  {_about(comment)}: {comment.body}" for comment in detail.comments]
    text += [
        f"  message {each.number} by {each.author} ({state(each)}): {each.body}" for each in detail.messages
    ]
    text += [f"  file {file.name}  {file.size} bytes  by {file.author}" for file in detail.files]
    for run in detail.runs:
        text += [run_line(run), *describe_return(run)]
    text += [
        f"  run {event.run_id} says what is not so: {name} {', '.join(map(str, names))}"
        for event in detail.events
        if event.kind == "claims_unverified"
        for name, names in event.payload.items()
        if isinstance(names, list) and names
    ]
    text += [
        f"  run {event.run_id} {line}"
        for event in detail.events
        if event.kind == "run_network"
        for line in network_lines(event)
    ]
    return {"detail": to_json(detail), "text": text}


def describe_return(run: "Run") -> list[str]:
    """Work on another machine that is not in the workspace; escaped, because a worker may have written it."""
    from holdfast.local.shown import show_text

    problem, left_out = run.metadata.get("unreturned"), run.metadata.get("left_out")
    lines = [f"    its work is not here: {problem}"] if isinstance(problem, str) and problem else []
    if isinstance(left_out, list) and left_out:
        lines.append(f"    not brought here: {', '.join(map(str, left_out))}")
    return [show_text(line) for line in lines]


def _about(comment: "Comment") -> str:
    return f"{comment.author} on {comment.path}:{comment.line}" if comment.path else comment.author


def follow_events(store: "Store", board: str, after: int) -> Iterator["TaskEvent"]:
    """Every event of a board from here on, once and in order, from its log."""
    while True:
        events = store.events(board, after=after)
        yield from events
        after = events[-1].seq if events else after
        if not events:
            check_reader()
            store.changed(LOOK_S)


COMMANDS: Final = (list_, show, why)
