"""Two connections joined: bytes and ends of file pass both ways, and a reset of one resets both."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

CHUNK_BYTES: Final = 64 * 1024  # held per direction; a faster sender waits
LARGE_CHUNK_BYTES: Final = 256 * 1024  # after a read that filled the smaller buffer: half as fast again
LEAVE_S: Final = 2.0  # to read a refusal, which is a line or two
LEAVE_BYTES: Final = 1024 * 1024  # of a body that is discarded
Hold: TypeAlias = Callable[[int], Awaitable[None]]  # before this many bytes pass; raises OSError
_RESET: Final = struct.pack("ii", 1, 0)  # struct linger: close by a reset


def count_nothing(_length: int) -> None:
    """Do nothing: the default where bytes are not counted."""


async def splice(
    inner: socket.socket,
    outer: socket.socket,
    *,
    sent: Callable[[int], None] = count_nothing,
    received: Callable[[int], None] = count_nothing,
) -> None:
    """Join two sockets until both directions have ended; close neither.

    `sent` is called with the number of bytes from inner to outer, `received` with that in the other
    direction.
    """
    whole = False
    try:
        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(pump(inner, outer, sent))
            pumps.create_task(pump(outer, inner, received))
        whole = True
    except* OSError:
        pass  # one side broke off, and the other gets a reset too
    finally:
        if not whole:
            reset(inner)
            reset(outer)


async def pump(
    source: socket.socket, sink: socket.socket, count: Callable[[int], None], hold: Hold | None = None
) -> None:
    """Copy bytes until the end of file, and shut the sink down; `count` is called per chunk. Raises OSError.

    `hold` waits until this many bytes may pass, or raises.
    """
    loop = asyncio.get_running_loop()
    sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # keep the chunks of the sender
    buffer = memoryview(bytearray(CHUNK_BYTES))
    while length := await loop.sock_recv_into(source, buffer):
        if hold is not None:
            await hold(length)
        await loop.sock_sendall(sink, buffer[:length])
        count(length)
        if length == len(buffer) < LARGE_CHUNK_BYTES:
            buffer = memoryview(bytearray(LARGE_CHUNK_BYTES))
        await asyncio.sleep(0)  # fast peers never block above, so yield to other tasks
    sink.shutdown(socket.SHUT_WR)


async def take_leave(sock: socket.socket) -> None:
    """Shut down sending, and let the peer read what was sent before.

    Closing with unread data would send a reset, which discards the answer that was sent. A peer that keeps
    sending is disconnected.
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
    """Make close send a reset, so that the peer sees an abnormal end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
