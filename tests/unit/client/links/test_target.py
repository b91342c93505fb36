"""Whom an address or a command line means."""

import pytest

from holdfast.client.links.target import CommandTarget, UnixTarget, WebSocketTarget, parse_target
from holdfast.errors import UsageError
from tests.support.rows import every_row


@every_row(
    ("address", "host", "port", "secure"),
    [
        ("ws://127.0.0.1:8765", "127.0.0.1", 8765, False),
        ("ws://[::1]:8765/", "::1", 8765, False),
        ("ws://build.example", "build.example", 80, False),
        ("wss://build.example/exec?x=1", "build.example", 443, True),
        ("wss://build.example:9000", "build.example", 9000, True),
    ],
)
def test_a_websocket_address(address: str, host: str, port: int, secure: bool) -> None:
    assert parse_target(address) == WebSocketTarget(address, host, port, secure)


def test_a_unix_address_is_a_path_with_escapes() -> None:
    assert parse_target("unix:///run/a%20b") == UnixTarget("/run/a b")


def test_a_list_is_a_command() -> None:
    assert parse_target(["codex", "exec-server"]) == CommandTarget(("codex", "exec-server"))


def test_only_what_listens_can_be_resumed() -> None:
    assert parse_target("ws://h:1").resumable
    assert parse_target("unix:///s").resumable
    assert not parse_target(["serve"]).resumable


@every_row(
    "address",
    [
        "",
        "127.0.0.1:8765",
        "http://h:1",
        "stdio",
        "ws://",
        "ws://h:port",
        "ws://h:99999",
        "ws://h:1/#x",
        "ws://h:1/a b",
        "ws://[::1",
        "ws://bücher:1",
        "unix://relative",
        "unix:///a%00b",
        [],
        [""],
    ],
)
def test_what_is_no_address_is_refused_with_a_remedy(address: str | list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(address)
    assert caught.value.remedy


@pytest.mark.parametrize("address", ["ws://me:s3cret@h:1", "ws://s3cret@h:1"])
def test_a_secret_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(address)
    assert "s3cret" not in f"{caught.value} {caught.value.remedy}"


@every_row("token", ["", " s3cret", "s3cret\n", "s3cret\r\nX: y", "gehe\u00efm-s3cret"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target("ws://h:1", token)
    assert "s3cret" not in f"{caught.value} {caught.value.remedy}"


def test_a_token_where_nobody_looks_at_it_is_refused() -> None:
    with pytest.raises(UsageError):
        parse_target(["serve"], "s3cret")


def test_a_token_is_never_shown() -> None:
    target = parse_target("ws://h:1", "s3cret")
    assert isinstance(target, WebSocketTarget)
    assert target.token == "s3cret"
    assert "s3cret" not in f"{target!r} {target}"


def test_a_target_is_called_by_what_the_user_knows() -> None:
    shown = [str(parse_target(address)) for address in ("ws://h:1", "unix:///s", ["serve", "--token", "x"])]
    assert shown == ["ws://h:1", "unix:///s", "serve"]
