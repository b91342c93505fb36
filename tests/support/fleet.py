"""Another machine for workers: a second exec server with a home of its own, over a link that can be cut."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.agents.supervisor import background
from holdfast.dispatch.context import worker_of
from tests.support import warm
from tests.support.arena import end_exec_server, end_listener
from tests.support.cut import Way, way_to
from tests.support.patience import patient
from tests.support.servers import ServerProcess, holdfast_server

WAIT_S = patient(60.0)


@dataclass(frozen=True)
class Fleet:
    """This machine's home and directory, and the other machine: its home, its server, the way there."""

    home: Path
    work: Path
    far: Path
    server: ServerProcess
    way: Way

    async def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "HOLDFAST_HOME": str(self.home)}
        return await asyncio.to_thread(warm.run, ["worker", *words], cwd=self.work, env=env, timeout=WAIT_S)

    @property
    def left_there(self) -> list[str]:
        return sorted(path.name for path in (self.far / ".local/share/holdfast/carried").glob("*"))


@asynccontextmanager
async def fleet() -> AsyncIterator[Fleet]:
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    for name in ("work", "home"):
        (folder / name).mkdir(mode=0o700)
    try:
        async with holdfast_server(folder / "far") as server, way_to(server.url) as way:
            (folder / "home" / "environments.toml").write_text(
                f'[[environments]]\nid = "box"\nurl = "{way.url}"\n', "utf-8"
            )
            yield Fleet(folder / "home", folder / "work", folder / "far", server, way)
    finally:
        await end_listener(background.supervisor_socket(folder / "home"), signal.SIGTERM)
        await end_exec_server(folder / "home")
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class FarMachine:
    """Another machine of a board: its home, its server, the way there."""

    home: Path
    server: ServerProcess
    way: Way

    @property
    def carried(self) -> Path:
        return self.home / ".local/share/holdfast/carried"

    def work(self, run: str) -> Path:
        """Where the worker of a run is, over there."""
        return self.carried / worker_of(run) / "work"


@asynccontextmanager
async def far_machine(home: Path, folder: Path, *options: str) -> AsyncIterator[FarMachine]:
    """The environment `box` of a home: a server in `folder` whose programs find `holdfast`."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    own = programs / "holdfast"
    own.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m holdfast "$@"\n', "utf-8")
    own.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", path)
        opened = holdfast_server(folder / "far", *options)
        async with opened as server, way_to(server.url) as way:
            (home / "environments.toml").write_text(
                f'[[environments]]\nid = "box"\nurl = "{way.url}"\n', "utf-8"
            )
            yield FarMachine(folder / "far", server, way)
