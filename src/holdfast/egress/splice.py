"""Two connections joined: bytes and ends of file pass both ways, and a break is one for both."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

CHUNK_BYTES: Final = 64 * 1024  # held per direction; whoever sends faster waits
LARGE_CHUNK_BYTES: Final = 256 * 1024  # the same of one that has filled the other: half as fast again
LEAVE_S: Final = 2.0  # to read a refusal, which is a line or two
LEAVE_BYTES: Final = 1024 * 1024  # of a body that nobody wants
Hold: TypeAlias = Callable[[int], Awaitable[None]]  # before so many bytes pass; raises OSError
_RESET: Final = struct.pack("ii", 1, 0)  # struct linger: close by a reset


def count_nothing(_length: int) -> None:
    """Nobody wants to know."""


async def splice(
    inner: socket.socket,
    outer: socket.socket,
    *,
    sent: Callable[[int], None] = count_nothing,
    received: Callable[[int], None] = count_nothing,
) -> None:
    """Join them until both directions have ended; neither is closed here.

    `sent` hears how many bytes went from inner to outer, `received` of those that came back.
    """
    whole = False
    try:
        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(pump(inner, outer, sent))
            pumps.create_task(pump(outer, inner, received))
        whole = True
    except* OSError:
        pass  # one side broke off, and the other is told in the same way
    finally:
        if not whole:
            reset(inner)
            reset(outer)


async def pump(
    source: socket.socket, sink: socket.socket, count: Callable[[int], None], hold: Hold | None = None
) -> None:
    """Pass on bytes until the end of file, and that too; `count` hears of each chunk. Raises OSError.

    `hold` waits until so many may pass, or raises.
    """
    loop = asyncio.get_running_loop()
    sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # chunks are as the sender made them
    buffer = memoryview(bytearray(CHUNK_BYTES))
    while length := await loop.sock_recv_into(source, buffer):
        if hold is not None:
            await hold(length)
        await loop.sock_sendall(sink, buffer[:length])
        count(length)
        if length == len(buffer) < LARGE_CHUNK_BYTES:
            buffer = memoryview(bytearray(LARGE_CHUNK_BYTES))
        await asyncio.sleep(0)  # when both ends are quick, neither call above waits
    sink.shutdown(socket.SHUT_WR)


async def take_leave(sock: socket.socket) -> None:
    """Say that nothing more comes, and let the peer read what came before.

    A close while something is unread would be a reset, and that throws away the answer that was sent. A peer
    that goes on talking is cut off.
    """
    loop = asyncio.get_running_loop()
    buffer = memoryview(bytearray(CHUNK_BYTES))
    heard = 0
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(LEAVE_S):
            while heard < LEAVE_BYTES and (length := await loop.sock_recv_into(sock, buffer)):
                heard += length


def reset(sock: socket.socket) -> None:
    """Let its close be a reset: the peer is told that this was no ordinary end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
