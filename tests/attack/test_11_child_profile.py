"""A worker without the network makes a task, with words of its choice, for a profile that has it."""

import msgspec
import pytest

from holdfast.board.rules.rows import Task
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.handoff import envelope
from holdfast.handoff.broker import Broker
from tests.attack.test_08_cross_run import HOLDFAST
from tests.support.dispatch import Yard, fresh_yard_fixture, own_yard
from tests.support.handoff import KEY, started
from tests.support.tiers import ASYNCIO, Backend

__all__ = ["fresh_yard_fixture"]


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO


async def test_a_worker_makes_a_task_for_a_profile_that_has_more(yard: Yard) -> None:
    yard.profile("online", agent="shell", network=True, success="exit", prompt="{body}")
    yard.profile("offline", agent="shell", network=False, success="exit", prompt="{body}")
    words = "touch ran"
    body = "\n".join(
        f"{HOLDFAST} handoff create {name} --assignee {name} --body {words!r}"
        for name in ("online", "offline", "unheard-of")
    )
    task = yard.create(body)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    made = {one.title: one for one in yard.store.page("b").tasks if one.id != task.id}
    assert made["offline"].status in (TaskStatus.READY, TaskStatus.DONE)  # the control: it has no more
    for name in ("online", "unheard-of"):
        assert made[name].status is TaskStatus.WAITING_HUMAN
        assert not yard.store.runs(made[name].id)
    assert "the network" in (made["online"].question or "")
    yard.store.move(made["online"].id, Move.UNBLOCK)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(made["online"].id).status is TaskStatus.DONE  # a person agreed
    assert yard.store.task(made["offline"].id).status is TaskStatus.DONE


async def test_only_a_person_lets_it_run() -> None:
    """Neither the end of what it waits for, nor the clock, nor the worker's own link does."""
    async with own_yard() as yard:
        task, grant = started(yard.store, yard.folder / "ws")
        broker = Broker(yard.store, KEY, task.id)
        made = broker.carry_out(envelope.seal(grant, "create", {"title": "x", "assignee": "other"}, id="c"))
        assert made.result is not None
        child = msgspec.convert(made.result["task"], Task).id
        assert yard.store.task(child).status is TaskStatus.WAITING_HUMAN
        again = broker.carry_out(envelope.seal(grant, "create", {"title": "x", "assignee": "other"}, id="c"))
        assert again.result == made.result
        broker.carry_out(envelope.seal(grant, "complete", {"summary": "done"}, id="d"))
        yard.store.wake("b")
        assert yard.store.task(child).status is TaskStatus.WAITING_HUMAN
        assert yard.store.claim("b", worker="w", host="h", lease_ms=60_000) is None
