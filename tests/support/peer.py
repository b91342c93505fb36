"""A server inside the test's own event loop, and a small client to talk to it with."""

import asyncio
import base64
import contextlib
import itertools
import json
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect

from holdfast.sandbox.plan.select import ANY, Choice
from holdfast.server.edges.address import parse
from holdfast.server.edges.auth import Authenticator
from holdfast.server.edges.binding import ServeOptions
from tests.support import without_linux
from tests.support.patience import patient

if sys.platform == "linux":
    from holdfast.server.edges.listen import Server
    from holdfast.server.executor import Clocks, Executor

WAIT_S: Final = patient(30.0)  # no single answer takes this long, also on a loaded machine
MAX_BYTES: Final = 64 * 1024 * 1024
ENV: Final = {"PATH": "/usr/bin:/bin"}


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: object = error.get("data")


class Peer:
    """One connection. Events are kept by process id in the order they came."""

    def __init__(self, link: ClientConnection) -> None:
        self.link = link
        self.session_id = ""
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.others: list[dict[str, Any]] = []
        self.answers: dict[int | str, dict[str, Any]] = {}
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())

    async def initialize(self, *, resume: str | None = None, holdfast: bool = False) -> dict[str, Any]:
        """The whole handshake."""
        params = {"clientName": "test", "resumeSessionId": resume, "holdfast": holdfast}
        result = await self.call("initialize", params)
        self.session_id = result["sessionId"]
        await self.tell("initialized", {})
        return result

    async def send(self, message: object) -> None:
        await self.link.send(message if isinstance(message, str | bytes) else json.dumps(message))

    async def tell(self, method: str, params: object) -> None:
        await self.send({"method": method, "params": params})

    async def ask(self, method: str, params: object = None) -> int:
        """Send a request without waiting; returns its id for `answer`."""
        number = next(self._numbers)
        await self.send({"id": number, "method": method, "params": params})
        return number

    async def answer(self, number: int | str) -> dict[str, Any]:
        """The result of a request sent earlier; raises Refused for an error."""
        await self.until(lambda: number in self.answers)
        reply = self.answers.pop(number)
        if "error" in reply:
            raise Refused(reply["error"])
        result: dict[str, Any] = reply["result"]
        return result

    async def call(self, method: str, params: object = None) -> dict[str, Any]:
        return await self.answer(await self.ask(method, params))

    async def start(self, process_id: str, *argv: str, **more: Any) -> dict[str, Any]:
        """process/start with defaults; an argv of one word is a shell script."""
        command = list(argv) if len(argv) > 1 else ["/bin/sh", "-c", argv[0]]
        params = {"processId": process_id, "argv": command, "cwd": "file:///tmp", "env": ENV, "tty": False}
        return await self.call("process/start", params | more)

    async def write(self, process_id: str, data: bytes, write_id: str) -> str:
        params = {"processId": process_id, "chunk": base64.b64encode(data).decode(), "writeId": write_id}
        status: str = (await self.call("process/write", params))["status"]
        return status

    async def closed(self, process_id: str) -> list[dict[str, Any]]:
        """Wait for the end of a process; all its events."""
        await self.until(lambda: self.methods(process_id)[-1:] == ["process/closed"])
        return self.events[process_id]

    async def output_has(self, process_id: str, text: bytes) -> None:
        """Wait until the output so far contains `text`."""
        await self.until(lambda: text in self.output(process_id))

    def output(self, process_id: str, stream: str | None = None) -> bytes:
        return b"".join(
            base64.b64decode(event["params"]["chunk"])
            for event in self.events.get(process_id, [])
            if event["method"] == "process/output" and stream in (None, event["params"]["stream"])
        )

    def methods(self, process_id: str) -> list[str]:
        return [event["method"] for event in self.events.get(process_id, [])]

    def exit_code(self, process_id: str) -> int:
        """Of a process that has exited."""
        [end] = [event for event in self.events[process_id] if event["method"] == "process/exited"]
        code: int = end["params"]["exitCode"]
        return code

    async def until(self, condition: Any) -> None:
        """Wait until it holds; looked at again after every message."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                if self._reader.done():
                    self._reader.result()
                    raise ConnectionError("the server closed the connection")
                self._news.clear()
                await self._news.wait()

    async def aclose(self) -> None:
        self._reader.cancel()
        await self.link.close()

    async def _read(self) -> None:
        try:
            async for data in self.link:
                message = json.loads(data)
                if "method" not in message:
                    self.answers[message["id"]] = message
                elif "processId" in message["params"]:
                    self.events.setdefault(message["params"]["processId"], []).append(message)
                else:
                    self.others.append(message)
                self._news.set()
        finally:
            self._news.set()


@contextlib.asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Peer]:
    """A connection without a handshake."""
    settings: dict[str, Any] = {"compression": None, "max_size": MAX_BYTES, "proxy": None, "close_timeout": 1}
    async with connect(url, **(settings | options)) as link:
        peer = Peer(link)
        try:
            yield peer
        finally:
            await peer.aclose()


@contextlib.asynccontextmanager
async def ready(url: str, **handshake: Any) -> AsyncIterator[Peer]:
    """A connection after its handshake."""
    async with connected(url) as peer:
        await peer.initialize(**handshake)
        yield peer


@contextlib.asynccontextmanager
async def serving(
    *,
    listen: str = "ws://127.0.0.1:0",
    slots: int = 1,
    clocks: "Clocks | None" = None,
    environ: Mapping[str, str] = ENV,
    authenticator: Authenticator | None = None,
    metrics: bool = False,
    choice: Choice = ANY,
) -> AsyncIterator[tuple[str, "Executor"]]:
    """A whole server in this loop; yields its address and its executor."""
    if sys.platform != "linux":
        plain = (slots, clocks, authenticator, metrics, choice) == (1, None, None, False, ANY)
        async with without_linux.serving_elsewhere(listen, environ, plain=plain) as url:
            yield url, None
        return
    executor = Executor(environ, clocks or Clocks(), choice)
    server = Server(ServeOptions(parse(listen), slots, authenticator, metrics), executor)
    bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(server.serve(bound.set_result))
    try:
        task.add_done_callback(lambda _: bound.cancel())
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(asyncio.CancelledError):
                await bound
        if task.done():
            task.result()
        yield bound.result(), executor
    finally:
        server.stop()
        async with asyncio.timeout(WAIT_S):
            await task


def fresh_mark() -> str:
    """Seconds for `sleep` that nobody else sleeps, so that a process can be told by its command line."""
    return f"{1_000_000 + secrets.randbelow(1_000_000_000)}.5"


async def seen_running(mark: str, count: int = 1) -> list[int]:
    """The processes named by `mark`, once there are `count`: during an exec a process has no name."""
    async with asyncio.timeout(patient(20)):
        while len(found := descendants_named(mark)) < count:
            await asyncio.sleep(0.01)
    return found


def descendants_named(mark: str) -> list[int]:
    """Processes whose command line contains `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
