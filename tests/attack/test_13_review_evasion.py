"""What a reviewer cannot be shown is listed: nothing is missing from `task diff` without a word."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agents.changes import changes, manifest
from holdfast.agents.changes.git import find_repository
from holdfast.agents.changes.manifest import Manifest
from holdfast.local.trees import remove_tree
from tests.support import identity
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.git_traps import git
from tests.support.patience import patient
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]

LOOK = (
    "import sys; from pathlib import Path; from holdfast.agents.changes import changes\n"
    "print({name: entry.kind for name, entry in changes.look(Path(sys.argv[1])).entries.items()})"
)


def evade(place: Path) -> None:
    (place / "nested").mkdir()
    git(place / "nested", "init", "-q")
    (place / "nested" / "evil.py").write_text("evil\n", "utf-8")
    git(place / "nested", "add", ".")
    git(place / "nested", "commit", "-q", "-m", "x")
    (place / "quiet").mkdir()
    (place / "quiet" / ".gitignore").write_text("*\n", "utf-8")
    (place / "quiet" / "evil.sh").write_text("evil\n", "utf-8")
    (place / "deeper" / ".holdfast").mkdir(parents=True)
    (place / "deeper" / ".holdfast" / "evil.c").write_text("evil\n", "utf-8")
    os.mkfifo(place / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place / "socket"))


async def test_a_worktree_shows_or_lists_everything(yard: Yard) -> None:
    repository = yard.repository({"a.txt": "a\n"})
    base = git(repository, "rev-parse", "HEAD").strip()
    evade(repository)
    git(repository, "add", "-A", check=False)
    usual = git(repository, "diff", "--cached", "--name-only")
    assert "quiet" not in usual, "the control: git says nothing of these"
    assert "evil.py" not in usual
    seen = await changes.since_commit(yard.context().git, find_repository(str(repository)), repository, base)
    assert set(seen.paths) >= {
        "A nested/.git (a nested git repository)",
        "A nested/evil.py",
        "A deeper/.holdfast/evil.c",
        "A pipe (neither a file nor a directory)",
        "A socket (neither a file nor a directory)",
        "! quiet/ (ignored: 2 files, 7 bytes)",
    }
    assert "# ! quiet/ (ignored: 2 files, 7 bytes)\n" in seen.diff
    assert seen.diff.count("+evil\n") == 2
    assert seen.count == 5


async def test_what_one_rule_ignores_is_told_beside_what_is_not(yard: Yard) -> None:
    repository = yard.repository({".gitignore": "*.o\nbuild/\n", "a.txt": "a\n"})
    base = git(repository, "rev-parse", "HEAD").strip()
    (repository / "build" / "deep").mkdir(parents=True)
    for name in ("a.o", "build/x", "build/deep/y", "b.txt"):
        (repository / name).write_text("1\n", "utf-8")
    seen = await changes.since_commit(yard.context().git, find_repository(str(repository)), repository, base)
    assert seen.paths == (
        "A b.txt",
        "! a.o (ignored: 1 files, 2 bytes)",
        "! build/ (ignored: 2 files, 4 bytes)",
    )
    assert seen.count == 1


def test_a_directory_shows_or_lists_everything(tmp_path: Path) -> None:
    before = changes.look(tmp_path)
    evade(tmp_path)
    seen = manifest.compare(before, changes.look(tmp_path))
    assert "A nested/.git (a nested git repository)" in seen.paths
    assert {"A quiet/evil.sh", "A nested/evil.py", "A deeper/.holdfast/evil.c"} <= set(seen.paths)


@pytest.fixture
def place() -> Iterator[Path]:
    """Where an ordinary user can look."""
    made = Path(tempfile.mkdtemp(prefix="closed-", dir=identity.OUTSIDE_TMP))
    yield made
    remove_tree(made)


def test_what_its_owner_closed_is_listed(place: Path) -> None:
    """As an ordinary user: root reads everything."""
    uid = identity.USER
    (place / "closed").mkdir(parents=True)
    (place / "closed" / "inner").write_text("evil\n", "utf-8")
    for name, size in (("secret", 5), ("large", changes.MAX_TEXT + 1)):
        (place / name).write_bytes(b"x" * size)
    identity.hand_over(place, uid)
    for name in ("closed", "secret", "large"):
        (place / name).chmod(0)
    argv = identity.command_as(uid, [identity.python(uid), "-P", "-c", LOOK, str(place)])
    done = subprocess.run(argv, capture_output=True, text=True, timeout=patient(30), check=True)
    kinds = {"closed": "unreadable", "large": "unreadable", "secret": "unreadable"}
    assert done.stdout.strip() == str(kinds)


def test_the_kinds_are_said_in_the_diff_too() -> None:
    entry = manifest.ManifestEntry("unreadable", 5, 0, 0)
    seen = manifest.compare(Manifest(), Manifest({"secret": entry}))
    assert seen.paths == ("A secret (cannot be read)",)
    assert "# cannot be read\n" in seen.diff


def test_more_than_is_looked_at_is_said_and_deletes_nothing() -> None:
    entry = manifest.ManifestEntry("file", 1, 0, 0o644, "x")
    seen = manifest.compare(Manifest({"a": entry}), Manifest({"b": entry}, whole=False))
    assert seen.paths == ("A b", manifest.NOT_WHOLE)


@pytest.mark.parametrize("count", [3, 2000])
def test_many_ignored_files_leave_room_for_what_changed(count: int) -> None:
    entry = manifest.ManifestEntry("file", 1, 0, 0o644, "x")
    files = Manifest({f"f{number:05}": entry for number in range(2000)})
    ignored = {f"i{number}": manifest.IgnoredFiles(1, 1) for number in range(count)}
    seen = manifest.compare(Manifest(), files, ignored)
    assert len(seen.paths) == manifest.MAX_LISTED
    assert sum(path.startswith("!") for path in seen.paths) == min(count, manifest.MAX_BESIDE)
