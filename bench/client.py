"""The measuring client: a blocking WebSocket over a raw socket, light enough not to be what is measured.

Both servers are measured with this one client. It looks for markers in the bytes of a message instead of
decoding JSON, and it masks with a key of zeros, which leaves a payload as it is: a server unmasks it like any
other, and the client does not pay per byte. TCP_NODELAY is set for what the client sends; nothing else
differs from an ordinary socket, so a server that leaves Nagle's algorithm on pays for it here as elsewhere.
"""

import base64
import json
import os
import socket
import struct
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

RECV_TIMEOUT_S: Final = 20  # silent for so long means hung; below the 30 s between pings, which would hide it
FIRST_BUFFER: Final = 1 << 20
MAX_BUFFER: Final = 1 << 26  # the protocol's largest message; a longer frame is a fault, not a measurement
WINDOW: Final = 1 << 19  # one receive; stays within the second-level cache
EDGE: Final = 128  # bytes kept of either end of a frame nobody wants to read in full

MASK: Final = b"\0\0\0\0"
TEXT: Final = b"\x81"
PONG: Final = b"\x8a"
FIN_BIT, OPCODE_BITS, LENGTH_BITS = 0x80, 0x0F, 0x7F
OP_CLOSE, OP_PING, OP_PONG = 8, 9, 10


class Failed(Exception):
    """A server did not do what the measurement needs; the number would be worthless."""


class Connection:
    """One initialized session; not safe to share between threads."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._last_id = 0
        self.buffer = bytearray(FIRST_BUFFER)
        self._view = memoryview(self.buffer)
        self._start = self._end = 0
        self.socket = socket.create_connection((address.hostname, address.port), timeout=RECV_TIMEOUT_S)
        try:
            self._prepare()
            self._upgrade(address.netloc)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def buffered(self) -> bool:
        """Whether bytes were received that no frame has used yet."""
        return self._end > self._start

    def initialize(self) -> Self:
        self.call("initialize", {"clientName": "bench"})
        self.send(b'{"method":"initialized","params":{}}')
        return self

    def send(self, payload: bytes, lead: bytes = TEXT) -> None:
        size = len(payload)
        if size < 126:
            length = bytes((FIN_BIT | size,))
        elif size < 1 << 16:
            length = struct.pack("!BH", FIN_BIT | 126, size)
        else:
            length = struct.pack("!BQ", FIN_BIT | 127, size)
        self.socket.sendall(lead + length + MASK + payload)

    def request(self, method: str, params: object) -> int:
        """Sends a request and returns its id; the reply is for `reply` to find."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        self.send(json.dumps(message, separators=(",", ":")).encode())
        return self._last_id

    def call(self, method: str, params: object) -> bytes:
        """The reply to a request, in full; notifications before it are dropped."""
        return self.reply(self.request(method, params), whole=True)

    def reply(self, request_id: int, *, whole: bool = False) -> bytes:
        while True:
            message = self.message(whole=whole)
            if answers(message, request_id):
                return message

    def message(self, *, whole: bool = False) -> bytes:
        """The next message; unless `whole`, the middle of each long frame is left out."""
        parts = []
        while True:
            final, begin, stop = self.frame()
            if whole or stop - begin <= 2 * EDGE:
                parts.append(bytes(self._view[begin:stop]))
            else:
                parts += [bytes(self._view[begin : begin + EDGE]), bytes(self._view[stop - EDGE : stop])]
            if final:
                return b"".join(parts)

    def frame(self) -> tuple[int, int, int]:
        """The next data frame: whether it ends its message, and where in `buffer` its payload lies."""
        while True:
            self._need(2)
            at = self._start
            first, size, header = self.buffer[at], self.buffer[at + 1] & LENGTH_BITS, 2
            if size == 126:
                header = 4
                self._need(header)
                (size,) = struct.unpack_from("!H", self.buffer, self._start + 2)
            elif size == 127:
                header = 10
                self._need(header)
                (size,) = struct.unpack_from("!Q", self.buffer, self._start + 2)
            self._need(header + size)
            begin = self._start + header
            self._start = stop = begin + size
            opcode = first & OPCODE_BITS
            if opcode == OP_CLOSE:
                raise Failed("the server closed the connection")
            if opcode == OP_PING:
                self.send(bytes(self._view[begin:stop]), PONG)
            elif opcode != OP_PONG:
                return first & FIN_BIT, begin, stop

    def _need(self, size: int) -> None:
        while self._end - self._start < size:
            self._receive(size)

    def _receive(self, size: int) -> None:
        kept = self._end - self._start
        if size > len(self.buffer):
            if size > MAX_BUFFER:
                raise Failed(f"the server announced a frame of {size} bytes")
            self.buffer = self.buffer[self._start : self._end] + bytes(size + WINDOW - kept)
            self._view = memoryview(self.buffer)
        elif kept < WINDOW or self._start + size > len(self.buffer):
            self._view[:kept] = self._view[self._start : self._end]
        else:
            self._fill(WINDOW)
            return
        self._start, self._end = 0, kept
        self._fill(max(WINDOW, size - kept))

    def _fill(self, most: int) -> None:
        try:
            count = self.socket.recv_into(self._view[self._end : self._end + most])
        except BlockingIOError:
            raise Failed(f"the server was silent for {RECV_TIMEOUT_S} s") from None
        if not count:
            raise Failed("the server dropped the connection")
        self._end += count

    def _prepare(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A Python timeout costs a poll(2) per receive; the kernel's own costs nothing.
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", RECV_TIMEOUT_S, 0))

    def _upgrade(self, host: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while (end := self.buffer.find(b"\r\n\r\n", 0, self._end)) < 0:
            self._fill(WINDOW)
        if b" 101 " not in self.buffer[: self.buffer.index(b"\r\n")]:
            raise Failed("the server refused the WebSocket upgrade")
        self._start = end + 4


def answers(message: bytes, request_id: int) -> bool:
    """Whether this is the reply to the request.

    Raises:
        Failed: it is, and it is an error.
    """
    if b'"id":%d,' % request_id not in message and b'"id":%d}' % request_id not in message:
        return False
    if b'"error":{' in message:
        raise Failed(f"the server answered with an error: {message[:300].decode(errors='replace')}")
    return True
