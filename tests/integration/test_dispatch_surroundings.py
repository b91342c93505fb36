"""What is around a run: setup and teardown of its profile, files copied by rule, what it claims checked."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from holdfast.board.rules.transitions import Move, Status
from holdfast.dispatch.run import workspace
from holdfast.errors import OperationFailed
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]


# --- files copied by rule


def laid_out(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
    return root


def copied(repository: Path, worktree: Path, *patterns: str) -> list[str]:
    names = workspace.missing_copies(repository, worktree, patterns)
    workspace.copy_files(repository, worktree, names)
    return names


def test_what_a_rule_names_is_copied_and_nothing_else(tmp_path: Path) -> None:
    files = {".env": "A=1", ".env.local": "B=2", "env": "x", "conf/a.key": "k", "conf/deep/b.key": "no"}
    source = laid_out(tmp_path / "s", files)
    (source / ".env").chmod(0o640)
    target = laid_out(tmp_path / "t", {"there": "", ".env.local": "mine"})
    assert copied(source, target, ".env*", "conf/*.key", "nothing", "*/nothing") == [".env", "conf/a.key"]
    assert (target / ".env").read_text("utf-8") == "A=1"
    assert (target / ".env").stat().st_mode & 0o777 == 0o640
    assert (target / ".env.local").read_text("utf-8") == "mine"  # never overwritten
    assert (target / "conf/a.key").read_text("utf-8") == "k"
    assert sorted(os.listdir(target / "conf")) == ["a.key"]
    assert os.listdir(target / ".holdfast") == []


def test_no_link_is_followed_out_of_the_repository_or_the_worktree(tmp_path: Path) -> None:
    outside = laid_out(tmp_path / "outside", {"secret.env": "s"})
    source = laid_out(tmp_path / "s", {"conf/a.env": "k", ".git/c.env": "no"})
    (source / "direct.env").symlink_to(outside / "secret.env")
    (source / "linked").symlink_to(outside)
    target = laid_out(tmp_path / "t", {"x": ""})
    (target / "conf").symlink_to(outside)
    assert copied(source, target, "*.env", "*/*.env") == ["conf/a.env"]
    assert sorted(os.listdir(outside)) == ["secret.env"]
    (target / "conf").unlink()
    (target / "conf").mkdir()
    (target / "conf/a.env").symlink_to(outside / "new.env")  # leads nowhere, and is there
    assert copied(source, target, "*/*.env") == []
    assert sorted(os.listdir(outside)) == ["secret.env"]


def test_what_is_copied_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = laid_out(tmp_path / "s", {f"{number}.env": "12345" for number in range(4)})
    target = laid_out(tmp_path / "t", {"x": ""})
    for bound, value in {"MAX_COPIED": 3, "MAX_LISTED": 3, "MAX_BYTES": 19}.items():
        with monkeypatch.context() as patch:
            patch.setattr(workspace, bound, value)
            with pytest.raises(OperationFailed):
                copied(source, target, "*.env")
    assert not (target / "3.env").exists()
    assert copied(source, target, "*.env") == ["3.env"]


async def test_copied_files_are_there_and_never_in_the_diff(yard: Yard) -> None:
    repository = yard.repository({"a.txt": "one\n", ".gitignore": "*.log\n"})
    laid_out(repository, {".env": "KEY=1\n", "conf/[x] local.env": "2\n"})
    yard.profile("agent", agent="shell", prompt="{body}", network=False, copy=[".env*", "conf/*"])
    body = "cat .env conf/*; echo KEY=2 >> .env; echo two > a.txt; echo new > b.txt"
    task = yard.create(body, assignee="agent", workspace_kind="worktree", workspace=str(repository))
    idle = yard.create("cat .env", assignee="agent", workspace_kind="worktree", workspace=str(repository))
    async with yard.dispatching():
        await yard.until(task, Status.HANDOFF_FAILED)
        await yard.until(idle, Status.WAITING_SYSTEM)  # no work: what was copied is none
    [run] = yard.store.runs(task.id)
    assert yard.store.file(task.id, run.id, "output") == b"KEY=1\n2\n"
    end = json.loads(yard.store.file(task.id, run.id, "end.json"))
    assert end["changed"]["paths"] == ["M a.txt", "A b.txt"]
    assert b"KEY" not in yard.store.file(task.id, run.id, "diff.patch")
    assert (repository / ".env").read_text("utf-8") == "KEY=1\n"


async def test_a_worktree_with_nothing_but_copies_is_removed(yard: Yard) -> None:
    repository = yard.repository({"a.txt": "one\n"})
    laid_out(repository, {".env": "KEY=1\n"})
    yard.profile("copier", agent="shell", prompt="{body}", success="exit", network=False, copy=[".env"])
    task = yard.create("cat .env", assignee="copier", workspace_kind="worktree", workspace=str(repository))
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(task.id).status is Status.DONE
    yard.store.move(task.id, Move.ARCHIVE)
    async with yard.dispatching():
        await yard.when(lambda: task.id in yard.told("workspace_removed"))
    assert not (yard.home / "board" / task.id).exists()


# --- setup and teardown


async def test_setup_comes_before_the_worker_and_teardown_after_it_in_the_same_sandbox(yard: Yard) -> None:
    yard.environ["SECRET"] = "s"
    yard.profile(
        "agent",
        agent="shell",
        prompt="{body}",
        success="exit",
        network=False,
        env=["SECRET"],
        setup='echo "setup $WHO ${SECRET-none}" | tee log; echo x > /etc/x || echo denied',
        teardown="cat log; echo torn >> log; exit 3",
        **{"variables.WHO": "me"},
    )
    task = yard.create('echo "work ${SECRET-none}" >> log', assignee="agent")
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(task.id).status is Status.DONE  # whatever a teardown says
    [run] = yard.store.runs(task.id)
    assert yard.store.file(task.id, run.id, "setup").startswith(b"setup me none\n")
    assert b"denied\n" in yard.store.file(task.id, run.id, "setup")
    assert yard.store.file(task.id, run.id, "teardown") == b"setup me none\nwork s\n"
    assert (yard.home / "board" / task.id / "log").read_text("utf-8") == "setup me none\nwork s\ntorn\n"
    await yard.gone(task)


async def test_a_setup_that_fails_is_a_fault_of_the_surroundings_and_no_worker_starts(yard: Yard) -> None:
    yard.profile(
        "agent",
        agent="shell",
        prompt="{body}",
        network=False,
        setup="echo no such index; exit 7",
        teardown="pwd",
    )
    task = yard.create("touch started", assignee="agent")
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    waiting = yard.store.task(task.id)
    assert waiting.status is Status.WAITING_SYSTEM
    [run] = yard.store.runs(task.id)
    assert (run.outcome, run.failure) == ("failed", "infra")
    assert "exit code 7: no such index" in (run.error or "")
    assert yard.store.file(task.id, run.id, "setup") == b"no such index\n"
    assert yard.store.file(task.id, run.id, "teardown").decode().strip() == run.workspace
    assert not Path(run.workspace, "started").exists()


@pytest.mark.parametrize("kind", ["scratch", "dir"])
async def test_what_a_setup_leaves_is_no_work_of_the_run(yard: Yard, kind: str) -> None:
    yard.profile("agent", agent="shell", prompt="{body}", network=False, setup="echo built > built.txt")
    place = {"workspace_kind": kind, "workspace": str(yard.user)} if kind == "dir" else {}
    idle = yard.create("true", assignee="agent", max_attempts=1, **place)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(idle.id).status is Status.FAILED  # and not: its report is missing
    worked = yard.create("echo more >> built.txt", assignee="agent", max_attempts=1, **place)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(worked.id).status is Status.HANDOFF_FAILED


async def test_a_run_that_is_cancelled_during_its_setup_ends_with_it(yard: Yard) -> None:
    yard.profile("agent", agent="shell", prompt="{body}", network=False, setup="touch begun; sleep 1000")
    task = yard.create("touch started", assignee="agent")
    async with yard.dispatching():
        place = yard.home / "board" / task.id
        await yard.when((place / "begun").exists)
        yard.store.move(task.id, Move.CANCEL)
        await yard.gone(task)
    assert not (place / "started").exists()
    assert yard.store.task(task.id).status is Status.CANCELLED


# --- what a run says, and where it is


async def test_files_and_tasks_that_a_worker_claims_are_looked_for(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "outside").touch()
    names = ["made.txt", "sub", "link", "gone.txt", "../x", str(tmp_path / "outside"), "away", "/etc/passwd"]
    metadata = json.dumps({"artifacts": names, "created_cards": ["t_nowhere"]})
    yard.profile("agent", agent="shell", prompt="{body}", network=False)
    report = shlex.join(
        [sys.executable, "-m", "holdfast", "handoff", "complete", "ok", "--metadata", metadata]
    )
    body = f"mkdir sub; touch made.txt; ln -s made.txt link; ln -s {tmp_path} away; {report}"
    task = yard.create(body, assignee="agent")
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(task.id).status is Status.DONE
    assert yard.told("claims_unverified") == {task.id: {"cards": ["t_nowhere"], "files": names[3:]}}


async def test_a_directory_that_another_host_works_in_is_waited_for(yard: Yard) -> None:
    place = {"workspace_kind": "dir", "workspace": str(yard.user)}
    theirs = yard.store.claim("b", worker="w", host="elsewhere", task=yard.create("true", **place).id)
    assert theirs is not None
    yard.store.occupy(theirs[1].ref, str(yard.user))
    task = yard.create("touch been", **place)
    async with yard.dispatching():
        await yard.until(task, Status.RUNNING)
        [run] = yard.store.runs(task.id)
        await yard.when(lambda: theirs[1].id in yard.store.run(run.id).note)
        assert not (yard.user / "been").exists()
        assert not (yard.user / ".holdfast").exists()
        yard.store.complete(theirs[1].ref, "e", "ok")
        await yard.until(task, Status.DONE)
    assert yard.store.run(run.id).note == ""
    assert (yard.user / "been").exists()


async def test_a_run_that_is_cancelled_while_it_waits_for_a_directory_leaves_it_alone(yard: Yard) -> None:
    place = {"workspace_kind": "dir", "workspace": str(yard.user)}
    theirs = yard.store.claim("b", worker="w", host="elsewhere", task=yard.create("true", **place).id)
    assert theirs is not None
    yard.store.occupy(theirs[1].ref, str(yard.user))
    task = yard.create("touch been", **place)
    async with yard.dispatching():
        await yard.until(task, Status.RUNNING)
        yard.store.move(task.id, Move.CANCEL)
        after = yard.create("true")
        await yard.until(after, Status.DONE)
    async with yard.dispatching(drain=True) as serving:
        await yard.over(serving)
    assert not (yard.user / ".holdfast").exists()
    assert yard.store.task(task.id).status is Status.CANCELLED
