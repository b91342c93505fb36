"""The server name that a TLS client sends before encryption begins. Pure module.

Only the first message is read. It may come in any number of pieces and of records. A hello that hides another
one (ECH) is reported as such: the visible name is then not the real one.
"""

from dataclasses import dataclass
from typing import Final

HANDSHAKE: Final = 0x16  # the first byte that a TLS client sends
ALERT_ACCESS_DENIED: Final = bytes((0x15, 3, 3, 0, 2, 2, 49))
ALERT_UNRECOGNIZED_NAME: Final = bytes((0x15, 3, 3, 0, 2, 2, 112))
MAX_HELLO: Final = 64 * 1024  # a client with large keys and a ticket needs less than 4 KiB
_MAX_RECORD: Final = 16 * 1024
_RECORD, _MESSAGE = 5, 4  # bytes of their headers
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_ENCRYPTED: Final = (0xFE0D, 0xFFCE)  # ECH, and its predecessor (ESNI)


class BadHello(ValueError):
    """The data is not a TLS client hello."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The server name in a hello. `encrypted`: another hello is inside of it."""

    server_name: str | None
    encrypted: bool


class HelloReader:
    """Takes a client's data until its hello is complete."""

    def __init__(self) -> None:
        self._data = bytearray()  # as received
        self._message = bytearray()  # without the headers of records
        self._at = 0  # how much of the data has been moved to the message

    def feed(self, data: bytes) -> Hello | None:
        """Take more data; return the hello once it is complete.

        Raises:
            BadHello: it is not a hello, or too long.
        """
        self._data += data
        if len(self._data) > MAX_HELLO:
            raise BadHello("it is too long")
        while self._take_record():
            if len(self._message) >= _MESSAGE:
                if self._message[0] != _CLIENT_HELLO:
                    raise BadHello("it is another message")
                length = int.from_bytes(self._message[1:4])
                if length > MAX_HELLO:
                    raise BadHello("it is too long")
                if len(self._message) >= _MESSAGE + length:
                    return _read_hello(bytes(self._message[_MESSAGE : _MESSAGE + length]))
        return None

    def _take_record(self) -> bool:
        """Move one record to the message; False if it is incomplete."""
        header = self._data[self._at : self._at + _RECORD]
        if (header[:1] and header[0] != HANDSHAKE) or (header[1:2] and header[1] != 3):
            raise BadHello("it is no record of a handshake")
        if len(header) < _RECORD:
            return False
        length = int.from_bytes(header[3:5])
        if not 0 < length <= _MAX_RECORD:
            raise BadHello("a record has an impossible length")
        begin = self._at + _RECORD
        if len(self._data) < begin + length:
            return False
        self._message += self._data[begin : begin + length]
        self._at = begin + length
        return True


def _read_hello(body: bytes) -> Hello:
    fields = _Fields(body)
    fields.take(2 + 32)  # version, random
    fields.vector(1)  # session
    fields.vector(2)  # ciphers
    fields.vector(1)  # compressions
    if fields.ended:
        return Hello(None, encrypted=False)
    extensions = _Fields(fields.vector(2))
    fields.end()
    names: str | None = None
    seen: set[int] = set()
    while not extensions.ended:
        kind = extensions.number(2)
        content = extensions.vector(2)
        if kind in seen:
            raise BadHello("an extension is there twice")
        seen.add(kind)
        if kind == _SERVER_NAME:
            names = _read_server_name(content)
    return Hello(names, encrypted=any(kind in seen for kind in _ENCRYPTED))


def _read_server_name(content: bytes) -> str:
    """RFC 6066: a list with at most one name of each type; only one type exists."""
    outer = _Fields(content)
    listed = _Fields(outer.vector(2))
    outer.end()
    if listed.number(1) != 0:
        raise BadHello("the server is named in an unknown way")
    name = listed.vector(2)
    listed.end()
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise BadHello("the name of the server is not ASCII") from None


class _Fields:
    """Reads the fields of a structure one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise BadHello("it ends too early")
        self._at += count
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width))

    def vector(self, width: int) -> bytes:
        return self.take(self.number(width))

    def end(self) -> None:
        if not self.ended:
            raise BadHello("something follows where nothing may")
