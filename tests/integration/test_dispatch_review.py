"""Checks, reviews, resumed sessions and reminders with a dispatcher and real workers."""

import json
import shlex
import sys
from pathlib import Path
from typing import Final

import pytest

from holdfast.board.rules.rows import Task
from holdfast.board.rules.transitions import Move, Status
from holdfast.board.verbs.inbox import WAITING
from holdfast.board.verbs.reviews import CHECKS, Remark, Review
from holdfast.dispatch.run import scripts
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]


def saying(verb: str, **args: object) -> str:
    """A line of shell that reports."""
    code = f"from holdfast.handoff.sender import Sender; Sender.find().send({verb!r}, {args!r})"
    return shlex.join([sys.executable, "-c", code])


def workspace(yard: Yard, task: Task) -> Path:
    return yard.home / "board" / task.id


# --- checks

LOOKS: Final = (
    "echo in $PWD; echo x > made-by-check && echo wrote; echo x > ../outside && echo OUT; "
    "ls /tmp && echo TMP; env | grep HOLDFAST_; cat work"
)


async def test_completed_work_is_done_once_its_checks_pass_confined_in_its_workspace(yard: Yard) -> None:
    task = yard.create("echo good > work; echo finished", checks=("grep good work", LOOKS))
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    done = yard.store.task(task.id)
    assert (done.status, done.result) == (Status.DONE, "finished")
    [run] = yard.store.runs(task.id)
    assert run.outcome == "completed"
    assert yard.store.file(task.id, run.id, "check-1") == b"good\n"
    said = yard.store.file(task.id, run.id, "check-2").decode()
    assert f"in {workspace(yard, task)}\nwrote\n" in said
    assert said.endswith("good\n")
    assert not [word for word in ("OUT", "TMP", "HOLDFAST_") if word in said]
    assert b"made-by-check" not in yard.store.file(task.id, run.id, "diff.patch")


async def test_a_failed_check_is_told_to_the_next_run_in_the_same_workspace(yard: Yard) -> None:
    yard.program(
        "my-agent", f'echo "$1" >> prompts; echo line >> work; {saying("complete", summary="I did it")}'
    )
    yard.profile("agent", command=["my-agent", "{prompt}"], network=False)
    check = "cat work; test $(wc -l < work) -ge 2"
    task = yard.create("write work", assignee="agent", checks=(check,))
    async with yard.dispatching():
        await yard.until(task, Status.DONE)
    first, second = yard.store.runs(task.id)
    assert (first.outcome, second.outcome) == ("completed", "completed")
    assert yard.store.task(task.id).attempts == 2
    [comment] = yard.store.show(task.id).comments
    assert comment.author == CHECKS
    assert "exit code 1" in comment.body
    assert comment.body.endswith("line")
    prompts = (workspace(yard, task) / "prompts").read_text("utf-8")
    before, _, after = prompts.partition(f"# Changes that {CHECKS} asked for")
    assert "exit code 1" not in before
    assert f"# Checks that are run here after you end, and must succeed\n- `{check}`" in before
    assert f"> The check `{check}` ended with exit code 1." in after
    assert after.count("exit code 1") == 1  # and not among the comments again


async def test_checks_that_fail_until_all_attempts_are_spent_leave_it_to_a_person(yard: Yard) -> None:
    task = yard.create("true", checks=("echo no; exit 7", "true"), max_attempts=1)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    [waiting] = yard.store.inbox("b").waiting
    assert (waiting.task, waiting.status) == (task.id, Status.REVIEW)
    [run] = yard.store.runs(task.id)
    assert yard.store.file(task.id, run.id, "check-1") == b"no\n"


async def test_a_check_is_ended_when_a_person_decides(yard: Yard) -> None:
    task = yard.create("true", checks=("touch checking; sleep 1000",))
    async with yard.dispatching(once=True) as serving:
        await yard.when((workspace(yard, task) / "checking").exists)
        yard.store.review(task.id, Review(approve=True, anyway=True))
        await yard.over(serving)
    await yard.gone(task)
    assert yard.store.task(task.id).status is Status.DONE


async def test_a_check_that_takes_too_long_has_failed(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "CHECK_S", 1.0)
    task = yard.create("true", checks=("sleep 1000",), max_attempts=1)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    await yard.gone(task)
    [comment] = yard.store.show(task.id).comments
    assert "was ended" in comment.body


# --- reviews


async def test_requested_changes_reach_the_worker_with_the_line_they_are_about(yard: Yard) -> None:
    yard.program(
        "my-agent",
        f'echo "$1" > prompt; printf "first\\nsecnod\\n" > work; {saying("request_review", summary="?")}',
    )
    yard.profile("agent", command=["my-agent", "{prompt}"], network=False)
    task = yard.create("write work", assignee="agent", reviewer="anna")
    async with yard.dispatching():
        await yard.until(task, Status.REVIEW)
        await yard.when(lambda: yard.store.kept(yard.store.runs(task.id)[0].id))
        remarks = (Remark("work", 2, "spelling"),)
        yard.store.review(task.id, Review(changes="almost", remarks=remarks), who="anna")
        await yard.when(lambda: len(yard.store.runs(task.id)) == 2)
        await yard.until(task, Status.REVIEW)
    prompt = (workspace(yard, task) / "prompt").read_text("utf-8")
    assert "# Changes that anna asked for" in prompt
    assert "> almost\n\n## work:2\n    +secnod\n> spelling" in prompt
    assert "+secnod\n" in (workspace(yard, task) / ".holdfast" / "reviewed.patch").read_text("utf-8")
    assert [run.workspace for run in yard.store.runs(task.id)] == [str(workspace(yard, task))] * 2


# --- sessions

# A stand-in for codex that keeps its session below CODEX_HOME and says how it was started.
AGENT: Final = """
cat > prompt
if [ "$2" = resume ]; then
  [ -e $CODEX_HOME/s-1 ] || exit 9
  echo resumed >> how
  [ -e broken ] && exit 9
else
  echo fresh >> how; touch $CODEX_HOME/s-1
fi
echo '{"type":"thread.started","thread_id":"s-1"}'
"""


def how(yard: Yard, task: Task) -> list[str]:
    return (workspace(yard, task) / "how").read_text("utf-8").split()


async def test_the_session_goes_on_after_an_answer_and_after_a_review_and_again(yard: Yard) -> None:
    ask, look = saying("block", question="which one?"), saying("request_review", summary="look")
    yard.program("codex", f'{AGENT}\n[ "$(wc -l < how)" = 1 ] && {ask} || {look}')
    task = yard.create("write how", assignee="codex")
    async with yard.dispatching():
        await yard.until(task, Status.WAITING_HUMAN)
        await yard.when(lambda: yard.store.runs(task.id)[0].session)
        yard.store.move(task.id, Move.UNBLOCK, reason="the left one")
        await yard.until(task, Status.REVIEW)
        assert "answered\n\n> which one?\n\nthe left one" in (workspace(yard, task) / "prompt").read_text(
            "utf-8"
        )
        await yard.when(lambda: yard.store.runs(task.id)[1].session)
        yard.store.review(task.id, Review(changes="more"))
        await yard.when(lambda: len(yard.store.runs(task.id)) == 3)
        await yard.until(task, Status.REVIEW)
    first, second, third = yard.store.runs(task.id)
    assert how(yard, task) == ["fresh", "resumed", "resumed"]
    assert [run.metadata.get("resumes") for run in (first, second, third)] == [None, first.id, first.id]


async def test_a_retry_goes_on_and_begins_anew_where_that_does_not_work(yard: Yard) -> None:
    yard.program("codex", f"{AGENT}\nexit 3")
    task = yard.create("write how", assignee="codex", max_attempts=1)
    for number, broken in enumerate((False, True, False, False)):
        if broken:
            (workspace(yard, task) / "broken").touch()
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
        assert yard.store.task(task.id).status is Status.FAILED, number
        yard.store.move(task.id, Move.RETRY)
    assert how(yard, task) == ["fresh", "resumed", "fresh", "resumed"]


async def test_without_the_state_of_the_session_a_fresh_one_is_begun(yard: Yard) -> None:
    yard.program("codex", f"{AGENT}\nexit 3")
    task = yard.create("write how", assignee="codex", max_attempts=1)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    [run] = yard.store.runs(task.id)
    assert run.session == "s-1"
    state = yard.home / "workers" / run.id.replace("_", "-") / "state"
    state.rename(state.with_name("lost"))
    yard.store.move(task.id, Move.RETRY)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert how(yard, task) == ["fresh", "fresh"]


# --- reminders


def told(yard: Yard) -> list[dict[str, object]]:
    place = yard.folder / "told"
    return [json.loads(line) for line in place.read_text("utf-8").splitlines()] if place.exists() else []


def kept(yard: Yard) -> str:
    return (yard.home / "notify.json").read_text("utf-8")


def hurried(yard: Yard, task: Task) -> None:
    """As if the pause before the next reminder were over."""
    book = json.loads(kept(yard))
    book["owed"][task.id]["due_ms"] = 0
    (yard.home / "notify.json").write_text(json.dumps(book), "utf-8")


async def test_a_program_is_told_what_begins_to_wait_for_a_person_and_nothing_else(yard: Yard) -> None:
    old = yard.create(triage=True)
    program = ("/bin/sh", "-c", f"cat >> {yard.folder / 'told'}")
    async with yard.dispatching(notify=program):
        await yard.when((yard.home / "notify.json").exists)
        fine = yard.create("true")
        failing = yard.create("exit 1", max_attempts=1, title="will fail")
        await yard.until(failing, Status.FAILED)
        await yard.until(fine, Status.DONE)
        await yard.when(lambda: kept(yard).count('"delivered":1'))
    [one] = told(yard)
    assert (one["schemaVersion"], one["task"], one["status"]) == (1, failing.id, "failed")
    assert one["next"] == [f"holdfast task retry {failing.id}", f"holdfast task cancel {failing.id}"]
    async with yard.dispatching(once=True, notify=program) as serving:
        await yard.over(serving)
    assert len(told(yard)) == 1  # not again so soon, nor by another dispatcher
    assert old.status in WAITING


async def test_what_could_not_be_told_is_told_later_and_survives_the_dispatcher(yard: Yard) -> None:
    yard.home.joinpath("notify").write_text("#!/bin/sh\nexit 1\n", "utf-8")
    yard.home.joinpath("notify").chmod(0o700)
    async with yard.dispatching():
        await yard.when((yard.home / "notify.json").exists)
        task = yard.create(triage=True)
        await yard.when(lambda: kept(yard).count('"failed":1'))
    yard.home.joinpath("notify").write_text(f"#!/bin/sh\ncat >> {yard.folder / 'told'}\n", "utf-8")
    hurried(yard, task)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert [one["task"] for one in told(yard)] == [task.id]


async def test_nobody_is_reminded_of_what_is_acknowledged(yard: Yard) -> None:
    program = ("/bin/sh", "-c", f"cat >> {yard.folder / 'told'}")
    async with yard.dispatching(notify=program):
        await yard.when((yard.home / "notify.json").exists)
        task = yard.create(triage=True)
        await yard.when(lambda: told(yard))
    yard.store.acknowledge(task.id)
    hurried(yard, task)
    async with yard.dispatching(once=True, notify=program) as serving:
        await yard.over(serving)
    assert len(told(yard)) == 1
    assert json.loads(kept(yard))["owed"] == {}
