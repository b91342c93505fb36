"""Bubblewrap as the backend of the server and of `holdfast exec`: found, chosen, refused, used."""

import base64
import contextlib
import errno
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.local import programs
from holdfast.sandbox.backends import bwraptool
from holdfast.sandbox.backends.bwraptool import MAX_HELP, Unusable
from holdfast.sandbox.plan.covers import UNCOVERED_BY_BWRAP
from holdfast.sandbox.plan.select import Backend, Choice
from tests.support import identity
from tests.support.exec_command import Place, Screen, place
from tests.support.peer import Peer, Refused, ready, serving
from tests.support.root_only import IDENTITIES, root_only
from tests.support.rooted import REASON, rooted

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is Linux's"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]

REAL: Final = shutil.which("bwrap") or ""
BWRAP: Final = Choice(Backend.BWRAP)


def program(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
    return path


def refusal(path: str) -> tuple[str, int]:
    with pytest.raises(Unusable) as refused:
        bwraptool.find(path)
    return refused.value.stage, refused.value.errno


# --- the search


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take also what somebody else could replace, such as what a test can make."""
    monkeypatch.setattr(programs, "_can_be_replaced", lambda *_: False)
    monkeypatch.setattr(programs, "_WRITABLE", ())


@pytest.mark.parametrize("name", ["bwrap", "git", "tmux", "strace"])
def test_no_program_of_ours_is_taken_from_where_a_command_could_have_put_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands first on the PATH: a project's own folder, one of the user's, one of everybody's."""
    ours = identity.folder_for(identity.SELF)
    try:
        for folder in (tmp_path / "venv" / "bin", ours):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("#!/bin/sh\ntrue\n", "utf-8")
            (folder / name).chmod(0o755)
            link = tmp_path / f"link-{folder.name}"
            link.symlink_to(folder)
            for search in (str(folder), str(link)):
                assert programs.find_program(name, search, before=()) is None
    finally:
        shutil.rmtree(ours)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setattr(programs, "_WRITABLE", ())
    (shared / name).write_text("#!/bin/sh\ntrue\n", "utf-8")
    (shared / name).chmod(0o755)
    assert programs.find_program(name, str(shared), before=()) is None


@pytest.mark.usefixtures("anywhere")
def test_the_first_bubblewrap_of_the_path_is_used(tmp_path: Path) -> None:
    found = program(tmp_path / "a", f'exec {REAL} "$@"')
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "bwrap").write_text("not executable", "utf-8")
    assert bwraptool.find(f"{tmp_path}/b:{tmp_path}/a:/usr/bin") == os.path.realpath(found)


@pytest.mark.usefixtures("anywhere")
def test_none_is_used_from_a_relative_directory_or_from_below_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", f'exec {REAL} "$@"')
    other = tmp_path / "other"
    other.mkdir()
    (other / "bwrap").symlink_to(tmp_path / "bin" / "bwrap")
    monkeypatch.chdir(tmp_path)
    for path in ("", "bin", f"{tmp_path}/bin", f"{other}", f"bin:{tmp_path}/none"):
        assert refusal(path) == ("bwrap.missing", errno.ENOENT)
    monkeypatch.chdir("/")
    assert bwraptool.find(f"{tmp_path}/bin") == f"{os.path.realpath(tmp_path)}/bin/bwrap"


@pytest.mark.usefixtures("anywhere")
def test_one_that_lacks_an_option_is_too_old(tmp_path: Path) -> None:
    program(tmp_path, f"{REAL} --help | grep -v -e --perms")
    assert refusal(str(tmp_path)) == ("bwrap.option", errno.ENOSYS)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("text", ["sleep infinity", "sleep infinity & sleep infinity", "yes"])
def test_one_that_hangs_or_never_stops_talking_is_given_up(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bwraptool, "HELP_S", 0.2)
    program(tmp_path, text)
    assert refusal(str(tmp_path))[0] == "bwrap.option"  # none of them ends by itself
    assert MAX_HELP < 1 << 20


@pytest.mark.usefixtures("anywhere")
def test_one_that_cannot_be_started_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "bwrap"
    path.write_bytes(b"\x7fELF nonsense")
    path.chmod(0o755)
    assert refusal(str(tmp_path)) == ("bwrap.missing", errno.ENOEXEC)


@root_only(REASON)
def test_a_set_user_id_one_is_refused_to_an_ordinary_user() -> None:
    with place(identity.USER) as made, rooted() as tools:
        tool = program(tools, f'exec {REAL} "$@"')
        tool.chmod(0o4755)
        done = made.run("--backend", "bwrap", "--", "true", env={"PATH": f"{tool.parent}:/usr/bin:/bin"})
        assert done.code == 125
        assert "set-user-id" in done.err


# --- holdfast exec


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        yield made


def test_a_command_runs_and_the_report_says_who_confined_it(anyone: Place) -> None:
    done = anyone.run("--backend", "bwrap", "--json", "--", "sh", "-c", "echo out; echo x > .git/new; exit 7")
    assert (done.code, done.out) == (7, "out\n")
    told = json.loads(done.err.splitlines()[-1])
    assert told["enforcement"]["backend"] == "bwrap"
    assert (told["enforcement"]["missing"], len(told["enforcement"]["weakened"])) == ([], 3)
    assert UNCOVERED_BY_BWRAP in told["enforcement"]["weakened"]
    assert told["denial"]["path"] == f"{anyone.workspace}/.git/new"
    assert not list((anyone.workspace / ".git").iterdir())


def test_a_planted_bubblewrap_is_passed_over(anyone: Place) -> None:
    """As an activated environment of a project has it: first on the PATH, and the worker's to write."""
    mark = anyone.outside / "ESCAPED"
    program(anyone.top / "bin", f'touch {mark}\nexec {REAL} "$@"')
    anyone.own()
    assert anyone.call(anyone.as_user([str(anyone.top / "bin" / "bwrap"), "--version"])).code == 0
    assert mark.exists(), "whoever starts it runs what was planted"
    mark.unlink()
    path = {"PATH": f"{anyone.top}/bin:/usr/bin:/bin"}
    assert anyone.run("--backend", "bwrap", "--", "true", env=path).code == 0
    assert not mark.exists()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("", "not installed"),
        pytest.param(
            f"{REAL} --help | grep -v -e --json-status-fd", "too old", marks=root_only(REASON), id="old"
        ),
        pytest.param(
            f'case "$1" in --help) exec {REAL} --help; esac\n'
            "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1",
            "AppArmor",
            marks=root_only(REASON),
            id="AppArmor",
        ),
    ],
)
def test_without_a_usable_bubblewrap_nothing_is_run_and_the_cause_is_told(script: str, words: str) -> None:
    with place(identity.SELF) as made, contextlib.ExitStack() as stack:
        tools = made.top / "bin"
        tools.mkdir()
        if script:
            tools = stack.enter_context(rooted())
            program(tools, script)
        done = made.run("--backend", "bwrap", "--", "touch", "ran", env={"PATH": str(tools)})
        assert done.code == 125
        assert words in done.err
        assert "  try: " in done.err
        assert not (made.workspace / "ran").exists()


def test_control_c_reaches_the_command_and_nobody_around_it(anyone: Place) -> None:
    script = "trap 'echo caught; exit 4' INT; echo up; while :; do sleep 0.05; done"
    with Screen(anyone, "--backend", "bwrap", "--", "sh", "-c", script) as screen:
        screen.until(b"up\r\n")
        screen.type(b"\x03")
        assert screen.end() == 4
        assert b"caught\r\n" in screen.seen


def test_a_terminal_that_goes_away_ends_the_command() -> None:
    with (
        place(identity.SELF) as made,
        Screen(made, "--backend", "bwrap", "--", "sh", "-c", "echo up; sleep 60") as screen,
    ):
        screen.until(b"up\r\n")
        screen.hang_up()
        assert screen.child.wait(20) == 129


# --- the server


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "ws" / ".git").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret", "utf-8")
    return tmp_path


def policy(work: Path, *denied: Path) -> dict[str, Any]:
    uri = (work / "ws").as_uri()
    entries = [
        {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"},
        {"path": {"type": "special", "value": {"kind": "project_roots"}}, "access": "write"},
        *({"path": {"type": "path", "path": path.as_uri()}, "access": "deny"} for path in denied),
    ]
    files = {"type": "restricted", "entries": entries}
    return {
        "permissions": {"type": "managed", "file_system": files, "network": "restricted"},
        "cwd": uri,
        "workspaceRoots": [uri],
        "windowsSandboxLevel": "disabled",
    }


@asynccontextmanager
async def client() -> AsyncIterator[Peer]:
    async with serving(choice=BWRAP) as (url, _), ready(url, holdfast=True) as peer:
        yield peer


@pytest.mark.parametrize("tty", [False, True])
async def test_a_process_is_confined_signalled_and_named(work: Path, tty: bool) -> None:
    async with client() as peer:
        more = {"cwd": (work / "ws").as_uri(), "sandbox": policy(work), "tty": tty}
        script = f"echo in > f; echo x > {work}/outside/new; exit 7"
        started = await peer.start("p", script, **more)
        assert (started["sandboxType"], started["enforcement"]["backend"]) == ("linuxSeccomp", "bwrap")
        await peer.closed("p")
        assert peer.exit_code("p") == 7
        assert (work / "ws" / "f").read_text("utf-8") == "in\n"
        assert not (work / "outside" / "new").exists()

        await peer.start("q", "echo up; exec sleep 60", **more)
        await peer.output_has("q", b"up")
        await peer.call("process/signal", {"processId": "q", "signal": "SIGTERM"})
        await peer.closed("q")
        assert peer.exit_code("q") == 143

        await peer.start("r", "/bin/cat", "/proc/self/cmdline", **more, arg0="other")
        await peer.closed("r")
        assert peer.output("r").startswith(b"other\0")


async def test_a_program_that_cannot_be_started_is_the_commands_failure(work: Path) -> None:
    async with client() as peer:
        for name, code in (("/no/such", 2), ("/etc/passwd", 13)):
            with pytest.raises(Refused) as refused:
                await peer.start("p", name, "x", cwd=(work / "ws").as_uri(), sandbox=policy(work))
            assert refused.value.code == -32603
            assert f"os error {code}" in refused.value.message


async def test_files_are_read_and_written_inside_and_refused_outside(work: Path) -> None:
    secret = work / "ws" / "secret"
    secret.write_text("secret", "utf-8")
    sandbox = policy(work, secret)
    data = base64.b64encode(b"new").decode()
    async with client() as peer:
        path = (work / "ws" / "f").as_uri()
        await peer.call("fs/writeFile", {"path": path, "sandbox": sandbox, "dataBase64": data})
        reply = await peer.call("fs/readFile", {"path": path, "sandbox": sandbox})
        assert base64.b64decode(reply["dataBase64"]) == b"new"
        for refused in (work / "outside" / "f", work / "ws" / ".git" / "f"):
            params = {"path": refused.as_uri(), "sandbox": sandbox, "dataBase64": data}
            with pytest.raises(Refused):
                await peer.call("fs/writeFile", params)
            assert not refused.exists()
        with pytest.raises(Refused):
            await peer.call("fs/readFile", {"path": secret.as_uri(), "sandbox": sandbox})


async def test_without_bubblewrap_a_start_is_refused(work: Path) -> None:
    environ = {"PATH": str(work)}
    async with serving(choice=BWRAP, environ=environ) as (url, _), ready(url) as peer:
        with pytest.raises(Refused) as refused:
            await peer.start("p", "touch ran", cwd=(work / "ws").as_uri(), sandbox=policy(work))
        assert "bubblewrap is not installed" in refused.value.message
    assert not (work / "ws" / "ran").exists()
