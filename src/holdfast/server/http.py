"""`http/request`: HTTP requests made by the executor for the client.

Redirects are followed here, hop by hop, rather than by the library, whose client would read the body of every
redirect into memory, keep all cookies and log each URL. A streamed response is answered as soon as its
headers have arrived; its body follows through the pump, which the caller runs after the answer was sent.
"""

import asyncio
import contextlib
import functools
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.egress.upstream import Proxies
from holdfast.errors import HoldfastError, InvalidRequest, OperationFailed, UsageError
from holdfast.server import httprules
from holdfast.server.httpcookies import AffinityCookies
from holdfast.wire.http import BodyDelta, HttpRequestParams, HttpResponse

if TYPE_CHECKING:
    import httpcore2
    import httpx2

MAX_STREAMS: Final = 256  # each holds a socket; a client that forgets its streams must not use them all up
KEPT_CONNECTIONS: Final = 20  # idle ones, for the next request to the same origin
KEPT_FOR_S: Final = 5.0  # below the idle limit of common servers, so that a reused connection is rarely dead
CLOSE_TIMEOUT_S: Final = 5.0  # closing sends a TLS shutdown; a silent peer must not delay the answer

_FAILED: Final = "http/request failed"
_BODY_FAILED: Final = "failed to read http/request response body"
_DELTA_ERROR: Final = "error decoding response body"  # the reference's text, also for a timeout

_COOKIES: Final = AffinityCookies()  # of all connections: they belong to no account

Pump: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class HttpRequests:
    """The HTTP requests of one connection.

    `notify` is awaited for each piece of a streamed body, so a slow client slows the download. An id is
    active from the start of a streamed request until its final delta is handed over, or until the request
    fails or its pump ends. If the pump never runs, the id stays active until `aclose`.
    """

    def __init__(
        self,
        notify: Callable[[BodyDelta], Awaitable[None]],
        environ: Mapping[str, str],
        cookies: AffinityCookies = _COOKIES,
    ) -> None:
        self._notify = notify
        self._cookies = cookies
        self._environ = environ
        self._authority = environ.get("CODEX_CA_CERTIFICATE") or None
        self._proxies = Proxies.from_environ(environ)
        self._transports: dict[str | None, httpx2.AsyncHTTPTransport] = {}  # by proxy; None is direct
        self._active: set[str] = set()  # ids of streams

    async def request(self, params: HttpRequestParams) -> tuple[HttpResponse, Pump | None]:
        """Make a request.

        The response to a streamed one has no body, but comes with the pump that delivers it.

        Raises:
            UsageError: the request is invalid, or the stream's id is active.
            InvalidRequest: too many streams at once.
            OperationFailed: no complete response came.
        """
        if not _load.cache_info().currsize:
            await asyncio.to_thread(_load, self._authority)  # not part of the exchange, so not of its timeout
        deadline = (
            None
            if params.timeout_ms is None
            else asyncio.get_running_loop().time() + params.timeout_ms / 1000
        )
        if params.stream_response:
            return await self._stream(params, deadline)
        with _naming_failures(_FAILED):
            async with asyncio.timeout_at(deadline):
                response = await self._exchange(params)
        try:
            with _naming_failures(_BODY_FAILED):
                async with asyncio.timeout_at(deadline):
                    body = await _read(response)
        finally:
            await _close(response)
        return HttpResponse(response.status_code, httprules.read_headers(response.headers.raw), body), None

    async def aclose(self) -> None:
        """Close all connections; to be called after the pumps have ended or were cancelled."""
        self._active.clear()
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            await transport.aclose()

    async def _stream(self, params: HttpRequestParams, deadline: float | None) -> tuple[HttpResponse, Pump]:
        request_id = params.request_id
        if request_id in self._active:
            raise UsageError(f"http/request streamResponse requestId `{request_id}` is already active")
        if len(self._active) >= MAX_STREAMS:
            raise InvalidRequest(f"at most {MAX_STREAMS} http/request streams may be open per connection")
        self._active.add(request_id)
        try:
            with _naming_failures(_FAILED):
                async with asyncio.timeout_at(deadline):
                    response = await self._exchange(params)
        except BaseException:
            self._active.discard(request_id)
            raise
        answer = HttpResponse(response.status_code, httprules.read_headers(response.headers.raw), b"")
        return answer, functools.partial(self._pump, request_id, response, deadline)

    async def _pump(self, request_id: str, response: "httpx2.Response", deadline: float | None) -> None:
        seq, error = 0, None
        try:
            async with contextlib.aclosing(response.aiter_raw()) as chunks:
                while chunk := await _next(chunks, deadline):
                    for piece in httprules.pieces(chunk):
                        seq += 1
                        await self._notify(BodyDelta(request_id, seq, piece, done=False, error=None))
        except OperationFailed:
            error = _DELTA_ERROR
        finally:
            # Released before the final delta is sent: a client may reuse the id when it sees that.
            self._active.discard(request_id)
        await self._notify(BodyDelta(request_id, seq + 1, b"", done=True, error=error))

    async def _exchange(self, params: HttpRequestParams) -> "httpx2.Response":
        """Return the response after all redirects, its body unread."""
        method = httprules.method(params.method)
        target = httprules.target(params.url)
        body = params.body_base64 or b""
        chosen = httprules.headers(params.headers, self._environ, body_bytes=len(body))
        url, authorization = _parse(target.url), target.authorization
        for _ in range(httprules.MAX_REDIRECTS + 1):
            sent = httprules.to_send(
                method,
                chosen,
                host=url.netloc,
                authorization=authorization,
                cookie=self._cookies.header(url.scheme, url.host, url.path, time.time()),
                body_bytes=len(body),
            )
            response = await self._send(method, url, sent, body)
            set_cookies = [value for name, value in response.headers.raw if name.lower() == b"set-cookie"]
            self._cookies.keep(url.scheme, url.host, url.path, set_cookies, time.time())
            goal = None
            if params.redirect_policy == "follow" and response.status_code in httprules.REDIRECTS:
                goal = _location(url, response)
            if goal is None:
                return response
            await _close(response)
            if goal.scheme not in ("http", "https"):
                raise OperationFailed(f"{_FAILED}: redirect target uses an unsupported URL scheme")
            same_origin = goal.origin == url.origin
            method, chosen, keep_body = httprules.hop(
                response.status_code, method, chosen, same_origin=same_origin
            )
            url = goal
            authorization = authorization if same_origin else None
            body = body if keep_body else b""
        raise OperationFailed(f"{_FAILED}: too many redirects")

    async def _send(
        self, method: str, url: "httpx2.URL", headers: list[tuple[bytes, bytes]], body: bytes
    ) -> "httpx2.Response":
        import httpx2

        opened: list[httpcore2.AsyncNetworkStream] = []

        async def trace(event: str, info: Mapping[str, Any]) -> None:
            if event == "connection.connect_tcp.complete":
                opened.append(info["return_value"])

        request = httpx2.Request(
            method, url, headers=headers, stream=httpx2.ByteStream(body), extensions={"trace": trace}
        )
        request.method = method  # the constructor changes its case
        transport = self._transport(self._proxies.choose(url.scheme, url.host))
        try:
            return await transport.handle_async_request(request)
        except BaseException:
            for stream in opened:  # the library loses the socket when cancelled during a TLS handshake
                await stream.aclose()
            raise

    def _transport(self, proxy: str | None) -> "httpx2.AsyncHTTPTransport":
        import httpx2

        if proxy not in self._transports:
            limits = httpx2.Limits(
                max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS, keepalive_expiry=KEPT_FOR_S
            )
            try:
                self._transports[proxy] = httpx2.AsyncHTTPTransport(
                    verify=_load(self._authority), proxy=proxy, limits=limits
                )
            except (ValueError, ImportError, httpx2.InvalidURL):
                raise OperationFailed(
                    f"{_FAILED}: the proxy in the executor's environment is not usable",
                    remedy="use an http:// or https:// proxy in HTTP_PROXY, HTTPS_PROXY and ALL_PROXY",
                ) from None
        return self._transports[proxy]


@functools.cache
def _load(authority: str | None = None) -> ssl.SSLContext:
    """Import the library and the trusted roots, together some 100 ms: first called in a thread.

    An `authority` is trusted in addition to those of the system, and instead of SSL_CERT_FILE.
    """
    import httpx2

    # Its debug log shows headers and hosts.
    logging.getLogger("httpcore2").setLevel(logging.WARNING)
    try:
        context = httpx2.create_ssl_context(trust_env=authority is None)
        if authority is not None:
            context.load_verify_locations(cafile=authority)
    except OSError:
        raise OperationFailed(
            f"{_FAILED}: the trusted certificates cannot be read",
            remedy="check CODEX_CA_CERTIFICATE, SSL_CERT_FILE and SSL_CERT_DIR",
        ) from None
    return context


def _parse(text: str) -> "httpx2.URL":
    import httpx2

    try:
        return httpx2.URL(text)
    except httpx2.InvalidURL:
        raise UsageError("http/request url is invalid") from None


def _location(url: "httpx2.URL", response: "httpx2.Response") -> "httpx2.URL | None":
    """Return the target of a redirect, without its credentials; None if it names no URL."""
    import httpx2

    location = response.headers.get("location")
    if location is None:
        return None
    try:
        goal = url.join(location)
        return _parse(httprules.target(str(goal)).url) if goal.scheme in ("http", "https") else goal
    except (httpx2.InvalidURL, UsageError, ValueError):
        return None


async def _read(response: "httpx2.Response") -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > httprules.MAX_BUFFERED_BYTES:
            raise OperationFailed(
                f"{_BODY_FAILED}: over {httprules.MAX_BUFFERED_BYTES} bytes do not fit into one message",
                remedy="ask for it with streamResponse",
            )
    return bytes(body)


async def _next(chunks: AsyncIterator[bytes], deadline: float | None) -> bytes:
    """Return the next chunk, empty at the end.

    Only this wait is bounded by the deadline, never a `notify`.
    """
    with _naming_failures(_BODY_FAILED):
        async with asyncio.timeout_at(deadline):
            return await anext(chunks, b"")


async def _close(response: "httpx2.Response") -> None:
    import httpx2

    with contextlib.suppress(TimeoutError, httpx2.TransportError):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await response.aclose()


@contextlib.contextmanager
def _naming_failures(what: str) -> Iterator[None]:
    """Convert the library's exceptions to ours, with the kind of cause and nothing else in the text."""
    try:
        yield
    except HoldfastError:
        raise
    except TimeoutError:
        raise OperationFailed(f"{what}: timed out") from None
    except Exception as exc:
        cause = _cause(exc)
        if cause is None:
            raise
        raise OperationFailed(f"{what}: {cause}") from None


def _cause(exc: Exception) -> str | None:
    """Describe the cause in a few words; None if `exc` is not a failure of the exchange."""
    import httpx2

    match exc:
        case httpx2.LocalProtocolError():
            return "this cannot be sent as HTTP/1.1"
        case httpx2.ProxyError():
            return "the proxy refused"
        case httpx2.TimeoutException():
            return "timed out"
        case httpx2.ConnectError() if _is_about_trust(exc):
            return "the server's certificate is not trusted"
        case httpx2.ConnectError():
            return "connect failed"
        case httpx2.TransportError():
            return "the connection broke"
    return None


def _is_about_trust(exc: BaseException | None) -> bool:
    while exc is not None and not isinstance(exc, ssl.SSLCertVerificationError):
        exc = exc.__cause__ or exc.__context__
    return exc is not None
