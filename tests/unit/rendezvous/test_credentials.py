"""Where a credential may go."""

import pytest

from holdfast.errors import UsageError
from holdfast.rendezvous.credentials import check_header, check_registry, is_loopback
from tests.support.rows import every_row


@every_row("url", ["http://localhost:1/x", "http://127.0.0.5", " http://[::1]:9 "])
def test_this_machine_is_recognised(url: str) -> None:
    assert is_loopback(url)
    check_registry(url, "e")


@every_row("url", ["http://127.0.0.1.example", "http://localhost.example", "http://0.0.0.0", "http://[::"])
def test_what_only_looks_like_this_machine_is_not(url: str) -> None:
    assert not is_loopback(url)


@every_row("url", ["", "ws://127.0.0.1", "https://", "http://registry.example", "127.0.0.1:80", "http://[::"])
def test_a_registry_is_at_an_address_that_nobody_listens_in_on(url: str) -> None:
    with pytest.raises(UsageError):
        check_registry(url, "e")
    check_registry("https://registry.example/api", "e")


def test_an_address_holds_no_secret() -> None:
    with pytest.raises(UsageError) as caught:
        check_registry("https://me:SECRET@registry.example", "e")
    assert "SECRET" not in str(caught.value)


def test_an_environment_has_an_id() -> None:
    with pytest.raises(UsageError):
        check_registry("https://registry.example", " ")


@every_row("value", ["", " \n", "a\nb", "a\rb", "ü", "a\0"])
def test_what_no_header_carries_is_refused_and_not_shown(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_header(value, "the token")
    assert str(caught.value).startswith("the token ")
    assert check_header(" t \n", "the token") == "t"
