"""Connections to a relay, a host or a server, through the HTTP proxy of this machine's settings, if they name
one for it. Requests to a registry do the same.

This machine itself is never dialled through a proxy. A proxy of another kind (SOCKS, `https://`) is not used.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.rendezvous.credentials import is_this_machine

if TYPE_CHECKING:
    from holdfast.egress.hosts import Host
    from holdfast.egress.upstream import Upstream


async def connect_outward(
    make: Callable[[], asyncio.BaseProtocol], host: str, port: int, context: ssl.SSLContext | None
) -> None:
    """Connect what `make` returns, with TLS if there is a `context`.

    Raises:
        OSError: the peer does not answer, or the proxy refuses.
    """
    loop = asyncio.get_running_loop()
    way = None
    if not is_this_machine(host):
        way = await loop.run_in_executor(None, _find_proxy, host, context is not None)
    if way is None:
        await loop.create_connection(make, host, port, ssl=context)
        return
    sock = await _pass(*way, port)
    await loop.create_connection(make, sock=sock, ssl=context, server_hostname=host if context else None)


def _find_proxy(host: str, secure: bool) -> "tuple[Upstream, Host] | None":
    """Find the proxy for this host. Loading the proxy modules takes 30 ms, so few dials do it."""
    from urllib.request import getproxies

    from holdfast.egress.hosts import BadHost, parse_host
    from holdfast.egress.upstream import Proxies, Upstreams

    environ = {f"{kind}_proxy": value for kind, value in getproxies().items()}
    try:
        found = parse_host(host)
    except BadHost:
        return None
    ways = Upstreams(Proxies.from_environ(environ), private=True)
    above = ways.lead_to("https" if secure else "http", found)
    return None if above is None else (above, found)


async def _pass(above: "Upstream", host: "Host", port: int) -> socket.socket:
    """Return a socket that the proxy connects to the host."""
    from holdfast.egress.dial import tunnel

    sock = await _reach(above)
    try:
        await tunnel(sock, above, host, port)
    except BaseException:
        sock.close()
        raise
    return sock


async def _reach(above: "Upstream") -> socket.socket:
    loop = asyncio.get_running_loop()
    problem = OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        above.host, above.port, type=socket.SOCK_STREAM
    ):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as exc:
            sock.close()
            problem = exc
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise problem
