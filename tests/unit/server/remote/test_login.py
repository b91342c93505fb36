"""The Codex CLI's own login as an executor's credential."""

import base64
import json
from pathlib import Path

import pytest

from holdfast.errors import StartupError, TokenRefused
from holdfast.server.remote.login import find_login, may_go_there, read_login
from tests.support.rows import every_row

HERE = "http://127.0.0.1:1"
VENDOR = "https://chatgpt.com/backend-api"
API = "https://api.openai.com"


def token(**claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'RS256'})}.{part(claims)}.c2ln"


def login(*, expires: float = 2000.0, fedramp: bool = False, **more: object) -> bytes:
    account = {"https://api.openai.com/auth": {"chatgpt_account_is_fedramp": fedramp}}
    tokens = {"access_token": token(exp=expires), "id_token": token(**account), "account_id": "account"}
    return json.dumps({"tokens": {**tokens, "refresh_token": "R"}, "last_refresh": "x", **more}).encode()


BEARER = {"authorization": f"Bearer {token(exp=2000.0)}"}
KEY = {"authorization": "Bearer sk-1"}


@every_row(
    ("content", "url", "shown"),
    [
        (login(), VENDOR, BEARER | {"chatgpt-account-id": "account"}),
        (login(fedramp=True), HERE, BEARER | {"chatgpt-account-id": "account", "x-openai-fedramp": "true"}),
        (login(OPENAI_API_KEY="sk-1", auth_mode="chatgpt"), HERE, BEARER | {"chatgpt-account-id": "account"}),
        (login(OPENAI_API_KEY="sk-1"), HERE, KEY),
        (b'{"OPENAI_API_KEY": "sk-1"}', API, KEY),
        (b'{"tokens": {"access_token": "opaque"}}', HERE, {"authorization": "Bearer opaque"}),
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_login_is_shown_as_the_reference_shows_it(content: bytes, url: str, shown: dict[str, str]) -> None:
    assert read_login(content, url, 1000.0) == shown


@every_row(
    ("content", "url"),
    [
        (login(expires=999.0), HERE),
        (b'{"OPENAI_API_KEY": "sk-1"}', VENDOR),  # the reference sends it to openai.com and openai.org alone
        (b"{}", HERE),
        (b"SECRET", HERE),
        (b'{"OPENAI_API_KEY": "SECRET\\nx"}', HERE),
        (b'{"tokens": "SECRET"}', HERE),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_has_expired_or_is_none_is_not_shown_and_not_quoted(content: bytes, url: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        read_login(content, url, 1000.0)
    assert "SECRET" not in str(refused.value)
    assert "sk-1" not in str(refused.value)


@every_row(
    ("url", "may"),
    [
        (VENDOR, True),
        (API, True),
        (HERE, True),
        ("http://chatgpt.com", False),
        ("https://chatgpt.com.example", False),
        ("https://notchatgpt.com", False),
        ("https://relay.example", False),
    ],
)
def test_a_login_goes_to_its_vendor_and_to_nobody_else(url: str, may: bool) -> None:
    assert may_go_there(url) is may


def test_a_login_is_read_anew_for_every_request(tmp_path: Path) -> None:
    file = tmp_path / ".codex" / "auth.json"
    file.parent.mkdir()
    assert find_login(HERE, {"HOME": str(tmp_path)}, lambda: 1000.0) is None
    assert find_login(HERE, {}, lambda: 1000.0) is None
    file.write_bytes(b"{}")
    with pytest.raises(StartupError):
        find_login(HERE, {"HOME": str(tmp_path)}, lambda: 1000.0)
    file.write_bytes(login(expires=1500.0))
    found = find_login(HERE, {"CODEX_HOME": str(file.parent)}, lambda: 1000.0)
    assert found is not None
    file.write_bytes(login())
    assert found.headers()["authorization"] == BEARER["authorization"]
    assert find_login("https://relay.example", {"CODEX_HOME": str(file.parent)}, lambda: 1000.0) is None
    file.unlink()
    with pytest.raises(TokenRefused):
        found.headers()
    assert repr(found) == "<Login>"
