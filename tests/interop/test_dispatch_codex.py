"""The real Codex as a worker of the board, with a scripted model: it reports, or is asked for it again."""

import sys
from typing import Final

import pytest

from holdfast.board.transitions import Move, Status
from tests.support.codex import requires_codex
from tests.support.dispatch import Yard, yard_fixture
from tests.support.provider import Item, Provider, command, scripted, turns

__all__ = ["yard_fixture"]

YIELD_MS: Final = 30_000  # for a command that starts an interpreter on a busy machine
NOTHING: Final[list[Item]] = []  # the model has nothing more to do

pytestmark = pytest.mark.timeout(180)

MADE: Final = command("made", "echo it > made.txt")


def report(summary: str) -> Item:
    return command(
        "report", f"{sys.executable} -m holdfast handoff complete '{summary}'", yield_time_ms=YIELD_MS
    )


def hire(yard: Yard, model: Provider) -> None:
    (yard.bin / "codex").symlink_to(requires_codex())
    yard.launcher(
        "codex",
        agent="codex",
        model="gpt-5.5",
        provider=model.url.removesuffix("/v1"),
        key_env="HOME",  # any value will do: the model does not ask
        session='"thread_id":"([^"]+)"',
        resume=["resume", "--json", "--skip-git-repo-check", "{unattended}", "{model}", "{session}", "-"],
    )


async def test_codex_does_its_task_and_reports(yard: Yard) -> None:
    async with scripted(turns([MADE], [report("made it")])) as model:
        hire(yard, model)
        task = yard.create("make made.txt", assignee="codex")
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
    done = yard.store.task(task.id)
    assert (done.status, done.result) == (Status.DONE, "made it"), model.outputs
    [run] = yard.store.runs(task.id)
    assert b"+it\n" in yard.store.file(task.id, run.id, "diff.patch")
    assert run.session


async def test_codex_is_asked_for_its_report_in_the_session_of_its_work(yard: Yard) -> None:
    async with scripted(turns([MADE], NOTHING, [report("as asked")])) as model:
        hire(yard, model)
        task = yard.create("make made.txt", assignee="codex")
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
        assert yard.store.task(task.id).status is Status.HANDOFF_FAILED
        asked = len(model.prompts)
        yard.store.move(task.id, Move.RETRY, report_only=True)
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
    done = yard.store.task(task.id)
    assert (done.status, done.result) == (Status.DONE, "as asked"), model.outputs
    assert "Do not do the work again" in model.prompts[asked]
    assert "echo it > made.txt" in model.prompts[asked], "what was done before is part of the session"
    first, second = yard.store.runs(task.id)
    assert first.session == second.session
    assert first.tokens == second.tokens > 0, "what the session used before is not counted again"
