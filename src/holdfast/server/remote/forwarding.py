"""A stream that leads to an exec server elsewhere: each has its own WebSocket to it.

Messages are opaque: nothing is parsed, repeated or kept for another connection, so sessions and their
recovery are between the client and that server. Messages that the server sent before it closed the connection
still reach the client.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.uri import parse_uri

from holdfast.errors import StartupError
from holdfast.log import LIBRARY
from holdfast.rendezvous.attempts import DIAL_S
from holdfast.server.remote.relayedge import Port
from holdfast.wire.sizes import MAX_MESSAGE_BYTES

log = logging.getLogger(__name__)

FRAGMENT_BYTES: Final = 8 * 1024 * 1024  # half of the frame that an exec server accepts
MAX_WAITING: Final = 16  # messages for the server before reading from the relay is paused
CLOSE_S: Final = 1.0  # to acknowledge its closing message


def check_destination(url: str) -> str:
    """Return the address without surrounding space.

    Raises: StartupError: it is not an exec server's address.
    """
    address = url.strip()
    try:
        parse_uri(address)
        host = urlsplit(address).hostname
    except (InvalidURI, ValueError):
        host = None
    if not host:
        raise StartupError("this is no address of an exec server", remedy="give --connect ws://HOST:PORT")
    return address


class ForwardedStream:
    """One stream and its WebSocket."""

    def __init__(self, port: Port, url: str, adopt: Callable[["asyncio.Task[None]"], None]) -> None:
        self._port = port
        self._url = url
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._task = asyncio.get_running_loop().create_task(self._run())
        adopt(self._task)
        self._task.add_done_callback(lambda _: port.finish())

    # --- the stream's side

    def receive(self, message: bytes) -> None:
        self._waiting.append(message)
        if len(self._waiting) >= MAX_WAITING:
            self._port.pause_reading()
        self._news.set()

    def on_writing_paused(self) -> None:
        self._writable.clear()

    def on_writing_resumed(self) -> None:
        self._writable.set()

    def close(self) -> None:
        """End without a closing message, because the client is gone."""
        self._task.cancel()

    # --- the server's side

    async def _run(self) -> None:
        try:
            socket = await connect(
                self._url,
                compression=None,
                logger=LIBRARY,
                user_agent_header=None,
                proxy=None,
                open_timeout=DIAL_S,
                ping_interval=None,
                close_timeout=CLOSE_S,
                max_size=MAX_MESSAGE_BYTES,
            )
        except (OSError, TimeoutError, InvalidHandshake) as exc:
            log.warning("the exec server cannot be reached", extra={"reason": type(exc).__name__})
            return
        sending = asyncio.get_running_loop().create_task(self._send_all(socket))
        try:
            with contextlib.suppress(ConnectionClosed):
                async for message in socket:
                    await self._writable.wait()
                    self._port.send(message if isinstance(message, bytes) else message.encode())
            await socket.wait_closed()
        finally:
            sending.cancel()
            socket.transport.abort()

    async def _send_all(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._news.wait()
                self._news.clear()
                while self._waiting:
                    message = self._waiting.popleft()
                    if len(self._waiting) < MAX_WAITING // 2:
                        self._port.resume_reading()
                    await socket.send(_pieces(message))


def _pieces(message: bytes) -> bytes | list[bytes]:
    """A message, in fragments if it is long."""
    if len(message) <= FRAGMENT_BYTES:
        return message
    starts = range(0, len(message), FRAGMENT_BYTES)
    return [message[start : start + FRAGMENT_BYTES] for start in starts]
