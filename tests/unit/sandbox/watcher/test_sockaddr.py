import struct

import pytest

from holdfast.sandbox.watcher.sockaddr import Abstract, Autobind, InPath, is_of_host, parse_unix


def address(rest: bytes, family: int = 1) -> bytes:
    return struct.pack("=H", family) + rest


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (address(b"/run/s\0"), InPath(b"/run/s")),
        (address(b"/run/s"), InPath(b"/run/s")),  # the kernel ends it itself
        (address(b"s\0junk"), InPath(b"s")),
        (address(b"n" * 108), InPath(b"n" * 108)),
        (address(b"\0name"), Abstract(b"name")),
        (address(b"\0a\0b"), Abstract(b"a\0b")),  # a zero is a byte like any other there
        (address(b"\0"), Abstract(b"")),
        (address(b""), Autobind()),
        (address(b"n" * 109), None),
        (address(b"/run/s", family=2), None),
        (address(b"/run/s", family=0), None),
        (b"\1", None),
        (b"", None),
    ],
)
def test_an_address_is_read_as_the_kernel_reads_it(data: bytes, expected: object) -> None:
    assert parse_unix(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (address(b"\0\x50" + bytes((198, 18, 0, 9)) + bytes(8), family=2), True),
        (address(b"\0\x50" + bytes((198, 19, 255, 255)) + bytes(8), family=2), True),
        (address(b"\0\x50" + bytes((198, 20, 0, 9)) + bytes(8), family=2), False),
        (address(b"\0\x50" + bytes((127, 0, 0, 1)) + bytes(8), family=2), False),
        (address(bytes(16) + b"\xff\xff" + bytes((198, 18, 0, 9)) + bytes(4), family=10), True),
        (address(bytes(18) + bytes((198, 18, 0, 9)) + bytes(4), family=10), False),
        (address(b"\0\x50\xc6", family=2), False),
        (b"", False),
    ],
)
def test_addresses_of_hosts_by_name_are_told_by_their_block(data: bytes, expected: bool) -> None:
    assert is_of_host(data) is expected
