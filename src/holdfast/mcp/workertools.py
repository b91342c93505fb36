"""The tools over workers: each is a method of `holdfast.Workers`, answered in words and in members."""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from holdfast.agents.sdk import WaitFor, Worker, Workers, is_awaited, select_variables
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.worker import equivalence
from holdfast.mcp import parameters, words
from holdfast.mcp.parameters import OfWorker
from holdfast.mcp.toolbox import Parameters, Tool

Said: TypeAlias = tuple[str, dict[str, Any]]  # in words, and its members
WorkerCall: TypeAlias = Callable[[Workers, Any], Awaitable[Said]]

# The members of a report in a list. Evidence and preflight are only in explanations.
_ROW: Final = (
    *("id", "agent", "state", "detail", "about", "failure", "flags", "asks", "forSeconds", "cwd", "pane"),
    *("createdAt", "exitCode", "after"),
)
_MARKED: Final = ("id", "state", "detail", "about", "failure", "flags", "asks")
_RESULT: Final = (*_ROW, "usage", "denials", "answer", "screen")


async def _run(workers: Workers, asked: parameters.RunWorker) -> Said:
    started = await workers.run(
        asked.agent,
        cwd=asked.cwd,
        prompt=asked.prompt or None,
        env=select_variables(asked.passed),
        id=asked.id or None,
        model=asked.model or None,
        tty=asked.tty or asked.tmux,
        acp=asked.acp,
        unattended=not asked.ask,
        network=None if asked.network is msgspec.UNSET else asked.network,
        allow_host=asked.allow_host,
        allow_net=asked.allow_net,
        ask_network=asked.ask_network,
        writable=list(asked.allow_write),
        readable=list(asked.allow_read),
        base=asked.provider or None,
        key=os.environ.get(asked.key_env),
        wall_limit_s=asked.wall_seconds or None,
    )
    if asked.tmux:
        await started.show_in_tmux()
    return await _tell(started)


async def _list(workers: Workers, asked: parameters.ListWorkers) -> Said:
    reports = await workers.list(ended=asked.ended)
    said = "\n".join(map(words.line_of, reports)) or "No worker runs."
    return said, {"workers": [worker_row(report) for report in reports]}


async def _status(workers: Workers, asked: OfWorker) -> Said:
    return await _tell(await workers.find(asked.worker))


async def _watch(workers: Workers, asked: parameters.WatchWorkers) -> Said:
    """The first change after `seen`; none if there was none in time.

    The subscription comes first, so that no change between looking and waiting is missed.
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
    shown = [report for id, report in reports.items() if asked.worker in ("", id)]
    changed = now != (asked.seen or before)
    said = "\n".join(
        [*map(words.line_of, shown), f"mark: {now}" + ("" if changed else " (nothing has changed)")]
    )
    return said, {"mark": now, "changed": changed, "workers": [worker_row(report) for report in shown]}


async def _wait(workers: Workers, asked: parameters.WaitForWorkers) -> Said:
    until = [WaitFor(one) for one in asked.until]
    found = await workers.wait(asked.worker, until, timeout_s=asked.timeout_seconds)
    reached = [report.id for report in found if is_awaited(report, until)]
    after = f"{asked.timeout_seconds:g} s"
    lines = [*map(words.describe, found), *([] if reached else [words.not_reached(asked.until, after)])]
    return "\n".join(lines), {"reached": reached, "workers": [worker_row(report) for report in found]}


async def _explain(workers: Workers, asked: OfWorker) -> Said:
    report = await (await workers.find(asked.worker)).why()
    members = {"worker": worker_row(report), **_members(report, ("why", "evidence", "denials"))}
    return "\n".join([words.line_of(report), *report.why, *words.refusals(report)]), members


async def _output(workers: Workers, asked: parameters.ReadOutput) -> Said:
    worker = await workers.find(asked.worker)
    said = await worker.output(asked.max_bytes)
    return said or f"{worker.id} has said nothing.", {"worker": worker_row(worker.report), "output": said}


async def _result(workers: Workers, asked: OfWorker) -> Said:
    found = await (await workers.find(asked.worker)).result()
    return words.describe_result(found), {"worker": _members(found, _RESULT)}


async def _diff(workers: Workers, asked: parameters.ReadDiff) -> Said:
    worker = await workers.find(asked.worker)
    found = await worker.diff()
    shown = found.diff.encode()[: asked.max_bytes].decode("utf-8", "ignore")
    members = {"since": found.since, "count": found.count, "paths": found.paths, "diff": shown}
    members["cut"] = shown != found.diff
    return words.describe_diff(found, shown), {"worker": worker_row(worker.report), **members}


async def _equivalence(workers: Workers, asked: OfWorker) -> Said:
    found = await (await workers.find(asked.worker)).equivalence()
    return "\n".join(equivalence.lines(found)), {"equivalence": msgspec.to_builtins(found)}


async def _send(workers: Workers, asked: parameters.SendToWorker) -> Said:
    outcome = await (await workers.find(asked.worker)).send(asked.text, asked.keys)
    return f"{asked.worker}: {outcome}", {"outcome": outcome}


async def _approve(workers: Workers, asked: parameters.AnswerWorker) -> Said:
    worker = await workers.find(asked.worker)
    give = worker.deny if asked.deny else worker.approve
    given = await give(asked.option or None, request=asked.request or None)
    said = f"{'denied' if given.denied else 'allowed'}: {given.question}"
    return said, {"answered": msgspec.to_builtins(given)}


async def _grant(workers: Workers, asked: parameters.GrantToWorker) -> Said:
    old = await workers.find(asked.worker)
    started = await old.grant(
        allow_write=asked.allow_write,
        allow_read=asked.allow_read,
        allow_host=asked.allow_host,
        allow_net=asked.allow_net,
        network=asked.network,
        key=os.environ.get(asked.key_env),
    )
    said, members = await _tell(started)
    return f"{old.id} is started again as {started.id}.\n{said}", members


async def _stop(workers: Workers, asked: parameters.StopWorker) -> Said:
    found = await workers.find(asked.worker)
    await found.stop(grace_s=asked.grace_seconds)
    return await _tell(found)


async def _tell(worker: Worker) -> Said:
    report = worker.report
    return words.describe(report), {"worker": worker_row(report)}


def _look(name: str, about: str, takes: type[Parameters], do: WorkerCall) -> tuple[Tool, WorkerCall]:
    return Tool(name, about, takes, looks=True), do


WORKER_TOOLS: Final[tuple[tuple[Tool, WorkerCall], ...]] = (
    (
        Tool(
            "worker_run",
            "Start an agent CLI, or a shell script, in a sandbox that lets it write only where it works.",
            parameters.RunWorker,
        ),
        _run,
    ),
    _look("worker_list", "The workers, and what each is doing.", parameters.ListWorkers, _list),
    _look("worker_status", "What a worker is doing.", OfWorker, _status),
    _look(
        "worker_wait",
        "Wait until a worker has ended, waits for an answer, or is blocked; nothing else ends the wait.",
        parameters.WaitForWorkers,
        _wait,
    ),
    _look(
        "worker_watch",
        "Wait until a worker changes at all, for a while; with the last answer's mark nothing is missed.",
        parameters.WatchWorkers,
        _watch,
    ),
    _look(
        "worker_explain",
        "Why a worker is taken to be in its state: rule, evidence, what the sandbox refused.",
        OfWorker,
        _explain,
    ),
    _look(
        "worker_output",
        "The end of what a worker said, or what its terminal shows.",
        parameters.ReadOutput,
        _output,
    ),
    _look(
        "worker_result",
        "What a worker answered in the end, how it ended, and what was refused to it.",
        OfWorker,
        _result,
    ),
    _look(
        "worker_diff",
        "What changed in a worker's directory since it was started: paths and a patch.",
        parameters.ReadDiff,
        _diff,
    ),
    _look(
        "worker_equivalence",
        "What differs for a worker from a plain terminal: files, network, environment.",
        OfWorker,
        _equivalence,
    ),
    (
        Tool(
            "worker_send",
            "Type into a worker's terminal and submit it, or press keys, if it waits for that.",
            parameters.SendToWorker,
        ),
        _send,
    ),
    (
        Tool("worker_approve", "Allow or deny what a worker asks for.", parameters.AnswerWorker),
        _approve,
    ),
    (
        Tool(
            "worker_grant",
            "Start a worker again with one more grant: a path, a host, the network. It ends if it runs.",
            parameters.GrantToWorker,
        ),
        _grant,
    ),
    (Tool("worker_stop", "End a worker and everything below it.", parameters.StopWorker), _stop),
)


def worker_row(report: WorkerReport) -> dict[str, Any]:
    """A report without the members that only an explanation needs."""
    return _members(report, _ROW)


def mark(reports: Mapping[str, WorkerReport], worker: str) -> str:
    """A short digest that changes whenever a worker, or this one, changes its state."""
    chosen = [_members(reports[id], _MARKED) for id in sorted(reports) if worker in ("", id)]
    return hashlib.sha256(msgspec.json.encode(chosen)).hexdigest()[:16]


def _members(report: WorkerReport, names: Sequence[str]) -> dict[str, Any]:
    whole = msgspec.to_builtins(report)
    return {name: whole[name] for name in names}
