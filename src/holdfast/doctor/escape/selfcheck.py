"""The self-check: every attempt, made from inside a sandbox, and what came of it.

Who confines is an argument, so that one list holds for every backend, and so that a run without
any sandbox can show that the attempts are able to fail. An attempt has held when its outcome is
one that it expects and when the witnesses outside have seen nothing.
"""

import asyncio
import contextlib
import enum
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.confine.launch import Command, Confinement, Launcher
from holdfast.doctor.compare.compare import capture
from holdfast.doctor.escape import inside
from holdfast.doctor.escape.attempt import CONTAINED, FAILED, SKIPPED, Attempt
from holdfast.doctor.escape.attempts import ATTEMPTS
from holdfast.doctor.escape.scene import Scene
from holdfast.errors import HoldfastError, SandboxUnavailable
from holdfast.sandbox.plan import plan as plans
from holdfast.sandbox.plan.plan import Plan
from holdfast.sandbox.plan.select import Way

MAX_OUTPUT: Final = 1 << 20  # more than any attempt prints; one that prints without end must not fill us
COMMAND_S: Final = 40.0  # the slowest takes two seconds; a hang is an outcome too
PARALLEL: Final = 4  # most of an attempt is waiting for processes to start
_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_SOURCE: Final = Path(inside.__file__).read_text("utf-8")


@dataclass(frozen=True, slots=True)
class AttemptJob:
    """One command to be confined."""

    plan: Plan
    argv: tuple[str, ...]
    env: dict[str, str]
    tty: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended: exit code, or 128 + n after signal n; and all that it printed."""

    code: int
    output: str


RunConfined: TypeAlias = Callable[[AttemptJob], Awaitable[Outcome]]


class AttemptVerdict(enum.StrEnum):
    HELD = "held"
    BROKEN = "broken"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What came of one attempt. `disturbances` is what the witnesses outside have seen."""

    attempt: Attempt
    outcome: str
    detail: str = ""
    disturbances: tuple[str, ...] = ()

    @property
    def verdict(self) -> AttemptVerdict:
        if self.disturbances:
            return AttemptVerdict.BROKEN
        if self.outcome == SKIPPED:
            return AttemptVerdict.SKIPPED
        return AttemptVerdict.HELD if self.outcome in self.attempt.expect else AttemptVerdict.BROKEN

    def describe(self) -> str:
        """One line for people."""
        wanted = " or ".join(sorted(self.attempt.expect))
        text = f"{self.attempt.id}: {self.attempt.title}: {self.outcome}, expected {wanted}"
        return "; ".join((text, *filter(None, (self.detail.strip(), *self.disturbances))))


def _unheard(_result: AttemptResult) -> None:
    """Nobody wants to know before the end."""


async def run(
    run_confined: RunConfined,
    *,
    folder: Path,
    attempts: Sequence[Attempt] = ATTEMPTS,
    python: str = sys.executable,
    on_result: Callable[[AttemptResult], None] = _unheard,
) -> list[AttemptResult]:
    """Make every attempt, each in a workspace of its own below `folder`, of which nothing is left.

    `folder` should not be in a directory for temporary files. `python` must be readable in the sandbox.
    """
    turns = asyncio.Semaphore(PARALLEL)

    async def one(attempt: Attempt) -> AttemptResult:
        async with turns:
            try:
                async with _laid(folder) as scene:
                    result = await _try(run_confined, attempt, scene, python)
            except OSError as exc:
                result = AttemptResult(attempt, SKIPPED, f"nothing to try it on: {exc}")
        on_result(result)
        return result

    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(one(attempt)) for attempt in attempts]
    return [task.result() for task in made]


@contextlib.asynccontextmanager
async def _laid(folder: Path) -> AsyncIterator[Scene]:
    laying = asyncio.ensure_future(asyncio.to_thread(Scene, folder))
    try:
        yield await asyncio.shield(laying)
    finally:
        scene = await laying  # a thread cannot be cancelled: there is something to take away in any case
        await asyncio.to_thread(scene.close)


async def _try(run_confined: RunConfined, attempt: Attempt, scene: Scene, python: str) -> AttemptResult:
    outcome, detail, printed = FAILED, "", ""
    for script in filter(None, (attempt.script, attempt.after)):
        try:
            plan = await asyncio.to_thread(scene.plan)
        except SandboxUnavailable as exc:
            outcome, detail = CONTAINED, str(exc)  # rather nothing than something unprotected
            break
        try:
            ended = await run_confined(
                AttemptJob(plan, _argv(python, script, scene), _environment(scene), attempt.tty)
            )
        except HoldfastError as exc:
            outcome, detail = FAILED, str(exc)
            break
        printed += ended.output
        outcome, detail = told(ended)
    return AttemptResult(
        attempt, outcome, detail, tuple(await asyncio.to_thread(scene.disturbances, printed))
    )


def told(ended: Outcome) -> tuple[str, str]:
    """The outcome that a command printed, or how it ended without a word; and a detail for people."""
    _, mark, rest = ended.output.rpartition(inside.MARK)
    if mark:
        outcome, detail = json.loads(rest.partition("\n")[0])
        return str(outcome), str(detail)
    if ended.code > 128 and ended.code - 128 in set(signal.Signals):
        return signal.Signals(ended.code - 128).name, ""
    return FAILED, f"exit code {ended.code}: {ended.output[-400:]}"


def _argv(python: str, script: str, scene: Scene) -> tuple[str, ...]:
    program = f"{_SOURCE}\nmain({script!r}, {json.dumps(scene.names())!r})\n"
    return (python, "-I", "-S", "-B", "-c", program)


def _environment(scene: Scene) -> dict[str, str]:
    return {
        "PATH": _PATH,
        "HOME": str(scene.workspace),
        "TMPDIR": str(scene.tmp),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }


class Native:
    """Runs jobs through a launcher, as the server runs its commands."""

    def __init__(self, launcher: Launcher, way: Way, *, tool: str = "") -> None:
        self._launcher = launcher
        self._way, self._tool = way, tool
        self._errands = 0

    async def __call__(self, job: AttemptJob) -> Outcome:
        self._errands += 1
        done = await capture(
            self._launcher,
            Command(job.argv, job.argv[0], job.plan.cwd, job.env),
            owner=self._errands,
            confinement=Confinement(plans.encode(job.plan), self._way, self._tool),
            limit_s=COMMAND_S,
            keep=MAX_OUTPUT,
            tty=job.tty,
            joined=True,
        )
        code = 128 + signal.SIGKILL if done.end is None else done.end.code
        return Outcome(code, done.stdout.kept.decode("utf-8", "replace"))
