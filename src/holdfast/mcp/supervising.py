"""The tools of an agent with authority over a board and the workers of a home."""

import asyncio
import contextlib
import functools
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from holdfast.agents.sdk import Workers
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.board.rules import verbs
from holdfast.board.rules.rows import Comment, Task, TaskMessage
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.rules.verbs import BoardCaller, Verb
from holdfast.board.store import Store, open_store
from holdfast.board.verbs import messages
from holdfast.errors import UsageError
from holdfast.mcp import parameters, toolbox
from holdfast.mcp.parameters import OfTask
from holdfast.mcp.toolbox import Tool, ToolAnswer

T = TypeVar("T")

INSTRUCTIONS: Final = (
    "Tasks of a kanban board (kanban_*), and the agent CLIs in sandboxes on this machine (worker_*). "
    "worker_watch with the last mark tells what changes; worker_explain tells why something does not go on."
)


SYNONYMS: Final = {"blocked": "waiting_human", "doing": "running", "in_progress": "running"}
_ROW: Final = (
    *("id", "title", "status", "assignee", "priority", "reason", "question", "created_ms"),
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


# Of a report in a list. Evidence and preflight are for who asks to have one explained.
_WORKER_ROW: Final = (
    *("id", "agent", "state", "detail", "about", "failure", "flags", "asks", "forSeconds", "cwd"),
    "createdAt",
)
_MARKED: Final = ("id", "state", "detail", "about", "failure", "flags", "asks")


async def _run_worker(workers: Workers, asked: parameters.RunWorker) -> dict[str, Any]:
    started = await workers.run(
        asked.agent,
        cwd=asked.cwd,
        prompt=asked.prompt,
        id=asked.id or None,
        model=asked.model or None,
        network=asked.network,
        wall_limit_s=asked.wall_seconds or None,
    )
    return {"worker": worker_row(started.report)}


async def _list_workers(workers: Workers, asked: parameters.ListWorkers) -> dict[str, Any]:
    return {"workers": [worker_row(report) for report in await workers.list(ended=asked.ended)]}


async def _watch_workers(workers: Workers, asked: parameters.WatchWorkers) -> dict[str, Any]:
    """The change that came after `seen`; none when there was none in time.

    The subscription comes first, so nothing happens between looking and waiting.
    """
    async with Workers.connect(workers.home) as own:
        reports = {report.id: report for report in await own.subscribe()}
        if asked.worker:
            reports.setdefault(asked.worker, (await own.find(asked.worker)).report)
        before = mark(reports, asked.worker)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(asked.timeout_seconds if asked.seen in ("", before) else 0):
                async for report in own.changes():
                    reports[report.id] = report
                    if mark(reports, asked.worker) != before:
                        break
    now = mark(reports, asked.worker)
    shown = [worker_row(report) for id, report in reports.items() if asked.worker in ("", id)]
    return {"mark": now, "changed": now != (asked.seen or before), "workers": shown}


async def _explain_worker(workers: Workers, asked: parameters.ExplainWorker) -> dict[str, Any]:
    report = await (await workers.find(asked.worker)).why()
    return {"worker": worker_row(report), **_members(report, ("why", "evidence", "denials"))}


async def _send_to_worker(workers: Workers, asked: parameters.SendToWorker) -> dict[str, Any]:
    return {"outcome": await (await workers.find(asked.worker)).send(asked.text, asked.keys)}


async def _stop_worker(workers: Workers, asked: parameters.StopWorker) -> dict[str, Any]:
    found = await workers.find(asked.worker)
    return {"worker": worker_row(await found.stop(grace_s=asked.grace_seconds))}


WORKER_TOOLS: Final[tuple[tuple[Tool, Callable[[Workers, Any], Awaitable[dict[str, Any]]]], ...]] = (
    (
        Tool(
            "worker_run",
            "Start an agent CLI, or a shell script, in a sandbox that lets it write only where it works.",
            parameters.RunWorker,
        ),
        _run_worker,
    ),
    (
        Tool("worker_list", "The workers, and what each is doing.", parameters.ListWorkers, looks=True),
        _list_workers,
    ),
    (
        Tool(
            "worker_watch",
            "Wait until a worker changes, for a while; with the last answer's mark nothing is missed.",
            parameters.WatchWorkers,
            looks=True,
        ),
        _watch_workers,
    ),
    (
        Tool(
            "worker_explain",
            "Why a worker is taken to be in its state: rule, evidence, what the sandbox refused.",
            parameters.ExplainWorker,
            looks=True,
        ),
        _explain_worker,
    ),
    (
        Tool(
            "worker_send",
            "Type into a worker's terminal and submit it, if it waits for that.",
            parameters.SendToWorker,
        ),
        _send_to_worker,
    ),
    (Tool("worker_stop", "End a worker and everything below it.", parameters.StopWorker), _stop_worker),
)


def worker_row(report: WorkerReport) -> dict[str, Any]:
    """A report without what only an explanation needs."""
    return _members(report, _WORKER_ROW)


def mark(reports: Mapping[str, WorkerReport], worker: str) -> str:
    """Short, and different whenever a worker, or this one, does something else."""
    chosen = [_members(reports[id], _MARKED) for id in sorted(reports) if worker in ("", id)]
    return hashlib.sha256(msgspec.json.encode(chosen)).hexdigest()[:16]


def _members(report: WorkerReport, names: Sequence[str]) -> dict[str, Any]:
    whole = msgspec.to_builtins(report)
    return {name: whole[name] for name in names}


class Supervising:
    """Answers calls; the store is opened when a tool of the board is called."""

    tools = tuple(tool for tool, _ in (*BOARD_TOOLS, *WORKER_TOOLS))
    finishes = False  # nobody is left to wait for them

    def __init__(self, address: str, *, board: str, who: str, home: Path) -> None:
        self.instructions = INSTRUCTIONS
        self._board, self._who, self._home = board, who, home
        self._address = address
        self._store: Store | None = None
        self._board_thread = ThreadPoolExecutor(1, thread_name_prefix="board")  # a store belongs to one
        self._verbs = {tool.name: (tool, do) for tool, do in BOARD_TOOLS}
        self._calls = {tool.name: (tool, do) for tool, do in WORKER_TOOLS}

    def call(self, name: str, given: Mapping[str, Any]) -> ToolAnswer:
        """Do it with the authority of these tools."""
        if name in self._verbs:
            tool, verb = self._verbs[name]
            asked, ignored = toolbox.read(tool, given)
            done = self._board_thread.submit(lambda: verb(self._open_board(), asked)).result()
            return toolbox.as_json(toolbox.answer(done, ignored))
        if name in self._calls:
            tool, call = self._calls[name]
            asked, ignored = toolbox.read(tool, given)
            return toolbox.as_json(toolbox.answer(asyncio.run(self._on_workers(call, asked)), ignored))
        known = ", ".join(tool.name for tool in self.tools)
        raise UsageError(f"there is no tool {name[:80]}", remedy=f"one of: {known}")

    def _open_board(self) -> BoardTools:
        if self._store is None:
            self._store = open_store(self._address, create=False)
        return BoardTools(self._store, self._board, self._who)

    async def _on_workers(self, call: Callable[[Workers, Any], Awaitable[T]], asked: Any) -> T:
        async with Workers.connect(self._home) as workers:
            return await call(workers, asked)
