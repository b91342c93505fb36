"""Accept the first connection before the event loop is loaded: its client waits for us already.

Only a handshake without any fault is answered here. Every other connection, and every slow one, is passed on
with the data received, and handled there like any later connection.
"""

import select
import socket
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.errors import PeerRefused, RemoteProtocolError
from holdfast.server.edges.httphead import MAX_HEAD_BYTES, accept, answer, parse_head

WITHIN_S: Final = 0.02  # for a client that was started to use us; others are not kept waiting for longer

Check = Callable[[str | None, Any, Any], None]


class FirstConnection(NamedTuple):
    sock: socket.socket
    received: bytes  # not parsed: all of it, or the data after the request head
    opened: bool  # whether the handshake was answered


def receive_first(
    listening: socket.socket, check: Check, *, now: Callable[[], float] = time.monotonic
) -> FirstConnection | None:
    """Accept a client that connects at once, and answer its handshake if `check` admits it; else None.

    `check` gets the header `Authorization` and both addresses, and raises PeerRefused.
    """
    until = now() + WITHIN_S
    if not _wait(listening, WITHIN_S):
        return None
    try:
        sock, peer = listening.accept()
    except OSError:
        return None  # it has closed the connection again
    received = b""
    try:
        sock.setblocking(False)
        while b"\r\n\r\n" not in received and len(received) <= MAX_HEAD_BYTES:
            if not _wait(sock, until - now()):
                return FirstConnection(sock, received, opened=False)
            data = sock.recv(MAX_HEAD_BYTES)
            if not data:
                return FirstConnection(sock, received, opened=False)
            received += data
        head, _, rest = received.partition(b"\r\n\r\n")
        opening = _accept(head + b"\r\n\r\n", lambda given: check(given, sock.getsockname(), peer))
        if opening is not None and sock.send(opening) == len(opening):
            return FirstConnection(sock, rest, opened=True)
    except OSError:
        pass  # reset: the event loop will notice it and clean up
    return FirstConnection(sock, received, opened=False)


def _accept(raw: bytes, check: Callable[[str | None], None]) -> bytes | None:
    """The answer that opens the WebSocket; None for a request that needs another answer."""
    try:
        head = parse_head(raw)
        if answer(head, metrics=False) is not None:
            return None
        check(head.get("authorization"))
    except (RemoteProtocolError, PeerRefused):
        return None
    return accept(head)


def _wait(sock: socket.socket, seconds: float) -> bool:
    """Return whether something can be read within that time."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))
