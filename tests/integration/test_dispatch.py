"""Tasks run to their end by real workers: shells below a supervisor and an exec server, in real sandboxes."""

import asyncio
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.dispatch import dispatcher
from holdfast.dispatch.run import workspace
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]

# A worker with children, one of them in a session of its own, that all would run for long.
TREE: Final = "sleep 1000 & setsid sleep 1000 & trap '' TERM; while :; do sleep 0.1; done"


async def test_a_script_goes_from_ready_to_done_and_what_it_left_is_kept(yard: Yard) -> None:
    task = yard.create("echo made > new.txt; echo all is well")
    async with yard.dispatching():
        done = await yard.until(task, TaskStatus.DONE)
    assert done.result == "all is well"
    [run] = yard.store.runs(task.id)
    assert run.outcome == "completed"
    assert run.workspace == str(yard.home / "board" / task.id)
    assert {file.name for file in yard.store.kept_files(run.id)} == {"end.json", "diff.patch", "output"}
    end = json.loads(yard.store.file(task.id, run.id, "end.json"))
    assert end["judged"] == {"kind": "complete", "summary": "all is well"}
    assert end["changed"]["paths"] == ["A new.txt"]
    assert end["worker"]["exitCode"] == 0
    assert b"+made\n" in yard.store.file(task.id, run.id, "diff.patch")
    assert yard.store.file(task.id, run.id, "output") == b"all is well\n"
    assert Path(run.workspace, "new.txt").read_text("utf-8") == "made\n"


def saying(verb: str, channel: str, **args: object) -> str:
    """A line of shell that reports."""
    code = (
        "from holdfast.handoff.sender import Sender; "
        f"print(Sender.find().send({verb!r}, {args!r}, channel={channel!r}))"
    )
    return shlex.join([sys.executable, "-c", code])


@pytest.mark.parametrize(
    ("channel", "network"), [("socket", True), ("socket", False), ("outbox", False), ("auto", False)]
)
async def test_a_worker_reports_for_itself(yard: Yard, channel: str, network: bool) -> None:
    yard.profile("agent", agent="shell", prompt="{body}", network=network)
    body = f"echo work > done.txt; {saying('complete', channel, summary='I did it', metadata={'n': 1})}"
    task = yard.create(body, assignee="agent")
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    done = yard.store.task(task.id)
    assert (done.status, done.result) == (TaskStatus.DONE, "I did it")
    [run] = yard.store.runs(task.id)
    assert (run.outcome, run.metadata) == ("completed", {"n": 1})
    assert b"+work\n" in yard.store.file(task.id, run.id, "diff.patch")
    end = json.loads(yard.store.file(task.id, run.id, "end.json"))
    assert end["worker"]["denials"] == []  # not even of the answer file that the sender takes away


async def test_work_without_a_report_is_a_failed_handoff_with_diff_and_reason(yard: Yard) -> None:
    yard.profile("agent", agent="shell", prompt="{body}", network=False)
    removed = "mkdir d; echo x > d/f; mv d/f d/g; rm -r d"  # in a workspace that lies in a hidden home
    task = yard.create(f"{removed}; echo work > done.txt", assignee="agent", max_attempts=1)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    failed = yard.store.task(task.id)
    assert (failed.status, failed.attempts) == (TaskStatus.HANDOFF_FAILED, 0)
    [run] = yard.store.runs(task.id)
    assert (run.outcome, run.failure) == ("handoff_failed", "handoff")
    assert run.error == "it ended without a report; 1 files have changed"
    assert b"+work\n" in yard.store.file(task.id, run.id, "diff.patch")


async def test_successful_work_in_a_hidden_home_is_no_reason_of_a_failure(yard: Yard) -> None:
    yard.profile("agent", agent="shell", prompt="{body}", network=False)
    task = yard.create("mkdir d; rm -r d; exit 1", assignee="agent", max_attempts=1)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    [run] = yard.store.runs(task.id)
    end = json.loads(yard.store.file(task.id, run.id, "end.json"))
    assert end["worker"]["denials"] == []
    assert end["worker"]["failure"] != "sandbox"
    assert "denied" not in (run.error or "")


async def test_a_report_that_cannot_be_taken_is_the_reason_of_the_failed_handoff(yard: Yard) -> None:
    yard.profile("agent", agent="shell", prompt="{body}", network=False)
    forged = '{"v":1,"id":"x","run":"r_0","generation":1,"verb":"complete","args":{"summary":""},"mac":"0"}'
    body = f"echo work > done.txt; echo {shlex.quote(forged)} > .holdfast/outbox/x.json; exit 1"
    task = yard.create(body, assignee="agent")
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    [run] = yard.store.runs(task.id)
    assert (run.outcome, yard.store.task(task.id).status) == ("handoff_failed", TaskStatus.HANDOFF_FAILED)
    assert "not signed" in (run.error or "")


async def test_only_the_report_is_asked_for_in_the_same_workspace(yard: Yard) -> None:
    """The command looks for the words of the follow-up, as an agent would."""
    report = saying("complete", "auto", summary="reported late")
    yard.program(
        "my-agent",
        f'case "$1" in *"Do not do the work again"*) {report};; *) echo work >> done.txt;; esac',
    )
    yard.profile("agent", command=["my-agent", "{prompt}"], network=False)
    task = yard.create("write done.txt", assignee="agent")
    async with yard.dispatching():
        await yard.until(task, TaskStatus.HANDOFF_FAILED)
        yard.store.move(task.id, Move.RETRY, report_only=True)
        done = await yard.until(task, TaskStatus.DONE)
    assert done.result == "reported late"
    assert (yard.home / "board" / task.id / "done.txt").read_text("utf-8") == "work\n"
    assert len(yard.store.runs(task.id)) == 2


async def test_a_script_is_not_run_again_for_its_report(yard: Yard) -> None:
    yard.profile("agent", agent="shell", prompt="{body}", network=False)
    task = yard.create("echo work >> done.txt", assignee="agent")
    for _ in range(2):
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
        assert yard.store.task(task.id).status is TaskStatus.HANDOFF_FAILED
        yard.store.move(task.id, Move.RETRY, report_only=True)
    assert (yard.home / "board" / task.id / "done.txt").read_text("utf-8") == "work\n"


async def test_the_report_is_asked_for_in_the_session_in_which_the_work_was_done(yard: Yard) -> None:
    """A stand-in for codex that keeps its session below CODEX_HOME, and reports when that is gone on with."""
    report = saying("complete", "auto", summary="as I said")
    started = '{"type":"thread.started","thread_id":"s-1"}'
    yard.program(
        "codex",
        f'if [ "$2" = resume ] && [ -e $CODEX_HOME/s-1 ]; then case "$*" in *s-1*) cat; {report};; esac\n'
        f"else cat > prompt; touch $CODEX_HOME/s-1; echo '{started}'; fi",
    )
    task = yard.create("write prompt", assignee="codex")
    async with yard.dispatching():
        await yard.until(task, TaskStatus.HANDOFF_FAILED)
        assert [run.session for run in yard.store.runs(task.id)] == ["s-1"]
        yard.store.move(task.id, Move.RETRY, report_only=True)
        done = await yard.until(task, TaskStatus.DONE)
    assert done.result == "as I said"


async def test_a_question_to_a_person_ends_the_run_and_its_whole_tree(yard: Yard) -> None:
    yard.profile("agent", agent="shell", prompt="{body}", network=False)
    body = f"{saying('block', 'outbox', question='which one?')}; {TREE}"
    task = yard.create(body, assignee="agent")
    async with yard.dispatching(once=True) as serving:
        waiting = await yard.until(task, TaskStatus.WAITING_HUMAN)
        assert waiting.question == "which one?"
        await yard.over(serving)
    await yard.gone(task)


async def test_cancelling_a_task_ends_the_whole_tree(yard: Yard) -> None:
    task = yard.create(TREE)
    async with yard.dispatching(once=True) as serving:
        await yard.when(lambda: len(yard.living(task)) >= 3)
        yard.store.move(task.id, Move.CANCEL)
        await yard.over(serving)
    await yard.gone(task)
    [run] = yard.store.runs(task.id)
    assert run.outcome == "cancelled"
    assert {file.name for file in yard.store.kept_files(run.id)} == {"end.json", "diff.patch", "output"}


async def test_a_run_that_takes_too_long_is_ended_with_its_tree(yard: Yard) -> None:
    task = yard.create(TREE, max_runtime_s=1, max_attempts=1)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    await yard.gone(task)
    [run] = yard.store.runs(task.id)
    assert (run.failure, yard.store.task(task.id).status) == ("task", TaskStatus.FAILED)
    assert "timeout" in (run.error or "")


async def test_what_the_leader_leaves_behind_is_ended_with_it(yard: Yard) -> None:
    task = yard.create("sleep 1000 >/dev/null 2>&1 & sleep 1000 & exit 0")
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(task.id).status is TaskStatus.DONE
    await yard.gone(task)


@pytest.mark.parametrize(
    ("body", "wishes", "failure", "status"),
    [
        ("exit 3", {}, "task", TaskStatus.WAITING_SYSTEM),
        ("exit 3", {"max_attempts": 1}, "task", TaskStatus.FAILED),
        ("kill -9 $$", {}, "task", TaskStatus.WAITING_SYSTEM),
        ("true", {"workspace_kind": "dir", "workspace": "/proc/none"}, "task", TaskStatus.WAITING_SYSTEM),
    ],
)
async def test_a_failure_is_told_with_its_class(
    yard: Yard, body: str, wishes: dict[str, object], failure: str, status: TaskStatus
) -> None:
    task = yard.create(body, **wishes)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    [run] = yard.store.runs(task.id)
    assert (run.outcome, run.failure) == ("failed", failure)
    assert yard.store.task(task.id).status is status


async def test_a_paused_board_starts_nothing_and_a_drained_dispatcher_leaves(yard: Yard) -> None:
    yard.store.pause("b", True)
    task = yard.create("true")
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(task.id).status is TaskStatus.READY
    async with yard.dispatching():
        yard.store.pause("b", False)
        await yard.until(task, TaskStatus.DONE)
    later = yard.create("true")
    async with yard.dispatching(drain=True) as serving:
        await yard.over(serving)
    assert yard.store.task(later.id).status is TaskStatus.READY


async def test_there_are_never_more_runs_than_asked_for(yard: Yard) -> None:
    tasks = [yard.create("until [ -e go ]; do sleep 0.05; done", priority=order) for order in (1, 0)]
    async with yard.dispatching(most=1):
        await yard.when(lambda: Path(yard.home, "board", tasks[0].id).is_dir())
        assert yard.store.task(tasks[1].id).status is TaskStatus.READY
        Path(yard.home, "board", tasks[0].id, "go").touch()
        await yard.until(tasks[1], TaskStatus.RUNNING)
        assert yard.store.task(tasks[0].id).status is TaskStatus.DONE
        yard.store.move(tasks[1].id, Move.CANCEL)
        await yard.gone(tasks[1])


async def test_a_new_task_is_heard_of_and_not_waited_for(
    yard: Yard, record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clock alone it would not be seen at all. How long it takes is recorded and not judged."""
    monkeypatch.setattr(dispatcher, "TICK_S", 3600.0)
    async with yard.dispatching():
        first = yard.create("true")
        await yard.until(first, TaskStatus.DONE)  # supervisor and exec server are there
        since = time.monotonic()
        task = yard.create("true")
        await yard.until(task, TaskStatus.RUNNING, TaskStatus.DONE)
        took_ms = round((time.monotonic() - since) * 1000)
        record_property("create_to_running_ms", took_ms)
        sys.stdout.write(f"create to running: {took_ms} ms\n")
        await yard.until(task, TaskStatus.DONE)


async def test_a_worktree_is_made_outside_and_its_changes_are_told(yard: Yard) -> None:
    repository = yard.repository({"a.txt": "old\n"})
    body = "echo new > a.txt; echo more > b.txt; git add . 2>/dev/null && echo COMMITTED; cat .git >/dev/null"
    task = yard.create(body, workspace_kind="worktree", workspace=str(repository))
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(task.id).status is TaskStatus.DONE
    [run] = yard.store.runs(task.id)
    diff = yard.store.file(task.id, run.id, "diff.patch")
    assert b"-old\n+new\n" in diff
    assert b"+more\n" in diff
    assert b"holdfast" not in diff
    assert b"COMMITTED" not in yard.store.file(task.id, run.id, "output")
    assert (repository / "a.txt").read_text("utf-8") == "old\n"


async def test_many_worktrees_of_one_repository_are_made_at_once(yard: Yard) -> None:
    repository = yard.repository({"a.txt": "old\n"})
    wish = {"workspace_kind": "worktree", "workspace": str(repository)}
    tasks = [yard.create("true", **wish) for _ in range(16)]
    context = yard.context()
    made = await asyncio.gather(*(workspace.prepare(context, task) for task in tasks))
    assert all((space.path / "a.txt").read_text("utf-8") == "old\n" for space in made)


async def test_the_workspace_of_an_archived_task_is_removed_unless_work_would_be_lost(yard: Yard) -> None:
    repository = yard.repository({"a.txt": "old\n"})
    scratch = yard.create("echo x > made")
    worktree = {"workspace_kind": "worktree", "workspace": str(repository)}
    changed, same = yard.create("echo new > a.txt", **worktree), yard.create("true", **worktree)
    tasks = (scratch, changed, same)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    for task in tasks:
        yard.store.move(task.id, Move.ARCHIVE)
    async with yard.dispatching():
        told = {"workspace_removed": {scratch.id, same.id}, "workspace_kept": {changed.id}}
        await yard.when(lambda: {kind: set(yard.told(kind)) for kind in told} == told)
    assert [path.is_dir() for path in (yard.home / "board" / task.id for task in tasks)] == [
        False,
        True,
        False,
    ]
    assert yard.told("workspace_removed")[scratch.id] == {"files": ["made"]}
    branches = repository / ".git" / "refs" / "heads" / "holdfast"
    assert {branch.name for branch in branches.iterdir()} == {changed.id}


async def test_in_a_directory_only_what_the_run_changed_is_told(yard: Yard) -> None:
    project = yard.folder / "project"
    project.mkdir()
    (project / "kept").write_text("same\n", "utf-8")
    (project / "edited").write_text("before\n", "utf-8")
    task = yard.create("echo after > edited; touch kept", workspace_kind="dir", workspace=str(project))
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    [run] = yard.store.runs(task.id)
    end = json.loads(yard.store.file(task.id, run.id, "end.json"))
    assert end["changed"]["paths"] == ["M edited"]


async def test_a_worker_sees_its_own_workspace_and_no_secret(yard: Yard) -> None:
    sibling = yard.create("echo secret > mine.txt")
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    [before] = yard.store.runs(sibling.id)
    (yard.user / ".ssh").mkdir()
    for secret in (".ssh/id_ed25519", ".netrc"):
        (yard.user / secret).write_text("secret", "utf-8")
    (yard.user / "code").write_text("no secret", "utf-8")
    denied: list[str | Path] = [
        yard.home / "board" / sibling.id / "mine.txt",
        yard.home / "workers" / before.id.replace("_", "-") / "output.log",
        yard.home / "handoff.key",
        yard.home / "exec.sock",
        yard.address,
        yard.user / ".ssh" / "id_ed25519",
        yard.user / ".netrc",
    ]
    assert all(Path(path).exists() for path in denied)
    looks = "".join(
        f"if [ -e {path} ] && cat {path} >/dev/null; then echo SEEN {path}; fi\n" for path in denied
    )
    body = (
        f"{looks}ls /tmp && echo SEEN tmp; cat {yard.user}/code && echo; echo x > $TMPDIR/x && echo own tmp\n"
        "echo x > ../outside && echo WROTE; env | sort"
    )
    task = yard.create(body)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    [run] = yard.store.runs(task.id)
    said = yard.store.file(task.id, run.id, "output").decode()
    assert "SEEN" not in said
    assert "WROTE" not in said
    assert "no secret" in said
    assert "own tmp" in said
    names = {line.split("=")[0] for line in said.splitlines() if "=" in line}
    assert names <= {"HOME", "PATH", "PWD", "OLDPWD", "SHLVL", "TMPDIR", "HOLDFAST_RUN", "_"}, names
