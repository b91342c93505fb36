"""`holdfast task`: show what waits for a person, and review work. Parse, call, print."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.commands.output import Answer, AnswerCommand
from holdfast.commands.store import answer, board_option, current_home, user_name, with_store
from holdfast.commands.task.look import follow_events
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Task
    from holdfast.board.store import Store
    from holdfast.board.verbs.inbox import Waiting
    from holdfast.board.verbs.reviews import Remark


@click.command(cls=AnswerCommand)
@click.argument("id")
@click.option("--approve", is_flag=True, help="Accept the work: the task is done.")
@click.option("--changes", default="", metavar="TEXT", help="Ask for this change in the next run.")
@click.option(
    "--at",
    "remarks",
    multiple=True,
    type=(str, str),
    metavar="PATH:LINE TEXT",
    help="Ask for a change at this line of the workspace. Can be repeated.",
)
@click.option("--as", "name", metavar="NAME", help="Your name [default: your user name].")
@click.option(
    "--anyway", is_flag=True, help="Decide even if another person is asked, or checks have not run."
)
@with_store()
def review(
    store: "Store", /, id: str, remarks: tuple[tuple[str, str], ...], name: str | None, **given: Any
) -> Answer:
    """Approve the work of a task, or ask for changes.

    Changes are made in the same workspace.

    \b
    Examples:
      holdfast task review 1f2e --approve
      holdfast task review 1f2e --changes "handle empty input"
    """
    from holdfast.board.verbs.reviews import Review

    said = tuple(_remark(place, text) for place, text in remarks)
    after = store.review(id, Review(remarks=said, **given), who=name or user_name())
    return answer(after, _how_to_take(after) if given["approve"] else ())


def _how_to_take(task: "Task") -> list[str]:
    """The place of a worktree's approved work, and the two commands that merge it."""
    from holdfast.board.rules.rows import WorkspaceKind
    from holdfast.board.rules.transitions import TaskStatus

    if task.workspace_kind is not WorkspaceKind.WORKTREE or task.status is not TaskStatus.DONE:
        return []
    folder, branch = current_home() / "board" / task.id, f"holdfast/{task.id}"
    there, title = shlex.quote(str(folder)), shlex.quote(task.title)
    return [
        f"  its work is on the branch {branch}, in {folder}; to take it:",
        f"  $ git -C {there} add -A -- . ':!.holdfast' && git -C {there} commit -m {title}",
        f"  $ git -C {shlex.quote(task.workspace)} merge {branch}",
    ]


@click.command(cls=AnswerCommand)
@board_option
@click.option("--for", "name", default="", metavar="NAME", help="Show only what NAME, or anybody, is asked.")
@click.option(
    "--limit", type=int, default=100, show_default=True, help="How many tasks of each status to show."
)
@click.option("--follow", is_flag=True, help="Keep printing what begins to wait, until interrupted.")
@with_store()
def inbox(store: "Store", board: str, name: str, limit: int, follow: bool) -> Iterator[Answer]:
    """Show what waits for a person, and what to type.

    Questions, hosts that a worker waits for, reviews, missing reports and failures. What has waited longest
    comes first.

    \b
    Examples:
      holdfast task inbox
      holdfast task inbox --board crew
    """
    from holdfast.board.verbs import inbox as waiting

    after = store.stats(board).board.last_seq if follow else 0
    found = store.inbox(board, name=name, limit=limit)
    yield {
        "waiting": found.waiting,
        "more": found.more,
        "text": [line for one in found.waiting for line in _lines(one)],
        "table": (
            ("task", "status", "since", "who", "seen", "what", "next"),
            [
                (
                    *(one.task, one.status, _since(one), one.who or "anybody"),
                    *("yes" if one.acknowledged_ms else "", one.question or one.title, one.next[0]),
                )
                for one in found.waiting
            ],
        ),
        "after": [f"more: holdfast task list --board {board} --status {status}" for status in found.more],
    }
    for event in follow_events(store, board, after) if follow else ():
        if event.task_id is None or not waiting.may_begin(event):
            continue
        one = store.waiting(event.task_id)
        if one is not None and one.who in ("", name or one.who):
            yield {"begins": one, "text": _lines(one)}


@click.command(cls=AnswerCommand)
@click.argument("id")
@with_store()
def ack(store: "Store", id: str) -> Answer:
    """Stop reminders about a task that waits for a person.

    They begin again when the task moves.

    \b
    Example:
      holdfast task ack 1f2e
    """
    return answer(store.acknowledge(id, who=user_name()))


def _remark(place: str, text: str) -> "Remark":
    from holdfast.board.verbs.reviews import Remark

    path, _, line = place.rpartition(":")
    if not (line.isascii() and line.isdecimal()):
        raise UsageError(f"`{place}` is not PATH:LINE")
    return Remark(path, int(line), text)


def _lines(one: "Waiting") -> list[str]:
    seen = " (acknowledged)" if one.acknowledged_ms else ""
    head = f"{one.task}  {one.status:<15} since {_since(one)}  {one.who or 'anybody'}  {one.title}{seen}"
    said = [f"  {one.question}"] if one.question else []
    return [
        head,
        *said,
        *(f"    - {option}" for option in one.options),
        *(f"  $ {words}" for words in one.next),
    ]


def _since(one: "Waiting") -> str:
    from holdfast.board.rules.assign import clock

    return clock(one.since_ms)


COMMANDS: Final = (review, inbox, ack)
