"""Bytes and both kinds of end pass from one connection to the other."""

import asyncio
import socket

from holdfast.egress.splice import splice
from tests.support.egress import connected
from tests.support.patience import patient


async def test_bytes_and_ends_of_file_pass_both_ways() -> None:
    program, inner = connected()
    outer, service = connected()
    counts: list[tuple[str, int]] = []
    loop = asyncio.get_running_loop()
    with program, inner, outer, service:
        joined = asyncio.ensure_future(
            splice(
                inner,
                outer,
                sent=lambda length: counts.append(("sent", length)),
                received=lambda length: counts.append(("received", length)),
            )
        )
        async with asyncio.timeout(patient(5)):
            await loop.sock_sendall(program, b"question")
            program.shutdown(socket.SHUT_WR)
            assert await loop.sock_recv(service, 100) == b"question"
            assert await loop.sock_recv(service, 100) == b""
            assert not joined.done()
            await loop.sock_sendall(service, b"yes")
            service.shutdown(socket.SHUT_WR)
            assert await loop.sock_recv(program, 100) == b"yes"
            assert await loop.sock_recv(program, 100) == b""
            await joined
    assert counts == [("sent", 8), ("received", 3)]


async def test_a_break_on_one_side_is_one_on_the_other() -> None:
    program, inner = connected()
    outer, service = connected()
    loop = asyncio.get_running_loop()
    with program, service:
        with inner, outer:
            joined = asyncio.ensure_future(splice(inner, outer))
            service.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            service.close()
            async with asyncio.timeout(patient(5)):
                await joined
        try:
            async with asyncio.timeout(patient(5)):
                got = await loop.sock_recv(program, 100)
        except ConnectionResetError:
            got = None
        assert got is None
