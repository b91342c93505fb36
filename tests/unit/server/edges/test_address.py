"""Where to listen, from what the user typed."""

import pytest

from holdfast.errors import StartupError
from holdfast.server.edges.address import DEFAULT, Address, Stdio, UnixAddress, WebSocketAddress, parse
from tests.support.rows import every_row


@every_row(
    ("text", "address"),
    [
        (DEFAULT, WebSocketAddress("127.0.0.1", 0)),
        ("ws://127.0.0.1:0", WebSocketAddress("127.0.0.1", 0)),
        ("ws://127.0.0.1:65535/", WebSocketAddress("127.0.0.1", 65535)),
        ("ws://0.0.0.0:80", WebSocketAddress("0.0.0.0", 80)),  # noqa: S104 - nothing is bound here
        ("ws://[::1]:0", WebSocketAddress("::1", 0)),
        ("ws://[0:0::0001]:7", WebSocketAddress("::1", 7)),
        ("stdio", Stdio()),
        ("stdio://", Stdio()),
        ("unix:///run/x.sock", UnixAddress("/run/x.sock")),
        ("unix:///run/a%20b", UnixAddress("/run/a b")),
    ],
)
def test_a_listen_url_is_understood(text: str, address: Address) -> None:
    assert parse(text) == address


def test_an_ipv4_address_may_be_written_as_ipv6() -> None:
    address = parse("ws://[::ffff:1.2.3.4]:7")
    assert isinstance(address, WebSocketAddress)
    assert not address.loopback


@every_row(
    "text",
    [
        "ws://",
        "ws://localhost:0",
        "ws://example.org:80",
        "ws://127.0.0.1",
        "ws://127.0.0.1:",
        "ws://127.0.0.1:x",
        "ws://127.0.0.1:65536",
        "ws://127.0.0.1:99999",
        "ws://127.0.0.1:-1",
        "ws://127.0.0.1:0/path",
        "ws://127.0.0.1:0?x",
        "ws://user@127.0.0.1:0",
        "ws://127.1:0",
        "ws://127.0.0.01:0",
        "ws://256.0.0.1:0",
        "ws://[::1]",
        "ws://::1:0",
        "ws://[127.0.0.1]:0",
        "ws://[::1%lo]:0",
        "ws://[::g]:0",
        "ws://127.0.0.1:0\n",
    ],
)
def test_a_websocket_needs_a_literal_address_and_a_port(text: str) -> None:
    with pytest.raises(StartupError) as caught:
        parse(text)
    assert str(caught.value) == f"invalid websocket --listen URL `{text}`; expected `ws://IP:PORT`"


@every_row(
    "text",
    [
        "",
        "wss://127.0.0.1:0",
        "http://127.0.0.1:0",
        "127.0.0.1:0",
        "WS://127.0.0.1:0",
        "stdio:",
        "unix:/run/x",
    ],
)
def test_another_scheme_is_not_supported(text: str) -> None:
    with pytest.raises(StartupError, match=r"^unsupported --listen URL `"):
        parse(text)


@pytest.mark.parametrize("text", ["unix://", "unix://run/x.sock", "unix://./x"])
def test_a_unix_socket_needs_an_absolute_path(text: str) -> None:
    with pytest.raises(StartupError, match=r"^invalid unix --listen URL `"):
        parse(text)


@every_row(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("0.0.0.0", False),  # noqa: S104 - nothing is bound here
        ("::", False),
        ("10.0.0.1", False),
        ("169.254.0.1", False),
        ("fe80::1", False),
    ],
)
def test_loopback_is_this_machine_only(host: str, loopback: bool) -> None:
    assert WebSocketAddress(host, 0).loopback is loopback


def test_the_url_for_clients_names_the_real_port() -> None:
    assert WebSocketAddress("127.0.0.1", 0).url(4321) == "ws://127.0.0.1:4321"
    assert WebSocketAddress("::1", 0).url(4321) == "ws://[::1]:4321"
