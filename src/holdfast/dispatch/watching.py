"""Looks at the runs of this host from time to time, and tells the board which of them look stuck."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping

from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.board.rules.rows import Run
from holdfast.board.store import Store
from holdfast.dispatch.context import DispatchContext, worker_of
from holdfast.dispatch.rules.liveness import Calls, LivenessLimits, LivenessSample, LivenessWatch
from holdfast.dispatch.run import changes
from holdfast.dispatch.run.run import RunDriver
from holdfast.errors import HoldfastError, StaleRun

log = logging.getLogger(__name__)


async def watch(context: DispatchContext, limits: LivenessLimits, attended: Mapping[str, RunDriver]) -> None:
    """For ever. What it cannot see now it sees later; nothing depends on it."""
    watches: dict[str, LivenessWatch] = {}
    while True:
        await asyncio.sleep(limits.look_s)
        try:
            held = await context.store.ask(Store.held, context.host)
            watches = {run.id: watches.get(run.id) or LivenessWatch(limits, stuck=run.stuck) for run in held}
            for run in held:
                if run.id in attended:
                    await _look(context, watches[run.id], run, attended[run.id])
        except (HoldfastError, TimeoutError) as exc:
            log.debug("runs are looked at later", extra={"missing": type(exc).__name__})


async def _look(context: DispatchContext, watch: LivenessWatch, run: Run, driver: RunDriver) -> None:
    report = await context.supervisor.find(worker_of(run.id))
    if report is None or driver.place is None:  # it has not begun
        return
    files = await asyncio.to_thread(changes.glance, driver.place)
    reason = watch.look(_seen(report, files, run.note))
    if reason != run.stuck:
        with contextlib.suppress(StaleRun):
            await context.store.ask(Store.set_stuck, run.ref, reason)


def _seen(report: WorkerReport, files: tuple[int, ...] | None, note: str) -> LivenessSample:
    told = report.calls
    calls = None
    if told is not None:
        calls = Calls(told.fresh, told.in_a_row, told.last, told.recent, told.different)
    return LivenessSample(
        at=time.monotonic(),
        state=report.state,
        state_s=report.for_seconds,
        about=report.about,
        calls=calls,
        files=files,
        note=note,
    )
