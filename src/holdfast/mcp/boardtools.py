"""A supervising agent's tools over a board: each is one verb of the store."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.board.rules.rows import NewTask, Task, WorkspaceKind
from holdfast.board.rules.transitions import Move, Status
from holdfast.board.store import Store
from holdfast.board.verbs import messages
from holdfast.errors import UsageError
from holdfast.mcp import parameters
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


def _task_of(asked: parameters.OfTask) -> str:
    if not asked.task_id:
        raise UsageError("say which task", remedy="give the parameter `task_id`")
    return asked.task_id


def _show(tools: BoardTools, asked: parameters.Show) -> dict[str, Any]:
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


def _create(tools: BoardTools, asked: parameters.CreateAnywhere) -> dict[str, Any]:
    new = NewTask(
        title=asked.title,
        body=asked.body,
        assignee=asked.assignee,
        parents=asked.parents,
        priority=asked.priority,
        triage=asked.triage or asked.initial_status == "blocked",
        workspace_kind=WorkspaceKind(asked.workspace_kind),
        workspace=asked.workspace_path,
        max_runtime_s=asked.max_runtime_seconds or None,
    )
    key = asked.idempotency_key or None
    return _moved(tools.store.create(tools.board_of(asked.board), new, who=tools.who, key=key))


def _comment(tools: BoardTools, asked: parameters.Comment) -> dict[str, Any]:
    made = tools.store.comment(_task_of(asked), asked.body, who=tools.who)
    return {"task_id": made.task_id, "comment_id": made.number}


def _tell(tools: BoardTools, asked: parameters.Tell) -> dict[str, Any]:
    made = tools.store.tell(_task_of(asked), asked.body, who=tools.who)
    return {"task_id": made.task_id, "run_id": made.run_id, "message_id": made.number}


def _link(tools: BoardTools, asked: parameters.Link) -> dict[str, Any]:
    child = tools.store.link(asked.parent_id, asked.child_id, who=tools.who)
    return {"parent_id": asked.parent_id, "child_id": child.id, "status": child.status}


def _complete(tools: BoardTools, asked: parameters.Close) -> dict[str, Any]:
    result = asked.summary or asked.result or None
    return _moved(tools.store.move(_task_of(asked), Move.COMPLETE, who=tools.who, result=result))


def _block(tools: BoardTools, asked: parameters.Block) -> dict[str, Any]:
    question = f"[{asked.kind}] {asked.reason}" if asked.kind else asked.reason
    return _moved(
        tools.store.move(_task_of(asked), Move.BLOCK, who=tools.who, question=question, options=asked.options)
    )


def _unblock(tools: BoardTools, asked: parameters.Unblock) -> dict[str, Any]:
    return _moved(tools.store.move(_task_of(asked), Move.UNBLOCK, who=tools.who, reason=asked.reason))


def _why(tools: BoardTools, asked: parameters.Why) -> dict[str, Any]:
    found = tools.store.why(_task_of(asked))
    return {"task_id": found.task, "status": found.status, "why": found.reason}


BOARD_TOOLS: Final[tuple[tuple[Tool, Callable[[BoardTools, Any], dict[str, Any]]], ...]] = (
    (
        Tool("kanban_show", "A task with its links, comments, runs and events.", parameters.Show, looks=True),
        _show,
    ),
    (Tool("kanban_list", "Tasks, the newest first, a page at a time.", parameters.List, looks=True), _list),
    (Tool("kanban_why", "Why a task is not running.", parameters.Why, looks=True), _why),
    (Tool("kanban_create", "Make a task.", parameters.CreateAnywhere), _create),
    (Tool("kanban_comment", "Leave a remark on a task.", parameters.Comment), _comment),
    (
        Tool(
            "kanban_tell",
            "Say something to the worker that runs a task now; kanban_show tells whether it has seen it.",
            parameters.Tell,
        ),
        _tell,
    ),
    (Tool("kanban_link", "Let one task wait for another.", parameters.Link), _link),
    (
        Tool(
            "kanban_complete",
            "Say that a task is done: also accepts a review, or work whose report is missing.",
            parameters.Close,
        ),
        _complete,
    ),
    (Tool("kanban_block", "Stop a task until a person acts; a run of it is over.", parameters.Block), _block),
    (
        Tool("kanban_unblock", "Let a task go on that waits for a person or the clock.", parameters.Unblock),
        _unblock,
    ),
)


def _status(named: str) -> Status | None:
    if not named:
        return None
    try:
        return Status(SYNONYMS.get(named, named))
    except ValueError:
        raise UsageError(f"no task is {named}", remedy=f"one of: {', '.join(Status)}") from None


def _moved(task: Task) -> dict[str, Any]:
    return {"task_id": task.id, "run_id": task.run_id, "status": task.status}


def _row(task: Task) -> dict[str, Any]:
    return {name: getattr(task, name) for name in _ROW}
