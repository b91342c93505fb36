"""The addresses of unix sockets, as a `struct sockaddr_un` says them. Pure module.

The broker imports this.
"""

import struct
from typing import Final, NamedTuple

_AF_UNIX: Final = 1  # linux/socket.h
_FAMILY: Final = 2  # bytes
_MAX: Final = 110  # struct sockaddr_un


class InPath(NamedTuple):
    path: bytes


class Abstract(NamedTuple):
    """A name that lies in no directory, and belongs to the network namespace."""

    name: bytes


class Autobind(NamedTuple):
    """A bind to an abstract name that the kernel picks."""


def parse_unix(data: bytes) -> InPath | Abstract | Autobind | None:
    """As the kernel reads it; None for what it refuses."""
    if not _FAMILY <= len(data) <= _MAX or struct.unpack_from("=H", data)[0] != _AF_UNIX:
        return None
    if len(data) == _FAMILY:
        return Autobind()
    if data[_FAMILY] == 0:
        return Abstract(data[_FAMILY + 1 :])
    return InPath(data[_FAMILY:].partition(b"\0")[0])
