"""The confined file worker: executes file methods, and discovery, inside a sandbox, one after another.

It runs where only the policy's view exists, so that a link, a rename or a race cannot lead outside. It gets
requests on one unix socket, answers on it, and returns open files as descriptors.
"""

import array
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast import decoding
from holdfast.errors import HoldfastError, kind
from holdfast.server.files import files, walk
from holdfast.server.files.contents import closing
from holdfast.server.files.handles import open_file
from holdfast.wire.files import OpenParams
from holdfast.wire.methods import METHODS, json_decoder

FRAME: Final = struct.Struct("<BI")  # kind, length
REQUEST, RESULT, ERROR, OPENED = 1, 2, 3, 4

FIRST_READ: Final = 64 * 1024  # holds most messages completely

_encode = msgspec.json.Encoder().encode
_decode = decoding.decoder(tuple[str, msgspec.Raw]).decode

HANDLERS: Final[
    dict[str, Callable[[Any], Any]]
] = {  # the table pairs each with the struct its method decodes to
    "fs/readFile": files.read_file,
    "fs/writeFile": files.write_file,
    "fs/createDirectory": files.create_directory,
    "fs/getMetadata": files.get_metadata,
    "fs/canonicalize": files.canonicalize,
    "fs/readDirectory": files.read_directory,
    "fs/remove": files.remove,
    "fs/copy": files.copy,
    "fs/walk": walk.walk,
}


_DECODERS: Final = {name: json_decoder(METHODS[name].params) for name in (*HANDLERS, "fs/open")}


def receive(sock: socket.socket) -> bytes:
    """Return the next request; the other side sends one at a time. EOFError when it is gone."""
    data = bytearray(sock.recv(FIRST_READ))
    size = FRAME.size
    while len(data) < size or len(data) < (size := FRAME.size + FRAME.unpack_from(data)[1]):
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return bytes(memoryview(data)[FRAME.size :])


def send(sock: socket.socket, kind: int, payload: bytes, fd: int | None = None) -> None:
    """Send one frame, with a descriptor if there is one."""
    head = FRAME.pack(kind, len(payload))
    if fd is None:
        sock.sendall(head + payload if len(payload) < 4096 else head)
        if len(payload) >= 4096:
            sock.sendall(payload)
        return
    sock.sendmsg([head + payload], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])


def _serve_one(sock: socket.socket) -> None:
    name, params = _decode(receive(sock))
    try:
        if name in _DECODERS:
            decoded = _DECODERS[name].decode(params)
            if isinstance(decoded, OpenParams):
                with closing(open_file(decoded)) as fd:
                    send(sock, OPENED, b"", fd)
                return
            result = HANDLERS[name](decoded)
        else:
            result = _discover(name, params)
    except HoldfastError as exc:
        send(sock, ERROR, _encode((kind(exc), str(exc))))
    else:
        send(sock, RESULT, bytes(result) if isinstance(result, msgspec.Raw) else _encode(result))


def _discover(name: str, params: msgspec.Raw) -> object:
    from holdfast.server.codex import discovery  # few workers need it, and loading it would delay all

    form, act = discovery.CONFINED[name]
    return act(json_decoder(form).decode(params))


def main() -> None:
    """Serve on descriptor 0 until it is closed."""
    with socket.socket(fileno=0) as sock:
        try:
            while True:
                _serve_one(sock)
        except (EOFError, ConnectionError):
            return
