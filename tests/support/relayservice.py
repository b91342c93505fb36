"""A registry and a relay in one, in the test's own loop, that can be told to fail, to refuse and to lie."""

import asyncio
import itertools
import json
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from holdfast.client.environment import Environment
from holdfast.client.environments import Environments
from holdfast.local.tasks import TaskSet
from holdfast.server.edges.address import RemoteAddress
from holdfast.server.edges.binding import ServeOptions
from holdfast.server.edges.listen import Server
from holdfast.server.edges.remoteedge import serve_remote
from holdfast.server.executor import Clocks, Executor
from holdfast.server.remote.credential import Credential, CredentialHolder
from holdfast.server.remote.forwarding import ForwardedStream
from holdfast.wire import relayframes
from holdfast.wire.registry import PROFILE
from holdfast.wire.relayframes import Body, RelayFrame
from tests.support.patience import patient
from tests.support.peer import ENV
from tests.support.servers import isolated_environment

WAIT_S: Final = patient(20.0)
ENVIRONMENT: Final = "env-1"
TOKEN: Final = "registry-token"

Direction = Literal["up", "down"]  # to the executor, to the client
Tamper = Callable[[Direction, RelayFrame, bytes], list[bytes]]


@dataclass
class Asked:
    """One request to the registry."""

    operation: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class _Socket:
    writer: asyncio.StreamWriter
    frames: ServerProtocol
    streams: set[str] = field(default_factory=set)

    def send(self, data: bytes) -> None:
        if not self.writer.is_closing():
            self.frames.send_binary(data)
            self.flush()

    def send_text(self, text: bytes) -> None:
        self.frames.send_text(text)
        self.flush()

    def flush(self) -> None:
        for data in self.frames.data_to_send():
            if data:
                self.writer.write(data)

    def drop(self) -> None:
        self.writer.transport.abort()


class RelayService:
    """Registrations, sockets by role, and what was asked. Attributes say how it behaves."""

    def __init__(self) -> None:
        self.url = ""
        self.dial_url = ""  # where both dial the relay, if that is elsewhere
        self.asked: list[Asked] = []
        self.upgrades: list[tuple[str, dict[str, str]]] = []
        self.seen: list[tuple[Direction, bytes]] = []  # every frame, as it came
        self.answers: defaultdict[str, deque[tuple[int, object] | None]] = defaultdict(deque)
        self.refuse: defaultdict[str, deque[int]] = defaultdict(deque)  # statuses of upgrades, by role
        self.tamper: Tamper = lambda _direction, _frame, raw: [raw]
        self.deaf = False  # are pings left unanswered?
        self.resets = True  # does the executor hear of a client that is gone?
        self.executor: _Socket | None = None
        self.clients: dict[str, _Socket] = {}
        self.key: dict[str, str] | None = None
        self.registration = ""
        self._news = asyncio.Event()
        self._numbers = itertools.count(1)
        self._issued: dict[str, tuple[str, object]] = {}

    # --- what tests do

    async def until(self, holds: Callable[[], object]) -> None:
        """Looked at again after everything that happens here; one waits at a time."""
        async with asyncio.timeout(WAIT_S):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def until_registered(self) -> None:
        await self.until(lambda: self.executor is not None)

    def count(self, operation: str) -> int:
        return sum(asked.operation == operation for asked in self.asked)

    def drop_executor(self) -> None:
        if self.executor is not None:
            self.executor.drop()

    def drop_clients(self) -> None:
        for client in list(self.clients.values()):
            client.drop()

    @property
    def _relay(self) -> str:
        return self.dial_url or self.url.replace("http", "ws", 1)

    # --- HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode().split("\r\n")
                method, target, _ = first.split(" ")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines if line)
                }
                if method == "GET":
                    await self._upgrade(head, target, headers, reader, writer)
                    return
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                answer = await self._answer(target, headers, json.loads(body))
                if answer is None:  # silence, until whoever asked is gone
                    await reader.read()
                    return
                await self._respond(writer, *answer)

    async def _respond(self, writer: asyncio.StreamWriter, status: int, content: object) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        more = "Location: /elsewhere\r\n" if 300 <= status < 400 else ""
        head = f"HTTP/1.1 {status} X\r\n{more}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    async def _answer(
        self, target: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, object] | None:
        *_, environment, operation = target.split("/")
        self.asked.append(Asked(operation, headers, body))
        self._news.set()
        if self.answers[operation]:
            return self.answers[operation].popleft()
        if headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {"error": {"code": "unauthorized", "message": "who are you?"}}
        about = {"environment_id": environment, "security_profile": PROFILE}
        place = f"{self._relay}/ws/{environment}?sig=SECRET&role="
        match operation:
            case "register":
                self.key = body["executor_public_key"]
                self.registration = f"registration-{next(self._numbers)}"
                return 200, {
                    **about,
                    "url": f"{place}environment",
                    "executor_registration_id": self.registration,
                }
            case "connect":
                if self.executor is None:
                    return 409, {"error": {"code": "environment_offline", "message": "nobody is there"}}
                authorization = f"authorization-{next(self._numbers)}"
                self._issued[authorization] = (self.registration, body["harness_public_key"])
                return 200, {
                    **about,
                    "url": f"{place}harness",
                    "executor_registration_id": self.registration,
                    "executor_public_key": self.key,
                    "harness_key_authorization": authorization,
                }
            case "validate":
                shown = (body["executor_registration_id"], body["harness_public_key"])
                issued = self._issued.pop(body["harness_key_authorization"], None)
                return 200, {"valid": issued == shown}
        return 404, {}

    # --- WebSocket

    async def _upgrade(
        self,
        head: bytes,
        target: str,
        headers: dict[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        role = target.rpartition("role=")[2]
        self.upgrades.append((role, headers))
        if self.refuse[role]:
            await self._respond(writer, self.refuse[role].popleft(), {})
            self._news.set()
            await reader.read()
            return
        frames = ServerProtocol(max_size=relayframes.MAX_FRAME_BYTES)
        frames.receive_data(head)
        request = frames.events_received()[0]
        frames.send_response(frames.accept(request))  # type: ignore[arg-type]
        mine = _Socket(writer, frames)
        mine.flush()
        if role == "environment":
            if self.executor is not None:
                self.executor.drop()
            self.executor = mine
        self._news.set()
        try:
            while data := await reader.read(2**18):
                frames.receive_data(data)
                for event in frames.events_received():
                    if isinstance(event, Frame) and event.opcode is Opcode.BINARY:
                        self._route(mine, role, bytes(event.data))
                if self.deaf:
                    frames.data_to_send()
                mine.flush()
                await writer.drain()
                self._news.set()
        finally:
            self._leave(mine, role)
            self._news.set()

    def _route(self, mine: _Socket, role: str, raw: bytes) -> None:
        frame = relayframes.decode(raw)
        direction: Direction = "up" if role == "harness" else "down"
        if role == "harness" and frame.body is Body.RESUME:
            self.clients[frame.stream_id] = mine
            mine.streams.add(frame.stream_id)
        self.seen.append((direction, raw))
        for sent in self.tamper(direction, frame, raw):
            named = self.clients.get(relayframes.decode(sent).stream_id) or self.clients.get(frame.stream_id)
            to = self.executor if direction == "up" else named
            if to is not None:
                to.send(sent)

    def _leave(self, mine: _Socket, role: str) -> None:
        mine.drop()
        if role == "environment" and self.executor is mine:
            self.executor = None
            self.drop_clients()
        for stream in mine.streams:
            self.clients.pop(stream, None)
            if self.resets and self.executor is not None:
                self.executor.send(relayframes.reset(stream, "gone"))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):
                await self._serve(reader, writer)
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def relay_service() -> AsyncIterator[RelayService]:
    """One on a port of its own."""
    service = RelayService()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(service._connected(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**20)
    host, port = server.sockets[0].getsockname()[:2]
    service.url = f"http://{host}:{port}"
    try:
        yield service
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def executing(
    service: RelayService,
    *,
    seed: bytes = bytes(32),
    clocks: Clocks = Clocks(),  # noqa: B008 - frozen
) -> AsyncIterator[Executor]:
    """An executor of ours in this loop, registered and connected."""
    async with registering(service.url, ENVIRONMENT, TOKEN, seed=seed, clocks=clocks) as (executor, task):
        task.add_done_callback(lambda _: service._news.set())
        await service.until(lambda: service.executor is not None or task.done())
        if task.done():
            task.result()
        yield executor


@asynccontextmanager
async def registering(
    url: str,
    environment_id: str,
    token: str,
    *,
    seed: bytes,
    clocks: Clocks = Clocks(),  # noqa: B008 - frozen
    metrics_file: Path | None = None,
) -> AsyncIterator[tuple[Executor, asyncio.Future[None]]]:
    """An executor of ours in this loop, and its life at that registry."""
    executor = Executor(ENV, clocks)
    credential = CredentialHolder(environment_id, time.time, Credential(token))
    options = ServeOptions(RemoteAddress(url, environment_id, credential, seed))
    if metrics_file is not None:
        options = options._replace(metrics_file=str(metrics_file))
    server = Server(options, executor)
    task = asyncio.ensure_future(server.serve(lambda _: None))
    try:
        yield executor, task
    finally:
        server.stop()
        async with asyncio.timeout(WAIT_S):
            await task


@asynccontextmanager
async def forwarding(service: RelayService, url: str) -> AsyncIterator[None]:
    """What `holdfast forward` does, in this loop, connected."""
    credential = CredentialHolder(ENVIRONMENT, time.time, Credential(TOKEN))
    address = RemoteAddress(service.url, ENVIRONMENT, credential, bytes(32))
    streams = TaskSet()
    task = asyncio.ensure_future(
        serve_remote(
            address, lambda port: ForwardedStream(port, url, streams.keep), asyncio.Event(), lambda: None
        )
    )
    try:
        await service.until_registered()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await streams.aclose()


@asynccontextmanager
async def executor_process(
    service: RelayService, argv: list[str], home: Path, **more: str
) -> AsyncIterator[None]:
    """An executor as a process of its own, connected; SIGTERM ends it, with status 0."""
    (home / ".codex").mkdir(parents=True)
    environ = isolated_environment(home) | {"CODEX_API_KEY": TOKEN} | more
    with (home / "executor.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *argv, "--remote", service.url, "--environment-id", ENVIRONMENT,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log,
            env=environ, cwd=home, start_new_session=True,
        )  # fmt: skip
    try:
        await service.until_registered()
        yield
    except BaseException as exc:
        exc.add_note(f"stderr of the executor: {(home / 'executor.log').read_text('utf-8')[-2000:]}")
        raise
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(WAIT_S):
            printed, _ = await process.communicate()
    assert (process.returncode, printed) == (0, b"")


def variables(service: RelayService, *, token: str = TOKEN) -> dict[str, str]:
    """What tells a client of this environment."""
    return {
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": service.url,
        "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": ENVIRONMENT,
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": token,
        "HOME": "/nonexistent",
    }


@asynccontextmanager
async def reached(service: RelayService) -> AsyncIterator[Environment]:
    """A client of ours, connected through this relay."""
    async with Environments.load(environ=variables(service)) as environments:
        yield await environments.get()
