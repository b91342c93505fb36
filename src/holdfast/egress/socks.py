"""A SOCKS5 proxy (RFC 1928) on one connection of a command: TCP connections to names and addresses.

The connection comes out of the command's own network namespace, which identifies the client, so no
authentication is required. A name is text with its length in the first byte, so it may contain a NUL;
`hosts.parse_host` refuses such a name.
"""

import asyncio
import contextlib
import ipaddress
import socket
from typing import Final

from holdfast.egress.dial import Route
from holdfast.egress.gate import Gate
from holdfast.egress.hosts import BadHost, Host, parse_host
from holdfast.egress.splice import splice, take_leave
from holdfast.egress.verdicts import Attempt, Protocol, Verdict

REQUEST_S: Final = 30.0  # from the first byte to the whole request, a few dozen bytes
VERSION: Final = 5
NO_AUTHENTICATION: Final = 0
NO_METHOD: Final = 0xFF
CONNECT: Final = 1
IPV4, NAME, IPV6 = 1, 3, 4
SUCCEEDED, FAILED, NOT_ALLOWED, UNREACHABLE, REFUSED = 0, 1, 2, 4, 5
NO_COMMAND, NO_ADDRESS_TYPE = 7, 8


class _Ended(Exception):
    """The program does not speak SOCKS5, or asks for an unsupported feature; reply with this byte, if any."""

    def __init__(self, reply: int | None = None) -> None:
        super().__init__()
        self.reply = reply


async def serve(sock: socket.socket, gate: Gate) -> None:
    """Answer one request and join the connection to it; the caller closes it."""
    with contextlib.suppress(OSError):
        try:
            async with asyncio.timeout(REQUEST_S):
                host, port = await _read_request(sock)
            way = await _admit(sock, gate, host, port)
            if gate.inspector is not None and gate.inspector.covers(host.name, port):
                await _reply(sock, SUCCEEDED)
                await gate.join(sock, way, port)
                return
            outer = await _reach(gate, way, port)
        except TimeoutError:
            return
        except _Ended as exc:
            if exc.reply is not None:
                await _reply(sock, exc.reply)
            await take_leave(sock)
            return
        with outer:
            await _reply(sock, SUCCEEDED)
            await splice(sock, outer)


async def _read_request(sock: socket.socket) -> tuple[Host, int]:
    version, count = await _read(sock, 2)
    if version != VERSION:
        raise _Ended
    if NO_AUTHENTICATION not in await _read(sock, count):
        await asyncio.get_running_loop().sock_sendall(sock, bytes((VERSION, NO_METHOD)))
        raise _Ended
    await asyncio.get_running_loop().sock_sendall(sock, bytes((VERSION, NO_AUTHENTICATION)))
    version, command, _, kind = await _read(sock, 4)
    if version != VERSION:
        raise _Ended
    if kind not in (IPV4, NAME, IPV6):
        raise _Ended(NO_ADDRESS_TYPE)
    length = {IPV4: 4, IPV6: 16}.get(kind) or (await _read(sock, 1))[0]
    raw = await _read(sock, length)
    port = int.from_bytes(await _read(sock, 2), "big")
    if command != CONNECT:
        raise _Ended(NO_COMMAND)  # neither listening outside nor datagrams are supported
    try:
        text = raw.decode("ascii") if kind == NAME else str(ipaddress.ip_address(raw))
        if not port:
            raise BadHost("a port is a number from 1 to 65535")
        return parse_host(text), port
    except (BadHost, UnicodeDecodeError):
        raise _Ended(NOT_ALLOWED) from None


async def _admit(sock: socket.socket, gate: Gate, host: Host, port: int) -> Route:
    name, number = sock.getpeername()[:2]
    client = f"[{name}]:{number}" if ":" in name else f"{name}:{number}"
    try:
        way = await gate.admit(Attempt(Protocol.SOCKS5_TCP, host, port, client))
        if isinstance(way, Verdict):
            raise _Ended(NOT_ALLOWED)
        return way
    except OSError:
        raise _Ended(UNREACHABLE) from None


async def _reach(gate: Gate, way: Route, port: int) -> socket.socket:
    try:
        return await gate.connect(way, port)
    except ConnectionRefusedError:
        raise _Ended(REFUSED) from None
    except OSError:
        raise _Ended(UNREACHABLE) from None


async def _reply(sock: socket.socket, code: int) -> None:
    """Send the result; the address of our own end is not disclosed."""
    answer = bytes((VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0))
    await asyncio.get_running_loop().sock_sendall(sock, answer)


async def _read(sock: socket.socket, length: int) -> bytes:
    """Read exactly this many bytes: bytes after the request are for the other end."""
    found = b""
    while len(found) < length:
        got = await asyncio.get_running_loop().sock_recv(sock, length - len(found))
        if not got:
            raise _Ended
        found += got
    return found
