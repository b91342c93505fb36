"""Compares a worker's surroundings with the host: by a probe on the host, a probe in the worker's sandbox,
and a look at its process.

The worker does not wait for this. The process is examined as soon as it exists, and the probes run while the
worker works, for one worker after the other. A fact that cannot be found out is an unknown with its reason.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from holdfast import decoding
from holdfast.agents.catalog.agent import StatePath, state_paths
from holdfast.agents.evidence.advice import EquivalenceReport
from holdfast.agents.worker import procwatch
from holdfast.agents.worker.book import Record, WorkerRecords
from holdfast.agents.worker.equivalence import CONFINEMENT, Case, judge, report_unknown
from holdfast.agents.worker.launching import PreparedStart
from holdfast.client.environment import Environment
from holdfast.confine.launch import LauncherClient
from holdfast.doctor.compare.circumstances import NAMESPACES
from holdfast.doctor.compare.compare import PROBE_S, Landmarks, Side, list_places, look
from holdfast.doctor.compare.equivalence import Value, of_status
from holdfast.errors import HoldfastError
from holdfast.local.tasks import TaskSet

log = logging.getLogger(__name__)

MAX_LOOKS: Final = (
    16  # running or queued: each keeps the session of its worker open, even after the worker's end
)
LIMIT_S: Final = 90.0  # for all probes of one worker, without the time in the queue
FILE: Final = "equivalence.json"
_BUSY: Final = f"{MAX_LOOKS} workers that were started before it were still to be looked at"


class WorkerSurroundings:
    """The comparisons for the workers of one supervisor."""

    def __init__(self, book: WorkerRecords) -> None:
        self._book = book
        self._turn = asyncio.Semaphore(1)  # a probe uses a core for a moment, which the workers need more
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._closing = TaskSet()  # of the launchers of probes

    def begin(self, record: Record, ready: PreparedStart, environment: Environment) -> None:
        """Start the comparison for a worker that was just started, unless too many are queued."""
        if len(self._looks) >= MAX_LOOKS:
            self._keep(report_unknown(record.id, record.agent, _BUSY))
            return
        process = None if record.pid is None else read_confinement(record.pid)
        task = asyncio.get_running_loop().create_task(self._look(record, ready, environment, process))
        self._looks[record.id] = task
        task.add_done_callback(lambda _: self._looks.pop(record.id, None))

    async def settled(self, worker: str) -> None:
        """Wait until no comparison for this worker is running."""
        if worker in self._looks:
            await asyncio.wait([self._looks[worker]])

    async def report(self, record: Record) -> EquivalenceReport:
        """Return the result, after waiting for a running comparison."""
        await self.settled(record.id)
        try:
            return decoding.decode((self._book.folder(record.id) / FILE).read_bytes(), EquivalenceReport)
        except (OSError, msgspec.MsgspecError):
            why = (
                "it runs on another machine"
                if record.host is not None
                else "it is a script of a task, and no CLI"
                if not record.compared
                else "it was never started"
                if record.pid is None
                else "nobody has looked: its supervisor was ended"
            )
            return report_unknown(record.id, record.agent, why)

    async def aclose(self) -> None:
        tasks = list(self._looks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _look(
        self, record: Record, ready: PreparedStart, environment: Environment, process: dict[str, Value] | None
    ) -> None:
        try:
            async with self._turn, asyncio.timeout(LIMIT_S):
                found = await _observe(record, ready, environment, process, self._closing)
        except (HoldfastError, OSError, TimeoutError) as exc:
            found = report_unknown(record.id, record.agent, f"the probe failed: {exc or type(exc).__name__}")
        except Exception:
            log.exception("the surroundings of a worker could not be seen", extra={"agent": record.agent})
            found = report_unknown(record.id, record.agent, "the probe failed; the supervisor's log says how")
        self._keep(found)

    def _keep(self, found: EquivalenceReport) -> None:
        with contextlib.suppress(OSError):
            self._book.keep(found.id, FILE, msgspec.json.encode(found))


async def _observe(
    record: Record,
    ready: PreparedStart,
    environment: Environment,
    process: dict[str, Value] | None,
    closing: TaskSet,
) -> EquivalenceReport:
    case = _case(record, ready)

    async def told(argv: tuple[str, ...]) -> str:
        try:
            done = await environment.run(
                argv,
                cwd=record.cwd,
                env=ready.environment,
                policy=ready.policy.without_keys(),
                tty=ready.tty,
                timeout_s=PROBE_S,
            )
        except (HoldfastError, TimeoutError):
            return ""
        return done.stdout.decode("utf-8", "replace")

    beside = LauncherClient()
    try:
        with Landmarks() as landmarks:
            paths = list_places(record.cwd, ready.environment, [*case.state, *record.writable])
            question = landmarks.question(paths, {*ready.inherited, *ready.environment}, quiet=True)
            host = await Side(beside, None, record.cwd, ready.inherited, tty=ready.tty).look(question)
            inside = await look(told, question)
    finally:
        await asyncio.shield(closing.start(beside.aclose()))  # to its end, also if we are cancelled meanwhile
    return judge(host, inside, process, case)


def read_confinement(leader: int) -> dict[str, Value] | None:
    """Read the confinement that the kernel holds on the worker below this process; None once it is gone."""
    main = procwatch.look(leader).main
    if main is None:
        return None
    where = Path(f"/proc/{main.pid}")
    try:
        found = dict(of_status((where / "status").read_text("utf-8", "replace"))[CONFINEMENT])
    except OSError:
        return None
    for kind in NAMESPACES:
        found[f"{kind} namespace"] = None
        with contextlib.suppress(OSError):
            found[f"{kind} namespace"] = os.readlink(where / "ns" / kind)
    still = procwatch.look(leader).main  # values read from an ending process are not valid
    return found if still is not None and still.pid == main.pid and still.state not in "ZX" else None


def _case(record: Record, ready: PreparedStart) -> Case:
    agent = ready.agent
    state: dict[str, StatePath] = {}
    for path, kept in state_paths(agent, home=record.home, work=record.cwd, environment=ready.environment):
        state.setdefault(_nearest(path), kept)
    inherited = ready.inherited
    return Case(
        id=record.id,
        agent=agent,
        cwd=record.cwd,
        tty=record.tty,
        state=state,
        chosen=frozenset(name for name, value in ready.environment.items() if inherited.get(name) != value),
        on_loopback=_is_loopback(ready.base),
        supervision=_supervision(record, ready),
    )


def _nearest(path: str) -> str:
    """Return the path, or the nearest existing directory above it."""
    plain = path.split("*", 1)[0].rstrip("/") or "/"
    while not os.path.lexists(plain):
        plain = os.path.dirname(plain)
    return plain


def _is_loopback(base: str | None) -> bool:
    host = urlsplit(base).hostname if base else None
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host or "").is_loopback
    return host == "localhost"


def _supervision(record: Record, ready: PreparedStart) -> tuple[str, ...]:
    watched = record.watch and record.unwatched is None
    stdin = "a terminal" if ready.tty else "its prompt" if ready.stdin is not None else "nothing"
    limits = (("time", record.wall_limit_s), ("time without work", record.idle_limit_s))
    return (
        f"reads {stdin}",
        "refusals are watched" if watched else f"refusals are not watched ({record.unwatched or 'as asked'})",
        *(("each command has a sandbox of its own",) if record.own_sandbox else ()),
        *(("strace holds it at every call",) if record.trace and record.untraced is None else ()),
        *(f"{name} limited to {limit:g} s" for name, limit in limits if limit is not None),
    )
