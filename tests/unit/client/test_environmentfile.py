"""Environments in a file or a variable."""

import pytest

from holdfast.client.environmentfile import (
    EnvironmentEntry,
    EnvironmentList,
    check_token,
    from_toml,
    from_variable,
    refuse_noise,
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


def test_a_registry_is_refused_unless_its_variables_are_blank() -> None:
    refuse_noise({"CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": " ", "PATH": "/bin"})
    with pytest.raises(UsageError) as caught:
        refuse_noise({"CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": "hidden"})
    assert "hidden" not in str(caught.value)


@every_row(
    "url", ["ws://192.0.2.1", "ws://0.0.0.0:1", "ws://localhost.:1", "ws://[::ffff:127.0.0.1]:1", "no"]
)
def test_a_token_does_not_travel_in_the_open(url: str) -> None:
    with pytest.raises(UsageError):
        check_token(url, "x")
    check_token("wss://192.0.2.1", "x")
