"""Files and trees there and back: `holdfast cp` as people use it, and what is left when it is interrupted."""

import asyncio
import hashlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import holdfast
from holdfast.client.copying.copying import Progress, Summary
from holdfast.client.copying.transfers import download, upload
from holdfast.errors import InvalidRequest, NotFound, OperationFailed, UsageError
from tests.support import identity
from tests.support.exec_command import Done, place
from tests.support.peer import WAIT_S, serving
from tests.support.recorder import Entry, Message, Recorder, recording

MIB = 1024 * 1024
CP = [sys.executable, "-m", "holdfast", "cp"]
LARGE = hashlib.shake_128(b"seed").digest(3 * MIB + 7)


class Both:
    """Directories `here` and `there`, and how to get from one to the other."""

    def __init__(self, env: holdfast.Environment, top: Path) -> None:
        self.env = env
        self.here, self.there = top / "here", top / "there"
        self.here.mkdir()
        self.there.mkdir()

    async def copy(
        self,
        way: str,
        source: str,
        destination: str,
        *,
        recursive: bool = False,
        progress: Progress | None = None,
    ) -> Summary:
        """Names are below `origin` and `target` of the way."""
        do = upload if way == "up" else download
        return await do(
            self.env,
            f"{self.origin(way)}/{source}",
            f"{self.target(way)}/{destination}",
            recursive=recursive,
            progress=progress,
        )

    def origin(self, way: str) -> Path:
        return self.here if way == "up" else self.there

    def target(self, way: str) -> Path:
        return self.there if way == "up" else self.here


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    async with serving() as (url, _), holdfast.connect(url) as env:
        yield Both(env, tmp_path)


both_ways = pytest.mark.parametrize("way", ["up", "down"])


def contents(folder: Path) -> dict[bytes, tuple[bytes, int]]:
    """Every file below, by its way, with its mode."""
    found = {}
    for root, _, names in os.walk(os.fsencode(folder)):
        for name in names:
            path = os.path.join(root, name)
            if not os.path.islink(path):
                with open(path, "rb") as file:
                    mode = os.fstat(file.fileno()).st_mode & 0o777
                    found[os.path.relpath(path, os.fsencode(folder))] = (file.read(), mode)
    return found


def plant(folder: Path, count: int) -> None:
    """A tree with all sorts of names and modes."""
    (folder / "empty").mkdir(parents=True)
    for number in range(count):
        below = folder / f"d{number % 7}" / "deeper"
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{number}").write_bytes(b"%d" % number * (number % 50))
    for name in (
        b"bin\xff\xfe",
        b"new\nline",
        b" space ",
        b"-rf",
        b'it\'s "$HOME" `x`',
        "é".encode(),
        b"%41:b\\c",
    ):
        (folder / os.fsdecode(name)).write_bytes(name)
    for mode in (0o755, 0o600, 0o700):
        (folder / f"{mode:o}").touch()
        (folder / f"{mode:o}").chmod(mode)
    (folder / "large").write_bytes(LARGE)


# --- what is copied


@both_ways
async def test_a_file_goes_into_a_directory_or_to_a_name(both: Both, way: str) -> None:
    (both.origin(way) / "f").write_bytes(LARGE)
    (both.target(way) / "dir").mkdir()
    summary = await both.copy(way, "f", "dir")
    assert (summary.files, summary.directories, summary.bytes) == (1, 0, len(LARGE))
    await both.copy(way, "f", "other")
    (both.target(way) / "other").chmod(0o600)
    await both.copy(way, "f", "other")
    assert {name for name, _ in contents(both.target(way)).items()} == {b"dir/f", b"other"}
    assert (both.target(way) / "other").read_bytes() == LARGE
    assert (both.target(way) / "other").stat().st_mode == (both.origin(way) / "f").stat().st_mode


@both_ways
async def test_sixty_four_mebibytes_arrive_unchanged_and_are_counted(both: Both, way: str) -> None:
    data = hashlib.shake_128(b"64").digest(64 * MIB)
    (both.origin(way) / "f").write_bytes(data)
    seen: list[tuple[int, int]] = []
    await both.copy(way, "f", "f", progress=lambda done, total: seen.append((done, total)))
    assert (both.target(way) / "f").read_bytes() == data
    assert seen[0] == (0, 64 * MIB)
    assert seen[-1] == (64 * MIB, 64 * MIB)
    assert len(seen) > 60
    assert sorted(seen) == seen


@both_ways
async def test_a_tree_arrives_with_every_name_and_with_its_modes(both: Both, way: str) -> None:
    plant(both.origin(way) / "tree", 500)
    summary = await both.copy(way, "tree", "", recursive=True)
    assert contents(both.target(way) / "tree") == contents(both.origin(way) / "tree")
    assert (both.target(way) / "tree" / "empty").is_dir()
    assert (summary.files, summary.directories, summary.failed) == (511, 16, [])
    assert os.listdir(both.target(way)) == ["tree"]
    assert set(os.listdir(both.target(way) / "tree")) == set(os.listdir(both.origin(way) / "tree"))


@both_ways
async def test_a_tree_is_merged_into_one_that_is_there(both: Both, way: str) -> None:
    (both.origin(way) / "tree" / "sub").mkdir(parents=True)
    (both.origin(way) / "tree" / "sub" / "a").write_text("new", "utf-8")
    (both.target(way) / "tree" / "sub").mkdir(parents=True)
    (both.target(way) / "tree" / "sub" / "a").write_text("old", "utf-8")
    (both.target(way) / "tree" / "sub" / "b").write_text("kept", "utf-8")
    await both.copy(way, "tree", "", recursive=True)
    assert {name: data for name, (data, _) in contents(both.target(way)).items()} == {
        b"tree/sub/a": b"new",
        b"tree/sub/b": b"kept",
    }


@both_ways
async def test_links_and_pipes_in_a_tree_are_left_out_and_named(both: Both, way: str) -> None:
    tree = both.origin(way) / "tree"
    tree.mkdir()
    (tree / "link").symlink_to("/etc/passwd")
    (tree / "dirlink").symlink_to("/etc")
    os.mkfifo(tree / "pipe")
    summary = await both.copy(way, "tree", "copy", recursive=True)
    assert os.listdir(both.target(way) / "copy") == []
    reasons = {os.path.basename(note.path): note.reason for note in summary.skipped}
    assert reasons == {
        "link": "a link",
        "dirlink": "a link",
        "pipe": "neither a file nor a directory",
    }
    assert summary.error is None


@both_ways
async def test_a_link_that_is_named_is_followed(both: Both, way: str) -> None:
    (both.origin(way) / "f").write_text("x", "utf-8")
    (both.origin(way) / "link").symlink_to("f")
    await both.copy(way, "link", "copy")
    assert not (both.target(way) / "copy").is_symlink()
    assert (both.target(way) / "copy").read_text("utf-8") == "x"


# --- what is refused, and what fails alone


@both_ways
async def test_what_makes_no_sense_is_refused(both: Both, way: str) -> None:
    (both.origin(way) / "dir").mkdir()
    (both.origin(way) / "f").write_text("x", "utf-8")
    (both.target(way) / "f").write_text("x", "utf-8")
    os.mkfifo(both.origin(way) / "pipe")
    for source, destination, kind in (
        ("none", "x", NotFound),
        ("dir", "x", UsageError),
        ("pipe", "x", UsageError),
        ("f", "none/x", NotFound),
        ("f", "none/", NotFound),
    ):
        with pytest.raises(kind):
            await both.copy(way, source, destination)
    for source, destination in (("dir", "f"), ("dir", "none/x/y")):
        if (way, destination) != ("down", "none/x/y"):
            with pytest.raises((UsageError, NotFound, OperationFailed)):
                await both.copy(way, source, destination, recursive=True)


@both_ways
async def test_a_place_that_cannot_be_written_to_is_told(both: Both, way: str) -> None:
    (both.origin(way) / "f").write_text("x", "utf-8")
    do = upload if way == "up" else download
    with pytest.raises((InvalidRequest, NotFound, OperationFailed)):
        await do(both.env, str(both.origin(way) / "f"), "/proc/f")


@both_ways
async def test_what_fails_in_a_tree_stops_nothing_else(both: Both, way: str) -> None:
    (both.origin(way) / "tree").mkdir()
    (both.target(way) / "tree" / "b").mkdir(parents=True)
    for name in "abc":
        (both.origin(way) / "tree" / name).write_text(name, "utf-8")
    summary = await both.copy(way, "tree", "", recursive=True)
    assert summary.files == 2
    assert [os.path.basename(note.path) for note in summary.failed] == ["b"]
    assert summary.error is not None
    assert sorted(os.listdir(both.target(way) / "tree")) == ["a", "b", "c"]
    assert os.listdir(both.target(way) / "tree" / "b") == []


def test_what_may_not_be_read_or_written_is_told_and_the_rest_is_copied() -> None:
    with place(identity.USER) as user:
        tree = user.workspace / "tree"
        (tree / "shut").mkdir(parents=True)
        for name in ("a", "closed", "shut/x"):
            (tree / name).write_text(name, "utf-8")
        user.own()
        for name in ("closed", "shut"):
            (tree / name).chmod(0)
        for source, destination in (("tree", "local:up"), ("local:tree", "down")):
            done = user.call(user.as_user([user.python, *CP[1:], "-r", source, destination]))
            assert done.code != 0
            assert done.err.count("ermission denied") == 2
            folder = user.workspace / destination.removeprefix("local:")
            assert sorted(os.listdir(folder)) == ["a", "shut"]
        user.outside.chmod(0o555)
        for source, destination in (("tree/a", f"local:{user.outside}"), ("local:tree/a", str(user.outside))):
            done = user.call(user.as_user([user.python, *CP[1:], source, destination]))
            assert done.code != 0
            assert "ermission denied" in done.err
            assert os.listdir(user.outside) == []


# --- interruptions


class Faults:
    """Loses every answer to `method` from the n-th on, until told otherwise."""

    def __init__(self, method: str, number: int) -> None:
        self.method, self.left = method, number
        self.lost = asyncio.Event()

    def __call__(self, entry: Entry) -> Message | None:
        if entry.method == self.method and entry.sender == "server" and entry.kind == "response":
            self.left -= 1
            if self.left <= 0 and not self.lost.is_set():
                self.lost.set()
                return None
        return entry.message


@asynccontextmanager
async def faulty(faults: Faults, top: Path) -> AsyncIterator[tuple[Both, Recorder]]:
    async with (
        serving() as (url, _),
        recording(lambda: url, faults) as proxy,
        holdfast.connect(proxy.url) as env,
    ):
        yield Both(env, top), proxy


@pytest.mark.parametrize(("way", "method"), [("up", "fs/writeBlock"), ("down", "fs/readBlock")])
async def test_an_interrupted_copy_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, way: str, method: str
) -> None:
    faults = Faults(method, 2)
    async with faulty(faults, tmp_path) as (both, _):
        (both.origin(way) / "f").write_bytes(LARGE)
        (both.target(way) / "f").write_text("old", "utf-8")
        copying = asyncio.ensure_future(both.copy(way, "f", "f"))
        async with asyncio.timeout(WAIT_S):
            await faults.lost.wait()
        assert len(os.listdir(both.target(way))) == 2
        copying.cancel()
        with suppress(asyncio.CancelledError):
            await copying
        assert os.listdir(both.target(way)) == ["f"]
        assert (both.target(way) / "f").read_text("utf-8") == "old"


@pytest.mark.parametrize(("way", "method"), [("up", "fs/writeBlock"), ("down", "fs/readBlock")])
async def test_a_lost_link_costs_time_and_nothing_else(tmp_path: Path, way: str, method: str) -> None:
    faults = Faults(method, 2)
    async with faulty(faults, tmp_path) as (both, proxy):
        (both.origin(way) / "f").write_bytes(LARGE)
        copying = asyncio.ensure_future(both.copy(way, "f", "f"))
        async with asyncio.timeout(WAIT_S):
            await faults.lost.wait()
            proxy.cut()
            summary = await copying
        assert (both.target(way) / "f").read_bytes() == LARGE
        assert summary.bytes == len(LARGE)
        assert os.listdir(both.target(way)) == ["f"]


async def cp(
    *args: str, home: Path
) -> tuple[asyncio.subprocess.Process, Callable[[], "asyncio.Future[Done]"]]:
    process = await asyncio.create_subprocess_exec(
        *CP, *args,
        cwd=home, env={"PATH": "/usr/bin:/bin", "HOME": str(home)},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip

    async def done() -> Done:
        async with asyncio.timeout(2 * WAIT_S):
            out, err = await process.communicate()
        return Done(process.returncode or 0, out.decode(), err.decode())

    return process, lambda: asyncio.ensure_future(done())


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
async def test_a_command_that_is_interrupted_leaves_no_half_file(tmp_path: Path, signum: int) -> None:
    faults = Faults("fs/readBlock", 2)
    async with faulty(faults, tmp_path) as (both, proxy):
        (both.there / "f").write_bytes(LARGE)
        process, done = await cp("--env", proxy.url, f":{both.there}/f", "f", home=both.here)
        async with asyncio.timeout(2 * WAIT_S):
            await faults.lost.wait()
        process.send_signal(signum)
        ended = await done()
        assert (ended.code, ended.err) == (128 + signum, "")
        assert os.listdir(both.here) == []


# --- the command


async def test_the_command_says_what_it_did(both: Both) -> None:
    plant(both.here / "tree", 3)
    (both.here / "tree" / "link").symlink_to("755")
    async with serving(listen=f"unix://{both.there}/s") as (url, _):
        _, done = await cp("-r", "--json", "--env", url, "tree", f":{both.there}", home=both.here)
        ended = await done()
        told = json.loads(ended.out)
        assert (ended.code, ended.err, told["exitCode"], told["error"]) == (0, "", 0, None)
        assert (told["files"], told["failed"]) == (14, [])
        assert told["skipped"] == [{"path": "tree/link", "reason": "a link"}]
        assert contents(both.there / "tree") == contents(both.here / "tree")
        _, done = await cp("--env", url, f":{both.there}/none", ".", home=both.here)
        ended = await done()
        assert (ended.code, ended.out) == (3, "")
        assert ended.err.startswith("holdfast: ")
        _, done = await cp("--json", "--env", url, f":{both.there}/none", ".", home=both.here)
        assert json.loads((await done()).out)["exitCode"] == 3
        _, done = await cp("a", "b", home=both.here)
        assert (await done()).code == 2
        _, done = await cp("a", home=both.here)
        assert (await done()).code == 2


async def test_a_name_means_the_environment_and_relative_paths_its_directory(both: Both) -> None:
    (both.here / "f").write_text("x", "utf-8")
    _, done = await cp("f", "local:g", home=both.here)
    ended = await done()
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    _, done = await cp("local:", str(both.there), "-r", home=both.here)
    assert (await done()).code == 0
    assert sorted(os.listdir(both.there / "here")) == ["f", "g"]


async def test_on_a_terminal_there_is_a_bar(both: Both) -> None:
    (both.here / "f").write_bytes(LARGE)
    master, slave = os.openpty()
    argv = [*CP, "f", "local:g"]
    process = await asyncio.create_subprocess_exec(*argv, cwd=both.here, stdin=slave, stderr=slave)
    os.close(slave)
    seen = b""
    with suppress(OSError):  # how a terminal ends
        while piece := await asyncio.to_thread(os.read, master, 65536):
            seen += piece
    os.close(master)
    async with asyncio.timeout(WAIT_S):
        assert await process.wait() == 0
    assert b"of 3.0 MiB" in seen
    assert seen.endswith(b"1 file, 3.0 MiB\r\n")
