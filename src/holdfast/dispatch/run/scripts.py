"""Scripts run around a worker in its workspace: a profile's setup and teardown, and the checks of a task.

They are confined like the worker. Setup runs before it starts, teardown after it ended, and the checks run
once it has reported. Each is a worker of the supervisor under a name of its own, so after a crash the next
process finds what was started before, and none runs twice at once.
"""

import asyncio
import hashlib
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from holdfast.agents.worker.launching import WorkerSpec
from holdfast.board.rules.rows import Run, Task
from holdfast.board.store import Store
from holdfast.board.verbs.reviews import Check
from holdfast.dispatch.context import DispatchContext
from holdfast.dispatch.rules.profiles import BUILTIN, WorkerProfile
from holdfast.dispatch.run.elsewhere import UNRETURNED, start_when_reached
from holdfast.errors import NotFound, OperationFailed, UsageError

log = logging.getLogger(__name__)

SCRIPT_S: Final = 900.0  # for a script, which may fetch and build dependencies
CHECK_S: Final = 1800.0  # for one check; a suite that takes longer is no check before every review
LOOK_S: Final = 1.0  # between checks whether a decision was made before the checks ended
GRACE_S: Final = 2.0  # between asking a script to end and killing it
TRIES: Final = 3  # of a check that ended unobserved: its exec server died, or the machine
MAX_OUTPUT: Final = 1 << 20  # bytes of the output that are kept, from the end
MAX_SAID: Final = 500  # bytes of the output that are put into an error
MAX_CHECK_SAID: Final = 4_000  # bytes of a check's output, for the worker or person that is to fix it

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
    """Run the profile's script of this kind to its end, or until the run is over; keep its output.

    Raises:
        OperationFailed: it failed.
        HoldfastError: store or supervisor do not answer, or it cannot be started.
    """
    script = profile.setup if kind == "setup" else profile.teardown
    wish = context.script_spec(run, task, profile, place, kind, script, SCRIPT_S)
    name = wish.id or ""
    report = await context.supervisor.find(name) or await context.supervisor.start(wish)
    ended = report.state.ended or await _ends_before(context, name, over.wait())
    report = await context.supervisor.stop(name, grace_s=0.0 if ended else GRACE_S)
    said = await _keep_output(context, run, name, kind)
    code: int | None = report.exit_code
    if ended and code != 0:
        how = report.about or report.state if code is None else f"exit code {code}"
        raise OperationFailed(f"{kind}: {how}: {_decode(said[-MAX_SAID:]).strip()}")


async def tear_down(
    context: DispatchContext, run: Run, task: Task, profile: WorkerProfile, place: Path
) -> None:
    """Run the teardown script after a run; its result does not affect the run."""
    if task.report_only:
        return
    try:
        await run_script(context, run, task, profile, place, "teardown", asyncio.Event())
    except (UsageError, NotFound, OperationFailed) as exc:
        log.warning("a teardown failed", extra={"run_id": run.id, "missing": str(exc)[:200]})


async def run_checks(context: DispatchContext, run: Run, task: Task, place: Path) -> None:
    """Run the checks that are due for this run, if any are, and record the results on the board.

    Raises:
        HoldfastError: store or supervisor do not answer; call again to start from the beginning.
    """
    profile = context.profiles.get(run.profile, BUILTIN["script"])
    while (commands := await context.store.ask(Store.checks_due, run.ref)) is not None:
        results: list[Check] = []
        lost = (await context.store.ask(Store.run, run.id)).metadata.get(UNRETURNED)
        if lost:
            said = f"nothing was checked: its work did not come back: {lost}"
            results = [Check(command=command, exit_code=None, said=said) for command in commands]
            await context.store.ask(Store.record_checks, run.ref, results)
            continue
        for number, command in enumerate(commands, 1):
            digest = hashlib.sha256(command.encode()).hexdigest()[:6]
            name = f"check-{number}-{digest}"
            wish = context.script_spec(run, task, profile, place, name, command, CHECK_S)
            result = await _run_check(context, run, wish, command, number)
            if result is None:
                break
            results.append(result)
        else:
            await context.store.ask(Store.record_checks, run.ref, results)


async def _run_check(
    context: DispatchContext, run: Run, wish: WorkerSpec, command: str, number: int
) -> Check | None:
    """Run one check and return its result; None when a decision was made meanwhile."""
    for again in range(TRIES):
        named = msgspec.structs.replace(wish, id=f"{wish.id}-{again}")
        name = named.id or ""
        try:
            report = await context.supervisor.find(name) or await start_when_reached(
                context, named, lambda: _wait_decided(context, run), _say_nothing
            )
        except (UsageError, NotFound) as exc:
            return Check(command=command, exit_code=None, said=f"it could not be started: {exc}")
        if report is None:
            return None
        if not report.state.ended and not await _ends_before(context, name, _wait_decided(context, run)):
            await context.supervisor.stop(name, grace_s=GRACE_S)
            return None
        report = await context.supervisor.stop(name, grace_s=0.0)
        if report.state != "lost":
            said = _decode((await _keep_output(context, run, name, f"check-{number}"))[-MAX_CHECK_SAID:])
            code: int | None = report.exit_code
            words = said if code is not None else f"{report.about}\n\n{said}"
            return Check(command=command, exit_code=code, said=words)
    raise OperationFailed(f"the result was lost of a check of {run.id}, {TRIES} times")


async def _say_nothing(_why: str) -> None:
    """Ignore that the machine is unreachable: the run is over, and its task shows that checks are pending."""


async def _wait_decided(context: DispatchContext, run: Run) -> None:
    """Wait until a decision about the work was made, so that no check is due."""
    while True:
        if await context.store.ask(Store.checks_due, run.ref) is None:
            return
        await asyncio.sleep(LOOK_S)


async def _ends_before(context: DispatchContext, name: str, other: Coroutine[Any, Any, object]) -> bool:
    """Whether the worker ended by itself before the other event happened."""
    loop = asyncio.get_running_loop()
    ended, happened = loop.create_task(context.supervisor.wait_ended(name)), loop.create_task(other)
    try:
        await asyncio.wait([ended, happened], return_when=asyncio.FIRST_COMPLETED)
        await (ended if ended.done() else happened)
        return ended.done()
    finally:
        ended.cancel()
        happened.cancel()
        await asyncio.gather(ended, happened, return_exceptions=True)


async def _keep_output(context: DispatchContext, run: Run, name: str, kind: str) -> bytes:
    said = await context.supervisor.output(name, MAX_OUTPUT)
    await context.store.ask(Store.keep, run.id, kind, said)
    return said


def _decode(said: bytes) -> str:
    """Decode the output and replace zero bytes, which no store keeps."""
    return said.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
