"""Environments in a file or a variable."""

import pytest

from holdfast.client.environmentfile import (
    EnvironmentEntry,
    EnvironmentList,
    check_token,
    from_noise_variables,
    from_toml,
    from_variable,
)
from holdfast.errors import UsageError
from tests.support.environment_files import ADDRESS, REFUSED, TAKEN, TOKEN, at, child
from tests.support.rows import every_row


def read(text: str) -> EnvironmentList:
    return from_toml(text, source="environments.toml", folder="/home/me/.codex")


@every_row("text", TAKEN.values(), ids=list(TAKEN))
def test_what_the_reference_takes_is_taken(text: str) -> None:
    assert len(read(text).entries) == text.count("[[environments]]")


@every_row("text", REFUSED.values(), ids=list(REFUSED))
def test_what_the_reference_refuses_is_refused_with_the_name_of_the_file_and_without_secrets(
    text: str,
) -> None:
    with pytest.raises(UsageError, match=r"^environments\.toml: ") as caught:
        read(text)
    assert "hidden" not in f"{caught.value} {caught.value.remedy}"


def test_an_empty_file_means_this_machine() -> None:
    assert read("") == EnvironmentList((), True, "local")


def test_entries_keep_their_order() -> None:
    assert [entry.id for entry in read(at(id_="z") + child(id_="a") + at(id_="m")).entries] == ["z", "a", "m"]


@every_row(
    ("text", "include_local", "default"),
    [
        (at(), True, "local"),
        ("include_local = false\n" + at(), False, None),
        ("default = 'a'\n" + at(), True, "a"),
        ("default = 'local'\n" + at(), True, "local"),
        ("default = 'none'\n" + at(), True, None),
        ("include_local = false\ndefault = 'a'\n" + at(), False, "a"),
    ],
)
def test_the_default_is_what_is_named_or_this_machine(
    text: str, include_local: bool, default: str | None
) -> None:
    listed = read(text)
    assert (listed.include_local, listed.default) == (include_local, default)


def test_an_address_with_everything() -> None:
    more = f"{TOKEN}\nconnect_timeout_sec = 5\ninitialize_timeout_sec = 20.5"
    assert read(at(more, url=f" {ADDRESS} ")).entries == (
        EnvironmentEntry("a", ADDRESS, "hidden", connect_timeout_s=5.0, initialize_timeout_s=20.5),
    )


def test_a_child_with_everything() -> None:
    more = "args = ['-i', 'pod']\ncwd = 'pods'\nenv = {K = 'v'}\ninitialize_timeout_sec = 3"
    assert read(child(more, program=" kubectl ")).entries == (
        EnvironmentEntry(
            "a",
            argv=("kubectl", "-i", "pod"),
            cwd="/home/me/.codex/pods",
            environ=(("K", "v"),),
            initialize_timeout_s=3.0,
        ),
    )


def test_timeouts_are_ten_seconds_unless_given() -> None:
    (entry,) = read(at()).entries
    assert (entry.connect_timeout_s, entry.initialize_timeout_s) == (10.0, 10.0)


def test_what_may_be_secret_is_not_shown() -> None:
    text = repr(read(at(TOKEN) + child("env = {A = 'hidden'}", id_="b")))
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("value", "listed"),
    [
        (None, EnvironmentList()),
        ("  ", EnvironmentList()),
        (" None ", EnvironmentList((), False, None)),
        (f" {ADDRESS} ", EnvironmentList((EnvironmentEntry("remote", ADDRESS),), False, "remote")),
    ],
)
def test_the_variable_means_this_machine_none_or_one_other(
    value: str | None, listed: EnvironmentList
) -> None:
    assert from_variable(value) == listed


NOISE = {
    "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": " https://registry.example/api ",
    "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": " box ",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": " hidden ",
}
ACCOUNT = "CODEX_EXEC_SERVER_NOISE_CHATGPT_ACCOUNT_ID"


def test_a_registry_in_the_variables_is_the_only_environment() -> None:
    listed = from_noise_variables(NOISE | {ACCOUNT: " me ", "CODEX_EXEC_SERVER_URL": ADDRESS})
    wanted = EnvironmentEntry(
        "remote",
        token="hidden",
        registry_url="https://registry.example/api",
        environment_id="box",
        account_id="me",
    )
    assert listed == EnvironmentList((wanted,), False, "remote")
    assert "hidden" not in repr(listed)


@every_row("environ", [{}, {ACCOUNT: "me"}, dict.fromkeys(NOISE, " ")], ids=range(3))
def test_blank_variables_name_no_registry(environ: dict[str, str]) -> None:
    assert from_noise_variables(environ) is None


@every_row(
    "change",
    [
        *({name: " "} for name in NOISE),
        {"CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": "http://registry.example"},
        {"CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": "registry.example"},
        {"CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": "hid\nden"},
        {ACCOUNT: "m\ne"},
    ],
    ids=str,
)
def test_half_a_registry_or_an_impossible_one_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        from_noise_variables(NOISE | change)
    assert "hid" not in str(caught.value)


def test_a_registry_in_the_file() -> None:
    text = "[[environments]]\nid = 'box'\nregistry_url = 'https://r'\nauth_bearer_token_file = 'token'\n"
    more = "[[environments]]\nid = 'b'\nregistry_url = 'https://r'\nenvironment_id = 'x'\n"
    first, second = read(f"{text}{more}{TOKEN}\nconnect_timeout_sec = 5").entries
    place = "/home/me/.codex/token"
    assert first == EnvironmentEntry("box", token_file=place, registry_url="https://r", environment_id="box")
    assert second == EnvironmentEntry(
        "b", token="hidden", registry_url="https://r", environment_id="x", connect_timeout_s=5.0
    )


@every_row(
    "rest",
    [
        "registry_url = 'https://r'",  # no token
        f"registry_url = 'https://r'\n{TOKEN}\nauth_bearer_token_file = 'f'",
        f"registry_url = 'https://r'\n{TOKEN}\nurl = 'wss://x'",
        f"registry_url = 'https://r'\n{TOKEN}\nprogram = 'x'",
        f"registry_url = 'https://r'\n{TOKEN}\nenvironment_id = ' '",
        f"registry_url = 'http://registry.example'\n{TOKEN}",
        "url = 'wss://x'\nenvironment_id = 'x'",
        "url = 'wss://x'\nauth_bearer_token_file = 'x'",
        "program = 'x'\nenvironment_id = 'x'",
    ],
    ids=range(9),
)
def test_a_registry_in_the_file_that_makes_no_sense_is_refused(rest: str) -> None:
    with pytest.raises(UsageError, match="environment box"):
        read(f"[[environments]]\nid = 'box'\n{rest}\n")


@every_row(
    "url", ["ws://192.0.2.1", "ws://0.0.0.0:1", "ws://localhost.:1", "ws://[::ffff:127.0.0.1]:1", "no"]
)
def test_a_token_does_not_travel_in_the_open(url: str) -> None:
    with pytest.raises(UsageError):
        check_token(url, "x")
    check_token("wss://192.0.2.1", "x")
