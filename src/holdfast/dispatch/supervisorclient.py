"""The dispatcher's client of the supervisor: workers are found or started by name and followed to their end.

One connection carries everything. When the supervisor dies, another is started and takes the workers over;
callers that wait here only wait longer.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from holdfast.agents.evidence.evidence import AskedHost
from holdfast.agents.sdk import RUN_S, Workers
from holdfast.agents.supervisor import messages
from holdfast.agents.supervisor.messages import (
    ApproveParams,
    LogsParams,
    StopParams,
    WorkerParams,
    WorkerReport,
)
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.errors import HoldfastError, NotFound
from holdfast.unixrpc.calls import RpcMethod
from holdfast.unixrpc.client import CALL_S, PeerGone

log = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")

AGAIN_S: Final = 0.5  # between attempts to reach a supervisor that does not start
PATIENCE_S: Final = 60.0  # how long to wait for a supervisor to come back before a call fails
LOOK_S: Final = 5.0  # between looks at a worker without news, as a notification may have been lost


class SupervisorClient:
    """The supervisor of one home. Use `open`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._workers: Workers | None = None
        self._there = asyncio.Event()
        self._news: dict[str, asyncio.Event] = {}
        self._asked: dict[str, list[AskedHost]] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, home: Path) -> AsyncIterator["SupervisorClient"]:
        """Raises OperationFailed when no supervisor can be started."""
        supervisor = cls(home)
        async with Workers.connect(home):
            pass  # fail here if the supervisor cannot be started at all
        listening = asyncio.get_running_loop().create_task(supervisor._listen())
        try:
            yield supervisor
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def find(self, worker: str) -> WorkerReport | None:
        """Its report, or None when there never was one of this name."""
        try:
            return await self._call(messages.STATUS, WorkerParams(worker))
        except NotFound:
            return None

    async def start(self, wish: WorkerSpec) -> WorkerReport:
        """Start a worker; if the connection was lost, find the worker in case that attempt did start it.

        Raises:
            HoldfastError: it cannot be started.
        """
        try:
            return await self._call(messages.RUN, wish, timeout_s=RUN_S, again=False)
        except PeerGone:
            found = await self.find(wish.id or "")
            return found if found is not None else await self.start(wish)

    async def wait_ended(
        self, worker: str, seen: Callable[[WorkerReport], Awaitable[None]] | None = None
    ) -> WorkerReport:
        """Wait until its leader has ended and return the report; its descendants may still run.

        `seen` is called with each earlier report.
        """
        news = self._news.setdefault(worker, asyncio.Event())
        try:
            while True:
                news.clear()
                report = await self._call(messages.STATUS, WorkerParams(worker))
                if report.state.ended:
                    return report
                if seen is not None:
                    await seen(report)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await news.wait()
        finally:
            self._news.pop(worker, None)
            self._asked.pop(worker, None)

    def look_again(self, worker: str) -> None:
        """Make a pending `wait_ended` fetch the report now."""
        if worker in self._news:
            self._news[worker].set()

    async def answer_host(self, worker: str, request: str, option: str) -> None:
        """Answer a question about a host; an earlier answer stands.

        Raises:
            InvalidRequest: the question does not wait for an answer, for whatever reason.
        """
        await self._call(messages.APPROVE, ApproveParams(worker, option, option == "no", request))

    async def stop(self, worker: str, *, grace_s: float) -> WorkerReport:
        """Stop it and everything it started; return its last report."""
        return await self._call(messages.STOP, StopParams(worker, grace_s), timeout_s=None)

    async def output(self, worker: str, most: int) -> bytes:
        """The end of its output."""
        return (await self._call(messages.LOGS, LogsParams(worker, most))).data

    async def _call(
        self, method: RpcMethod[P, R], params: P, *, timeout_s: float | None = CALL_S, again: bool = True
    ) -> R:
        """Call the supervisor; after a lost connection repeat the call if `again`, that is if harmless."""
        while True:
            async with asyncio.timeout(PATIENCE_S):
                await self._there.wait()
            workers = self._workers
            try:
                if workers is None:
                    raise PeerGone("the supervisor is gone")
                return await workers.call(method, params, timeout_s=timeout_s)
            except PeerGone:
                if self._workers is workers:
                    self._there.clear()
                if not again:
                    raise

    async def _listen(self) -> None:
        while True:
            try:
                async with Workers.connect(self.home) as workers:
                    await workers.subscribe()
                    self._workers = workers
                    self._there.set()
                    for news in self._news.values():
                        news.set()
                    async for report in workers.changes():
                        if report.id in self._news and self._matters(report):
                            self._news[report.id].set()
            except (HoldfastError, TimeoutError, OSError) as exc:  # out of descriptors, memory or processes
                log.warning("the supervisor cannot be reached", extra={"missing": str(exc)[:200]})
            except Exception:  # without this loop no run of this dispatcher would be followed any more
                log.exception("the supervisor cannot be reached")
            finally:
                self._there.clear()
                self._workers = None
            await asyncio.sleep(AGAIN_S)

    def _matters(self, report: WorkerReport) -> bool:
        """Whether a report must wake the waiter: an end, a worker elsewhere, or changed host questions."""
        before, self._asked[report.id] = self._asked.get(report.id, []), report.asked_hosts
        return report.state.ended or report.host is not None or report.asked_hosts != before
