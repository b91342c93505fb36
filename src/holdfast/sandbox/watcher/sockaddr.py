"""Socket addresses in the form of `struct sockaddr`. Pure module.

The broker imports this.
"""

import struct
from typing import Final, NamedTuple

_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10  # linux/socket.h
_FAMILY: Final = 2  # bytes
_MAX: Final = 110  # struct sockaddr_un
_MAX_PATH: Final = _MAX - _FAMILY
_MAPPED: Final = bytes(10) + b"\xff\xff"  # an IPv4 address mapped to IPv6


class InPath(NamedTuple):
    path: bytes


class Abstract(NamedTuple):
    """A name that is not in a directory, and belongs to the network namespace."""

    name: bytes


class Autobind(NamedTuple):
    """A bind to an abstract name that the kernel picks."""


def parse_unix(data: bytes) -> InPath | Abstract | Autobind | None:
    """Parse an address as the kernel does; None if the kernel would refuse it."""
    if not _FAMILY <= len(data) <= _MAX or struct.unpack_from("=H", data)[0] != _AF_UNIX:
        return None
    if len(data) == _FAMILY:
        return Autobind()
    if data[_FAMILY] == 0:
        return Abstract(data[_FAMILY + 1 :])
    return InPath(data[_FAMILY:].partition(b"\0")[0])


def encode_unix(path: bytes) -> bytes:
    return struct.pack("=H", _AF_UNIX) + path + (b"\0" if len(path) < _MAX_PATH else b"")


def is_of_host(address: bytes) -> bool:
    """Whether an address is in the block for hosts by name; IPv4 addresses mapped to IPv6 count too."""
    family = struct.unpack_from("=H", address)[0] if len(address) >= _FAMILY else 0
    if family == _AF_INET6 and address[8:20] == _MAPPED:
        raw = address[20:24]
    else:
        raw = address[4:8] if family == _AF_INET else b""
    return len(raw) == 4 and raw[0] == 198 and raw[1] & 0xFE == 18
