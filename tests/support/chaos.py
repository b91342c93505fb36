"""A proxy on loopback or a unix socket that treats its connections badly, the same way for the same seed.

After a number of bytes, both directions counted together, a connection ends: it is reset, closed
in the middle of a message, or closed in one direction only. Before that it may be slow and hand
over bytes one by one. Sometimes nobody listens for a moment. Bytes are never changed, reordered or
left out in the middle: what arrives is the beginning of what was sent.

Where the n-th connection is cut, and how, depends on the seed alone. Delays and pieces also depend
on how the bytes happen to arrive.
"""

import asyncio
import contextlib
import math
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tests.support.patience import patient

Target: TypeAlias = tuple[str, int] | Path  # host and port, or a unix socket
End: TypeAlias = Literal["reset", "close", "half"]

READ_BYTES: Final = 64 * 1024
MAX_PIECES: Final = 64  # of one read, then the rest at once: a long stream must not take for ever
MAX_PIECE_BYTES: Final = 16
MAX_CONNECTIONS: Final = 128  # at a time; more means that somebody does not close theirs
DIAL_S: Final = patient(30.0)
LAST_BYTES_S: Final = 1.0  # a reader that does not read is cut off all the same
HALF_OPEN_S: Final = 0.3  # how long the other direction of a half closed connection goes on
NO_LINGER: Final = struct.pack("ii", 1, 0)  # close() becomes a reset


class _Cut(Exception):
    """The connection has had its bytes."""


@dataclass
class Fate:
    """What is decided about a connection when it arrives."""

    refused: bool
    moment_s: float  # how long nobody listens after a refusal
    left: float  # bytes until the cut
    end: End
    forth: random.Random
    back: random.Random


@dataclass
class Chaos:
    """A running proxy, and what it has done so far."""

    target: Target
    seed: int
    listen: int | Path
    cut_every_bytes: tuple[int, int] | None
    ends: Sequence[End]
    max_cuts: int | None
    split: float
    delay: float
    max_delay_s: float
    refuse: float
    max_refuse_s: float
    connections: int = 0
    refusals: int = 0
    ended: Counter[End] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = _chance(self.seed)
        self._open = 0

    @property
    def port(self) -> int:
        assert isinstance(self.listen, int)
        return self.listen

    @property
    def url(self) -> str:
        return f"unix://{self.listen}" if isinstance(self.listen, Path) else f"ws://127.0.0.1:{self.listen}"

    @property
    def cuts(self) -> int:
        """Connections ended in the middle; a refused one is not one of them."""
        return self.ended.total()

    @property
    def calm(self) -> bool:
        """All cuts that were asked for are done, and nothing bad happens any more."""
        return self.max_cuts is not None and self.cuts >= self.max_cuts

    async def serve(self) -> None:
        """Until cancelled; then every connection is gone."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(await self._accept_until_refused(tasks))

    async def _accept_until_refused(self, tasks: asyncio.TaskGroup) -> float:
        """Returns for how long nobody shall listen."""
        loop = asyncio.get_running_loop()
        with _bound(self.listen) as listener:
            listener.listen()
            while True:
                client, _ = await loop.sock_accept(listener)
                fate = self._decide()
                if fate.refused or self._open == MAX_CONNECTIONS:
                    self.refusals += 1
                    listener.close()  # first, so that whoever sees the reset finds nobody
                    _reset(client)
                    return fate.moment_s
                self.connections += 1
                self._open += 1
                tasks.create_task(self._carry(client, fate))

    def _decide(self) -> Fate:
        """The same number of draws whatever the options, so that one does not move the effects of another."""
        low, high = self.cut_every_bytes or (math.inf, math.inf)
        refused, moment, place, end, forth, back = (self._random.random() for _ in range(6))
        return Fate(
            refused=refused < self.refuse and not self.calm,
            moment_s=moment * self.max_refuse_s,
            left=math.inf if math.isinf(high) else low + int(place * (high - low + 1)),
            end=self.ends[int(end * len(self.ends))],
            forth=_chance(forth),
            back=_chance(back),
        )

    async def _carry(self, client: socket.socket, fate: Fate) -> None:
        family = socket.AF_UNIX if isinstance(self.target, Path) else socket.AF_INET
        address = str(self.target) if isinstance(self.target, Path) else self.target
        try:
            with client, socket.socket(family) as server:
                for sock in (client, server):
                    _prepare(sock)
                try:
                    async with asyncio.timeout(DIAL_S):
                        await asyncio.get_running_loop().sock_connect(server, address)
                    async with asyncio.TaskGroup() as both:
                        both.create_task(self._pump(client, server, fate, fate.forth))
                        both.create_task(self._pump(server, client, fate, fate.back))
                except* (_Cut, OSError):
                    if fate.end == "reset":
                        _reset(client, server)
        finally:
            self._open -= 1

    async def _pump(
        self, source: socket.socket, sink: socket.socket, fate: Fate, chance: random.Random
    ) -> None:
        """One direction, until its end or the cut."""
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(source, READ_BYTES):
            if chance.random() < self.delay and not self.calm:
                await asyncio.sleep(chance.random() * self.max_delay_s)
            tiny = chance.random() < self.split and not self.calm
            for piece in _pieces(data, chance) if tiny else [data]:
                if fate.left == 0:
                    return  # the other direction is cutting right now
                if len(piece) < fate.left or self.calm:
                    fate.left -= len(piece)
                    await loop.sock_sendall(sink, piece)
                else:
                    await self._cut(sink, piece[: int(fate.left)], fate)
                if tiny:
                    await asyncio.sleep(0)
        sink.shutdown(socket.SHUT_WR)

    async def _cut(self, sink: socket.socket, last: bytes, fate: Fate) -> None:
        self.ended[fate.end] += 1
        fate.left = math.inf if fate.end == "half" else 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_BYTES_S):
                await asyncio.get_running_loop().sock_sendall(sink, last)
        if fate.end == "half":
            sink.shutdown(socket.SHUT_WR)
            await asyncio.sleep(HALF_OPEN_S)
        raise _Cut


def _chance(seed: float) -> random.Random:
    return random.Random(seed)  # noqa: S311 # to be repeated, not to be unguessable


def _pieces(data: bytes, chance: random.Random) -> Iterator[bytes]:
    start = 0
    for _ in range(MAX_PIECES):
        size = chance.randint(1, MAX_PIECE_BYTES)
        if start + size >= len(data):
            break
        yield data[start : start + size]
        start += size
    yield data[start:]


def _bound(at: int | Path) -> socket.socket:
    """Several may share a port, so that it stays ours while nobody listens; a path is taken over."""
    sock = socket.socket(socket.AF_UNIX if isinstance(at, Path) else socket.AF_INET)
    sock.setblocking(False)
    if isinstance(at, Path):
        at.unlink(missing_ok=True)
        sock.bind(str(at))
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", at))
    return sock


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # tiny pieces travel alone


def _reset(*socks: socket.socket) -> None:
    for sock in socks:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        sock.close()


@contextlib.asynccontextmanager
async def chaos(
    target: Target,
    *,
    seed: int,
    listen: Path | None = None,
    cut_every_bytes: tuple[int, int] | None = None,
    ends: Sequence[End] = ("reset", "close", "half"),
    max_cuts: int | None = None,
    split: float = 0.2,
    delay: float = 0.1,
    max_delay_s: float = 0.02,
    refuse: float = 0.0,
    max_refuse_s: float = 0.2,
) -> AsyncIterator[Chaos]:
    """A proxy in front of `target`. `split`, `delay` (per read) and `refuse` (per connection) are chances.

    It listens on a free port unless `listen` names a unix socket.
    After `max_cuts` it is an honest proxy. Its connections end with the block.
    """
    with _bound(listen or 0) as holder:
        proxy = Chaos(
            target,
            seed,
            listen or holder.getsockname()[1],
            cut_every_bytes,
            ends,
            max_cuts,
            split,
            delay,
            max_delay_s,
            refuse,
            max_refuse_s,
        )
        serving = asyncio.ensure_future(proxy.serve())
        await asyncio.sleep(0)  # it listens when it first waits
        try:
            yield proxy
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
