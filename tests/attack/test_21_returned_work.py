"""What another machine sends back for a worker: objects that are not what they should be are not taken."""

import hashlib
import subprocess
import tempfile
import zlib
from pathlib import Path

import pytest

from holdfast.agents.fleet import returned, sending
from holdfast.agents.fleet.there import Gathered
from holdfast.errors import OperationFailed
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
