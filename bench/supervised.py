"""What the supervisor costs, and how soon it tells: shell workers through the SDK."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.client import Failed
from bench.measures import MS, Contest
from bench.sdk import finished
from bench.servers import tree
from holdfast.agents.sdk import Worker, Workers
from holdfast.agents.supervisor.background import supervisor_socket
from holdfast.agents.supervisor.messages import WorkerReport

IDLE_WORKERS: Final = 50
IDLE_S: Final = 10.0
IDLE_SAMPLES: Final = 3
IDLE_WITHIN_S: Final = 400.0  # fifty starts with their probes, on a machine with other things to do
GONE_S: Final = 10.0
NEWS_S: Final = 20.0  # beyond it there is no latency to speak of
_PLACE: Final = "/var/tmp"  # noqa: S108 - /tmp is writable in every sandbox, and nothing would be refused there
_MARK: Final = "date +%s.%N > at"  # when it happens, by the worker's own clock
_READY: Final = "echo working; sleep 1"  # so that what belongs to its start is over


class Occasion(NamedTuple):
    """Something that a worker does, and what must be told of it."""

    script: str
    told: Callable[[WorkerReport], bool]
    tty: bool = False


EXIT: Final = Occasion(f"{_READY}; {_MARK}; exit 3", lambda report: report.state == "failed")
# As agent CLIs ask: on the whole screen, a list with a mark, and single keys read.
_DIALOG: Final = r"\033[?1049hOverwrite notes.txt?\n\342\235\257 1. Yes\n  2. No\n"
DECISION: Final = Occasion(
    f"stty -icanon -echo; {_READY}; {_MARK}; printf '{_DIALOG}'; dd bs=1 count=1",
    lambda report: (report.state, report.detail) == ("waiting", "decision"),
    tty=True,
)
# The third refusal of one path is what makes it repeated.
DENIAL: Final = Occasion(
    f"{_READY}; n=0; while :; do n=$((n + 1)); [ $n = 3 ] && {_MARK}; "
    '(echo x > "$HOME/refused") 2> /dev/null; sleep 0.1; done',
    lambda report: report.state == "blocked",
)


class Stage(NamedTuple):
    """A supervisor with a home of its own, and where its workers work."""

    workers: Workers
    home: Path
    work: Path

    async def run(self, script: str, **more: Any) -> Worker:
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.fspath(self.home)}
        return await self.workers.run("shell", cwd=os.fspath(self.work), prompt=script, env=env, **more)


def exit_latency(contest: Contest) -> list[float]:
    """From an exit until it is told, in ms."""
    return finished(_latencies(EXIT, contest.plan.launches))


def decision_latency(contest: Contest) -> list[float]:
    """From a question on a terminal until it is told."""
    return finished(_latencies(DECISION, contest.plan.launches))


def denial_latency(contest: Contest) -> list[float]:
    """From the third refusal of the same path until the worker is said to be blocked."""
    return finished(_latencies(DENIAL, contest.plan.launches))


def idle_workers(contest: Contest) -> list[float]:
    """Of one core, in percent: supervisor, exec server and watchers, with workers that do nothing."""
    return finished(_idle_shares(), within_s=IDLE_WITHIN_S)


async def _latencies(occasion: Occasion, count: int) -> list[float]:
    async with _stage() as stage:
        await (await stage.run("true")).wait()  # everything that is started once is there now
        return [await _latency(stage, occasion) for _ in range(count)]


async def _latency(stage: Stage, occasion: Occasion) -> float:
    at = stage.work / "at"
    at.unlink(missing_ok=True)
    worker = await stage.run(occasion.script, tty=occasion.tty)
    try:
        async with asyncio.timeout(NEWS_S):
            async for report in worker.changes():
                if occasion.told(report):
                    return (time.time() - _moment(at)) * MS
    except TimeoutError:
        raise Failed(f"not told within {NEWS_S:g} s: {worker.report.state}") from None
    finally:
        await worker.stop(grace_s=0.0)
    raise Failed(f"it ended otherwise: {worker.report.state}: {worker.report.about}")


def _moment(at: Path) -> float:
    """When it happened; now, if it is only just about to."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return float(at.read_text("ascii"))
    return time.time()


async def _idle_shares() -> list[float]:
    async with _stage() as stage:
        # Half of them on terminals, which are looked at as well.
        started = [await stage.run("read answer; sleep 1000", tty=True) for _ in range(IDLE_WORKERS // 2)]
        started += [await stage.run("exec sleep 1000") for _ in range(IDLE_WORKERS - len(started))]
        for worker in started:
            if worker.report.unwatched is not None:
                raise Failed(f"not watched: {worker.report.unwatched}")
            await worker.equivalence()  # the probes of their starts are over
        pids = [_listener(path) for path in (supervisor_socket(stage.home), stage.home / "exec.sock")]
        shares = []
        for _ in range(IDLE_SAMPLES):
            before, began = _cpu_s(pids), time.perf_counter()
            await asyncio.sleep(IDLE_S)
            shares.append(100 * (_cpu_s(pids) - before) / (time.perf_counter() - began))
        if len(await stage.workers.list()) != IDLE_WORKERS:
            raise Failed("not all workers are there any more")
        return shares


def _cpu_s(roots: list[int]) -> float:
    """CPU time of these and all below them: launcher, watchers, and the workers, which only sleep."""
    ticks = 0
    for pid in {member.pid for root in roots for member in tree(root)}:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def _stage() -> AsyncIterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=_PLACE))
    home, work = folder / "h", folder / "work"
    work.mkdir()
    try:
        async with Workers.connect(home) as workers:
            yield Stage(workers, home, work)
    finally:
        for path in (supervisor_socket(home), home / "exec.sock"):
            await _end(path)
        shutil.rmtree(folder, ignore_errors=True)


async def _end(path: Path) -> None:
    """Whoever listens there, and with the exec server all that it owns."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(_listener(path))
        gone = asyncio.Event()
        try:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            asyncio.get_running_loop().add_reader(handle, gone.set)
            async with asyncio.timeout(GONE_S):
                await gone.wait()
        finally:
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)


def _listener(path: Path) -> int:
    """Its process, as the kernel knows it."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.fspath(path))
        pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return int(pid)
