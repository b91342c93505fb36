"""A supervising agent's tools over workers: each is one call of the supervisor."""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.agents.sdk import Workers
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.mcp import parameters
from holdfast.mcp.toolbox import Tool

# Of a report in a list. Evidence and preflight are for who asks to have one explained.
_ROW: Final = (
    *(
        "id",
        "agent",
        "state",
        "detail",
        "about",
        "failure",
        "flags",
        "asks",
        "forSeconds",
        "cwd",
        "createdAt",
    ),
)
_MARKED: Final = ("id", "state", "detail", "about", "failure", "flags", "asks")


async def _run(workers: Workers, asked: parameters.RunWorker) -> dict[str, Any]:
    started = await workers.run(
        asked.agent,
        cwd=asked.cwd,
        prompt=asked.prompt,
        id=asked.id or None,
        model=asked.model or None,
        network=asked.network,
        wall_limit_s=asked.wall_seconds or None,
    )
    return {"worker": row(started.report)}


async def _list(workers: Workers, asked: parameters.ListWorkers) -> dict[str, Any]:
    return {"workers": [row(report) for report in await workers.list(ended=asked.ended)]}


async def _watch(workers: Workers, asked: parameters.WatchWorkers) -> dict[str, Any]:
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
    shown = [row(report) for id, report in reports.items() if asked.worker in ("", id)]
    return {"mark": now, "changed": now != (asked.seen or before), "workers": shown}


async def _explain(workers: Workers, asked: parameters.ExplainWorker) -> dict[str, Any]:
    report = await (await workers.find(asked.worker)).why()
    return {"worker": row(report), **_members(report, ("why", "evidence", "denials"))}


async def _send(workers: Workers, asked: parameters.SendToWorker) -> dict[str, Any]:
    return {"outcome": await (await workers.find(asked.worker)).send(asked.text, asked.keys)}


async def _stop(workers: Workers, asked: parameters.StopWorker) -> dict[str, Any]:
    found = await workers.find(asked.worker)
    return {"worker": row(await found.stop(grace_s=asked.grace_seconds))}


WORKER_TOOLS: Final[tuple[tuple[Tool, Callable[[Workers, Any], Awaitable[dict[str, Any]]]], ...]] = (
    (
        Tool(
            "worker_run",
            "Start an agent CLI, or a shell script, in a sandbox that lets it write only where it works.",
            parameters.RunWorker,
        ),
        _run,
    ),
    (Tool("worker_list", "The workers, and what each is doing.", parameters.ListWorkers, looks=True), _list),
    (
        Tool(
            "worker_watch",
            "Wait until a worker changes, for a while; with the last answer's mark nothing is missed.",
            parameters.WatchWorkers,
            looks=True,
        ),
        _watch,
    ),
    (
        Tool(
            "worker_explain",
            "Why a worker is taken to be in its state: rule, evidence, what the sandbox refused.",
            parameters.ExplainWorker,
            looks=True,
        ),
        _explain,
    ),
    (
        Tool(
            "worker_send",
            "Type into a worker's terminal and submit it, if it waits for that.",
            parameters.SendToWorker,
        ),
        _send,
    ),
    (Tool("worker_stop", "End a worker and everything below it.", parameters.StopWorker), _stop),
)


def row(report: WorkerReport) -> dict[str, Any]:
    """A report without what only an explanation needs."""
    return _members(report, _ROW)


def mark(reports: Mapping[str, WorkerReport], worker: str) -> str:
    """Short, and different whenever a worker, or this one, does something else."""
    chosen = [_members(reports[id], _MARKED) for id in sorted(reports) if worker in ("", id)]
    return hashlib.sha256(msgspec.json.encode(chosen)).hexdigest()[:16]


def _members(report: WorkerReport, names: Sequence[str]) -> dict[str, Any]:
    whole = msgspec.to_builtins(report)
    return {name: whole[name] for name in names}
