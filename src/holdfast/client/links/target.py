"""Whom to connect to, from what the user gave, and what a link and its receiver know. Pure module."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from holdfast.client.links import ssh
from holdfast.client.links.ssh import SshTarget
from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:  # only those who open a channel need what it is made of
    from holdfast.wire.noise import KeyPair
    from holdfast.wire.registry import PublicKey

_REMEDY = 'give "ws://HOST:PORT", "wss://HOST", "ssh://HOST", "unix:///path/of/socket" or a command as a list'


class Receiver(Protocol):
    """Who gets the messages of a link."""

    def on_open(self, link: "ServerLink") -> None:
        """Before the first message."""

    def on_message(self, message: bytes | memoryview) -> None:
        """One message; a view is good until this returns.

        Raises:
            RemoteProtocolError: the link is to be dropped for it.
        """

    def on_end(self, error: HoldfastError) -> None:
        """Once, after the last message of an opened link."""

    def on_writable(self, now: bool) -> None:
        """Whether more may be sent without piling up."""


class ServerLink(Protocol):
    """One physical connection."""

    def send(self, message: bytes) -> None:
        """Queue one message, in order; never blocks."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self, error: HoldfastError) -> None:
        """Drop it now; the receiver's `on_end` gets `error`."""

    async def aclose(self) -> None:
        """Say farewell and wait, for a bounded time, until nothing of it is left."""


@dataclass(frozen=True, slots=True)
class WebSocketTarget:
    """`token` is a secret and not shown."""

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
    """`token` is a secret, of the home that the server belongs to, and not shown."""

    path: str
    token: str | None = field(default=None, repr=False)

    resumable = True

    def __str__(self) -> str:
        return f"unix://{self.path}"


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """A server as our child, on its standard streams; its session ends with it.

    It runs in `cwd` and with `environ` beside what it inherits; that may hold secrets and is not shown.
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    environ: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    resumable = False

    def __str__(self) -> str:
        return self.argv[0]


@dataclass(slots=True)
class NoiseMemory:
    """Who we are to the executors of one environment: made when it is first needed, and kept."""

    identity: "KeyPair | None" = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class NoiseTarget:
    """An executor that a registry knows, for one session. `token` is a secret and not shown."""

    registry_url: str
    environment_id: str
    token: str = field(repr=False)
    account_id: str | None = field(default=None, repr=False)
    memory: NoiseMemory = field(default_factory=NoiseMemory, repr=False)
    pinned: "list[PublicKey]" = field(
        default_factory=list, repr=False
    )  # whom the session talks to, once it does

    resumable = True

    def headers(self) -> dict[str, str]:
        """What the registry is shown."""
        account = {} if self.account_id is None else {"chatgpt-account-id": self.account_id}
        return {"authorization": f"Bearer {self.token}", **account}

    def __str__(self) -> str:
        return f"environment {self.environment_id}"


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedTarget:
    """An executor that dials us. `take` waits for a connection of it, and gives that to a receiver."""

    environment_id: str
    take: Callable[[Receiver], Awaitable[ServerLink]] = field(repr=False)

    resumable = True

    def __str__(self) -> str:
        return f"environment {self.environment_id}"


Target: TypeAlias = WebSocketTarget | UnixTarget | CommandTarget | NoiseTarget | SshTarget | AcceptedTarget


def parse_target(address: str | Sequence[str], token: str | None = None) -> Target:
    """An address or a command line.

    Raises:
        UsageError: it is neither, or a token is given where nobody would look at it.
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
    except ValueError:  # also what cannot be encoded
        raise UsageError("this is no address of a server", remedy=_REMEDY) from None
    if not host or parts.fragment or any(ord(char) <= 0x20 for char in address):
        raise UsageError("this is no address of a server", remedy=_REMEDY)
    if parts.username is not None:
        raise UsageError("an address must not hold a secret", remedy="give the token as `token=`")
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise UsageError("the token has characters no header can carry", remedy="remove newlines from it")
    secure = parts.scheme == "wss"
    return WebSocketTarget(address, host, port or (443 if secure else 80), secure, token)
