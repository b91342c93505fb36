"""Addresses for ssh, the command line that they become, and why it failed."""

import shlex

import pytest

from holdfast.client.links.ssh import SshTarget, explain, parse
from holdfast.client.links.target import parse_target
from holdfast.errors import UsageError
from tests.support.rows import every_row


@every_row(
    ("address", "wanted"),
    [
        ("ssh://box", SshTarget("box")),
        ("ssh://box/", SshTarget("box", path="/")),
        ("ssh://Box.Example", SshTarget("Box.Example")),
        ("ssh://ann@box", SshTarget("box", "ann")),
        ("ssh://ann@box:2222/srv/app", SshTarget("box", "ann", 2222, "/srv/app")),
        ("ssh://box/~", SshTarget("box")),
        ("ssh://box/~/app", SshTarget("box", path="~/app")),
        ("ssh://box/a%20b", SshTarget("box", path="/a b")),
        ("ssh://[::1]:22", SshTarget("::1", port=22)),
        ("ssh://[fe80::1%eth0]", SshTarget("fe80::1%eth0")),
        ("ssh://BOX", SshTarget("BOX")),
        ("ssh://box@BOX", SshTarget("BOX", "box")),
        ("ssh://SSH", SshTarget("SSH")),
    ],
)
def test_an_address_is_read(address: str, wanted: SshTarget) -> None:
    assert parse(address) == parse_target(address) == wanted


@every_row(
    "address",
    [
        "ssh://", "ssh:///path", "ssh://-oProxyCommand=x", "ssh://-l@box", "ssh://ann:secret@box",
        "ssh://a b", "ssh://box;x", "ssh://$(x)", "ssh://box:99999", "ssh://box?x=1", "ssh://box#x", "ssh://box/a%0ab",
        "ssh://`x`@box", "ssh://b\nc", "ssh://b%20b", "ssh://\u212aing",
    ],
)  # fmt: skip
def test_what_a_shell_or_ssh_would_read_otherwise_is_refused(address: str) -> None:
    with pytest.raises(UsageError):
        parse(address)


def test_a_token_is_not_for_ssh() -> None:
    with pytest.raises(UsageError):
        parse_target("ssh://box", "token")


def test_whatever_the_path_is_it_is_one_word_over_there() -> None:
    path = '/a b\'; rm -rf "$HOME" `x`'
    *_, host, command = SshTarget("box", path=path).argv()
    assert host == "box"
    shell, option, script = shlex.split(command)
    assert (shell, option) == ("sh", "-c")
    assert shlex.split(script)[-6:] == ["exec", "holdfast", "environment", "bridge", "--", path]


def test_links_never_ask_and_a_person_may_be_asked() -> None:
    target = SshTarget("box", "ann", 2222)
    assert "BatchMode=yes" in target.argv()
    assert target.base(interactive=True) == ("ssh", "-T", "-p", "2222", "-l", "ann", "--", "box")
    assert str(target) == "ssh://ann@box:2222"
    assert str(SshTarget("::1")) == "ssh://[::1]"


@every_row(
    ("code", "said", "wanted"),
    [
        (255, "ann@box: Permission denied (publickey).", "does not let you in"),
        (
            255,
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            "another key",
        ),
        (255, "Host key verification failed.", "not known to ssh yet"),
        (255, "ssh: Could not resolve hostname box: Name or service not known", "not a known host name"),
        (255, "ssh: connect to host box port 22: Connection refused", "no ssh server"),
        (255, "ssh: connect to host box port 22: Connection timed out", "cannot be reached"),
        (127, "sh: 1: exec: holdfast: not found", "has no Holdfast"),
        (127, "", "has no Holdfast"),
        (2, "Error: No such command 'environment'.", "too old"),
        (1, "motd\nholdfast: there is no directory /x\n  try: y", "says: there is no directory /x"),
        (255, "something else", "ended with 255"),
        (None, "", "ended with None"),
    ],
)
def test_why_it_failed_is_said(code: int | None, said: str, wanted: str) -> None:
    error = explain(SshTarget("box", "ann"), code, said)
    assert wanted in str(error)
    assert "ssh://ann@box" in str(error)
    assert not (error.remedy or "").startswith("try:")  # which is written before it
