"""The gate of one command: every attempt to reach a host is judged and reported before the connection.

`proxy.py` and `socks.py` speak with the programs; they use a gate and know no rules.
"""

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from holdfast.egress.dial import AddressDenied, Dialer, NotPublic, Route
from holdfast.egress.hosts import find_denial
from holdfast.egress.namecheck import Refused
from holdfast.egress.splice import take_leave
from holdfast.egress.traffic import Sent
from holdfast.egress.upstream import Scheme
from holdfast.egress.verdicts import (
    DENIED,
    NOT_PUBLIC,
    Attempt,
    Protocol,
    ProxyPolicy,
    Verdict,
    guard_mode,
    guard_port,
    is_explicit,
    judge,
    may_be_asked,
)

if TYPE_CHECKING:  # imports that few commands need
    from holdfast.egress.keys.inspector import Inspector

Ask: TypeAlias = Callable[[Attempt], Awaitable[Verdict]]
Tell: TypeAlias = Callable[[Attempt, Verdict], None]


class Gate:
    """Judges by one policy. `ask` decides about hosts that no rule mentions, `tell` gets every verdict."""

    def __init__(
        self,
        policy: ProxyPolicy,
        dialer: Dialer,
        *,
        tell: Tell,
        ask: Ask | None = None,
        inspector: "Inspector | None" = None,
    ) -> None:
        """`inspector` has keys for some hosts, and reads the requests to them."""
        self._policy = policy
        self._dialer = dialer
        self._tell = tell
        self._ask = ask
        self.inspector = inspector

    async def admit(self, attempt: Attempt) -> Route | Verdict:
        """The route to a host, or the verdict that refuses it. The name is resolved after all other checks.

        Raises:
            OSError: it is allowed, but has no address.
        """
        early = guard_port(self._policy, attempt)
        if early is not None:
            self._tell(attempt, early)
            return early
        verdict = judge(self._policy, attempt.host, attempt.port)
        if self._ask is not None and may_be_asked(verdict):
            verdict = await self._ask(attempt)
        if not verdict.allowed:
            self._tell(attempt, verdict)
            return verdict
        late = guard_mode(self._policy, attempt)
        if late is not None:
            self._tell(attempt, verdict)
            self._tell(attempt, late)
            return late
        return await self._find(attempt, verdict)

    async def _find(self, attempt: Attempt, verdict: Verdict) -> Route | Verdict:
        private = self._policy.rules.private or is_explicit(self._policy, attempt.host, attempt.port)
        scheme: Scheme = "http" if attempt.protocol is Protocol.HTTP else "https"
        denial = functools.partial(find_denial, self._policy.rules, attempt.port)
        try:
            route = await self._dialer.find(attempt.host, private=private, scheme=scheme, find_denial=denial)
        except (NotPublic, AddressDenied) as exc:
            refused = NOT_PUBLIC if isinstance(exc, NotPublic) else DENIED
            self._tell(attempt, refused)
            return refused
        except OSError:
            self._tell(attempt, verdict)
            raise
        self._tell(attempt, verdict)
        return route

    async def join(self, sock: socket.socket, route: Route, port: int, first: bytes = b"") -> bool:
        """Have the inspector serve a connection to a host that has keys; `first` was read from it before.

        False: there are no keys for the host, and nothing was done. Raises OSError.
        """
        target = (route.host.name, port)
        if self.inspector is None or not self.inspector.covers(*target):
            return False
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            hello = await self.inspector.hear_hello(sock, target, first)
            dial = functools.partial(self.connect, route, port)
            await self.inspector.serve(sock, hello, target, dial, _ignore, Sent(*target))
        except Refused as exc:
            await asyncio.get_running_loop().sock_sendall(sock, exc.answer)
            await take_leave(sock)
        return True

    async def connect(self, route: Route, port: int) -> socket.socket:
        """Connect to the host. Raises OSError."""
        return await self._dialer.connect(route, port)

    async def connect_http(self, route: Route, port: int) -> socket.socket:
        """Connect for plain HTTP: an upstream proxy takes that without a tunnel. Raises OSError."""
        if route.above is not None:
            return await self._dialer.reach(route.above)
        return await self._dialer.connect(route, port)


def _ignore(_why: str, _asked: object) -> None:
    """Do nothing: the program gets the refusal as a response."""
