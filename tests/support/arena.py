"""A supervisor with its exec server in a place of its own, and workers sent to a scripted model.

The place is not below /tmp: that is writable in every sandbox, and a home there would never be refused.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from holdfast.agents.evidence.evidence import WorkerStatus
from holdfast.agents.evidence.status import WorkerLimits
from holdfast.agents.supervisor import background
from holdfast.agents.supervisor.supervisor import Supervisor
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.agents.worker.worker import FollowedWorker
from tests.support.agent_clis import link_clis
from tests.support.model import Model, scripted_model
from tests.support.patience import patient

MODEL: Final = "scripted-model"
KEY: Final = "scripted-key-0123456789"
PROMPT: Final = "Do what the script says."
GONE_S: Final = patient(30.0)
PLACE: Final = "/var/tmp"  # see above


# What its owner has to set up once in the home, where the state is not relocated and so not made for it.
_SETTINGS: Final = {".gemini/settings.json": '{"security":{"auth":{"selectedType":"gemini-api-key"}}}'}


class Bench:
    """Where one worker works: a repository, and the home of whoever started it."""

    def __init__(self, folder: Path) -> None:
        self.work, self.home = folder / "work", folder / "home"
        for made in (self.work, self.home):
            made.mkdir(parents=True)
        for path, text in _SETTINGS.items():
            (self.home / path).parent.mkdir()
            (self.home / path).write_text(text, "utf-8")
        subprocess.run(["git", "init", "-q", str(self.work)], check=True, timeout=patient(30))


class Arena:
    """Starts workers, and tells what became of them."""

    def __init__(self, place: Path, model: Model, supervisor: Supervisor) -> None:
        self.model = model
        self.supervisor = supervisor
        self._place = place
        self.path = link_clis(place / "bin")
        self._count = 0

    def bench(self) -> Bench:
        self._count += 1
        return Bench(self._place / str(self._count))

    async def run(self, agent: str, bench: Bench, *, scenario: str = "hello", **more: Any) -> FollowedWorker:
        """Start a worker that asks the model of this scenario; `more` are members of the wish."""
        asked: dict[str, Any] = {"prompt": PROMPT, "base": self.model.url(scenario), **more}
        wish = WorkerSpec(
            agent=agent,
            cwd=str(bench.work),
            env={"PATH": self.path, "HOME": str(bench.home), "LANG": "C.UTF-8"},
            model=MODEL,
            key=KEY,
            **asked,
        )
        return await self.supervisor.run(wish)

    async def until(
        self, worker: FollowedWorker, *, ended: bool, state: str = "", limit_s: float
    ) -> WorkerStatus:
        """Its status once it is in this state or has ended; the last one seen when that takes too long."""
        return await self.when(worker, lambda status: not ended and _is(status, state), limit_s=limit_s)

    async def when(
        self, worker: FollowedWorker, met: Callable[[WorkerStatus], bool], *, limit_s: float
    ) -> WorkerStatus:
        """Likewise, for whatever can be asked of a status."""
        seen = asyncio.Event()

        def look(changed: FollowedWorker) -> None:
            if changed is worker and (worker.done.is_set() or met(worker.status)):
                seen.set()

        forget = self.supervisor.hear(look)
        done = asyncio.get_running_loop().create_task(worker.done.wait())
        done.add_done_callback(lambda _: seen.set())
        look(worker)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await seen.wait()
        finally:
            forget()
            done.cancel()
        return worker.status

    async def end(self, worker: FollowedWorker) -> None:
        if not worker.done.is_set():
            worker.stop(grace_s=0.0)
            async with asyncio.timeout(GONE_S):
                await worker.done.wait()


def _is(status: WorkerStatus, wanted: str) -> bool:
    return wanted in (status.state.value, f"{status.state.value}({status.detail})")


@asynccontextmanager
async def arena(limits: WorkerLimits | None = None) -> AsyncIterator[Arena]:
    place = Path(tempfile.mkdtemp(prefix="arena-", dir=PLACE))
    try:
        async with scripted_model() as model:
            supervisor = Supervisor(place / "h", limits or WorkerLimits())
            await supervisor.open()
            try:
                made = Arena(place, model, supervisor)
                yield made
                for worker in supervisor.alive:
                    await made.end(worker)
            finally:
                await supervisor.aclose()
                await end_exec_server(place / "h")
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def end_exec_server(home: Path) -> None:
    """End the exec server of this home and everything it owns."""
    await end_listener(Path(background.exec_address(home).removeprefix("unix://")), signal.SIGTERM)


async def end_listener(path: Path, signum: signal.Signals) -> None:
    """Signal whoever listens on this socket, as the kernel knows it, and wait until it is gone."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, signum)
            gone = asyncio.Event()
            asyncio.get_running_loop().add_reader(handle, gone.set)
            async with asyncio.timeout(GONE_S):
                await gone.wait()
        finally:
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)
