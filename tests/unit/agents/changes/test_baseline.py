"""What changed in a directory since the first look at it: nothing hidden, nothing made up."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.changes import baseline, changes
from holdfast.agents.changes.baseline import Baseline, read_rest, since_baseline, take_baseline
from holdfast.agents.changes.git import Git, find_repository, read_head
from holdfast.agents.changes.manifest import NOT_WHOLE, Changes
from tests.support.git_traps import git
from tests.support.patience import patient
from tests.support.plain_git import PlainGit
from tests.support.tiers import ASYNCIO, Backend

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO


@pytest.fixture
def work(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    (place / "sub").mkdir(parents=True)
    for name in ("kept", "changed", "gone", "sub/deep"):
        (place / name).write_text(f"{name}\n")
    return place


@pytest.fixture
def no_git(tmp_path: Path) -> Git:
    def nobody(_home: Path) -> Any:
        raise AssertionError("git is not asked in a plain directory")

    return Git(tmp_path, "/", nobody)


@pytest.fixture
def plain_git(tmp_path: Path) -> Git:
    (tmp_path / "home").mkdir()
    return PlainGit.of(tmp_path / "home", str(tmp_path / "nobody"))


def look(folder: Path) -> Baseline:
    """The first look, with the time that it takes."""
    return take_baseline(folder, look_s=patient(60.0), read_s=patient(60.0))


def commit(work: Path) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        git(work, *words)


def change(work: Path) -> None:
    (work / "changed").write_text("other\n")
    (work / "gone").unlink()
    (work / "new").write_text("new\n")


async def test_a_plain_directory_tells_what_came_what_went_and_what_changed(work: Path, no_git: Git) -> None:
    before = look(work)
    assert (await since_baseline(no_git, before, work)) == Changes(0)
    change(work)
    seen = await since_baseline(no_git, before, work)
    assert (seen.count, seen.paths) == (3, ("M changed", "D gone", "A new"))
    assert "-changed\n+other\n" in seen.diff


async def test_content_that_is_written_anew_as_it_was_is_no_change(work: Path, no_git: Git) -> None:
    (work / "kept").write_bytes(b"\0kept\n")
    before = look(work)
    (work / "kept").write_bytes(b"\0kept\n")
    os.utime(work / "sub" / "deep", (1, 1))
    assert (await since_baseline(no_git, before, work)).count == 0


async def test_a_time_that_is_set_back_hides_no_change(
    work: Path, no_git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the content of then is not kept: the kernel's time of change cannot be set back."""
    monkeypatch.setattr(baseline, "MAX_HASHED", 0)
    before = look(work)
    assert not any(known.oid for known in before.files.values())
    then = (work / "kept").stat()
    monkeypatch.setattr(baseline, "RACY_NS", 0)
    while (work / "kept").stat().st_ctime_ns <= before.taken_ns:  # the clock of files has coarse steps
        (work / "kept").write_text("KEPT\n")
        os.utime(work / "kept", ns=(then.st_atime_ns, then.st_mtime_ns))
    seen = await since_baseline(no_git, before, work)
    assert "M kept" in seen.paths
    assert "not text, or too long to be kept" in seen.diff


async def test_a_look_that_runs_out_of_time_says_so_and_makes_nothing_up(
    work: Path, no_git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "RACY_NS", 0)
    before = take_baseline(work, look_s=0.0)
    assert not before.whole
    while (work / "kept").stat().st_ctime_ns <= before.taken_ns:  # the clock of files has coarse steps
        (work / "kept").write_text("other\n")
    seen = await since_baseline(no_git, before, work)
    assert NOT_WHOLE in seen.paths
    assert "M kept (new or changed: it was not recorded before)" in seen.paths
    assert "sub/deep" not in " ".join(seen.paths), "it was there, and is as it was"


async def test_what_is_read_beside_a_worker_that_runs_is_what_was_there(work: Path, no_git: Git) -> None:
    before = take_baseline(work, read_s=-1.0)
    assert not any(known.oid for known in before.files.values())
    (work / "changed").write_text("others.\n")  # as long as it was
    read = read_rest(work, before)
    assert {path for path, known in read.files.items() if known.text is not None} == {
        "gone",
        "kept",
        "sub/deep",
    }
    (work / "gone").unlink()
    seen = await since_baseline(no_git, read, work)
    assert seen.paths == ("M changed", "D gone")
    assert "-gone\n" in seen.diff


async def test_links_nested_repositories_and_what_cannot_be_read_are_listed(work: Path, no_git: Git) -> None:
    before = look(work)
    (work / "link").symlink_to("/etc/passwd")
    (work / "nested" / ".git").mkdir(parents=True)
    (work / "nested" / "file").write_text("x\n")
    os.mkfifo(work / "pipe")
    seen = await since_baseline(no_git, before, work)
    assert seen.paths == (
        "A link",
        "A nested/.git (a nested git repository)",
        "A nested/file",
        "A pipe (neither a file nor a directory)",
    )
    assert "root:" not in seen.diff


async def test_a_work_tree_is_compared_with_what_it_was_and_not_with_its_commit(
    work: Path, plain_git: Git
) -> None:
    commit(work)
    (work / "dirty").write_text("by its user\n")
    (work / "kept").write_text("changed by its user before\n")
    before = look(work)
    assert before.repository is not None
    assert before.repository.commit == git(work, "rev-parse", "HEAD").strip()
    change(work)
    (work / "kept").write_text("changed by its user before\nand by the worker\n")
    git(work, "commit", "-q", "-a", "-m", "committed by the worker")
    seen = await since_baseline(plain_git, before, work)
    assert seen.paths == ("M changed", "D gone", "M kept", "A new")
    assert " changed by its user before\n+and by the worker\n" in seen.diff


async def test_what_is_not_kept_is_asked_of_the_objects(
    work: Path, plain_git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(work)
    monkeypatch.setattr(changes, "MAX_TEXTS", 0)
    before = look(work)
    monkeypatch.undo()
    assert {known.text for known in before.files.values()} == {None}
    change(work)
    seen = await since_baseline(plain_git, before, work)
    assert "-changed\n+other\n" in seen.diff
    assert "-gone\n" in seen.diff


async def test_what_is_ignored_and_in_no_commit_is_listed_and_not_counted(work: Path, plain_git: Git) -> None:
    (work / ".gitignore").write_text("*.o\nchanged\n/sub/build/\n")
    git(work, "init", "-q")
    git(work, "add", "-A", "-f")
    git(work, "commit", "-q", "-m", "first")
    (work / "old.o").write_text("1")
    before = look(work)
    change(work)
    (work / "old.o").write_text("22")
    (work / "sub" / "build").mkdir()
    (work / "sub" / "build" / "made").write_text("333")
    seen = await since_baseline(plain_git, before, work)
    assert seen.count == 3, seen.paths
    assert seen.paths == (
        *("M changed", "D gone", "A new"),
        "! old.o (ignored: 1 files, 2 bytes)",
        "! sub/build/ (ignored: 1 files, 3 bytes)",
    )


async def test_a_part_of_a_work_tree_obeys_the_rules_above_it(work: Path, plain_git: Git) -> None:
    (work / ".gitignore").write_text("*.o\n")
    commit(work)
    before = look(work / "sub")
    (work / "sub" / "x.o").write_text("1")
    (work / "sub" / "deep").write_text("other\n")
    (work / "beside").write_text("1")
    seen = await since_baseline(plain_git, before, work / "sub")
    assert seen.paths == ("M deep", "! x.o (ignored: 1 files, 1 bytes)")


async def test_a_repository_that_is_gone_is_told_and_the_changes_are_shown(
    work: Path, plain_git: Git
) -> None:
    commit(work)
    before = look(work)
    change(work)
    shutil.rmtree(work / ".git")
    seen = await since_baseline(plain_git, before, work)
    assert seen.paths[:3] == ("M changed", "D gone", "A new")
    assert seen.paths[3].startswith("? git cannot be asked")
    assert "-changed\n+other\n" in seen.diff


def test_the_commit_of_a_work_tree_is_found_by_looking(work: Path) -> None:
    git(work, "init", "-q")
    repository = find_repository(str(work))
    assert read_head(repository) == "", "before the first commit"
    commit(work)
    head = git(work, "rev-parse", "HEAD").strip()
    assert read_head(repository) == head
    git(work, "pack-refs", "--all")
    assert read_head(repository) == head
    git(work, "checkout", "-q", "--detach")
    assert read_head(repository) == head
    (work / "outside").write_text(head)
    for odd in ("ref: ../outside", "ref: refs/../../outside", "ref: refs/heads/none", "nonsense", ""):
        (repository.folder / "HEAD").write_text(f"{odd}\n")
        assert read_head(repository) == "", odd


def test_what_tools_leave_behind_is_looked_at_last(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "node_modules").mkdir()
    for number in range(20):
        (work / "node_modules" / str(number)).write_text("x")
    monkeypatch.setattr(baseline, "MAX_LOOKED_AT", 10)
    before = look(work)
    assert not before.whole
    assert {"kept", "changed", "gone", "sub/deep"} <= set(before.files)
