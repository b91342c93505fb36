"""The checks of a task, run in its workspace after its worker has ended, confined as that was.

Each is a worker of the supervisor under a name of its own, so whoever comes after a crash finds what was
started before, and no check runs twice at once.
"""

import asyncio
import hashlib
from pathlib import Path
from typing import Final

import msgspec

from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.board.rules.rows import Run, Task
from holdfast.board.verbs.reviews import Check
from holdfast.dispatch.context import DispatchContext
from holdfast.dispatch.rules.profiles import BUILTIN
from holdfast.errors import NotFound, OperationFailed, UsageError

CHECK_S: Final = 1800.0  # for one command; a suite that takes longer is no check before every review
LOOK_S: Final = 1.0  # between looks whether somebody decided meanwhile
GRACE_S: Final = 2.0  # between asking one to end and ending it
TRIES: Final = 3  # of a check whose end nobody saw: its exec server died, or the machine
MAX_OUTPUT: Final = 1 << 20  # bytes of what it said that are kept; the end of it
MAX_SAID: Final = 4_000  # bytes of that for whoever is to mend it


async def run_due(context: DispatchContext, run: Run, task: Task, place: Path) -> None:
    """Run what is due for this run, if anything is, and tell the board.

    Raises:
        HoldfastError: store or supervisor do not answer; to be done again from the top.
    """
    while (commands := await _due(context, run)) is not None:
        results = []
        for number, command in enumerate(commands, 1):
            result = await _checked(context, run, _wish(context, run, task, place, number, command), number)
            if result is None:
                break
            results.append(msgspec.structs.replace(result, command=command))
        else:
            await context.store.ask(lambda store, results=results: store.checked(run.ref, results))  # type: ignore[misc]


async def _due(context: DispatchContext, run: Run) -> list[str] | None:
    return await context.store.ask(lambda store: store.checks_due(run.ref))


def _wish(
    context: DispatchContext, run: Run, task: Task, place: Path, number: int, command: str
) -> WorkerSpec:
    profile = context.profiles.get(run.profile, BUILTIN["script"])
    digest = hashlib.sha256(command.encode()).hexdigest()[:6]
    return context.script_spec(run, task, profile, place, f"check-{number}-{digest}", command, CHECK_S)


async def _checked(context: DispatchContext, run: Run, wish: WorkerSpec, number: int) -> Check | None:
    """How it ended; None when somebody decided meanwhile."""
    for again in range(TRIES):
        named = msgspec.structs.replace(wish, id=f"{wish.id}-{again}")
        name = named.id or ""
        try:
            report = await context.supervisor.find(name) or await context.supervisor.start(named)
        except (UsageError, NotFound) as exc:
            return Check(command="", exit_code=None, said=f"it could not be started: {exc}")
        if not report.state.ended and not await _ended(context, run, name):
            await context.supervisor.stop(name, grace_s=GRACE_S)
            return None
        report = await context.supervisor.stop(name, grace_s=0.0)
        if report.state != "lost":
            return await _result(context, run, report, name, number)
    raise OperationFailed(f"nobody saw the end of a check of {run.id}, {TRIES} times")


async def _ended(context: DispatchContext, run: Run, name: str) -> bool:
    """Whether its leader has ended by itself, before somebody decided."""
    ended = asyncio.get_running_loop().create_task(context.supervisor.ended(name))
    try:
        while not ended.done():
            await asyncio.wait([ended], timeout=LOOK_S)
            if not ended.done() and await _due(context, run) is None:
                return False
        await ended
        return True
    finally:
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)


async def _result(context: DispatchContext, run: Run, report: WorkerReport, name: str, number: int) -> Check:
    output = await context.supervisor.output(name, MAX_OUTPUT)
    await context.store.ask(lambda store: store.keep(run.id, f"check-{number}", output))
    said = output[-MAX_SAID:].decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    code: int | None = report.exit_code
    return Check(command="", exit_code=code, said=said if code is not None else f"{report.about}\n\n{said}")
