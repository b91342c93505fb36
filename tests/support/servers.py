"""Exec servers as child processes: ours, and the one of the Codex CLI.

Each has a home of its own, so neither login scripts nor configuration of whoever runs the tests take part.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from tests.support.patience import patient

START_LIMIT_S: Final = patient(40.0)  # a cold start on a loaded machine
STOP_LIMIT_S: Final = patient(20.0)  # after SIGTERM, then SIGKILL
ANY_PORT: Final = "ws://127.0.0.1:0"


class ServerProcess:
    """One server; `url` is where it listens now, `log` what it wrote to stderr."""

    def __init__(self, argv: list[str], home: Path, listen: str = ANY_PORT) -> None:
        self.url = listen
        self._argv = argv
        self._home = home
        self._log = home / "server.log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Listen, on the address of the last time if there was one."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv, "--listen", self.url,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log,
                env=isolated_environment(self._home), cwd=self._home, start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        async with asyncio.timeout(START_LIMIT_S):
            line = (await self._process.stdout.readline()).decode().strip()
        assert line.startswith(("ws://", "unix://")), (
            f"no address from {self._argv}: {line!r}; stderr: {self.log}"
        )
        self.url = line

    async def stop(self) -> None:
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            await self.crash()
        await self._drained()

    async def crash(self) -> None:
        """SIGKILL: no farewell to anyone."""
        assert self._process is not None
        self._signal(signal.SIGKILL)
        await self._process.wait()
        await self._drained()

    async def freeze(self) -> None:
        """SIGSTOP: whoever asks from now on is not answered."""
        self._signal(signal.SIGSTOP)
        async with asyncio.timeout(STOP_LIMIT_S):
            while any(state != "T" for state in _thread_states(self.pid)):
                await asyncio.sleep(0.01)

    async def _drained(self) -> None:
        """The pipe reaches its end after the process; a loop that is closed in between leaves it open."""
        assert self._process is not None
        assert self._process.stdout is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_LIMIT_S):
                await self._process.stdout.read()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def _thread_states(pid: int) -> list[str]:
    """One letter per thread: a signal stops them one after the other."""
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            states.append(stat.read_text("utf-8").rpartition(")")[2].split()[0])
    return states


def isolated_environment(home: Path) -> dict[str, str]:
    """The least a program needs, with `home` as home directory and as configuration of Codex."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": str(home), "CODEX_HOME": str(home / ".codex"), "LANG": "C.UTF-8"}


@asynccontextmanager
async def _running(argv: list[str], home: Path, listen: str = ANY_PORT) -> AsyncIterator[ServerProcess]:
    (home / ".codex").mkdir(parents=True)
    server = ServerProcess(argv, home, listen)
    try:
        await server.start()
        yield server
    except BaseException as exc:
        exc.add_note(f"stderr of the server: {server.log[-2000:] or '(empty)'}")
        raise
    finally:
        await server.stop()


def holdfast_server(
    home: Path, *options: str, listen: str = ANY_PORT
) -> AbstractAsyncContextManager[ServerProcess]:
    """`holdfast serve`, on a free loopback port unless told otherwise."""
    return _running([sys.executable, "-m", "holdfast", "serve", *options], home, listen)


def codex_server(binary: Path, home: Path, *options: str) -> AbstractAsyncContextManager[ServerProcess]:
    """`codex exec-server` on a free loopback port."""
    return _running([str(binary), "exec-server", *options], home)
