"""The executor of one process's commands, and whoever talks to it with the process's token."""

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, cast

from holdfast.client.environment import Environment, connect
from holdfast.client.policy import Policy
from holdfast.client.process import Process
from holdfast.sandbox.limits import Limits
from holdfast.wire.processes import CommandExecutor
from tests.support.patience import patient
from tests.support.peer import ENV, Peer, serving

TOKEN: Final = "a-token-of-this-process"
WAIT_S: Final = patient(20.0)
SERVERS_OWN: Final = {"SERVER_SECRET": "of-the-server"}


class LineLink:
    """Lines on a unix socket, as `Peer` wants a link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, text: str | bytes) -> None:
        self._writer.write((text if isinstance(text, bytes) else text.encode()) + b"\n")
        await self._writer.drain()

    def __aiter__(self) -> "LineLink":
        return self

    async def __anext__(self) -> bytes:
        line = await self._reader.readline()
        if not line:
            raise StopAsyncIteration
        return line

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Scene:
    """A process with an executor for its commands, and what neither may touch.

    `ws` may be written, `outside` be read, `hidden` neither; `state` is the process's own.
    """

    def __init__(self, top: Path, environment: Environment) -> None:
        self.top, self.environment = top, environment
        self.ws, self.outside, self.hidden, self.state, self.tmp, self.run = (
            top / name for name in ("ws", "outside", "hidden", "state", "tmp", "runs/one")
        )
        for folder in (self.ws, self.outside, self.hidden, self.state, self.tmp, self.run):
            folder.mkdir(parents=True)
        for folder, text in ((self.outside, "seen"), (self.hidden, "secret"), (self.state, "login")):
            (folder / "file").write_text(f"{text}\n", "utf-8")
        self.socket = str(self.run / "exec.sock")
        self.own = Policy.workspace_write(self.ws, network=True).deny(self.hidden).allow_write(self.state)
        self.own = self.own.allow_write(self.tmp).allow_read(self.run).allow_socket(self.socket)

    def executor(self, policy: Policy | None = None) -> CommandExecutor:
        ceiling = Policy.workspace_write(self.ws).deny(self.hidden).allow_write(self.tmp)
        ceiling = ceiling.deny(self.state).deny(self.run) if policy is None else policy
        context = ceiling.context(self.ws)
        return CommandExecutor(self.socket, TOKEN, context, {**ENV, "TMPDIR": str(self.tmp), "RUN": "own"})

    async def begin(self, *argv: str, limits: Limits | None = None, policy: Policy | None = None) -> Process:
        """The process, which sleeps unless told otherwise."""
        return await self.environment.start(
            argv or ("sleep", "100000"),
            cwd=self.ws,
            env=dict(ENV),
            policy=self.own,
            watch=True,
            limits=limits,
            commands=self.executor(policy),
        )

    @contextlib.asynccontextmanager
    async def connected(self, token: str = TOKEN) -> AsyncIterator[Peer]:
        """Whoever shows this token; without a handshake."""
        reader, writer = await asyncio.open_unix_connection(self.socket, limit=1 << 26)
        link = LineLink(reader, writer)
        if token:
            first = {"id": "t", "method": "holdfast/authenticate", "params": {"token": token}}
            await link.send(json.dumps(first))
        peer = Peer(cast(Any, link))
        try:
            yield peer
        finally:
            await peer.aclose()

    @contextlib.asynccontextmanager
    async def speaking(self) -> AsyncIterator["Speaker"]:
        async with self.connected() as peer:
            await peer.initialize()
            yield Speaker(self, peer)


class Speaker:
    """A process that asks its executor for whatever it likes."""

    def __init__(self, scene: Scene, peer: Peer) -> None:
        self._scene, self.peer = scene, peer
        self._count = 0

    async def run(self, script: str, **more: Any) -> str:
        """What a shell script says, both streams; Refused when it is not run."""
        self._count += 1
        name = f"c{self._count}"
        await self.peer.start(name, script, **{"cwd": self._scene.ws.as_uri(), **more})
        await self.peer.closed(name)
        return self.peer.output(name).decode()


@contextlib.asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """Not below /tmp, which is writable for everybody."""
    top = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="commands-")).resolve()
    try:
        async with serving(environ={**ENV, **SERVERS_OWN}) as (url, _), connect(url) as environment:
            yield Scene(top, environment)
    finally:
        shutil.rmtree(top)
