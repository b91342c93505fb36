"""A supervising agent's tools over a board: each is one verb of the store."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.board.rules import verbs
from holdfast.board.rules.rows import Comment, Message, Task
from holdfast.board.rules.transitions import Status
from holdfast.board.rules.verbs import Caller, Verb
from holdfast.board.store import Store
from holdfast.board.verbs import messages
from holdfast.errors import UsageError
from holdfast.mcp import parameters
from holdfast.mcp.parameters import OfTask
from holdfast.mcp.toolbox import Tool

SYNONYMS: Final = {"blocked": "waiting_human", "doing": "running", "in_progress": "running"}
_ROW: Final = (
    "id",
    "title",
    "status",
    "assignee",
    "priority",
    "reason",
    "question",
    "created_ms",
    "status_ms",
)


@dataclass(frozen=True, slots=True)
class BoardTools:
    """Whose authority it is, and which board is meant when none is named."""

    store: Store
    board: str
    who: str

    def board_of(self, named: str) -> str:
        if not (named or self.board):
            raise UsageError(
                "say which board", remedy="give the parameter `board`, or start with --board NAME"
            )
        return named or self.board


def _task_of(asked: OfTask) -> str:
    if not asked.task_id:
        raise UsageError("say which task", remedy="give the parameter `task_id`")
    return asked.task_id


def _show(tools: BoardTools, asked: OfTask) -> dict[str, Any]:
    detail = tools.store.show(_task_of(asked))
    return {**messages.shown(detail), "why": tools.store.why(detail.task.id).reason}


def _list(tools: BoardTools, asked: parameters.List) -> dict[str, Any]:
    page = tools.store.page(
        tools.board_of(asked.board),
        status=_status(asked.status),
        assignee=asked.assignee or None,
        search=asked.search or None,
        limit=asked.limit,
        cursor=asked.cursor or None,
    )
    everything = asked.include_archived or asked.status
    rows = [_row(task) for task in page.tasks if everything or task.status is not Status.ARCHIVED]
    return {"tasks": rows, "count": len(rows), "truncated": page.cursor is not None, "cursor": page.cursor}


def _why(tools: BoardTools, asked: OfTask) -> dict[str, Any]:
    found = tools.store.why(_task_of(asked))
    return {"task_id": found.task, "status": found.status, "why": found.reason}


def _carry_out(verb: Verb, tools: BoardTools, asked: Any) -> dict[str, Any]:
    given = verbs.convert(verb, parameters.words(verb, asked))
    on = tools.board_of(asked.board) if verb.target == "board" else _task_of(asked) if verb.target else ""
    found = tools.store.carry_out(verb, on, given, who=tools.who)
    match found:
        case Comment():
            return {"task_id": found.task_id, "comment_id": found.number}
        case Message():
            return {"task_id": found.task_id, "run_id": found.run_id, "message_id": found.number}
    moved = {"task_id": found.id, "run_id": found.run_id, "status": found.status}
    return moved | ({"parent_id": asked.parent, "child_id": asked.child} if verb.name == "link" else {})


BOARD_TOOLS: Final[tuple[tuple[Tool, Callable[[BoardTools, Any], dict[str, Any]]], ...]] = (
    (
        Tool("kanban_show", "A task with its links, comments, runs and events.", OfTask, looks=True),
        _show,
    ),
    (Tool("kanban_list", "Tasks, the newest first, a page at a time.", parameters.List, looks=True), _list),
    (Tool("kanban_why", "Why a task is not running.", OfTask, looks=True), _why),
    *(
        (Tool(f"kanban_{verb.name}", verb.about, parameters.takes(verb)), functools.partial(_carry_out, verb))
        for verb in verbs.verbs_of(Caller.AGENT).values()
    ),
)


def _status(named: str) -> Status | None:
    if not named:
        return None
    try:
        return Status(SYNONYMS.get(named, named))
    except ValueError:
        raise UsageError(f"no task is {named}", remedy=f"one of: {', '.join(Status)}") from None


def _row(task: Task) -> dict[str, Any]:
    return {name: getattr(task, name) for name in _ROW}
