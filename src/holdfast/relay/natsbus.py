"""The bus between nodes: NATS core, which carries a message at most once.

Nothing is kept for later. While NATS cannot be reached nothing is published, and queued messages are dropped:
the links end with the connection, so none of them counts as delivered. We reconnect until the node stops.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from holdfast.errors import StartupError
from holdfast.rendezvous.credentials import is_loopback
from holdfast.wire.relayframes import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

log = logging.getLogger(__name__)

CONNECT_S: Final = 5.0
AGAIN_S: Final = 0.5  # between attempts; clients recover for 25 s
PING_S: Final = 5  # two pings without an answer end the connection
CLOSE_S: Final = 2.0  # to send what is queued when we stop
MAX_OUT_BYTES: Final = 64 * 1024 * 1024  # queued for NATS before links are cut; each has 1 MiB under way
WRITE_BYTES: Final = 1024 * 1024  # buffered by the library before we wait for it
MAX_IN_BYTES: Final = 64 * 1024 * 1024  # received and not processed yet; more is dropped, which is noticed
MAX_IN: Final = 65_536  # messages, likewise
LEAST_PAYLOAD: Final = MAX_FRAME_BYTES + 1024
_NOBODY: Final = "503"  # no subscriber on the subject


@dataclass(frozen=True)
class NatsOptions:
    """The addresses of NATS and the credentials for it. With `tls` nothing is sent without TLS."""

    servers: tuple[str, ...] = field(repr=False)  # an address may contain a password
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


class BusReceiver(Protocol):
    """The receiver of the bus's messages."""

    @property
    def subjects(self) -> str:
        """The subjects to subscribe to."""

    def take(self, raw: bytes) -> None:
        """Take a message."""

    def take_nobody(self, subject: str) -> None:
        """Note that a request had no subscriber; `subject` is its reply subject."""

    def cut(self, reason: str) -> None:
        """Note that everything under way is lost."""


def parse_servers(text: str) -> tuple[str, ...]:
    """Parse addresses separated by commas.

    Raises:
        StartupError: one of them is invalid, or a password in it could be read on the way.
    """
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for url in found:
        parts = urlsplit(url)
        if parts.scheme not in ("nats", "tls") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise StartupError("--nats must be nats://HOST:PORT or tls://HOST:PORT")
        check_secrecy(url, secret=parts.username is not None)
    if not found or len({urlsplit(url).scheme for url in found}) > 1:
        raise StartupError("--nats must be nats://HOST:PORT or tls://HOST:PORT, all of one kind")
    return found


def check_secrecy(url: str, *, secret: bool) -> None:
    """Raises: StartupError: a secret would be sent without encryption."""
    if secret and urlsplit(url).scheme != "tls" and not is_loopback(url):
        raise StartupError(
            "refusing to show credentials to a NATS on another machine without TLS",
            remedy="give its address as tls://HOST:PORT",
        )


class NatsBus:
    """The bus over one NATS connection at a time. `publish` queues; a separate task sends."""

    def __init__(self, options: NatsOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._queue: deque[tuple[str, bytes, str]] = deque()
        self._queued_bytes = 0
        self._news = asyncio.Event()
        self._sent_all = asyncio.Event()
        self._closed = asyncio.Event()
        self._closing = False

    @property
    def is_up(self) -> bool:
        return self._client is not None and not self._closing

    def publish(self, subject: str, data: bytes, reply: str = "") -> bool:
        if not self.is_up or self._queued_bytes + len(data) > MAX_OUT_BYTES:
            return False
        self._queue.append((subject, data, reply))
        self._queued_bytes += len(data)
        self._sent_all.clear()
        self._news.set()
        return True

    async def join(self, receiver: BusReceiver) -> Coroutine[Any, Any, None]:
        """Connect; return a coroutine to run for as long as the bus is used.

        Raises:
            StartupError: NATS cannot be reached, or does not accept us.
        """
        try:
            client = await self._connect(receiver)
        except _failures() as exc:
            raise StartupError(
                f"NATS cannot be used: {_explain(exc)}",
                remedy="start it, or give its credentials",
            ) from None
        if client.max_payload < LEAST_PAYLOAD:
            await client.close()
            raise StartupError(
                f"NATS takes messages of {client.max_payload} bytes, and {LEAST_PAYLOAD} are needed",
                remedy="raise max_payload in its configuration",
            )
        return self._run(client, receiver)

    async def _connect(self, receiver: BusReceiver) -> "Client":
        from nats.aio.client import Client

        options = self._options

        self._closed = closed = asyncio.Event()

        class GuardedClient(Client):
            """Sends no credentials without TLS where TLS is wanted, whatever the server announces. Its end is
            reported at once and takes bounded time; the library's may fail half way or wait for the end of
            TLS."""

            def _connect_command(self) -> bytes:
                if options.tls is not None and not self._server_info.get("tls_required"):
                    raise ConnectionError("it does not speak TLS")
                return super()._connect_command()

            async def _close(self, status: int, do_cbs: bool = True) -> None:
                closed.set()
                try:
                    async with asyncio.timeout(CLOSE_S):
                        await super()._close(status, do_cbs)
                except (OSError, TimeoutError):
                    if self._transport is not None:
                        self._transport.close()  # type: ignore[no-untyped-call]

        client = GuardedClient()

        async def on_error(error: Exception) -> None:
            log.warning("NATS reports an error", extra={"reason": type(error).__name__})

        async def on_message(message: "Msg") -> None:
            if not message.data and (message.headers or {}).get("Status") == _NOBODY:
                receiver.take_nobody(message.subject)
            else:
                receiver.take(message.data)

        secrets = {"user": options.user, "password": options.password, "token": options.token}
        try:
            async with asyncio.timeout(CONNECT_S):
                await client.connect(
                    servers=list(options.servers),
                    name="holdfast relay",
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=int(CONNECT_S),
                    ping_interval=PING_S,
                    max_outstanding_pings=2,
                    pending_size=WRITE_BYTES,
                    error_cb=on_error,
                    tls=options.tls,
                    **secrets,  # type: ignore[arg-type]  # each of them is a text or None
                )
                await client.subscribe(
                    receiver.subjects,
                    cb=on_message,
                    pending_msgs_limit=MAX_IN,
                    pending_bytes_limit=MAX_IN_BYTES,
                )
                await client.flush(timeout=int(CONNECT_S))  # nodes may write to us once they know us
        except BaseException:
            await client.close()
            raise
        self._client = client
        return client

    async def _run(self, client: "Client", receiver: BusReceiver) -> None:
        while True:
            await self._send_until_closed(client)
            self._client = None
            self._queue.clear()
            self._queued_bytes = 0
            if self._closing:
                return
            receiver.cut("NATS is lost")
            log.warning("NATS is lost; trying again")
            client = await self._connect_again(receiver)
            log.warning("NATS is back")

    async def _connect_again(self, receiver: BusReceiver) -> "Client":
        while True:
            await asyncio.sleep(AGAIN_S)
            with contextlib.suppress(*_failures()):
                return await self._connect(receiver)

    async def _send_until_closed(self, client: "Client") -> None:
        sending = asyncio.ensure_future(self._send(client))
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait([sending, closed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, closed):
                task.cancel()
            await asyncio.gather(sending, closed, return_exceptions=True)
        await client.close()

    async def _send(self, client: "Client") -> None:
        """Send queued messages until the connection fails."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._queue:
                subject, data, reply = self._queue.popleft()
                self._queued_bytes -= len(data)
                await client.publish(subject, data, reply=reply)
            self._sent_all.set()

    async def aclose(self) -> None:
        """Send what is queued, for a bounded time, and close; nothing is published after this."""
        client, self._closing = self._client, True
        if client is None:
            return
        with contextlib.suppress(*_failures()):
            async with asyncio.timeout(CLOSE_S):
                if self._queue:
                    await self._sent_all.wait()
                await client.flush(timeout=int(CLOSE_S))
        await client.close()


def _failures() -> tuple[type[Exception], ...]:
    from nats.errors import Error

    return (Error, OSError, TimeoutError)


def _explain(exc: Exception) -> str:
    """Explain an error in our words: the library's may contain the address with its password."""
    from nats.errors import Error, NoServersError

    if isinstance(exc, TimeoutError):
        return "it does not answer"
    if isinstance(exc, NoServersError):
        return "it cannot be reached"
    return (
        "it refused us"
        if isinstance(exc, Error)
        else "it cannot be reached, or its certificate is not trusted"
    )
