"""Additional steps of a run on another machine: wait for the machine to start, and bring its work back.

What came back is content of a workspace, as a local worker could have left it: it is written by the rules of
`agents.fleet.returned`, and nothing of it is executed on this machine.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from holdfast.agents.fleet import returned
from holdfast.agents.supervisor import elsewhere
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.worker.book import WorkerRecords
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.board.rules.rows import Run
from holdfast.board.store import Store
from holdfast.client.recovery import delays
from holdfast.dispatch.context import DispatchContext, worker_of
from holdfast.dispatch.rules import fleet
from holdfast.errors import HoldfastError, InvalidRequest, StaleRun, Unreachable

MAX_LISTED: Final = 20  # paths that are written down
UNRETURNED: Final = "unreturned"  # in a run's metadata: why its work is not in its workspace
LEFT_OUT: Final = "left_out"  # likewise: which parts of it are missing there


class ReachNote:
    """The run's note on the board while its machine is unreachable; written once, and removed once."""

    def __init__(self, context: DispatchContext, run: Run) -> None:
        self._context = context
        self._run = run
        self._said = run.note if run.note.startswith(fleet.WAITS) else ""

    async def tell(self, why: str) -> None:
        """Report `why` it is not reached; empty: it is."""
        note = fleet.describe_waiting(self._run.environment, why) if why else ""
        if note == self._said:
            return
        with contextlib.suppress(StaleRun):  # the run is over, so its state is of no interest any more
            await self._context.store.ask(Store.heartbeat, self._run.ref, note=note)
        self._said = note

    async def take(self, report: WorkerReport) -> None:
        """Update the note from a report of its worker."""
        away = fleet.is_unreached(report.state, report.detail)
        await self.tell(report.about or "no answer" if away else "")


async def start_when_reached(
    context: DispatchContext,
    wish: WorkerSpec,
    over: Callable[[], Awaitable[object]],
    tell: Callable[[str], Awaitable[None]],
) -> WorkerReport | None:
    """Start a worker once its machine is reachable; return None if `over` happened before that.

    Raises:
        HoldfastError: it cannot be started, or it is for this machine and the exec server is not reached.
    """
    waits = delays(random.random)
    while True:
        try:
            report = await context.supervisor.start(wish)
        except Unreachable as exc:
            if wish.host is None:
                raise
            await tell(str(exc))
        else:
            await tell("")
            return report
        async with _waiting(over()) as happened:
            await asyncio.wait([happened], timeout=next(waits))
            if happened.done():
                return None


@contextlib.asynccontextmanager
async def _waiting(thing: Awaitable[object]) -> AsyncIterator["asyncio.Future[object]"]:
    future = asyncio.ensure_future(thing)
    try:
        yield future
    finally:
        future.cancel()
        await asyncio.gather(future, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class BroughtHome:
    """`problem`: why nothing of it is in the workspace; `left_out`: which parts are not, and why."""

    problem: str = ""
    left_out: tuple[str, ...] = ()

    def to_metadata(self) -> dict[str, object]:
        told: dict[str, object] = {}
        if self.problem:
            told[UNRETURNED] = self.problem
        if self.left_out:
            told[LEFT_OUT] = list(self.left_out[:MAX_LISTED])
        return told


async def bring_home(context: DispatchContext, run: Run, report: WorkerReport) -> BroughtHome:
    """Write what a worker changed on another machine into its workspace; repeating it changes nothing."""
    if report.returned is None:
        return BroughtHome(report.unreturned or f"nothing came back from {report.host}")
    book = WorkerRecords(context.home)
    worker = worker_of(run.id)
    try:
        carried = elsewhere.read_carried(book, worker)
        own = book.folder(worker) / elsewhere.FOLDER
        done = await returned.apply(context.git, carried, own, report.returned, resumed=True)
    except InvalidRequest as exc:
        return BroughtHome(f"{exc}; holdfast worker apply {worker} --branch NAME")
    except (HoldfastError, OSError) as exc:
        if isinstance(exc, HoldfastError) and exc.retryable:
            raise
        return BroughtHome(f"what came back cannot be written: {exc}")
    return BroughtHome("", done.left_out)
