"""The connections of a command to hosts that have keys: TLS ends here, and each request is read.

Towards the command we are the host, by a certificate of this run; towards the host we are a client that
verifies it. In between a request is judged and gets its key (`injection.py`), and the answer is covered
(`masking.py`).
"""

import asyncio
import contextlib
import datetime
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import h11

from holdfast.egress.bounds.requested import refuse_request
from holdfast.egress.exchange import (
    BadRequest,
    HeldStream,
    Leg,
    Passing,
    check_framing,
    exchange,
    keep_headers,
    say,
    serve_requests,
)
from holdfast.egress.hosts import Requests
from holdfast.egress.keys import authority
from holdfast.egress.keys.authority import Authority
from holdfast.egress.keys.injection import BadUse, check_host, check_target, inject
from holdfast.egress.keys.masking import Cover, Lookout, spell
from holdfast.egress.keys.placeholders import Key
from holdfast.egress.keys.tls import TlsStream
from holdfast.egress.splice import Hold, take_leave
from holdfast.egress.traffic import Sent

HANDSHAKE_S: Final = 10.0
_NO_BODY: Final = (204, 304)
_PLAIN: Final = (b"", b"identity")
Dial: TypeAlias = Callable[[], Awaitable[socket.socket]]  # raises OSError, whose text says why
Refuse: TypeAlias = Callable[[str, tuple[bytes, bytes] | None], None]  # why, and what was asked


class Inspector:
    """Holds the keys of one command, and the authority that was made for it."""

    def __init__(
        self, keys: Iterable[Key], requested: "Mapping[tuple[str, int], Sequence[Requests]] | None" = None
    ) -> None:
        """`requested` are the requests that some hosts may be asked, with a key or without."""
        self._keys, self._requested = tuple(keys), requested or {}
        targets = {target for key in self._keys for target in key.targets} | {*self._requested}
        hosts = sorted({host for host, _ in targets})
        made = Authority(hosts, datetime.datetime.now(datetime.UTC))
        self.certificate = made.pem
        self._contexts = {host: made.make_context(host) for host in hosts}
        self._outside = authority.trust_host()
        self._words = {word: cover for key in self._keys for word, cover in spell(key).items()}

    def covers(self, host: str, port: int) -> bool:
        """Whether connections to it are read."""
        return (host, port) in self._requested or any((host, port) in key.targets for key in self._keys)

    def look_out(self) -> Lookout:
        """For placeholders on a connection that is not for them."""
        return Lookout(key.placeholder.encode("ascii") for key in self._keys)

    async def serve(
        self,
        inner: socket.socket,
        first: bytes,
        target: tuple[str, int],
        dial: Dial,
        refuse: Refuse,
        row: Sent,
        hold: Hold | None = None,
    ) -> None:
        """Answer the requests on a connection, of which this came first; the caller closes it."""
        near = TlsStream(inner, self._contexts[target[0]], first=first)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await near.open()
        except TimeoutError:
            return
        except ssl.SSLError as exc:
            refuse(f"the program did not agree to TLS with our certificate: {exc.reason}", None)
            return
        leg = Leg(near if hold is None else HeldStream(near, hold), h11.SERVER)

        async def answer(request: h11.Request) -> bool:
            try:
                await self._forward(leg, request, target, dial, row)
            except BadRequest as exc:
                refuse(f"a request in it is refused: {exc}", exc.asked)
                raise BadRequest(f"holdfast: the sandbox refused this: {exc}\n", exc.status) from None
            return True

        with contextlib.suppress(OSError):
            await serve_requests(leg, answer)
            await near.end()
            await take_leave(inner)

    async def _forward(
        self, leg: Leg, request: h11.Request, target: tuple[str, int], dial: Dial, row: Sent
    ) -> None:
        """Raises BadRequest, OSError, h11.LocalProtocolError."""
        made = self._rewrite(request, *target)
        try:
            outer = await dial()
        except OSError as exc:
            await say(leg, 502, f"holdfast: {exc.strerror}\n")
            return

        def count_sent(length: int) -> None:
            row.sent += length

        def count_received(length: int) -> None:
            row.received += length

        with outer:
            stream = TlsStream(outer, self._outside, host=target[0], sent=count_sent, received=count_received)
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    await stream.open()
                far = Leg(stream, h11.CLIENT)
                await far.send(made)
                await exchange(leg, far, _Inspected(self._look_out_in_body(), self._words, leg))
            except ssl.SSLCertVerificationError as exc:
                row.failed += 1
                await say(leg, 502, f"holdfast: the host is not trusted: {exc.verify_message}\n")
            except (OSError, h11.RemoteProtocolError) as exc:
                if leg.http.our_state is not h11.SEND_RESPONSE:
                    raise ConnectionResetError(errno.ECONNRESET, "the answer broke off") from None
                why = str(exc) if isinstance(exc, _Unreadable) else "the host did not answer as it should"
                await say(leg, 502, f"holdfast: {why}\n")

    def _look_out_in_body(self) -> Callable[[bytes], None]:
        lookout = self.look_out()

        def look(data: bytes) -> None:
            if lookout.sees(data):
                raise BadRequest("it has a key in its body", 403)

        return look

    def _rewrite(self, request: h11.Request, host: str, port: int) -> h11.Request:
        """The request as the host gets it. Raises BadRequest."""
        check_framing(request)
        written = request.headers.raw_items()
        try:
            check_target(request.method, request.target, self._keys)
            check_host(written, host, port)
            inject(written, self._keys, host, port)  # judged with those that are not passed on
            headers = inject(keep_headers(request), self._keys, host, port)
        except BadUse as exc:
            raise BadRequest(str(exc), 403) from None
        self._check_requested(request, host, port)
        authority = host if port == 443 else f"{host}:{port}"
        return h11.Request(
            method=request.method,
            target=request.target,
            headers=[(b"Host", authority.encode("ascii")), *headers, (b"Connection", b"close")],
        )

    def _check_requested(self, request: h11.Request, host: str, port: int) -> None:
        """It is one of those that the host may be asked. Raises BadRequest."""
        allowed = self._requested.get((host, port))
        if allowed is None:
            return
        named = [name for name, _ in request.headers]
        why = refuse_request(allowed, request.method, request.target, named)
        if why is not None:
            refused = BadRequest(why, 403)
            refused.asked = request.method, request.target
            raise refused


class _Unreadable(h11.RemoteProtocolError):
    """An answer that cannot be looked at; the text says why."""


class _Inspected(Passing):
    """One exchange."""

    def __init__(self, look: Callable[[bytes], None], words: dict[bytes, bytes], leg: Leg) -> None:
        self._look, self._leg = look, leg
        self._cover = Cover(words)

    def pass_request(self, data: bytes) -> bytes:
        self._look(data)
        return data

    def pass_answer(self, answer: h11.Response) -> h11.Response:
        bodiless = self._leg.is_head or answer.status_code in _NO_BODY
        for name, value in answer.headers:
            if name == b"content-encoding" and value.strip().lower() not in _PLAIN and not bodiless:
                raise _Unreadable("the host's answer is compressed, so it cannot be read for keys")
        cover = self._cover.cover
        headers = [(cover(name), cover(value)) for name, value in keep_headers(answer)]
        return h11.Response(status_code=answer.status_code, headers=headers, reason=cover(answer.reason))

    def pass_data(self, data: bytes) -> bytes:
        return self._cover.feed(data)

    def finish(self) -> bytes:
        return self._cover.finish()
