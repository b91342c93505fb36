"""The cards of tasks in a column, and the filter for them. Pure module."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.board.rules.rows import Run, Task
from holdfast.board.rules.transitions import TaskStatus
from holdfast.errors import UsageError
from holdfast.local.shown import cut_words

MAX_LINE: Final = 240  # characters of the line below a card's title: a page of cards stays below 100 KiB
MAX_CARDS: Final = 100  # of one answer; a page that is scrolled further asks again
MAX_SEARCH: Final = 200  # characters: each is compared with every task of a column


class TaskCard(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str
    assignee: str
    status: TaskStatus
    priority: int
    created_ms: int
    status_ms: int
    attempts: int
    max_attempts: int
    open_parents: int
    waiting_for: str
    version: int
    line: str  # its question, its result, its worker's note, or why it waits
    beat_ms: int | None = None  # the last heartbeat of its worker
    place: str = ""  # where it runs, or is to run: an environment, or the host


class CardFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of a column."""

    status: TaskStatus | None = None
    assignee: str | None = None
    search: str | None = None
    mine: bool = False  # only tasks that ask this person, or no person in particular
    limit: int = 50
    cursor: str | None = None


def parse_filter(query: Mapping[str, str]) -> CardFilter:
    """Decode a query as a filter; empty values count as missing.

    Raises:
        UsageError: a value makes no sense.
    """
    given = {name: value for name, value in query.items() if value and name in CardFilter.__struct_fields__}
    try:
        asked = decoding.convert(given, CardFilter, strict=False)
    except msgspec.ValidationError as exc:
        raise UsageError(f"the query makes no sense: {exc}") from None
    if not 0 < asked.limit <= MAX_CARDS:
        raise UsageError(f"a page has 1 to {MAX_CARDS} cards")
    if len(asked.search or "") > MAX_SEARCH:
        raise UsageError(f"a search has at most {MAX_SEARCH} characters")
    return asked


def matches(task: Task, asked: CardFilter, who: str) -> bool:
    """Whether the task passes the filter. Text is compared as the store does it."""
    if asked.status is not None and task.status is not asked.status:
        return False
    if asked.assignee is not None and task.assignee != asked.assignee:
        return False
    reviewer = task.reviewer if task.status is TaskStatus.REVIEW else ""
    if asked.mine and not {task.waiting_for, reviewer} <= {"", who}:
        return False
    text = _fold(asked.search or "")
    return text in _fold(task.title) or text in _fold(task.body)


def card(task: Task, why: str, run: Run | None, error: str = "", asked: str = "") -> TaskCard:
    """The card of a task.

    `run` is the run that holds it, `asked` the hosts that this run waits for; `error` is why a failed run
    failed.
    """
    match task.status:
        case TaskStatus.WAITING_HUMAN:
            line = task.question or why
        case TaskStatus.DONE:
            line = task.result or ""
        case TaskStatus.RUNNING if asked:
            line = f"waits for an answer: {asked}"
        case TaskStatus.RUNNING:
            line = "" if run is None else f"looks stuck: {run.stuck}" if run.stuck else run.note
        case TaskStatus.FAILED if error:
            line = f"{task.reason}: {error}"
        case TaskStatus.FAILED | TaskStatus.CANCELLED | TaskStatus.ARCHIVED:
            line = task.reason
        case _:
            line = why
    return TaskCard(
        **{name: getattr(task, name) for name in TaskCard.__struct_fields__ if hasattr(task, name)},
        line=cut_words(line, MAX_LINE),
        beat_ms=run.heartbeat_ms if run else None,
        place=(run.environment or run.host) if run else task.environment,
    )


def _fold(text: str) -> str:
    return re.sub("[A-Z]", lambda letter: letter[0].lower(), text)
