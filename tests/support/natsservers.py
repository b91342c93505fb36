"""A real nats-server of our own, on loopback, that can be killed and started again at the same address."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import pytest

from tests.support.patience import patient

WAIT_S: Final = patient(20.0)
_READY: Final = b"Server is ready"
_LISTENS: Final = b"Listening for client connections on "


class NatsServer:
    """`options` are the server's; `url` is where it is, also after a restart."""

    def __init__(self, program: str, *options: str) -> None:
        self._command = [program, "-a", "127.0.0.1", *options]
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._port = -1  # which picks a free one
        self.said = b""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    async def start(self) -> None:
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command, "-p", str(self._port),
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stderr is not None
        self.said = b""
        async with asyncio.timeout(WAIT_S):
            while _READY not in self.said:
                line = await process.stderr.readline()
                assert line, f"no server: {self.said.decode()}"
                self.said += line
                if _LISTENS in line:
                    self._port = int(line.rpartition(b":")[2])
        self._reading = asyncio.ensure_future(self._read(process.stderr))

    async def _read(self, stderr: asyncio.StreamReader) -> None:
        while line := await stderr.readline():
            self.said = (self.said + line)[-10_000:]

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            async with asyncio.timeout(WAIT_S):
                await process.wait()
                if self._reading is not None:
                    await self._reading


@asynccontextmanager
async def nats_server(*options: str) -> AsyncIterator[NatsServer]:
    program = shutil.which("nats-server", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if program is None:
        pytest.skip("nats-server is not installed: apt-get install nats-server")
    server = NatsServer(program, *options)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()
