"""What the daemons of a home cost while nothing happens: `up`, an exec server, a supervisor, idle workers."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from bench.client import Failed
from bench.measures import Contest
from bench.sdk import finished
from bench.servers import tree
from holdfast.agents.sdk import Workers
from holdfast.agents.supervisor import daemons

WATCHED_S: Final = 60.0  # of CPU time: rounds and looks that come every ten seconds are in it
SETTLED_S: Final = 3.0  # for what belongs to a start
WITHIN_S: Final = 600.0
READY_S: Final = 30.0
WORKERS: Final = 30
_PLACE: Final = "/var/tmp"  # noqa: S108 - as in supervised.py


def idle_daemons(contest: Contest) -> list[float]:
    """Of one core, in percent: supervisor, dispatcher, exec server and dashboard with nothing to do."""
    return finished(_share(0), within_s=WITHIN_S)


def idle_house(contest: Contest) -> list[float]:
    """Likewise, with workers that only wait."""
    return finished(_share(WORKERS), within_s=WITHIN_S)


async def _share(workers: int) -> list[float]:
    async with _house() as (home, up):
        async with Workers.connect(home) as supervisor:
            for _ in range(workers):
                work = home.parent / "work"
                work.mkdir(exist_ok=True)
                one = await supervisor.run("shell", cwd=str(work), prompt="exec sleep 1000")
                await one.equivalence()  # the probes of its start are over
        await asyncio.sleep(SETTLED_S)
        roots = {up.pid, *(one.process.pid for one in daemons.find(home))}
        before, began = _cpu_s(roots), time.perf_counter()
        await asyncio.sleep(WATCHED_S)
        return [100 * (_cpu_s(roots) - before) / (time.perf_counter() - began)]


@contextlib.asynccontextmanager
async def _house() -> AsyncIterator[tuple[Path, subprocess.Popen[bytes]]]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_PLACE, ignore_cleanup_errors=True) as folder:
        home = Path(folder, "h")
        environ = os.environ | {"HOLDFAST_HOME": str(home), "XDG_STATE_HOME": str(Path(folder, "state"))}
        argv = [sys.executable, "-m", "holdfast", "up", "--board", "b", "--web-port", "0"]
        up = await asyncio.to_thread(_start, [*argv, "--listen", "ws://127.0.0.1:0"], environ)
        try:
            async with asyncio.timeout(READY_S):
                while not daemons.find_by_role(home, daemons.DASHBOARD):
                    if up.poll() is not None:
                        raise Failed(f"`holdfast up` ended with {up.returncode}")
                    await asyncio.sleep(0.1)
            yield home, up
        finally:
            up.send_signal(signal.SIGTERM)
            await asyncio.to_thread(up.wait)
            down = [sys.executable, "-m", "holdfast", "down", "--workers", "--home", str(home)]
            await asyncio.to_thread(subprocess.run, down, env=environ, check=False)


def _start(argv: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _cpu_s(roots: set[int]) -> float:
    """CPU time of these and all below them, in nanoseconds of the scheduler: ticks are too coarse for it."""
    spent = 0
    for pid in {member.pid for root in roots for member in tree(root)}:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                spent += int(task.read_text("ascii").split()[0])
    return spent / 1e9
