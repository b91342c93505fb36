"""What of a user's files enters, and what of a worker's copy is believed."""

import json
import time
import tomllib
from typing import Any

import pytest

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.claude import CLAUDE
from holdfast.agents.catalog.codex import CODEX
from holdfast.agents.catalog.hostfiles import (
    HostFile,
    NotRenewed,
    Renewal,
    Way,
    expires_at,
    find_keys,
    find_tokens,
    is_renewable,
    lend,
    merge,
    read_settings,
    renew,
    select_settings,
    write_settings,
)
from holdfast.agents.catalog.opencode import OPENCODE
from tests.support.logins import DAY_S, KEY, anthropic, chatgpt, jwt
from tests.support.rows import every_row

NOW = time.time()


def renewal_of(agent: Agent) -> Renewal:
    [found] = [file.renewal for file in agent.host_files if file.renewal is not None]
    return found


CHATGPT, ANTHROPIC, OPENCODE_LOGIN = map(renewal_of, (CODEX, CLAUDE, OPENCODE))


def github(expires_in_s: float, refresh: str = "r-1") -> dict[str, Any]:
    until = int((NOW + expires_in_s) * 1000)
    return {
        "copilot": {"type": "oauth", "access": "access-1", "refresh": refresh, "expires": until},
        "mine": {"type": "api", "key": KEY},
    }


def changed(document: dict[str, Any], **places: object) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(document))
    for dotted, value in places.items():
        *above, name = dotted.split("__")
        table = made
        for part in above:
            table = table[part]
        table[name] = value
    return made


# --- which files


def test_a_file_is_where_its_user_moved_it() -> None:
    [login] = [file for file in CODEX.host_files if file.renewal]
    assert login.find("/home/me", {}) == "/home/me/.codex/auth.json"
    assert login.find("/home/me", {"CODEX_HOME": "/srv/codex/"}) == "/srv/codex/auth.json"


@every_row("agent", [agent for agent in CATALOG.values() if agent.host_files], ids=lambda agent: agent.name)
def test_what_enters_lies_where_the_relocated_cli_looks(agent: Agent) -> None:
    places = [place.removeprefix("{state}").strip("/") for place in agent.relocation.values()]
    for file in agent.host_files:
        assert any(not place or file.into.startswith(f"{place}/") for place in places), file
        assert file.variable in agent.relocation
        assert (file.way is Way.RENEWED) == (file.renewal is not None)
    assert len({file.into for file in agent.host_files}) == len(agent.host_files)
    assert sum(file.renewal is not None for file in agent.host_files) <= 1


# --- settings


def test_settings_are_read_as_people_write_them() -> None:
    text = '\ufeff{\n // a\n "a": "// no", /* b */ "b": [1, 2,],\n "c": {"d": "x,}",},\n}'
    assert read_settings("x.json", text) == {"a": "// no", "b": [1, 2], "c": {"d": "x,}"}}


@every_row("text", ["[]", "{", '{"a": }', "1", "[" * 100_000])
def test_what_is_no_table_of_settings_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_settings("x.json", text)


def test_toml_is_written_as_it_was_read() -> None:
    text = (
        'model = "a\\"b\\u007f\\n"\nodd."key with = in" = 1.5\n[t.u]\nlist = [1, true, {x = "y"}]\n'
        "at = 2026-01-02T03:04:05Z\n"
    )
    document = read_settings("config.toml", text)
    assert tomllib.loads(write_settings("config.toml", document)) == document == tomllib.loads(text)


def test_what_starts_programs_is_left_out_and_said() -> None:
    file = HostFile("a.json", "a.json", Way.COPIED, "", drop=("mcp", "provider.*.auth", "tools.*Command"))
    document = {
        "mcp": {"x": {"env": {"TOKEN": "secret"}}},
        "provider": {"a": {"auth": ["sh"], "url": "u"}, "b": {"url": "v"}},
        "tools": {"callCommand": "sh", "other": 1},
    }
    kept, left = select_settings(file, document)
    assert kept == {"provider": {"a": {"url": "u"}, "b": {"url": "v"}}, "tools": {"other": 1}}
    assert left == ["mcp", "provider.a.auth", "tools.callCommand"]
    assert "mcp" in document, "what was read is not changed"


def test_of_some_files_only_what_is_named_enters() -> None:
    file = HostFile("a.json", "a.json", Way.COPIED, "", keep=("account", "not.there"))
    assert select_settings(file, {"account": {"id": 1}, "projects": {"/secret": {}}}) == (
        {"account": {"id": 1}},
        [],
    )


def test_settings_are_merged_table_by_table() -> None:
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}}) == {"a": {"b": 1, "c": 4}, "d": 3}


# --- logins


def test_a_key_is_not_renewed_and_a_subscription_is() -> None:
    assert not is_renewable({"auth_mode": "apikey", "OPENAI_API_KEY": KEY}, CHATGPT)
    assert not is_renewable({"mine": {"type": "api", "key": KEY}}, OPENCODE_LOGIN)
    assert is_renewable(chatgpt(DAY_S), CHATGPT)
    assert is_renewable(anthropic(DAY_S), ANTHROPIC)
    assert is_renewable(github(DAY_S), OPENCODE_LOGIN)


def test_what_is_lent_has_all_but_the_refresh_token() -> None:
    login = github(DAY_S)
    lent = lend(login, OPENCODE_LOGIN)
    assert lent == changed(login, copilot__refresh="")
    assert not is_renewable(lent, OPENCODE_LOGIN)
    assert login["copilot"]["refresh"] == "r-1"


@every_row(
    ("document", "renewal"),
    [(chatgpt(DAY_S), CHATGPT), (anthropic(DAY_S), ANTHROPIC), (github(DAY_S), OPENCODE_LOGIN)],
)
def test_a_login_says_until_when_it_is_valid(document: dict[str, Any], renewal: Renewal) -> None:
    until = expires_at(document, renewal)
    assert until == pytest.approx(NOW + DAY_S, abs=30)


@every_row(
    ("before", "after", "renewal"),
    [
        (chatgpt(60), chatgpt(DAY_S, refresh="r-2"), CHATGPT),
        (chatgpt(-60), chatgpt(DAY_S, refresh="r-2"), CHATGPT),
        (anthropic(60), anthropic(DAY_S, refresh="r-2"), ANTHROPIC),
        (github(60), github(DAY_S, "r-2"), OPENCODE_LOGIN),
    ],
)
def test_a_renewal_is_taken(before: dict[str, Any], after: dict[str, Any], renewal: Renewal) -> None:
    made = renew(before, {**after, "more": "not ours"}, renewal, now=NOW)
    assert made is not None
    assert "more" not in made
    assert made.keys() == before.keys()
    assert "r-2" in find_all(made)


def find_all(document: object) -> list[object]:
    values = document.values() if isinstance(document, dict) else ()
    return [document, *(found for value in values for found in find_all(value))]


def test_of_several_logins_only_the_renewed_one_changes() -> None:
    before = github(60) | {"other": {"type": "oauth", "access": "a", "refresh": "b", "expires": 5}}
    after = changed(github(DAY_S, "r-2"), mine__key="planted") | {"other": before["other"]}
    made = renew(before, after, OPENCODE_LOGIN, now=NOW)
    assert made == before | {"copilot": after["copilot"]}


def test_what_is_as_it_was_is_no_renewal() -> None:
    before = chatgpt(DAY_S)
    assert renew(before, {**before, "more": 1}, CHATGPT, now=NOW) is None


LATER = chatgpt(2 * DAY_S, refresh="r-2")
ATTACKS: dict[str, tuple[object, str]] = {
    "a list": ([], "no login"),
    "nothing": ({}, "missing"),
    "tokens that are no table": (changed(LATER, tokens="x"), "missing"),
    "somebody else's account": (chatgpt(2 * DAY_S, account="mine"), "somebody else's"),
    "somebody else's access token": (
        changed(LATER, tokens__access_token=jwt(2 * DAY_S, subject="me")),
        "somebody else's",
    ),
    "an older one again": (chatgpt(DAY_S / 2), "not valid for longer"),
    "one of the same age": (changed(chatgpt(DAY_S), tokens__refresh_token="r-9"), "not valid for longer"),
    "valid for ever": (chatgpt(4000 * DAY_S), "so long"),
    "no JWT": (changed(LATER, tokens__access_token="x"), "somebody else's"),
    "a huge token": (changed(LATER, tokens__refresh_token="x" * 20_000), "no token"),
    "a token with a line end": (changed(LATER, tokens__refresh_token="x\ny"), "no token"),
    "an empty token": (changed(LATER, tokens__refresh_token=""), "no token"),
    "a table as a token": (changed(LATER, tokens__refresh_token={"a": 1}), "another kind"),
    "a number as a token": (changed(LATER, tokens__refresh_token=7), "another kind"),
}


@every_row(("after", "why"), ATTACKS.values(), ids=ATTACKS)
def test_anything_else_is_refused(after: object, why: str) -> None:
    with pytest.raises(NotRenewed, match=why):
        renew(chatgpt(DAY_S), after, CHATGPT, now=NOW)


@every_row("expires", [True, "soon", None, float("inf"), float("nan"), 10**40, 10**400])
def test_an_expiry_that_is_none_is_refused(expires: object) -> None:
    after = changed(anthropic(DAY_S, refresh="r-2"), claudeAiOauth__expiresAt=expires)
    with pytest.raises(NotRenewed):
        renew(anthropic(60), after, ANTHROPIC, now=NOW)


def test_the_tokens_of_a_login_are_found_to_be_kept_out_of_logs() -> None:
    assert set(find_tokens(github(DAY_S, refresh="a-long-refresh-token"))) == {"a-long-refresh-token", KEY}


def test_a_key_is_found_in_settings_of_any_kind() -> None:
    key = "sk-0123456789abcdef"
    for text in (
        f"OPENAI_API_KEY: {key}\nGOOSE_MODEL: a-model-with-a-long-name",
        f"export OPENAI_API_KEY='{key}'",
        f'{{"providers": {{"a": {{"apiKey":"{key}","baseUrl":"https://models.example.com"}}}}}}',
        f"models:\n  - {{name: m, apiKey: {key}, roles: [chat]}}",
    ):
        assert find_keys(text) == [key]
    assert find_keys("keyboard: short\nmonkey = banana") == []
