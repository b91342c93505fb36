"""Executors and harnesses of a relay, as light as they can be: a thousand of them are in one process.

An executor answers each record with the same record. A harness asks with numbered records, and asks again on
a new stream when its own was lost, as a client does that resumes its session. A question names who
asks and its number, so that an answer to another one, or a second answer, is seen.
"""

import asyncio
import json
import os
import random
import struct
import time
import uuid
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import urlsplit

from holdfast.wire import relayframes
from holdfast.wire.relayframes import Body

DIAL_S: Final = 10.0  # as the reference
PUBLIC: Final = "relay.invalid"  # stands for a load balancer: leads to any node that lives


class Wire(asyncio.Protocol):
    """A WebSocket without a library: every frame is whole, and the mask is zero."""

    def __init__(self, target: str, host: str, take: Callable[[bytes], None]) -> None:
        self._opening = (
            f"GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        ).encode()
        self._take = take
        self._buffer = bytearray()
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[int] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.writable = asyncio.Event()
        self.writable.set()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._opening)

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable.set()
        for future in (self.opened, self.lost):
            if not future.done():
                future.cancel() if future is self.opened else self.lost.set_result(None)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        if not self.opened.done():
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self.opened.set_result(int(buffer[9:12]))
            del buffer[: end + 4]
        at = 0
        while len(buffer) - at >= 2:
            size, head = buffer[at + 1] & 0x7F, 2
            if size == 126:
                head = 4
            elif size == 127:
                head = 10
            if len(buffer) - at < head:
                break
            if head > 2:
                (size,) = struct.unpack_from("!H" if head == 4 else "!Q", buffer, at + 2)
            if len(buffer) - at < head + size:
                break
            if buffer[at] == 0x82:
                self._take(bytes(buffer[at + head : at + head + size]))
            elif buffer[at] == 0x89:
                self.transport.write(b"\x8a\x80\0\0\0\0")
            at += head + size
        del buffer[:at]

    def send(self, frame: bytes) -> None:
        size = len(frame)
        head = bytes((0x82, 0x80 | size)) if size < 126 else struct.pack("!BBH", 0x82, 0xFE, size)
        if size > 0xFFFF:
            head = struct.pack("!BBQ", 0x82, 0xFF, size)
        self.transport.write(b"".join((head, b"\0\0\0\0", frame)))


class Balancer:
    """Which nodes live; addresses of any node lead to one of them."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, int]] = []

    def find(self, host: str | None, port: int | None) -> tuple[str, int]:
        return random.choice(self.nodes) if host == PUBLIC else (host or "", port or 80)  # noqa: S311

    async def ask(self, path: str, token: str, body: object) -> tuple[int, dict[str, Any]]:
        host, port = self.find(PUBLIC, None)
        data = json.dumps(body).encode()
        reader, writer = await asyncio.open_connection(host, port)
        try:
            head = f"POST {path} HTTP/1.1\r\nauthorization: Bearer {token}\r\n"
            writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
            answer = await reader.read()
        finally:
            writer.close()
        if not answer:
            raise ConnectionResetError("no answer")
        return int(answer[9:12]), json.loads(answer.partition(b"\r\n\r\n")[2])

    async def dial(self, url: str, take: Callable[[bytes], None]) -> tuple[int, Wire]:
        parts = urlsplit(url)
        where = self.find(parts.hostname, parts.port)
        made: list[Wire] = []

        def make() -> Wire:
            made.append(Wire(f"{parts.path}?{parts.query}", where[0], take))
            return made[0]

        async with asyncio.timeout(DIAL_S):
            await asyncio.get_running_loop().create_connection(make, *where)
            try:
                return await made[0].opened, made[0]
            except asyncio.CancelledError:
                if made[0].opened.cancelled():
                    raise ConnectionResetError("lost while dialling") from None
                raise


def make_key() -> dict[str, str]:
    """A public key that nobody has the other half of."""
    import base64

    raw = {"x25519_public_key": os.urandom(32), "mlkem768_public_key": os.urandom(1184)}
    suite = {"suite": "Noise_hybridIK_X25519+MLKEM768_AESGCM_SHA256"}
    return suite | {name: base64.b64encode(value).decode() for name, value in raw.items()}


class EchoExecutor:
    """Registers, dials, answers; dials again with the pauses of the reference."""

    def __init__(self, balancer: Balancer, token: str, environment: str) -> None:
        self._balancer, self._token, self.environment = balancer, token, environment
        self._key = make_key()
        self._wire: Wire | None = None
        self.url = ""
        self.register_s = self.dial_s = 0.0
        self.dials = 0

    async def register(self) -> None:
        began = time.perf_counter()
        path = f"/cloud/environment/{self.environment}/register"
        body = {"security_profile": "noise_hybrid_ik_v1", "executor_public_key": self._key}
        status, answer = await self._balancer.ask(path, self._token, body)
        if status != 200:
            raise AssertionError(f"register: {status} {answer}")
        self.url = answer["url"]
        self.register_s = time.perf_counter() - began

    async def dial(self) -> bool:
        began = time.perf_counter()
        status, wire = await self._balancer.dial(self.url, self._take)
        self._wire = wire
        self.dials += 1
        self.dial_s = time.perf_counter() - began
        return status == 101

    async def stay(self) -> None:
        """Be there until cancelled."""
        pause_s = 1.0
        while True:
            if self._wire is not None:
                await self._wire.lost
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
            pause_s = min(30.0, pause_s * 2)
            try:
                if not await self.dial():
                    await self.register()
            except (OSError, TimeoutError):
                self._wire = None

    def _take(self, frame: bytes) -> None:
        if self._wire is not None and relayframes.peek(frame)[1] is Body.DATA:
            self._wire.send(frame)

    def send(self, frame: bytes) -> Wire:
        if self._wire is None:
            raise AssertionError("not dialled")
        self._wire.send(frame)
        return self._wire


class AskingHarness:
    """One stream at a time to one executor; what was asked on a lost stream is asked again on the next."""

    def __init__(self, balancer: Balancer, token: str, environment: str) -> None:
        self._balancer, self._token, self._environment = balancer, token, environment
        self._key = make_key()
        self._name = uuid.uuid4().hex
        self.question: bytes | None = None  # None: whatever comes is counted and nothing else
        self.asked = self.answered = self.wrong = 0
        self.wire: Wire | None = None
        self.stream = ""
        self._answer: asyncio.Future[bytes] | None = None
        self.connect_s = 0.0
        self.round_trips: list[float] = []
        self.gaps: list[float] = []
        self.received = 0
        self.received_bytes = 0

    async def connect(self) -> None:
        """Until it is; offline and lost are tried again."""
        pause_s = 0.1
        while True:
            began = time.perf_counter()
            try:
                path = f"/cloud/environment/{self._environment}/connect"
                status, bundle = await self._balancer.ask(
                    path, self._token, {"harness_public_key": self._key}
                )
                if status == 200:
                    opened, self.wire = await self._balancer.dial(bundle["url"], self._take)
                    if opened == 101:
                        self.stream = str(uuid.uuid4())
                        self.wire.send(relayframes.resume(self.stream))
                        self.connect_s = time.perf_counter() - began
                        return
            except (OSError, TimeoutError):
                pass
            await asyncio.sleep(pause_s)
            pause_s = min(2.0, pause_s * 1.5)

    async def ask(self, size: int) -> None:
        """One question and its answer, however many streams it takes."""
        number, self.asked = self.asked, self.asked + 1
        self.question = f"{self._name} {number} ".encode().ljust(size, b"x")
        began = time.perf_counter()
        lost = self.wire is not None and self.wire.lost.done()
        while True:
            if self.wire is None or self.wire.lost.done():
                await self.connect()
            wire = self.wire
            if wire is None:
                raise AssertionError("it is connected")
            self._answer = asyncio.get_running_loop().create_future()
            wire.send(relayframes.data(self.stream, number, self.question))
            waited: list[asyncio.Future[Any]] = [self._answer, wire.lost]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self._answer.done():
                took = time.perf_counter() - began
                (self.gaps if lost else self.round_trips).append(took)
                self.answered += 1
                return
            lost = True

    def _take(self, frame: bytes) -> None:
        self.received += 1
        self.received_bytes += len(frame)
        if self.question is None or self._answer is None:
            return
        if self._answer.done() or relayframes.decode(frame).payload != self.question:
            self.wrong += 1
        else:
            self._answer.set_result(frame)
