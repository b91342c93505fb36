"""The connections of a command to hosts that have keys: TLS is terminated here, and each request is read.

Towards the command we are the host, with a certificate of this run; towards the host we are a client that
verifies it. In between a request is judged and gets its key (`injection.py`), and the response is masked
(`masking.py`). The requests of one connection share one outside connection, while both sides keep theirs
open.
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
    Headers,
    HeldStream,
    Leg,
    Passing,
    PlainStream,
    check_framing,
    exchange,
    keep_headers,
    say,
    serve_requests,
)
from holdfast.egress.hosts import Requests
from holdfast.egress.keys import authority
from holdfast.egress.keys.authority import Authority
from holdfast.egress.keys.injection import BadUse, check_host, check_target, check_use, inject
from holdfast.egress.keys.masking import Cover, Lookout, measure, spell
from holdfast.egress.keys.placeholders import Key
from holdfast.egress.keys.tls import TlsStream
from holdfast.egress.namecheck import NameCheck
from holdfast.egress.splice import CHUNK_BYTES, Hold, take_leave
from holdfast.egress.traffic import Sent

HANDSHAKE_S: Final = 10.0
IDLE_S: Final = 4.0  # after which a connection is not reused: some servers close after five seconds
_DEFAULT_PORTS: Final = {True: 443, False: 80}  # with TLS, without
_NO_BODY: Final = (204, 304)
_PLAIN: Final = (b"", b"identity")
Dial: TypeAlias = Callable[[], Awaitable[socket.socket]]  # raises OSError with the reason
Refuse: TypeAlias = Callable[[str, tuple[bytes, bytes] | None], None]  # the reason, and the request


class Inspector:
    """Holds the keys of one command, and the certificate authority that was created for it."""

    def __init__(
        self,
        keys: Iterable[Key],
        trusted: Iterable[str] = (),
        requested: Mapping[tuple[str, int], Sequence[Requests]] | None = None,
    ) -> None:
        """`trusted` are files of certificates for verifying hosts, besides this machine's.

        `requested` are the only requests allowed to some hosts, with or without a key.
        """
        self._keys, self._requested = tuple(keys), requested or {}
        self._plain = frozenset(target for key in self._keys for target in key.plain)
        self._only = frozenset(
            target for target, only in self._requested.items() if any(one.scheme == "https" for one in only)
        )
        targets = {target for key in self._keys for target in key.targets - self._plain} | self._only
        hosts = sorted({host for host, _ in targets})
        made = Authority(hosts, datetime.datetime.now(datetime.UTC)) if hosts else None
        self.certificate = b"" if made is None else made.pem
        self._contexts = {} if made is None else {host: made.make_context(host) for host in hosts}
        self._outside = authority.trust_host(trusted)
        self._words = {word: cover for key in self._keys for word, cover in spell(key).items()}
        self._least = {word: least for key in self._keys for word, least in measure(key).items()}

    def covers(self, host: str, port: int) -> bool:
        """Whether connections to this host are read."""
        return (host, port) in self._only or any((host, port) in key.targets for key in self._keys)

    def ends_tls(self, host: str, port: int) -> bool:
        """Whether these connections use TLS, which is terminated here."""
        return (host, port) not in self._plain

    def look_out(self) -> Lookout:
        """Look for placeholders on a connection of another host."""
        return Lookout(key.placeholder.encode("ascii") for key in self._keys)

    async def hear_hello(self, sock: socket.socket, target: tuple[str, int], first: bytes = b"") -> bytes:
        """Read the client's first data, which must be TLS that names the host; `first` was read before.

        Raises:
            Refused, OSError: it is not.
        """
        check = NameCheck(*target, tls_only=True)
        loop = asyncio.get_running_loop()
        passed = check.feed(first)
        async with asyncio.timeout(HANDSHAKE_S):
            while not check.open:
                if not (data := await loop.sock_recv(sock, CHUNK_BYTES)):
                    raise ConnectionResetError
                passed = check.feed(data)
        return passed

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
        """Answer the requests on a connection, of which `first` was read before; the caller closes it."""
        tls = None
        if self.ends_tls(*target):
            tls = TlsStream(inner, self._contexts[target[0]], first=first)
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    await tls.open()
            except TimeoutError:
                return
            except ssl.SSLError as exc:
                refuse(f"the program did not agree to TLS with our certificate: {exc.reason}", None)
                return
        near = tls or PlainStream(inner, first)
        leg = Leg(near if hold is None else HeldStream(near, hold), h11.SERVER)
        outside = _Outside(target, dial, self._outside if tls else None, row)

        async def answer(request: h11.Request) -> bool:
            try:
                await self._forward(leg, request, outside)
            except BadRequest as exc:
                refuse(f"a request in it is refused: {exc}", exc.asked)
                raise BadRequest(f"holdfast: the sandbox refused this: {exc}\n", exc.status) from None
            return True

        with outside, contextlib.suppress(OSError):
            await serve_requests(leg, answer)
            if tls is not None:
                await tls.end()
            await take_leave(inner)

    async def _forward(self, leg: Leg, request: h11.Request, outside: "_Outside") -> None:
        """Raises BadRequest, OSError, h11.LocalProtocolError."""
        made = self._rewrite(request, *outside.target)
        try:
            far = await outside.open()
            await far.send(made)
            cover = Cover(self._words, self._least)
            await exchange(leg, far, _Inspected(self._look_out_in_body(), cover, leg))
            outside.keep()
        except _Unreachable as exc:
            await say(leg, 502, f"holdfast: {exc.strerror}\n")
        except ssl.SSLCertVerificationError as exc:
            outside.row.failed += 1
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
        """The request as sent to the host. Raises BadRequest."""
        check_framing(request)
        written = request.headers.raw_items()
        try:
            check_target(request.method, request.target, self._keys)
            check_host(written, host, port)
            check_use(written, request.target, self._keys, host, port)
            inject(written, self._keys, host, port)  # also checks headers that are not passed on
            headers = inject(keep_headers(request), self._keys, host, port)
        except BadUse as exc:
            raise BadRequest(str(exc), 403) from None
        self._check_requested(request, host, port)
        usual = _DEFAULT_PORTS[self.ends_tls(host, port)]
        authority = host if port == usual else f"{host}:{port}"
        return h11.Request(
            method=request.method,
            target=request.target,
            headers=[(b"Host", authority.encode("ascii")), *headers, *_last_words(headers)],
        )

    def _check_requested(self, request: h11.Request, host: str, port: int) -> None:
        """Check that this request is allowed for the host. Raises BadRequest."""
        rules = self._requested.get((host, port))
        if rules is None:
            return
        scheme = "https" if self.ends_tls(host, port) else "http"
        allowed = [rule for rule in rules if rule.scheme == scheme]
        named = [name for name, _ in request.headers]
        why = refuse_request(allowed, request.method, request.target, named)
        if why is not None:
            refused = BadRequest(why, 403)
            refused.asked = request.method, request.target
            raise refused


def _last_words(headers: Headers) -> Headers:
    """Close after a chunked body: a server that does not read chunks would take it for the next request."""
    chunked = any(name.lower() == b"transfer-encoding" for name, _ in headers)
    return [(b"Connection", b"close")] if chunked else []


class _Unreachable(OSError):
    """The host cannot be connected to; the text gives the reason."""


class _Outside:
    """The connection to the host for one from inside: opened when needed, kept while it can be reused."""

    def __init__(
        self, target: tuple[str, int], dial: Dial, context: ssl.SSLContext | None, row: Sent
    ) -> None:
        self.target, self.row = target, row
        self._dial, self._context = dial, context
        self._sock: socket.socket | None = None
        self._leg: Leg | None = None
        self._idle_since: float | None = None
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> "_Outside":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    async def open(self) -> Leg:
        """The connection for the next request. Raises _Unreachable, OSError."""
        idle_since, self._idle_since = self._idle_since, None
        if idle_since is not None and self._loop.time() - idle_since < IDLE_S and self._is_quiet():
            if self._leg is None:
                raise AssertionError("it was used")
            self._leg.http.start_next_cycle()
            return self._leg
        self._close()
        try:
            self._sock = await self._dial()
        except OSError as exc:
            raise _Unreachable(exc.errno, exc.strerror) from None
        stream = self._count(self._sock)
        if isinstance(stream, TlsStream):
            async with asyncio.timeout(HANDSHAKE_S):
                await stream.open()
        self._leg = Leg(stream, h11.CLIENT)
        return self._leg

    def keep(self) -> None:
        """Keep the connection for the next exchange, if this one is complete; else close it."""
        http = None if self._leg is None else self._leg.http
        done = http is not None and http.our_state is h11.DONE and http.their_state is h11.DONE
        if http is not None and done and not http.trailing_data[0]:
            self._idle_since = self._loop.time()
        else:
            self._close()

    def _count(self, sock: socket.socket) -> TlsStream | PlainStream:
        def sent(length: int) -> None:
            self.row.sent += length

        def received(length: int) -> None:
            self.row.received += length

        if self._context is None:
            return PlainStream(sock, sent=sent, received=received)
        return TlsStream(sock, self._context, host=self.target[0], sent=sent, received=received)

    def _is_quiet(self) -> bool:
        """Whether the host has sent nothing since, and has not closed."""
        try:
            if self._sock is not None:
                self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def _close(self) -> None:
        if self._sock is not None:
            self._sock.close()
        self._sock = self._leg = self._idle_since = None


class _Unreadable(h11.RemoteProtocolError):
    """A response that cannot be searched for keys; the text gives the reason."""


class _Inspected(Passing):
    """One exchange, whose request is checked and whose response is masked."""

    def __init__(self, look: Callable[[bytes], None], cover: Cover, leg: Leg) -> None:
        self._look, self._leg, self._cover = look, leg, cover

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
