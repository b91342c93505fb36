"""Looks at the runs of this host from time to time, and tells the board which of them look stuck."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping

from holdfast.agents.evidence.evidence import State
from holdfast.board.rules.rows import Run
from holdfast.dispatch.context import House, worker_of
from holdfast.dispatch.rules.liveness import Calls, Limits, Look, Watch
from holdfast.dispatch.run import changes
from holdfast.dispatch.run.run import Attendance
from holdfast.dispatch.supervisorclient import Report
from holdfast.errors import HoldfastError, StaleRun

log = logging.getLogger(__name__)


async def watch(house: House, limits: Limits, attended: Mapping[str, Attendance]) -> None:
    """For ever. What it cannot see now it sees later; nothing depends on it."""
    watches: dict[str, Watch] = {}
    while True:
        await asyncio.sleep(limits.look_s)
        try:
            held = await house.desk.ask(lambda store: store.held(house.host))
            watches = {run.id: watches.get(run.id) or Watch(limits, stuck=run.stuck) for run in held}
            for run in held:
                if run.id in attended:
                    await _look(house, watches[run.id], run, attended[run.id])
        except (HoldfastError, TimeoutError) as exc:
            log.debug("runs are looked at later", extra={"missing": type(exc).__name__})


async def _look(house: House, watch: Watch, run: Run, attendance: Attendance) -> None:
    report = await house.fleet.find(worker_of(run.id))
    if report is None or attendance.place is None:  # it has not begun
        return
    files = await asyncio.to_thread(changes.glance, attendance.place)
    reason = watch.look(_seen(report, files, run.note))
    if reason != run.stuck:
        with contextlib.suppress(StaleRun):
            await house.desk.ask(lambda store: store.set_stuck(run.ref, reason))


def _seen(report: Report, files: tuple[int, ...] | None, note: str) -> Look:
    told = report["calls"]
    calls = None
    if told is not None:
        calls = Calls(told["fresh"], told["inARow"], told["last"], told["recent"], told["different"])
    return Look(
        at=time.monotonic(),
        state=State(report["state"]),
        state_s=report["forSeconds"],
        about=report["about"],
        calls=calls,
        files=files,
        note=note,
    )
