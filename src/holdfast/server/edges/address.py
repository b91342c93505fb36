"""Where to listen, parsed from the user's text. Pure module."""

import ipaddress
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

from holdfast.errors import StartupError

if TYPE_CHECKING:  # not needed by a server that listens
    from holdfast.server.remote.credential import Shown
    from holdfast.wire.sigv4 import Sign

DEFAULT: Final = "ws://127.0.0.1:0"

_WS = re.compile(r"ws://(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):([0-9]{1,5})/?")


class WebSocketAddress(NamedTuple):
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    def url(self, port: int) -> str:
        """The address that clients connect to, once the port is known."""
        return f"ws://[{self.host}]:{port}" if ":" in self.host else f"ws://{self.host}:{port}"


class UnixAddress(NamedTuple):
    path: str


class Stdio(NamedTuple):
    pass


class RemoteAddress(NamedTuple):
    """A registry that tells clients how to reach us.

    `credential` authenticates us there, `seed` is our identity.
    """

    url: str
    environment_id: str
    credential: "Shown"
    seed: bytes
    from_stdin: bool = False  # whether the credential comes on standard input
    exit_on_stdin_close: bool = False

    def __repr__(self) -> str:
        return f"<RemoteAddress {self.environment_id}>"


class DirectAddress(NamedTuple):
    """A registry that names the host to serve. `sign` signs our requests to both."""

    url: str
    environment_id: str
    sign: "Sign"
    exit_on_stdin_close: bool = False

    def __repr__(self) -> str:
        return f"<DirectAddress {self.environment_id}>"


Address: TypeAlias = WebSocketAddress | UnixAddress | Stdio | RemoteAddress | DirectAddress


def parse(text: str) -> Address:
    """Parse a listen URL.

    Raises:
        StartupError: it is not a URL to listen on.
    """
    if text in ("stdio", "stdio://"):
        return Stdio()
    if text.startswith("unix://"):
        path = unquote(text.removeprefix("unix://"))
        if not path.startswith("/"):
            raise StartupError(f"invalid unix --listen URL `{text}`; expected `unix:///absolute/path`")
        return UnixAddress(path)
    if not text.startswith("ws://"):
        raise StartupError(
            f"unsupported --listen URL `{text}`; expected `ws://IP:PORT`, `unix:///path` or `stdio`"
        )
    match = _WS.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        host = str(ipaddress.ip_address(match[1] or match[2]))
        port = int(match[3])
        if port > 65535 or (":" in host) != (match[1] is not None):
            raise ValueError
    except ValueError:
        raise StartupError(f"invalid websocket --listen URL `{text}`; expected `ws://IP:PORT`") from None
    return WebSocketAddress(host, port)
