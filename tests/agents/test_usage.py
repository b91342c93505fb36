"""What real CLIs say that they used is what the board keeps, and a budget stops one that goes on for ever."""

import json
from typing import Final

import pytest

from holdfast.board.rules.transitions import TaskStatus
from tests.support.agent_clis import requires_cli
from tests.support.arena import MODEL
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.model import MADE, Model, scripted_model
from tests.support.tiers import DEEP

__all__ = ["home_fixture", "yard_fixture"]

ANSWER_TOKENS: Final = 12  # of each answer of the scripted model

pytestmark = pytest.mark.timeout(180)


def hire(yard: Yard, cli: str, model: Model, scenario: str) -> None:
    (yard.bin / cli).symlink_to(requires_cli(cli))
    yard.profile(
        "agent",
        agent=cli,
        model=MODEL,
        provider=model.url(scenario),
        key_env="HOME",  # any value will do: the model does not ask
        success="exit",
    )


@pytest.mark.parametrize(("cli", "priced"), [("codex", False), ("claude", True)])
async def test_what_a_cli_says_that_it_used_is_kept_with_its_run(yard: Yard, cli: str, priced: bool) -> None:
    async with scripted_model() as model:
        hire(yard, cli, model, "write")
        task = yard.create("do what the script says", assignee="agent")
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
    assert yard.store.task(task.id).status is TaskStatus.DONE, yard.store.show(task.id)
    [run] = yard.store.runs(task.id)
    assert run.tokens == 2 * ANSWER_TOKENS
    assert run.turns
    assert bool(run.cost) == priced, "what a CLI does not say is not known"


@pytest.mark.parametrize("cli", ["codex", pytest.param("claude", marks=DEEP)])
async def test_a_cli_that_goes_on_for_ever_is_stopped_by_the_budget_of_its_task(yard: Yard, cli: str) -> None:
    async with scripted_model() as model:
        hire(yard, cli, model, "busy")
        task = yard.create("do what the script says", assignee="agent", max_tokens=3 * ANSWER_TOKENS)
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
        asked = yard.store.task(task.id)
    assert asked.status is TaskStatus.WAITING_HUMAN, yard.store.show(task.id)
    assert str(asked.question).startswith("budget spent: ")
    [run] = yard.store.runs(task.id)
    assert run.tokens >= 3 * ANSWER_TOKENS
    assert MADE.encode() in yard.store.file(task.id, run.id, "diff.patch")
    assert json.loads(yard.store.file(task.id, run.id, "end.json"))["worker"]["failure"] == "killed"
    await yard.gone(task)
