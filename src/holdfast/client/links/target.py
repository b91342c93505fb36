"""Connection targets, as the user gives them, and the interface of links and receivers. Pure module."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from holdfast.client.links import ssh
from holdfast.client.links.ssh import SshTarget
from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:  # imported only by code that opens a channel
    from holdfast.wire.noise import KeyPair
    from holdfast.wire.registry import PublicKey

_REMEDY = 'give "ws://HOST:PORT", "wss://HOST", "ssh://HOST", "unix:///path/of/socket" or a command as a list'


class Receiver(Protocol):
    """The receiver of a link's messages."""

    def on_open(self, link: "ServerLink") -> None:
        """Called before the first message."""

    def on_message(self, message: bytes | memoryview) -> None:
        """Take one message; a view is valid until this returns.

        Raises:
            RemoteProtocolError: the message is invalid, and the link must be dropped.
        """

    def on_end(self, error: HoldfastError) -> None:
        """Called once, after the last message of an opened link."""

    def on_writable(self, now: bool) -> None:
        """Called with whether more may be sent without piling up."""


class ServerLink(Protocol):
    """One physical connection."""

    def send(self, message: bytes) -> None:
        """Queue one message, in order; never blocks."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self, error: HoldfastError) -> None:
        """Drop the link now; the receiver's `on_end` gets `error`."""

    async def aclose(self) -> None:
        """Close gracefully and wait, for a bounded time, until everything is closed."""


@dataclass(frozen=True, slots=True)
class WebSocketTarget:
    """A server at a WebSocket URL. `token` is a secret and left out of the repr."""

    url: str
    host: str
    port: int
    secure: bool
    token: str | None = field(default=None, repr=False)

    resumable = True

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class UnixTarget:
    """A server at a unix socket.

    `token` is the secret of the home that the server belongs to, and not in the repr.
    """

    path: str
    token: str | None = field(default=None, repr=False)

    resumable = True

    def __str__(self) -> str:
        return f"unix://{self.path}"


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """A server run as our child, on its standard streams; its session ends with it.

    It runs in `cwd` with `environ` added to what it inherits; `environ` may hold secrets and is not in the
    repr.
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    environ: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    resumable = False

    def __str__(self) -> str:
        return self.argv[0]


@dataclass(slots=True)
class NoiseMemory:
    """Our identity towards the executors of one environment: created on first use, and kept."""

    identity: "KeyPair | None" = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class NoiseTarget:
    """An executor that a registry knows, for one session. `token` is a secret and not in the repr."""

    registry_url: str
    environment_id: str
    token: str = field(repr=False)
    account_id: str | None = field(default=None, repr=False)
    memory: NoiseMemory = field(default_factory=NoiseMemory, repr=False)
    pinned: "list[PublicKey]" = field(
        default_factory=list, repr=False
    )  # the executor's key, once the session has connected

    resumable = True

    def headers(self) -> dict[str, str]:
        """The headers of a request to the registry."""
        account = {} if self.account_id is None else {"chatgpt-account-id": self.account_id}
        return {"authorization": f"Bearer {self.token}", **account}

    def __str__(self) -> str:
        return f"environment {self.environment_id}"


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedTarget:
    """An executor that dials us. `take` waits for a connection from it, and attaches it to a receiver."""

    environment_id: str
    take: Callable[[Receiver], Awaitable[ServerLink]] = field(repr=False)

    resumable = True

    def __str__(self) -> str:
        return f"environment {self.environment_id}"


Target: TypeAlias = WebSocketTarget | UnixTarget | CommandTarget | NoiseTarget | SshTarget | AcceptedTarget


def parse_target(address: str | Sequence[str], token: str | None = None) -> Target:
    """Parse an address or a command line.

    Raises:
        UsageError: it is neither, or a token is given where it would be ignored.
    """
    if isinstance(address, str) and address.startswith(("ws://", "wss://")):
        return _websocket(address, token)
    if isinstance(address, str) and address.startswith(ssh.SCHEME):
        if token is not None:
            raise UsageError("ssh takes no token", remedy="leave it out")
        return ssh.parse(address)
    target = _local(address, token)
    if token is not None and isinstance(target, CommandTarget):
        raise UsageError("a token goes with an address, not with a command", remedy="leave the token out")
    return target


def _local(address: str | Sequence[str], token: str | None) -> Target:
    if not isinstance(address, str):
        argv = tuple(address)
        if not argv or not all(isinstance(word, str) for word in argv) or not argv[0]:
            raise UsageError("a command is a list of at least one word", remedy=_REMEDY)
        return CommandTarget(argv)
    if address.startswith("unix://"):
        path = unquote(address.removeprefix("unix://"))
        if not path.startswith("/") or "\0" in path:
            raise UsageError("a unix address needs an absolute path", remedy="write unix:///path/of/socket")
        return UnixTarget(path, token)
    raise UsageError("this is no address of a server", remedy=_REMEDY)


def _websocket(address: str, token: str | None) -> WebSocketTarget:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
        address.encode("ascii")
    except ValueError:  # also raised when it cannot be encoded
        raise UsageError("this is no address of a server", remedy=_REMEDY) from None
    if not host or parts.fragment or any(ord(char) <= 0x20 for char in address):
        raise UsageError("this is no address of a server", remedy=_REMEDY)
    if parts.username is not None:
        raise UsageError("an address must not hold a secret", remedy="give the token as `token=`")
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise UsageError("the token has characters no header can carry", remedy="remove newlines from it")
    secure = parts.scheme == "wss"
    return WebSocketTarget(address, host, port or (443 if secure else 80), secure, token)
