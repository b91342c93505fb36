"""What another machine sends back for a worker: objects that are not what they should be are not taken."""

import hashlib
import os
import stat
import struct
import subprocess
import tempfile
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.changes import git as changesgit
from holdfast.agents.fleet import returned, sending, there
from holdfast.agents.fleet.there import Gathered
from holdfast.client.events.result import Result
from holdfast.errors import InvalidRequest, OperationFailed, RemoteProtocolError
from holdfast.local.atomicfile import replace_at
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.git_traps import arm, git
from tests.support.patience import patient
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]


def _write(repository: Path, kind: bytes, data: bytes) -> str:
    """An object as a file, which no git has looked at."""
    whole = kind + b" %d\0" % len(data) + data
    oid = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    place = repository / ".git/objects" / oid[:2] / oid[2:]
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(zlib.compress(whole))
    return oid


def _pack(repository: Path, *oids: str) -> bytes:
    return subprocess.run(
        ["git", "-C", str(repository), "pack-objects", "-q", "--stdout"],
        input="".join(f"{oid}\n" for oid in oids).encode(),
        capture_output=True,
        check=True,
        timeout=patient(30),
    ).stdout


async def _carry(yard: Yard, repository: Path) -> tuple[sending.Carried, Path]:
    own = Path(tempfile.mkdtemp(prefix="carried-", dir=yard.home))
    carried, _ = await sending.pack(yard.context().git, repository, own)
    return carried, own


async def test_a_tree_with_a_name_that_leads_elsewhere_is_not_taken(yard: Yard) -> None:
    repository = yard.repository({"a.txt": "a\n"})
    carried, own = await _carry(yard, repository)
    blob = _write(repository, b"blob", b"[core]\n\tfsmonitor = touch /x\n")
    inner = _write(repository, b"tree", b"100644 config\0" + bytes.fromhex(blob))
    for name in (b".git", b"..", b".", b"a/b", b".GIT"):
        tree = _write(repository, b"tree", b"40000 %b\0" % name + bytes.fromhex(inner))
        forged = Gathered(tree, _pack(repository, blob, inner, tree))
        with pytest.raises(OperationFailed, match="index-pack"):
            await returned.receive(yard.context().git, carried, own, forged, "forged")
    assert not (own / "git/refs/heads/returned").exists()


async def test_a_pack_that_is_broken_or_lacks_something_is_not_taken(yard: Yard) -> None:
    repository = yard.repository({"a.txt": "a\n"})
    carried, own = await _carry(yard, repository)
    tree = _write(repository, b"tree", b"100644 x\0" + b"\x01" * 20)
    context = yard.context().git
    with pytest.raises(OperationFailed):
        await returned.receive(context, carried, own, Gathered(tree, _pack(repository, tree)), "incomplete")
    with pytest.raises(OperationFailed):
        await returned.receive(context, carried, own, Gathered(tree, b"PACK nonsense"), "nonsense")


async def test_no_program_that_a_work_tree_names_is_run_to_carry_it(yard: Yard) -> None:
    repository, mark = (
        yard.repository({"a.txt": "a\n", ".gitattributes": "* filter=x\n"}),
        yard.folder / "RAN",
    )
    for trap in ("clean", "monitor", "reference-transaction"):
        arm(repository, trap, mark)
    git(repository, "status")
    (repository / "a.txt").write_text("changed\n", "utf-8")
    git(repository, "add", "a.txt")
    assert mark.exists(), "the control: this is what git alone does there"
    mark.unlink()
    (repository / "a.txt").write_text("changed again\n", "utf-8")
    carried, own = await _carry(yard, repository)
    assert not mark.exists()
    shown = git(repository, "--git-dir", str(own / "git"), "ls-tree", "--name-only", carried.sent)
    assert shown.split() == [".gitattributes", "a.txt"]


async def _take(
    yard: Yard, folder: Path, below: str, files: dict[str, bytes]
) -> tuple[sending.Carried, Path, str]:
    """What comes back when a machine sends these files, some of which no worker there could have written."""
    carried, own = await _carry(yard, folder / below)
    repository = yard.repository({"unused": ""})
    for path, data in files.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_bytes(data)
    git(repository, "add", "-A", "-f")
    tree = git(repository, "write-tree").strip()
    listed = git(repository, "ls-tree", "-r", "-t", "--format=%(objectname)", tree).split()
    forged = Gathered(tree, _pack(repository, tree, *listed))
    return carried, own, await returned.receive(yard.context().git, carried, own, forged, "forged")


async def test_nothing_outside_of_the_workers_directory_and_no_report_is_written(yard: Yard) -> None:
    top = yard.folder / "tree"
    (top / "sub").mkdir(parents=True)
    for name in ("Makefile", "sub/own"):
        (top / name).write_bytes(b"as sent\n")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        git(top, *words)
    sent = {
        **{"Makefile": b"evil\n", "sub/own": b"changed\n", "sub2/x": b"evil\n", "unused": b""},
        **{"sub/.holdfast/outbox/a.json": b"{}", "sub/.holdfast/run.json": b"{}", "sub/.HOLDFAST/x": b""},
    }
    carried, own, commit = await _take(yard, top, "sub", sent)
    done = await returned.apply(yard.context().git, carried, own, commit)
    assert done.paths == ("sub/own",)
    assert {path.split(" ")[0] for path in done.left_out} == set(sent) - {"sub/own"}
    assert (top / "Makefile").read_bytes() == b"as sent\n"
    assert not (top / "sub/.holdfast").exists()


async def test_what_was_written_before_a_kill_is_no_change_of_others(yard: Yard) -> None:
    top = yard.folder / "tree"
    top.mkdir()
    for name in ("a", "b", "gone"):
        (top / name).write_bytes(b"as sent\n")
    carried, own, commit = await _take(yard, top, "", {"a": b"changed\n", "b": b"changed\n", "c": b"new\n"})
    (top / "a").write_bytes(b"changed\n")  # as far as somebody came
    (top / "gone").unlink()
    with pytest.raises(InvalidRequest, match="changed here too"):
        await returned.apply(yard.context().git, carried, own, commit)
    for _ in range(2):
        await returned.apply(yard.context().git, carried, own, commit, resumed=True)
        assert {one.name: one.read_bytes() for one in top.iterdir() if one.is_file()} == {
            **{"a": b"changed\n", "b": b"changed\n", "c": b"new\n", "unused": b""},
        }
    (top / "b").write_bytes(b"somebody's own\n")
    with pytest.raises(InvalidRequest, match="changed here too"):
        await returned.apply(yard.context().git, carried, own, commit, resumed=True)
    assert (top / "b").read_bytes() == b"somebody's own\n"


def _head(kind: int, size: int) -> bytes:
    """Of an entry in a pack."""
    first, size = kind << 4 | size & 15, size >> 4
    return bytes([first | (0x80 if size else 0)]) + (_varint(size) if size else b"")


def _varint(size: int) -> bytes:
    made = bytearray()
    while size > 0x7F:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*made, size])


def _make_bomb(pieces: int) -> tuple[bytes, str]:
    """A pack of some KB with a blob of so many times 15 MiB, and the name of the blob that it stands on."""
    base = bytes(15 << 20)
    oid = hashlib.sha1(b"blob %d\0" % len(base) + base, usedforsecurity=False).hexdigest()
    copy = bytes([0x80 | 0x40, 0xF0])  # from the beginning, 0xf0 << 16 bytes
    delta = _varint(len(base)) + _varint(len(base) * pieces) + copy * pieces
    pack = b"PACK" + struct.pack(">II", 2, 2) + _head(3, len(base)) + zlib.compress(base, 9)
    pack += _head(7, len(delta)) + bytes.fromhex(oid) + zlib.compress(delta)
    return pack + hashlib.sha1(pack, usedforsecurity=False).digest(), oid


async def test_a_small_pack_that_is_a_huge_file_does_not_fill_our_memory(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = yard.repository({"a.txt": "a\n"})
    carried, own = await _carry(yard, repository)
    monkeypatch.setattr(changesgit, "MAX_MEMORY", 512 << 20)
    bomb, oid = _make_bomb(60)
    assert len(bomb) < 64 * 1024
    tree = _write(repository, b"tree", b"100644 x\0" + bytes.fromhex(oid))
    with pytest.raises(OperationFailed, match=r"memory|malloc"):
        await returned.receive(yard.context().git, carried, own, Gathered(tree, bomb), "bomb")
    small, _ = _make_bomb(2)  # the control: it is a pack that git takes
    with pytest.raises(OperationFailed, match="rev-parse"):
        await returned.receive(yard.context().git, carried, own, Gathered("1" * 40, small), "no bomb")


async def test_a_few_trees_that_are_a_billion_files_end_at_a_bound(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = yard.repository({"a.txt": "a\n"})
    carried, own = await _carry(yard, repository)
    made = [_write(repository, b"blob", b"x\n")]
    mode = b"100644"
    for _ in range(9):
        made.append(
            _write(
                repository,
                b"tree",
                b"".join(mode + b" %d\0" % n + bytes.fromhex(made[-1]) for n in range(10)),
            )
        )
        mode = b"40000"
    context = yard.context().git
    commit = await returned.receive(
        context, carried, own, Gathered(made[-1], _pack(repository, *made)), "many"
    )
    monkeypatch.setattr(changesgit, "GIT_S", 0.3)
    for work in (returned.compare, returned.apply):
        with pytest.raises(OperationFailed, match=r"takes more|says more"):
            await work(context, carried, own, commit)
    assert git(repository, "status", "--short") == ""


async def test_modes_are_given_at_birth_and_through_no_link(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who works beside us swaps a file for a link; and the umask is of the whole process."""
    top, secret = yard.folder / "tree", yard.folder / "secret"
    top.mkdir()
    (top / "a").write_bytes(b"as sent\n")
    secret.write_bytes(b"secret\n")
    secret.chmod(0o600)
    carried, own, commit = await _take(yard, top, "", {"a": b"changed\n", "b": b"new\n"})

    def swap(above: int, name: str, data: bytes, **options: Any) -> None:
        replace_at(above, name, data, **options)
        if name == "b":
            os.unlink(name, dir_fd=above)
            os.symlink(secret, name, dir_fd=above)

    def refuse(_: int) -> int:
        raise AssertionError("it is not ours to change")

    monkeypatch.setattr(returned, "replace_at", swap)
    mask = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", refuse)
            await returned.apply(yard.context().git, carried, own, commit)
    finally:
        os.umask(mask)
    assert stat.S_IMODE((top / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


class LyingMachine:
    """Of an environment what `gather` asks for; it answers as it likes."""

    def __init__(self, said: bytes, blocks: int = 1) -> None:
        self._said, self._blocks = said, blocks
        self.files = self

    async def start(self, *_: object, **__: object) -> "LyingMachine":
        return self

    async def wait(self) -> Result:
        return Result(0, self._said, b"", None, None, None, None, 0)

    async def open_blocks(self, _: str) -> AsyncIterator[bytes]:
        for _number in range(self._blocks):
            yield bytes(1 << 20)


async def test_what_a_machine_says_without_end_is_cut_off() -> None:
    carried = sending.Carried(top="/x", below="", sent="0" * 40)
    names = b"a\x1b[2J\n" * (1 << 20)
    found = await there.gather(LyingMachine(b"1" * 40 + b"\n" + names), carried, "/y")  # type: ignore[arg-type]
    assert sum(map(len, found.ignored)) <= 2 * there.MAX_IGNORED
    assert all(name.isprintable() for name in found.ignored)
    endless = LyingMachine(b"1" * 40 + b"\n", 1 << 30)
    with pytest.raises(InvalidRequest, match="is not brought back"):
        await there.gather(endless, carried, "/y")  # type: ignore[arg-type]
    for tree in (b"", b"HEAD", b"../" + b"1" * 37, b"--upload-pack=x" + b"1" * 25):
        with pytest.raises(RemoteProtocolError):
            await there.gather(LyingMachine(tree + b"\n"), carried, "/y")  # type: ignore[arg-type]
