"""The scripts of a profile around a run: before its worker starts and after it ended, confined as that is.

Each is a worker of the supervisor under a name of its own, so whoever comes after a crash finds what was
started before, and none runs twice for one run.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final, Literal

from holdfast.board.rules.rows import Run, Task
from holdfast.dispatch.context import DispatchContext
from holdfast.dispatch.rules.profiles import WorkerProfile
from holdfast.errors import NotFound, OperationFailed, UsageError

log = logging.getLogger(__name__)

SCRIPT_S: Final = 900.0  # for one of them: dependencies are fetched and built
GRACE_S: Final = 2.0  # between asking one to end and ending it
MAX_OUTPUT: Final = 1 << 20  # bytes of what it said that are kept; the end of it
MAX_SAID: Final = 500  # bytes of that in an error

ScriptKind = Literal["setup", "teardown"]


async def run_script(
    context: DispatchContext,
    run: Run,
    task: Task,
    profile: WorkerProfile,
    place: Path,
    kind: ScriptKind,
    over: asyncio.Event,
) -> None:
    """Run the profile's script of this kind to its end, or until the run is over; what it said is kept.

    Raises:
        OperationFailed: it failed.
        HoldfastError: store or supervisor do not answer, or it cannot be started.
    """
    script = profile.setup if kind == "setup" else profile.teardown
    wish = context.script_spec(run, task, profile, place, kind, script, SCRIPT_S)
    name = wish.id or ""
    report = await context.supervisor.find(name) or await context.supervisor.start(wish)
    ended = report.state.ended or await _ended(context, name, over)
    report = await context.supervisor.stop(name, grace_s=0.0 if ended else GRACE_S)
    said = await context.supervisor.output(name, MAX_OUTPUT)
    await context.store.ask(lambda store: store.keep(run.id, kind, said))
    code: int | None = report.exit_code
    if ended and code != 0:
        how = report.about or report.state if code is None else f"exit code {code}"
        last = said[-MAX_SAID:].decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}").strip()
        raise OperationFailed(f"{kind}: {how}: {last}")


async def tear_down(
    context: DispatchContext, run: Run, task: Task, profile: WorkerProfile, place: Path
) -> None:
    """After a run; however that ends, it changes nothing about the run."""
    if task.report_only:
        return
    try:
        await run_script(context, run, task, profile, place, "teardown", asyncio.Event())
    except (UsageError, NotFound, OperationFailed) as exc:
        log.warning("a teardown failed", extra={"run_id": run.id, "missing": str(exc)[:200]})


async def _ended(context: DispatchContext, name: str, over: asyncio.Event) -> bool:
    """Whether it has ended by itself, before the run was over."""
    loop = asyncio.get_running_loop()
    waits = [loop.create_task(context.supervisor.ended(name)), loop.create_task(over.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not waits[0].done():
            return False
        await waits[0]
        return True
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
