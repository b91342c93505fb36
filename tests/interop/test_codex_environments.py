"""Named environments and the Codex CLI: its rules for the file, its server for `exec` and `cp`."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.codex import requires_codex
from tests.support.environment_files import REFUSED, TAKEN
from tests.support.patience import patient
from tests.support.servers import isolated_environment

RUN_LIMIT_S = patient(60.0)
AT_ONCE = 2


@pytest.fixture
def base() -> Iterator[Path]:
    # Not below /tmp: there the Codex CLI makes no links to itself, and its sandbox needs them.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="holdfast-") as folder:
        yield Path(folder)


async def refuses(codex: Path, home: Path, text: str) -> bool:
    """Whether `codex app-server` begins at all with this file; its input ends at once."""
    (home / ".codex").mkdir(parents=True)
    (home / ".codex" / "environments.toml").write_text(text, "utf-8")
    process = await asyncio.create_subprocess_exec(
        str(codex), "app-server", env=isolated_environment(home), cwd=home, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(RUN_LIMIT_S):
            _, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode in (0, 1), err
    return process.returncode == 1


async def test_the_codex_cli_takes_and_refuses_the_same_files(base: Path) -> None:
    codex, doors = requires_codex(), asyncio.Semaphore(AT_ONCE)

    async def verdict(number: int, text: str) -> bool:
        async with doors:
            return await refuses(codex, base / str(number), text)

    files = TAKEN | REFUSED
    verdicts = await asyncio.gather(*(verdict(n, text) for n, text in enumerate(files.values())))
    refused = {name for name, verdict in zip(files, verdicts, strict=True) if verdict}
    assert refused == set(REFUSED)


class Elsewhere:
    """`codex exec-server` as the environment `theirs`, with `base/there` as its directory."""

    def __init__(self, base: Path, *before: str) -> None:
        self.here, self.there, self.outside = base / "here", base / "there", base / "outside"
        for folder in (self.here, self.there, self.outside, base / ".holdfast", base / ".codex"):
            folder.mkdir()
        self._env = isolated_environment(base)
        words = [*before, str(requires_codex()), "exec-server", "--listen", "stdio"]
        text = f"""
            [[environments]]
            id = "theirs"
            program = "{words[0]}"
            args = {json.dumps(words[1:])}
            cwd = "{self.there}"
        """
        (base / ".holdfast" / "environments.toml").write_text(text, "utf-8")

    def call(self, *args: str, stdin: bytes | None = None) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *args],
            cwd=self.here,
            env=self._env,
            input=b"" if stdin is None else stdin,
            capture_output=True,
            timeout=RUN_LIMIT_S,
            check=False,
        )

    def search(self, path: str) -> None:
        """Look for programs in these directories."""
        self._env["PATH"] = path

    def sh(self, script: str, *flags: str) -> "subprocess.CompletedProcess[bytes]":
        return self.call("exec", "--env", "theirs", *flags, "--", "/bin/sh", "-c", script)


@pytest.fixture
def theirs(base: Path) -> Elsewhere:
    return Elsewhere(base)


def test_a_command_that_nobody_has_is_missing_also_where_their_server_may_not_look(base: Path) -> None:
    powerless = ("/usr/bin/setpriv", "--bounding-set=-dac_override,-dac_read_search")
    theirs = Elsewhere(base, *(powerless if os.geteuid() == 0 else ()))
    closed = base / "closed"
    closed.mkdir(mode=0o000)
    try:
        theirs.search(f"{closed}:/usr/bin:/bin")
        done = theirs.call("exec", "--env", "theirs", "--full-access", "--", "no-such-command")
        assert (done.returncode, done.stderr) == (127, b"holdfast: no-such-command: command not found\n")
        (theirs.there / "plain").write_text("x", "utf-8")
        theirs.search(f"{theirs.there}:/usr/bin:/bin")
        done = theirs.call("exec", "--env", "theirs", "--full-access", "--", "./plain")
        assert done.returncode == 126
    finally:
        closed.chmod(0o700)


def test_a_command_runs_on_their_server(theirs: Elsewhere) -> None:
    done = theirs.sh("echo out; echo err >&2; pwd; cat; exit 7", "--full-access")
    assert (done.returncode, done.stdout) == (7, f"out\n{theirs.there}\n".encode())
    assert done.stderr == b"err\n"
    done = theirs.call("exec", "--env", "theirs", "--full-access", "--", "no-such-command")
    assert done.returncode == 127
    done = theirs.call("exec", "--env", "theirs", "--full-access", "--", "head", "-c5", stdin=b"given")
    assert (done.returncode, done.stdout) == (0, b"given")


def test_their_sandbox_confines_it_and_a_denial_is_told(theirs: Elsewhere) -> None:
    done = theirs.sh("echo x > in; echo x > ../outside/out")
    assert done.returncode != 0
    assert b"holdfast: the sandbox over there denied something" in done.stderr
    assert (theirs.there / "in").exists()
    assert not (theirs.outside / "out").exists()
    theirs.sh("echo x > ../outside/out", "--allow-write", "../outside")
    assert (theirs.outside / "out").exists()


def test_trees_are_copied_there_and_back(theirs: Elsewhere) -> None:
    tree = theirs.here / "tree"
    (tree / "sub").mkdir(parents=True)
    for name in (b"plain", b"bin\xff", b"sub/new\nline"):
        (tree / os.fsdecode(name)).write_bytes(name * 1000)
    (tree / "run").touch(0o755)
    (tree / "large").write_bytes(os.urandom(3_000_000))
    (tree / "link").symlink_to("plain")
    for args in (("tree", "theirs:copy"), ("theirs:copy", "back")):
        done = theirs.call("cp", "-r", *args)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(b"left out") == (args[0] == "tree")
    for folder in (theirs.there / "copy", theirs.here / "back"):
        names = sorted(path.relative_to(folder) for path in folder.rglob("*"))
        assert names == sorted(p.relative_to(tree) for p in tree.rglob("*") if p.name != "link")
        for way in names:
            if (tree / way).is_file():
                assert (folder / way).read_bytes() == (tree / way).read_bytes()
                assert (folder / way).stat().st_mode == (tree / way).stat().st_mode
    assert theirs.call("cp", "theirs:none", ".").returncode == 3
