"""What an executor shows its registry: from a file, a variable, or a pipe."""

import json

import pytest

from holdfast.errors import StartupError, TokenRefused
from holdfast.server.remote.credential import (
    API_KEY,
    VARIABLE,
    Credential,
    CredentialHolder,
    choose,
    is_for_vendor,
)
from tests.support.rows import every_row

LINE = {"version": 1, "environment_id": "box", "token": "SECRET", "expires_at": 1000}
HOME = "http://127.0.0.1:1"
AWAY = "https://registry.example"


def holder(now: float = 0.0) -> CredentialHolder:
    return CredentialHolder(" box ", lambda: now)


def test_a_line_of_the_pipe_becomes_what_is_shown_and_the_next_replaces_it() -> None:
    held = holder()
    with pytest.raises(TokenRefused):
        held.headers()
    held.take(json.dumps(LINE).encode())
    assert held.headers() == {"authorization": "Bearer SECRET"}
    held.take(json.dumps(LINE | {"token": "NEXT"}).encode())
    assert held.headers() == {"authorization": "Bearer NEXT"}


def test_an_expired_credential_is_not_shown() -> None:
    clock = [0.0]
    held = CredentialHolder("box", lambda: clock[0])
    held.take(json.dumps(LINE).encode())
    clock[0] = 1000.0
    with pytest.raises(TokenRefused):
        held.headers()


@every_row(
    "change",
    [
        {"version": 2},
        {"environment_id": "other"},
        {"token": ""},
        {"token": "SECRET\nX: y"},
        {"token": 1},
        {"expires_at": 0},
        {"expires_at": "soon"},
        {"more": "SECRET"},
    ],
    ids=str,
)
def test_a_line_that_is_no_credential_for_us_is_refused_without_being_shown(
    change: dict[str, object],
) -> None:
    with pytest.raises(StartupError) as caught:
        holder().take(json.dumps(LINE | change).encode())
    assert "SECRET" not in f"{caught.value}{caught.value.__cause__}"


def test_what_is_not_json_is_no_credential() -> None:
    with pytest.raises(StartupError):
        holder().take(b"SECRET")


def test_a_file_comes_before_variables_and_ours_before_the_vendors() -> None:
    both = {VARIABLE: "ours", API_KEY: "theirs"}
    assert choose(AWAY, " file \n", both) == (Credential("file"), None)
    assert choose(AWAY, None, both) == (Credential("ours"), VARIABLE)
    assert choose(HOME, None, {API_KEY: "theirs"}) == (Credential("theirs"), API_KEY)


@every_row("url", [AWAY, "https://openai.com.example", "https://notopenai.com", "http://api.openai.com"])
def test_the_vendors_key_goes_to_nobody_else(url: str) -> None:
    assert not is_for_vendor(url)
    with pytest.raises(StartupError) as caught:
        choose(url, None, {API_KEY: "SECRET"})
    assert "SECRET" not in str(caught.value)
    assert is_for_vendor("https://api.openai.com/x")


def test_without_a_token_nobody_is_asked() -> None:
    with pytest.raises(StartupError, match="wants a token"):
        choose(HOME, None, {VARIABLE: " "})
    with pytest.raises(StartupError):
        choose(HOME, "two\nlines", {})


def test_a_credential_is_not_shown() -> None:
    assert "SECRET" not in repr(Credential("SECRET"))
