"""Holdfast installed by scp on a machine that has none: a real sshd, a real pip, a home with a space."""

import asyncio
import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import holdfast
from tests.support.patience import patient
from tests.support.sshd import SshServer, ssh_server
from tests.support.tiers import ASYNCIO, Backend

LIMIT_S: Final = patient(60.0)  # pip installs a dozen wheels
FAILED: Final = 71  # exit code
VERSIONS: Final = ".local/share/holdfast/versions"

pytestmark = [pytest.mark.deep, pytest.mark.timeout(LIMIT_S * 4)]


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO


@pytest.fixture
def server() -> Iterator[SshServer]:
    """A machine without Holdfast."""
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hf-ssh-") as folder,
        ssh_server(Path(folder) / "s", home="home of ann") as running,
    ):
        (running.bin / "holdfast").unlink()
        try:
            yield running
        finally:
            end_servers(running)


def call(
    server: SshServer, *words: str, code: int = 0, source: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    environ = server.environ | ({} if source is None else {"PYTHONPATH": str(source)})
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], env=environ, capture_output=True, text=True,
        timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == code, done
    return done


def list_versions(server: SshServer) -> set[str]:
    return {one.name for one in (server.home / VERSIONS).iterdir() if one.is_dir()}


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """The same version with other files."""
    source = Path(holdfast.__file__).parent
    shutil.copytree(source, tmp_path / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source.parent / "holdfast_agents.py", tmp_path)
    with (tmp_path / "holdfast/log.py").open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    return tmp_path


async def test_it_is_installed_used_replaced_while_a_session_goes_on_and_removed(
    server: SshServer, changed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    added = await asyncio.to_thread(call, server, "environment", "add", "box", "ssh://box", "--install")
    assert f"installed: {holdfast.__version__}-" in added.stdout
    assert "~/.local/bin/holdfast" in added.stderr, "what is put where is said before"
    [first] = list_versions(server)
    assert sorted(one.name for one in server.home.iterdir()) == [".local", "hf"], "nothing is left behind"
    ran = await asyncio.to_thread(
        call, server, "exec", "--env", "box", "--", "sh", "-c", "command -v holdfast"
    )
    assert ran.stdout == f"{server.home}/.local/bin/holdfast\n"

    async with asyncio.timeout(LIMIT_S), holdfast.connect("ssh://box") as environment:
        process = await environment.start(["/bin/sh", "-c", "echo begun; cat; echo ended"], stdin=True)
        await anext(aiter(process))
        again = await asyncio.to_thread(
            call, server, "environment", "add", "box", "ssh://box", "--install", "--json", source=changed
        )
        second = json.loads(again.stdout)["installed"]
        assert list_versions(server) == {first, second}
        assert os.readlink(server.home / ".local/bin/holdfast").endswith(f"/{second}/bin/holdfast")
        await environment.files.make_directory(str(server.home / "by the old server"))
        await process.close_stdin()
        result = await process.wait()
    assert (result.code, result.stdout) == (0, b"begun\nended\n")

    same = await asyncio.to_thread(
        call, server, "environment", "add", "box", "ssh://box", "--install", "--json", source=changed
    )
    assert "installed" not in json.loads(same.stdout)
    words = ("environment", "remove", "box", "--stop", "--uninstall")
    busy = await asyncio.to_thread(call, server, *words, code=FAILED, source=changed)
    assert "runs something from what would be removed" in busy.stderr, (
        "the server of the first version is there"
    )
    await asyncio.to_thread(end_servers, server)
    await asyncio.to_thread(call, server, *words, source=changed)
    assert not (server.home / VERSIONS).exists()
    assert not os.path.lexists(server.home / ".local/bin/holdfast")


def end_servers(server: SshServer) -> None:
    """Those that are kept in this home."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_bytes().split(b"\0")
            if b"serve" in words and os.fsencode(server.home) in words[0]:
                os.kill(int(file.parent.name), signal.SIGTERM)


def test_a_terminal_is_asked_and_no_means_nothing(server: SshServer) -> None:
    answers = {"n\n": 5, "y\n": 0}
    for typed, code in answers.items():
        leader, follower = pty.openpty()
        with os.fdopen(leader, "r+b", buffering=0) as keys, os.fdopen(follower) as terminal:
            keys.write(typed.encode())
            done = subprocess.run(
                [sys.executable, "-m", "holdfast", "environment", "add", "box", "ssh://behind"],
                env=server.environ, stdin=terminal, stderr=terminal, stdout=subprocess.PIPE,
                timeout=LIMIT_S, check=False,
            )  # fmt: skip
            said = keys.read(65536).decode()
        assert done.returncode == code, said
        assert "Install it? [y/N]" in said
        assert (server.home / VERSIONS).exists() == (code == 0)
    call(server, "environment", "remove", "box", "--stop", "--uninstall")


def test_another_host_key_ends_it_before_anything_is_copied(server: SshServer) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", server.folder / "other"], check=True)
    (server.folder / "known_hosts").write_text(
        f"[127.0.0.1]:{server.port} {(server.folder / 'other.pub').read_text('utf-8')}", "utf-8"
    )
    refused = call(server, "environment", "add", "box", "ssh://box", "--install", code=5)
    assert "has another key than it had" in refused.stderr
    assert list(server.home.iterdir()) == []


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        ({"python3": "echo 3.9.2"}, "has no Python 3.11 or newer, only 3.9.2"),
        ({"sh": "exec yes"}, "says more than an answer has room for"),
        ({"uname": "printf 'a\\033]0;evil\\007b\\033[2J'"}, None),
    ],
    ids=["old", "endless", "evil"],
)
def test_a_machine_that_cannot_or_lies_changes_nothing_here(
    server: SshServer, programs: dict[str, str], words: str | None
) -> None:
    for name, line in programs.items():
        (server.bin / name).write_text(f"#!/bin/sh\n{line}\n", "utf-8")
        (server.bin / name).chmod(0o755)
    if "python3" in programs:
        for name in ("python3.11", "python3.12", "python3.13", "python3.14"):
            shutil.copy(server.bin / "python3", server.bin / name)
    done = call(
        server, "environment", "add", "box", "ssh://box", "--install", code=0 if words is None else FAILED
    )
    assert words is None or words in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert not list(server.home.glob("holdfast-install-*"))
    if words is None:
        call(server, "environment", "remove", "box", "--stop", "--uninstall")


def test_without_a_package_index_what_does_not_fit_is_said(
    server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a machine of another kind: what is compiled has tags that no Python there takes."""
    from holdfast.client.installing import bundle, install
    from holdfast.client.links import ssh
    from holdfast.errors import OperationFailed

    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    (server.home / ".config/pip").mkdir(parents=True)
    (server.home / ".config/pip/pip.conf").write_text(
        "[global]\nindex-url = http://127.0.0.1:1/simple\nretries = 0\n", "utf-8"
    )
    write = bundle._write_wheel

    def write_foreign(folder: Path, name: str, version: str, tag: str, *rest: object) -> Path:
        made = tag.replace("cp3", "cp9").replace("manylinux", "macosx")
        return write(folder, name, version, made, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(bundle, "_write_wheel", write_foreign)
    target = ssh.parse("ssh://box")
    with pytest.raises(OperationFailed, match=r"package index does not give it: .*msgspec"):
        install.install(target, install.look(target), lambda lines: True)
    assert list_versions(server) == set()
    assert not os.path.lexists(server.home / ".local/bin/holdfast")
