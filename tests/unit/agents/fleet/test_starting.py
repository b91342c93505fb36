"""A wish for a worker on another machine: what of this machine goes there, and what is refused."""

from typing import Any

import pytest

from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.fleet import starting
from holdfast.agents.fleet.sending import quote
from holdfast.agents.fleet.there import FarMachine
from holdfast.agents.worker.launching import PreparedStart, WorkerSpec
from holdfast.errors import NotFound, UsageError
from tests.support.rows import every_row

MACHINE = FarMachine(
    home="/home/far",
    data="/home/far/.local/share",
    path="/usr/bin",
    name="box",
    program="/usr/bin/codex",
    git="/usr/bin/git",
    holdfast="",
    there=("/home/far/.ssh", "/home/far/.holdfast"),
)


def wish(**more: Any) -> WorkerSpec:
    asked: dict[str, Any] = {
        "agent": "codex",
        "cwd": "/w",
        "env": {},
        "prompt": "do it",
        "host": "box",
        **more,
    }
    return WorkerSpec(**asked)


def prepare(asked: WorkerSpec, machine: FarMachine = MACHINE, *, limited: bool = True) -> PreparedStart:
    return starting.prepare(asked, CATALOG[asked.agent], machine, place="/p", below="sub", limited=limited)


def test_home_path_and_places_of_this_machine_stay_here() -> None:
    ours = {
        "HOME": "/me",
        "PATH": "/mine",
        "USER": "me",
        "CODEX_HOME": "/me/.codex",
        "LANG": "C",
        "WANTED": "1",
    }
    ready = prepare(wish(env=ours))
    assert ready.environment["CODEX_HOME"].startswith("/p/state")
    assert {name for name in ours if ready.environment.get(name) == ours[name]} == {"LANG", "WANTED"}
    assert ready.argv[0] == "/usr/bin/codex"
    assert "do it" not in ready.shown


def test_it_writes_its_own_places_and_sees_no_credentials_of_that_machine() -> None:
    context = prepare(wish()).policy.context("/p/work/sub")
    text = repr(context)
    assert "/home/far/.ssh" in text
    assert "/home/far/.holdfast" in text
    assert "/p/state" in text
    assert prepare(wish(unconfined=True)).policy.confines is False


def test_a_default_limit_is_not_that_of_this_machine() -> None:
    assert prepare(wish()).limits is None
    assert any("no limit on what it uses" in note for note in prepare(wish()).notes)
    assert any("keeps no limits" in note for note in prepare(wish(), limited=False).notes)
    asked = prepare(wish(limits={"pids": 7})).limits
    assert asked is not None
    assert asked.pids == 7


REFUSED: dict[str, dict[str, Any]] = {
    "trace": {"trace": True},
    "an MCP server": {"mcp": ["server"]},
    "a path to write": {"writable": ["/x"]},
    "a path to read": {"readable": ["/x"]},
    "a socket": {"sockets": ["/x"]},
    "a state": {"state": "/x"},
    "a long prompt": {"prompt": "x" * 200_000},
}


@every_row("what", REFUSED)
def test_what_cannot_be_had_there_is_refused(what: str) -> None:
    with pytest.raises(UsageError):
        starting.check(wish(**REFUSED[what]))


def test_a_program_that_is_not_there_is_named() -> None:
    missing = FarMachine("/h", "/d", "/usr/bin", "box", "", "/usr/bin/git", "", ())
    with pytest.raises(NotFound, match="codex is not on the PATH of box"):
        prepare(wish(), missing)


def test_what_cannot_be_seen_is_declared() -> None:
    assert not any("refused calls" in note for note in starting.describe_unseen(watched=True, why=None))
    assert any("(no kernel)" in note for note in starting.describe_unseen(watched=False, why="no kernel"))


@pytest.mark.parametrize(
    ("path", "quoted"),
    [("a b", b'"a b"'), ('a"b\\', b'"a\\042b\\134"'), ("a\nb", b'"a\\012b"'), ("\udcff", b'"\xff"')],
)
def test_a_path_is_quoted_for_the_stream(path: str, quoted: bytes) -> None:
    assert quote(path) == quoted
