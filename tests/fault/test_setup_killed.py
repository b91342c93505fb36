"""A dispatcher that is killed while the setup of a run is under way."""

import pytest

from holdfast.board.rules.transitions import TaskStatus
from tests.support.dispatch import Yard, dispatcher, fresh_yard_fixture
from tests.support.tiers import ASYNCIO, Backend

__all__ = ["fresh_yard_fixture"]


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO  # the command brings its own loop


async def test_a_setup_goes_on_without_its_dispatcher_and_is_not_run_again(yard: Yard) -> None:
    yard.profile(
        "agent",
        agent="shell",
        prompt="{body}",
        success="exit",
        network=False,
        setup="echo setup >> log; while [ ! -e go ]; do sleep 0.05; done; touch ready",
        teardown="echo teardown >> log",
    )
    task = yard.create("[ -e ready ] && echo work >> log", assignee="agent")
    place = yard.home / "board" / task.id
    async with dispatcher(yard) as first:
        await yard.when((place / "log").exists)
        await first.end()
    (place / "go").touch()
    async with dispatcher(yard):
        await yard.until(task, TaskStatus.DONE)
        await yard.when(lambda: (place / "log").read_text("utf-8").endswith("teardown\n"))
    assert (place / "log").read_text("utf-8") == "setup\nwork\nteardown\n"
    assert len(yard.store.runs(task.id)) == 1
