"""What another machine sends back for a worker: objects that are not what they should be are not taken."""

import hashlib
import subprocess
import tempfile
import zlib
from pathlib import Path

import pytest

from holdfast.agents.fleet import returned, sending
from holdfast.agents.fleet.there import Gathered
from holdfast.errors import InvalidRequest, OperationFailed
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
