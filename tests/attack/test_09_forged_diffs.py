"""The diff of a worktree shows what lies there, whatever a worker wrote to have it show something else."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from holdfast.agents.changes import changes
from holdfast.agents.changes.git import find_repository
from holdfast.agents.changes.manifest import Changes
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.git_traps import git, program
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]


async def told(yard: Yard, repository: Path, base: str) -> Changes:
    return await changes.since_commit(yard.context().git, find_repository(str(repository)), repository, base)


def commit(repository: Path) -> str:
    return git(repository, "rev-parse", "HEAD").strip()


async def test_a_submodule_runs_no_program_and_hides_nothing(yard: Yard) -> None:
    """Its `.git` names a monitor, which would read credentials and write into what git compares with."""
    repository, mark = yard.repository({"a.txt": "a\n"}), yard.folder / "ESCAPED"
    inner = repository / "sub"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "s.txt").write_text("s\n", "utf-8")
    git(inner, "add", ".")
    git(inner, "commit", "-q", "-m", "x")
    git(repository, "add", "sub")
    git(repository, "commit", "-q", "-m", "with a submodule")
    git(inner, "config", "core.fsmonitor", program(repository, mark))
    git(repository, "status")
    assert mark.exists(), "the control: this is what git alone does there"
    mark.unlink()
    (repository / "a.txt").write_text("changed\n", "utf-8")
    (inner / "evil.sh").write_text("evil\n", "utf-8")
    seen = await told(yard, repository, commit(repository))
    assert not mark.exists()
    assert "M a.txt" in seen.paths
    assert "A sub/evil.sh" in seen.paths
    assert "A sub/.git (a nested git repository)" in seen.paths
    assert "+evil\n" in seen.diff


def _assume(repository: Path) -> None:
    git(repository, "update-index", "--assume-unchanged", "a.txt")


def _skip(repository: Path) -> None:
    git(repository, "update-index", "--skip-worktree", "a.txt")


def _exclude(repository: Path) -> None:
    (repository / ".git/info/exclude").write_text("*\n", "utf-8")


def _attributes(repository: Path) -> None:
    (repository / ".git/info/attributes").write_text("* -diff filter=x\n", "utf-8")
    git(repository, "config", "filter.x.clean", "echo a")


def _in_tree(repository: Path) -> None:
    (repository / ".gitattributes").write_text("* -diff filter=x ident text\n", "utf-8")
    git(repository, "config", "filter.x.clean", "echo a")


def _replace(repository: Path) -> None:
    """The commit that is compared with is replaced by one that holds the change."""
    old = commit(repository)
    git(repository, "commit", "-q", "-a", "-m", "evil")
    git(repository, "replace", old, commit(repository))
    git(repository, "update-ref", "HEAD", old)


def _graft(repository: Path) -> None:
    (repository / ".git/info/grafts").write_text(f"{commit(repository)}\n", "utf-8")


def _worktree_elsewhere(repository: Path) -> None:
    elsewhere = repository.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.txt").write_text("a\n", "utf-8")
    git(repository, "config", "core.worktree", str(elsewhere))


def _no_modes(repository: Path) -> None:
    git(repository, "config", "core.fileMode", "false")


HIDDEN: Final[Mapping[str, Callable[[Path], None]]] = {
    "assume-unchanged": _assume,
    "skip-worktree": _skip,
    "exclude": _exclude,
    "attributes": _attributes,
    "attributes in the tree": _in_tree,
    "replace": _replace,
    "graft": _graft,
    "worktree": _worktree_elsewhere,
    "modes": _no_modes,
}


@pytest.mark.parametrize("trick", sorted(HIDDEN))
async def test_nothing_that_git_can_be_told_hides_a_change(yard: Yard, trick: str) -> None:
    repository = yard.repository({"a.txt": "a\n"})
    base = commit(repository)
    (repository / "a.txt").write_text("evil\n", "utf-8")
    (repository / "a.txt").chmod(0o755)
    (repository / "new.txt").write_text("also evil\n", "utf-8")
    HIDDEN[trick](repository)
    seen = await told(yard, repository, base)
    assert {"M a.txt", "A new.txt"} <= set(seen.paths)
    assert "-a\n+evil\n" in seen.diff
    assert "new mode 100755\n" in seen.diff
    assert "+also evil\n" in seen.diff


async def test_line_ends_that_the_commit_asks_for_are_no_change(yard: Yard) -> None:
    attributes = "*.bat text eol=crlf\n*.u16 text working-tree-encoding=UTF-16LE\n"
    repository = yard.repository({".gitattributes": attributes, "run.bat": "a\nb\n", "plain": "a\n"})
    (repository / "plain").write_bytes(b"a\r\n")
    (repository / "run.bat").write_bytes(b"a\r\nb\r\n")
    seen = await told(yard, repository, commit(repository))
    assert seen.paths == ("M plain",)
    (repository / ".gitattributes").write_text("* text eol=crlf\n", "utf-8")
    seen = await told(yard, repository, commit(repository))
    assert seen.paths == ("M .gitattributes", "M plain"), "what the worker wrote there does not count"


async def test_a_forged_object_is_not_shown_as_what_was(yard: Yard) -> None:
    """Another door: git does not check that an object is what its name says when it prints it."""
    repository = yard.repository({"a.txt": "a\n"})
    base = commit(repository)
    (repository / "other").write_text("forged\n", "utf-8")
    forged = git(repository, "hash-object", "-w", "other").strip()
    true = git(repository, "rev-parse", "HEAD:a.txt").strip()
    objects = repository / ".git" / "objects"
    place = objects / true[:2] / true[2:]
    place.chmod(0o600)
    place.write_bytes((objects / forged[:2] / forged[2:]).read_bytes())
    (repository / "other").unlink()
    assert git(repository, "cat-file", "-p", true) == "forged\n", "the control"
    (repository / "a.txt").write_text("b\n", "utf-8")
    seen = await told(yard, repository, base)
    assert seen.paths == ("M a.txt",)
    assert "forged" not in seen.diff


async def test_the_confined_git_reads_no_credential(yard: Yard) -> None:
    (yard.user / ".ssh").mkdir()
    (yard.user / ".ssh" / "id").write_text("secret\n", "utf-8")
    (yard.user / "code").write_text("no secret\n", "utf-8")
    repository = find_repository(str(yard.repository({"a.txt": "a\n"})))
    async with yard.context().git.open() as session:
        secrets = f"{yard.user}/.ssh/id {yard.home}/handoff.key"
        look = f"alias.look=!cat {yard.user}/code {secrets}; echo x > {yard.user}/w;:"
        said = await session.on_repository(repository, "-c", look, "look")
    assert said == "no secret\n"
    assert not os.path.exists(yard.user / "w")
