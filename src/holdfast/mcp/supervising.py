"""The tools of an agent with authority over a board and the workers of a home."""

import asyncio
import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.agents.sdk import Workers
from holdfast.board.rules import verbs
from holdfast.board.rules.rows import Comment, HostQuestion, Task, TaskMessage
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.rules.verbs import BoardCaller, Verb
from holdfast.board.store import Store, open_store
from holdfast.board.verbs import messages
from holdfast.errors import HoldfastError, UsageError
from holdfast.mcp import parameters, toolbox
from holdfast.mcp.parameters import OfTask
from holdfast.mcp.toolbox import Tool, ToolAnswer
from holdfast.mcp.words import words_of_error
from holdfast.mcp.workertools import WORKER_TOOLS, Said, WorkerCall

INSTRUCTIONS: Final = (
    "Tasks of a kanban board (kanban_*), and the agent CLIs in sandboxes on this machine (worker_*). "
    "worker_run starts one, worker_wait tells when it has ended, waits for an answer or is blocked; "
    "worker_explain tells why, worker_approve and worker_send answer it, worker_grant starts it again "
    "with what its sandbox refused, worker_result shows what it answered, worker_diff what it changed."
)


SYNONYMS: Final = {"blocked": "waiting_human", "doing": "running", "in_progress": "running"}
_ROW: Final = (
    *("id", "title", "status", "assignee", "priority", "reason", "question", "created_ms"),
    "status_ms",
)


@dataclass(frozen=True, slots=True)
class BoardTools:
    """The authority of the calls, and the default board."""

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
    return {**messages.to_json(detail), "why": tools.store.why(detail.task.id).reason}


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
    rows = [_row(task) for task in page.tasks if everything or task.status is not TaskStatus.ARCHIVED]
    return {"tasks": rows, "count": len(rows), "truncated": page.cursor is not None, "cursor": page.cursor}


def _why(tools: BoardTools, asked: OfTask) -> dict[str, Any]:
    found = tools.store.why(_task_of(asked))
    return {"task_id": found.task, "status": found.status, "why": found.reason}


def _carry_out(verb: Verb, tools: BoardTools, asked: Any) -> dict[str, Any]:
    given = verbs.parse(verb, parameters.read_words(verb, asked))
    on = tools.board_of(asked.board) if verb.target == "board" else _task_of(asked) if verb.target else ""
    found = tools.store.carry_out(verb, on, given, who=tools.who)
    match found:
        case Comment():
            return {"task_id": found.task_id, "comment_id": found.number}
        case TaskMessage():
            return {"task_id": found.task_id, "run_id": found.run_id, "message_id": found.number}
        case HostQuestion():
            told = {"host": found.host, "pattern": found.pattern, "answer": found.answer}
            return {"task_id": found.task_id, "run_id": found.run_id, **told}
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
        (
            Tool(f"kanban_{verb.name}", verb.about, parameters.build_parameters(verb)),
            functools.partial(_carry_out, verb),
        )
        for verb in verbs.verbs_of(BoardCaller.AGENT).values()
    ),
)


def _status(named: str) -> TaskStatus | None:
    if not named:
        return None
    try:
        return TaskStatus(SYNONYMS.get(named, named))
    except ValueError:
        raise UsageError(f"no task is {named}", remedy=f"one of: {', '.join(TaskStatus)}") from None


def _row(task: Task) -> dict[str, Any]:
    return {name: getattr(task, name) for name in _ROW}


class Supervising:
    """Answers calls; the store is opened when a board tool is first called."""

    tools = tuple(tool for tool, _ in (*BOARD_TOOLS, *WORKER_TOOLS))
    finishes = False  # no client is left to receive the answers

    def __init__(self, address: str, *, board: str, who: str, home: Path) -> None:
        self.instructions = INSTRUCTIONS
        self._board, self._who, self._home = board, who, home
        self._address = address
        self._store: Store | None = None
        self._board_thread = ThreadPoolExecutor(1, thread_name_prefix="board")  # a store belongs to one
        self._verbs = {tool.name: (tool, do) for tool, do in BOARD_TOOLS}
        self._calls = {tool.name: (tool, do) for tool, do in WORKER_TOOLS}

    def call(self, name: str, given: Mapping[str, Any]) -> ToolAnswer:
        """Carry out a call with the authority of these tools."""
        if name in self._verbs:
            tool, verb = self._verbs[name]
            asked, ignored = toolbox.read(tool, given)
            done = self._board_thread.submit(lambda: verb(self._open_board(), asked)).result()
            return toolbox.as_json(toolbox.answer(done, ignored))
        if name in self._calls:
            return self._call_worker(*self._calls[name], given)
        known = ", ".join(tool.name for tool in self.tools)
        raise UsageError(f"there is no tool {name[:80]}", remedy=f"one of: {known}")

    def _call_worker(self, tool: Tool, do: WorkerCall, given: Mapping[str, Any]) -> ToolAnswer:
        try:
            asked, ignored = toolbox.read(tool, given)
            words, members = asyncio.run(self._on_workers(do, asked))
            return toolbox.in_words(words, toolbox.answer(members, ignored))
        except HoldfastError as exc:
            return toolbox.in_words(words_of_error(exc), toolbox.problem(exc), failed=True)

    def _open_board(self) -> BoardTools:
        if self._store is None:
            self._store = open_store(self._address, create=False)
        return BoardTools(self._store, self._board, self._who)

    async def _on_workers(self, do: WorkerCall, asked: Any) -> Said:
        async with Workers.connect(self._home) as workers:
            return await do(workers, asked)
