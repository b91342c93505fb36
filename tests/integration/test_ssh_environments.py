"""Machines that are reached by ssh, with a real sshd on loopback."""

import asyncio
import contextlib
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.board.rules.transitions import TaskStatus
from holdfast.client.environment import Environment
from holdfast.commands.daemons import keptserver
from holdfast.errors import ConnectionLost, Unreachable
from tests.support.exec_command import Place, Screen
from tests.support.patience import patient
from tests.support.sshd import SshServer, ssh_server

LIMIT_S = patient(60.0)


@pytest.fixture(scope="module")
def server() -> Iterator[SshServer]:
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hf-ssh-") as folder,
        ssh_server(Path(folder)) as running,
    ):
        yield running
        call(running, "environment", "add", "last", f"ssh://box{running.home}", "--no-check")
        call(running, "environment", "remove", "last", "--stop")


@pytest.fixture(autouse=True)
def reachable(server: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is a client too."""
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)


def call(server: SshServer, *words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], env=server.environ, capture_output=True, text=True,
        timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == code, done
    return done


def test_a_machine_is_added_checked_used_and_removed(server: SshServer) -> None:
    (server.home / "work").mkdir(exist_ok=True)
    added = call(server, "environment", "add", "box", f"ssh://box{server.home}/work", "--default", "--json")
    assert json.loads(added.stdout)["system"] == "linux"
    listed = json.loads(call(server, "environment", "list", "--json").stdout)["environments"]
    assert [(one["id"], one["default"]) for one in listed] == [("local", False), ("box", True)]
    ran = call(server, "exec", "--env", "box", "--full-access", "--", "sh", "-c", "pwd; exit 3", code=3)
    assert ran.stdout == f"{server.home}/work\n"
    assert "box is ready" in call(server, "environment", "check", "box").stdout
    [seen] = [
        one["seen"]
        for one in json.loads(call(server, "environment", "list", "--json").stdout)["environments"]
        if one["id"] == "box"
    ]
    assert seen["reached"]
    assert seen["slots"] >= 1
    assert seen["backend"] or seen["unconfined"]
    call(server, "environment", "add", "box", "ssh://box", code=4)
    call(server, "environment", "remove", "box", "--stop")
    assert (
        json.loads(call(server, "environment", "list", "--json").stdout)["environments"][0]["id"] == "local"
    )
    call(server, "environment", "remove", "box", code=3)


def test_a_login_that_asks_is_asked_for_on_the_terminal_and_then_shared(server: SshServer) -> None:
    """Here for the passphrase of a key. Links ask nobody, and use the connection that was opened so."""
    person = copy.copy(server)
    person.bin = server.folder / "asking-bin"
    person.bin.mkdir()
    key = server.folder / "asking"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "open sesame", "-f", key], check=True)
    with (server.folder / "user.pub").open("a", encoding="utf-8") as authorized:
        authorized.write(key.with_suffix(".pub").read_text("utf-8"))
    usual = (server.folder / "ssh_config").read_text("utf-8").replace(f"{server.folder}/user", str(key))
    usual = usual.replace("shared.sock", "asking.sock")
    config = server.folder / "asking_config"
    config.write_text(usual, "utf-8")
    (person.bin / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n', "utf-8")
    (person.bin / "ssh").chmod(0o755)
    add = ("environment", "add", "asking", f"ssh://shared{server.home}")
    refused = call(person, *add, code=5)
    assert "does not let you in" in refused.stderr
    place = SimpleNamespace(as_user=list, workspace=server.home, env=lambda: person.environ)
    try:
        with Screen(cast(Place, place), program=[sys.executable, "-m", "holdfast", *add]) as screen:
            screen.until(rb"passphrase for key")
            screen.type(b"open sesame\n")
            assert screen.end() == 0, screen.seen
        assert b"open sesame" not in screen.seen
        ran = call(person, "exec", "--env", "asking", "--full-access", "--", "sh", "-c", "exit 3", code=3)
        assert ran.stderr == ""
    finally:
        subprocess.run([person.bin / "ssh", "-O", "exit", "shared"], capture_output=True, check=False)
    call(person, "exec", "--env", "asking", "--full-access", "--", "true", code=125)
    call(person, "environment", "remove", "asking")


def find_servers(server: SshServer) -> list[int]:
    """The one that is kept for the home over there."""
    name = keptserver.find_socket(server.home).name
    wanted = f"unix://{server.home}/hf/ssh/{name}".encode()
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_bytes().split(b"\0")
            if b"serve" in words and wanted in words:
                found.append(int(file.parent.name))
    return found


async def until_there_again(environment: Environment, path: str) -> None:
    """What was asked on the dying link may fail; what is asked then waits for the next."""
    with contextlib.suppress(ConnectionLost):
        await environment.files.exists(path)
    assert await environment.files.exists(path)


async def test_a_cut_connection_loses_nothing(server: SshServer) -> None:
    count = 'i=0; while test $i -lt 40; do echo "line $i"; i=$((i+1)); sleep 0.05; done; exit 7'
    async with asyncio.timeout(LIMIT_S):
        environment = await Environment.open(f"ssh://box{server.home}")
        process = await environment.start(["/bin/sh", "-c", count])
        await anext(aiter(process))
        for _ in range(2):
            await asyncio.to_thread(server.cut)
            await until_there_again(environment, str(server.home))
        result = await process.wait()
        await environment.aclose()
    assert result.code == 7
    assert result.stdout == "".join(f"line {number}\n" for number in range(40)).encode()


async def test_a_session_that_was_left_is_taken_up_by_another_process(server: SshServer) -> None:
    async with asyncio.timeout(LIMIT_S):
        first = await Environment.open(f"ssh://box{server.home}")
        wait = f"until test -e {server.home}/go; do sleep 0.05; done; echo done"
        await first.start(["/bin/sh", "-c", wait], process_id="p")
        session = first.session_id
        await first.leave()
        [kept] = find_servers(server)
        assert os.getsid(kept) == kept  # it belongs to no login
        (server.home / "go").touch()
        second = await Environment.open(f"ssh://box{server.home}", resume=session)
        result = await (await second.adopt("p")).wait()
        await second.aclose()
    assert (result.code, result.stdout) == (0, b"done\n")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ssh://refused", "has no ssh server there"),
        ("ssh://nowhere.invalid", "is not a known host name"),
        ("ssh://box/no/such/directory", "there is no directory"),
        ("ssh://nobody-at-all@box", "does not let you in"),
    ],
)
async def test_why_a_machine_is_not_reached_is_said(server: SshServer, address: str, said: str) -> None:
    with pytest.raises(Unreachable, match=said):
        async with asyncio.timeout(LIMIT_S):
            await Environment.open(address)


async def test_a_shell_that_prints_by_itself_is_quoted_without_what_a_terminal_obeys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "ssh"
    own.write_text("#!/bin/sh\nprintf '\\n\\033]0;x\\007Welcome to box\\n'; exec sleep 60\n", "utf-8")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(Unreachable, match="prints something before Holdfast does") as caught:
        async with asyncio.timeout(LIMIT_S):
            await Environment.open("ssh://box")
    assert "Welcome to box" in str(caught.value)
    assert str(caught.value).isprintable()
    assert (caught.value.remedy or "").endswith("must print nothing: ssh box true")


async def test_a_machine_that_says_nothing_is_told_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "ssh"
    own.write_text("#!/bin/sh\nexec sleep 60\n", "utf-8")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(Unreachable, match=r"ssh://box did not answer within 0\.2 s") as caught:
        async with asyncio.timeout(LIMIT_S):
            await Environment.open("ssh://box", initialize_timeout_s=0.2)
    assert caught.value.remedy == "ssh box"


def test_a_missing_ssh_is_said_on_a_terminal_too(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path), "HOLDFAST_HOME": str(tmp_path / "hf")}
    place = SimpleNamespace(as_user=list, workspace=tmp_path, env=lambda: environ)
    add = ("environment", "add", "box", "ssh://box")
    with Screen(cast(Place, place), program=[sys.executable, "-m", "holdfast", *add]) as screen:
        assert screen.end() == 71, screen.seen
    assert b"install ssh" in screen.seen
    assert b"Traceback" not in screen.seen


def test_what_a_machine_says_when_its_server_is_stopped_does_not_reach_the_terminal(tmp_path: Path) -> None:
    own = tmp_path / "bin" / "ssh"
    own.parent.mkdir()
    said = "printf '\\033]0;owned\\007'; printf 'holdfast: \\033[31mit is busy\\n' >&2; exit 1"
    own.write_text(f"#!/bin/sh\n{said}\n", "utf-8")
    own.chmod(0o755)
    environ = {
        "PATH": f"{own.parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "HOLDFAST_HOME": str(tmp_path / "hf"),
    }
    holdfast = [sys.executable, "-m", "holdfast", "environment"]
    subprocess.run([*holdfast, "add", "box", "ssh://box", "--no-check"], env=environ, check=True)
    ended = subprocess.run(
        [*holdfast, "remove", "box", "--stop"], env=environ, capture_output=True, check=False
    )
    assert b"\x1b" not in ended.stdout + ended.stderr
    assert b"ssh://box says: it is busy" in ended.stderr
    assert b"box" in subprocess.run([*holdfast, "list"], env=environ, capture_output=True, check=True).stdout


def test_one_behind_a_registry_is_said_to_be_written_into_the_file(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HOLDFAST_HOME": str(tmp_path / "hf")}
    add = [sys.executable, "-m", "holdfast", "environment", "add", "box", "https://relay.example"]
    ended = subprocess.run(add, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert 'id = "box", registry_url = "https://relay.example"' in ended.stderr


async def test_a_machine_without_holdfast_is_told_from_one_that_is_not_reached(server: SshServer) -> None:
    hidden = server.bin / "hidden"
    shutil.move(server.bin / "holdfast", hidden)
    try:
        with pytest.raises(Unreachable, match="has no Holdfast"):
            await Environment.open("ssh://box")
        unasked = call(server, "environment", "add", "bare", "ssh://box", code=5)
        assert "environment add NAME ssh://box --install" in unasked.stderr
        theirs = server.home / ".local/bin/holdfast"
        theirs.parent.mkdir(parents=True, exist_ok=True)
        theirs.symlink_to("../pipx/holdfast")
        refused = call(server, "environment", "add", "bare", "ssh://box", "--install", code=71)
        assert "was not installed from here, and it is not replaced" in refused.stderr
        theirs.unlink()
        assert not (server.home / ".local/share/holdfast/versions").exists()
        assert "bare" not in call(server, "environment", "list").stdout
    finally:
        shutil.move(hidden, server.bin / "holdfast")
    failed = call(server, "environment", "add", "never", "ssh://refused", code=5)
    assert "has no ssh server there" in failed.stderr
    assert "never" not in call(server, "environment", "list").stdout


def test_a_worker_works_over_there_and_what_it_made_comes_back(server: SshServer) -> None:
    work = server.folder / "client" / "work"
    work.mkdir()
    (work / "a").write_text("a\n", "utf-8")
    where = ("--env", f"ssh://box{server.home}", "--cwd", str(work))
    try:
        call(server, "worker", "run", *where, "--id", "one", "shell", 'echo "$HOME" > made; cat a >> made')
        said = json.loads(call(server, "worker", "diff", "one", "--json").stdout)
        assert said["paths"] == ["A made"]
        assert f"+{server.home}\n+a\n" in said["diff"], "it worked in the other home, on what was carried"
        call(server, "worker", "apply", "one")
        assert (work / "made").read_text("utf-8") == f"{server.home}\na\n"
    finally:
        call(server, "down", "--workers")


@pytest.mark.deep
def test_a_jump_and_a_shared_connection_of_the_users_own_ssh_are_used(server: SshServer) -> None:
    def run(host: str) -> str:
        where = f"ssh://{host}{server.home}"
        return call(server, "exec", "--env", where, "--full-access", "--", "pwd").stdout

    assert run("behind") == f"{server.home}\n"
    assert not (server.folder / "shared.sock").exists()
    try:
        assert [run("shared") for _ in range(2)] == [f"{server.home}\n"] * 2
        assert (server.folder / "shared.sock").exists(), "whoever comes next asks for no second factor"
    finally:
        ssh = [str(server.bin / "ssh"), "-O", "exit", "shared"]
        subprocess.run(ssh, check=False, capture_output=True, timeout=LIMIT_S, env=server.environ)


@pytest.mark.deep
async def test_a_task_of_a_board_runs_over_ssh_and_goes_on_after_a_cut(server: SshServer) -> None:
    from tests.support.dispatch import own_yard  # boards here need Linux, and other tests of this file do not

    async with own_yard() as yard:
        (yard.home / "environments.toml").write_text(
            f'[[environments]]\nid = "box"\nurl = "ssh://box{server.home}"\n', "utf-8"
        )
        yard.profile("far", agent="shell", prompt="{body}", environment="box")
        wait = "echo begun >> effects; until [ -e go ]; do sleep 0.05; done; rm go"
        task = yard.create(f"{wait}; holdfast handoff complete 'by ssh'", assignee="far", max_attempts=1)
        carried = server.home / ".local/share/holdfast/carried"
        async with yard.dispatching():
            await yard.when(lambda: list(carried.glob("*/work/effects")))
            [effects] = carried.glob("*/work/effects")
            await asyncio.to_thread(server.cut)
            effects.with_name("go").touch()
            done = await yard.until(task, TaskStatus.DONE, TaskStatus.FAILED)
            [run] = yard.store.runs(task.id)
            await yard.when(lambda: len(yard.store.kept_files(run.id)) == 3)
        assert (done.status, done.result, done.attempts) == (TaskStatus.DONE, "by ssh", 1)
        [run] = yard.store.runs(task.id)
        assert list(carried.iterdir()) == []
        assert run.environment == "box"
        assert Path(run.workspace, "effects").read_text("utf-8") == "begun\n"
