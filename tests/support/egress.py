"""What stands at both ends of a connection outwards: a program, a name server, a service."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from holdfast.egress.addresses import Address
from holdfast.egress.dial import Dialer
from holdfast.egress.gate import Ask, Gate
from holdfast.egress.hosts import parse_rules
from holdfast.egress.upstream import Upstreams
from holdfast.egress.verdicts import Attempt, ProxyPolicy, Verdict
from tests.support.patience import patient
from tests.support.tcp import tcp_server

PUBLIC: Final = "93.184.216.34"  # an address that nobody here dials
Serve: TypeAlias = Callable[[socket.socket, Gate], Awaitable[None]]


class Names:
    """A resolver with an answer for each time, the last one for ever; `asked` are the names."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def no_daemon(_port: int) -> bool:
    return False


def nothing_own(_address: Address) -> bool:
    return False


def connected() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection, not blocking."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    for sock in (ours, theirs):
        sock.setblocking(False)
    return ours, theirs


async def all_of(sock: socket.socket) -> bytes:
    """Everything until the end of file, and the socket closed."""
    loop = asyncio.get_running_loop()
    found = b""
    with sock:
        async with asyncio.timeout(patient(10)):
            while got := await loop.sock_recv(sock, 4096):
                found += got
    return found


@asynccontextmanager
async def listening(
    answer: bytes = b"hello", *, head: bool = False
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that says this and closes, after a head if one is to come; its port, and what it was sent."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if head:
            heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)

    async with tcp_server(serve) as port:
        yield port, heard


class Proxied:
    """One side of a proxy with a gate of its own; what was decided is in `told`."""

    def __init__(
        self,
        serve: Serve,
        *,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        private: bool = True,
        limited: bool = False,
        names: Names | None = None,
        ask: Ask | None = None,
        upstream: Upstreams | None = None,
    ) -> None:
        self.told: list[tuple[Attempt, Verdict]] = []
        self.names = names or Names(["127.0.0.1"])
        self._serve = serve
        self._gate = Gate(
            ProxyPolicy(parse_rules(allow, deny, private=private), limited),
            Dialer(self.names, upstream or Upstreams(), is_own=nothing_own, is_daemon=no_daemon),
            tell=lambda attempt, verdict: self.told.append((attempt, verdict)),
            ask=ask,
        )

    @property
    def reasons(self) -> list[str]:
        return [verdict.reason for _, verdict in self.told]

    async def say(self, *parts: bytes, end: bool = False) -> bytes:
        """What comes back until the end, for what a program says; `end`: it says so."""
        program, inner = connected()
        loop = asyncio.get_running_loop()

        async def serve() -> None:
            with inner:
                await self._serve(inner, self._gate)

        serving = asyncio.ensure_future(serve())
        for part in parts:
            await loop.sock_sendall(program, part)
        if end:
            program.shutdown(socket.SHUT_WR)
        answer = await all_of(program)
        async with asyncio.timeout(patient(10)):
            await serving
        return answer
