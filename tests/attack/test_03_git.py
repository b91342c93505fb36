"""What a worker left in a directory is not executed by the git that the dispatcher runs there."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.agents.changes.git import find_git, find_repository
from holdfast.board.rules.transitions import TaskStatus
from holdfast.dispatch.run import workspace
from holdfast.errors import OperationFailed, UsageError
from holdfast.local.programs import find_program
from tests.support import identity
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.git_traps import ARMED, arm, git
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]


async def test_a_planted_bare_repository_is_refused(yard: Yard) -> None:
    project = yard.folder / "project"
    project.mkdir()
    mark = yard.folder / "ESCAPED"
    source = yard.repository({"a.txt": "a\n", ".gitattributes": "* filter=x\n"})
    plant = (
        f"git clone -q --bare {source} b && mv b/* . && rmdir b && "
        f"git config -f config filter.x.smudge 'touch {mark}; cat'"
    )
    task = yard.create(plant, workspace_kind="dir", workspace=str(project))
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(task.id).status is TaskStatus.DONE
    git(project, "worktree", "add", "-q", str(yard.folder / "control"), check=False)
    assert mark.exists(), "the control: this is what git alone does there"
    mark.unlink()
    task = yard.create("true", workspace_kind="worktree", workspace=str(project), max_attempts=1)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert not mark.exists()
    [run] = yard.store.runs(task.id)
    assert "bare repository" in (run.error or "")


async def test_no_program_that_a_repository_names_runs(yard: Yard) -> None:
    repository = yard.repository({"a.txt": "a\n", ".gitattributes": "* filter=x diff=x\n"})
    for trap in ARMED:
        mark = yard.folder / f"control-{trap.replace(' ', '-')}"
        control = yard.folder / f"of-{mark.name}"  # without spaces: git has a shell run what it is told
        shutil.copytree(repository, control / "repository")
        arm(control / "repository", trap, mark)
        work(control / "repository", control / "tree")
        assert mark.exists(), f"the control: this is what git alone does there: {trap}"
    marks = [yard.folder / trap.replace(" ", "-") for trap in ARMED]
    for trap, mark in zip(ARMED, marks, strict=True):
        arm(repository, trap, mark)
    for mark in marks:
        mark.unlink(missing_ok=True)  # arming one may set off another
    task = yard.create(
        "echo changed > a.txt", workspace_kind="worktree", workspace=str(repository), max_attempts=1
    )
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert not [mark.name for mark in marks if mark.exists()]
    assert yard.store.task(task.id).status is TaskStatus.DONE
    [run] = yard.store.runs(task.id)
    assert b"-a\n+changed\n" in yard.store.file(task.id, run.id, "diff.patch")


def work(repository: Path, tree: Path) -> None:
    """What a dispatcher does about a worktree task, with git as it is."""
    git(repository, "worktree", "add", "-q", str(tree), check=False)
    if tree.is_dir():
        (tree / "a.txt").write_text("b\n", "utf-8")
        git(tree, "add", "-A", check=False)
        git(tree, "diff", "HEAD", check=False)


async def test_a_setting_does_not_lead_copies_to_another_project(yard: Yard) -> None:
    """Another door: `core.worktree` says where the files lie that a worktree gets copies of."""
    repository = yard.repository({"a.txt": "a\n"})
    other = yard.folder / "other"
    other.mkdir()
    (other / ".env").write_text("KEY=secret\n", "utf-8")
    git(repository, "config", "core.worktree", str(other))
    assert git(repository, "rev-parse", "--show-toplevel").strip() == str(other)
    task = yard.create("true", workspace_kind="worktree", workspace=str(repository))
    space = await workspace.prepare(yard.context(), task, (".env",))
    assert sorted(os.listdir(space.path)) == [".git", "a.txt"]


def test_a_git_in_a_folder_that_a_worker_may_write_is_not_found(tmp_path: Path) -> None:
    planted = tmp_path / "bin"
    planted.mkdir()
    (planted / "git").write_text("#!/bin/sh\necho planted\n", "utf-8")
    (planted / "git").chmod(0o755)
    search = f"{planted}:{os.environ['PATH']}"
    done = subprocess.run(["/bin/sh", "-c", "git"], env={"PATH": search}, capture_output=True, check=True)
    assert done.stdout == b"planted\n"
    assert find_program("git", search, [tmp_path]) == os.path.realpath("/usr/bin/git")
    (planted / "only-here").symlink_to(planted / "git")
    assert find_program("only-here", search, [tmp_path]) is None
    (planted / "git").rename(planted / "another")
    planted.chmod(0o777)
    assert find_program("another", search, []) is None, "another user could replace it"
    assert find_program("another", "bin:.", []) is None, "a relative folder is not looked into"


def test_where_root_has_no_number_the_systems_programs_are_found_and_no_others() -> None:
    """As in a sandbox, whose user namespace has one user: everything else seems to belong to nobody."""
    script = (
        "from holdfast.local.programs import find_program\n"
        "print(find_program('git', ''), find_program('git', '/usr/bin', before=()))\n"
        "print(find_program('git', '/usr/sbin/../bin', before=()))\n"  # as a folder of somebody's would be
    )
    inside = ["unshare", "--map-current-user", identity.python(identity.USER), "-c", script]
    done = subprocess.run(
        identity.command_as(identity.USER, inside),
        cwd=identity.top(identity.USER),
        capture_output=True,
        text=True,
        check=True,
    )
    git = os.path.realpath("/usr/bin/git")
    assert done.stdout == f"{git} {git}\nNone\n"


def test_git_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = find_git(str(tmp_path), str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_git(str(tmp_path), str(tmp_path)) == first
    assert os.path.isabs(first)


@pytest.mark.parametrize("pointer", ["gitdir: /etc", "gitdir: ../x\0y", "nonsense", "gitdir: " + "a" * 9000])
def test_a_file_that_names_no_git_directory_is_refused(tmp_path: Path, pointer: str) -> None:
    (tmp_path / ".git").write_text(pointer, "utf-8")
    with pytest.raises(UsageError):
        find_repository(str(tmp_path))


async def test_git_that_does_not_end_is_ended(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = find_repository(str(yard.repository({"a.txt": "a\n"})))
    monkeypatch.setattr("holdfast.agents.changes.git.GIT_S", 0.2)
    async with yard.context().git.open() as session:
        with pytest.raises(OperationFailed, match="takes more than"):
            await session.on_repository(repository, "-c", "alias.wait=!sleep 100", "wait")
