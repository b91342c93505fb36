"""Which tasks to claim, and why the others wait."""

import msgspec
import pytest

from holdfast.board.rules.assign import (
    Assignment,
    Busy,
    Capacity,
    PlannedClaim,
    assign,
    clock,
    find_cap_reached,
    find_pools_reached,
    holdup,
    why_stopped,
)
from holdfast.board.rules.rows import Board, Task
from holdfast.board.rules.transitions import TaskStatus
from tests.support.rows import every_row

NOW = 1_700_000_000_000
BOTH = {"h1": frozenset({"coder"}), "h2": frozenset({"coder", "writer"})}


def task(name: str, status: TaskStatus = TaskStatus.READY, **members: object) -> Task:
    wanted: dict[str, object] = {
        "id": name,
        "board": "b",
        "title": name,
        "body": "",
        "assignee": "coder",
        "status": status,
        "priority": 0,
        "created_by": "me",
        "created_by_run": None,
        "created_ms": 0,
        "status_ms": 0,
        "ended_ms": None,
        "open_parents": 0,
        "run_id": None,
        "generation": 0,
        "attempts": 0,
        "max_attempts": 3,
        "wake_ms": None,
        "question": None,
        "options": [],
        "waiting_for": "",
        "reason": "",
        "result": None,
        "version": 1,
        **members,
    }
    return Task(**wanted)  # type: ignore[arg-type]  # a test that errs here fails here


def decide(
    *tasks: Task,
    capacity: Capacity | None = None,
    busy: Busy | None = None,
    waits_for: str | None = None,
    held: dict[str, str] | None = None,
) -> Assignment:
    return assign(
        tasks,
        hosts=BOTH,
        capacity=capacity or Capacity(),
        busy=busy or Busy(),
        now_ms=NOW,
        waits_for={each.id: [waits_for] for each in tasks} if waits_for else None,
        held=held,
    )


def test_the_most_important_and_then_the_oldest_comes_first() -> None:
    young, old, urgent = task("young", created_ms=2), task("old", created_ms=1), task("urgent", priority=9)
    assert [claim.task for claim in decide(young, old, urgent).claims] == ["urgent", "old", "young"]


def test_the_least_busy_host_that_accepts_a_task_gets_it() -> None:
    found = decide(task("a"), task("b"), task("c", assignee="writer"), busy=Busy(1, {}, {"h2": 1}))
    assert found.claims == (PlannedClaim("a", "h1"), PlannedClaim("b", "h1"), PlannedClaim("c", "h2"))


@pytest.mark.parametrize(
    ("capacity", "busy", "reason"),
    [
        (Capacity(board=1), Busy(board=1), "cap of the board: 1"),
        (Capacity(profiles={"coder": 2}), Busy(2, {"coder": 2}, {}), "cap of profile coder: 2"),
        (Capacity(hosts={"h1": 0, "h2": 1}), Busy(1, {}, {"h2": 1}), "cap of host h1, h2"),
        (Capacity(pools={"gpu": 1}), Busy(1, {}, {}, {"gpu": 1}), "cap of pool gpu: 1"),
    ],
)
def test_a_cap_that_is_reached_is_the_reason(capacity: Capacity, busy: Busy, reason: str) -> None:
    assert decide(task("a", pool="gpu"), capacity=capacity, busy=busy) == Assignment((), {"a": reason})


def test_claims_of_one_decision_use_up_the_room() -> None:
    found = decide(
        task("a"), task("b"), task("c", assignee="writer"), capacity=Capacity(profiles={"coder": 1})
    )
    assert [claim.task for claim in found.claims] == ["a", "c"]
    assert found.waiting == {"b": "cap of profile coder: 1"}
    assert len(decide(task("a"), task("b"), task("c"), capacity=Capacity(board=2)).claims) == 2
    assert (
        len(decide(task("a"), task("b"), task("c"), capacity=Capacity(hosts={"h1": 1, "h2": 1})).claims) == 2
    )


def test_a_pool_bounds_its_own_tasks_only() -> None:
    tasks = [task("a", pool="gpu"), task("b", pool="gpu"), task("c", pool="other"), task("d")]
    found = decide(*tasks, capacity=Capacity(pools={"gpu": 1, "": 0}))
    assert [claim.task for claim in found.claims] == ["a", "c", "d"]
    assert found.waiting == {"b": "cap of pool gpu: 1"}


def test_why_a_task_has_ended_is_said_once() -> None:
    ended = task("t", TaskStatus.FAILED, reason="failed: its work did not succeed (1 of 1 attempts)")
    assert holdup(ended, now_ms=NOW) == "is failed: its work did not succeed (1 of 1 attempts)"
    assert holdup(task("t", TaskStatus.DONE), now_ms=NOW) == "is done"


def test_hosts_that_start_nothing_now_are_passed_over_and_say_why() -> None:
    held = {"h1": "too little memory", "h2": "too much load"}
    found = decide(task("a"), task("b", assignee="writer"), held={"h1": "too little memory"})
    assert found.claims == (PlannedClaim("a", "h2"), PlannedClaim("b", "h2"))
    waiting = decide(task("a"), task("b", assignee="painter"), held=held).waiting
    assert waiting["a"] == (
        "host h1 starts nothing now: too little memory; host h2 starts nothing now: too much load"
    )
    assert "no worker accepts it" in waiting["b"]


def test_a_task_that_nobody_accepts_says_so() -> None:
    assert "no worker accepts it" in decide(task("a", assignee="painter")).waiting["a"]


@every_row("status", sorted(set(TaskStatus) - {TaskStatus.READY}))
def test_whatever_is_not_ready_waits_with_a_reason(status: TaskStatus) -> None:
    found = decide(task("a", status, wake_ms=NOW + 1, question="blue or red?"))
    assert found.claims == ()
    assert found.waiting["a"]


def test_reasons_name_what_is_waited_for() -> None:
    assert decide(task("a", TaskStatus.TODO), waits_for="t_1").waiting["a"] == "waits for t_1"
    assert holdup(task("a", TaskStatus.TODO), now_ms=NOW) == "waits for other tasks"
    cooling = task("a", TaskStatus.WAITING_SYSTEM, wake_ms=NOW + 1, reason="cool-down after infra")
    assert holdup(cooling, now_ms=NOW) == f"cool-down after infra until {clock(NOW + 1)}"
    assert holdup(cooling, now_ms=NOW + 1) == "cool-down after infra is over"
    asking = task("a", TaskStatus.WAITING_HUMAN, question="blue or red?", waiting_for="ann")
    assert holdup(asking, now_ms=NOW) == "waits for ann: blue or red?"
    assert holdup(task("a", assignee=""), now_ms=NOW) == "nobody is assigned"


def test_times_are_told_in_utc() -> None:
    assert clock(NOW) == "2023-11-14 22:13:20 UTC"
    assert clock(None) == "further notice"


def test_a_board_that_stands_still_says_so() -> None:
    board = Board(slug="b", title="", created_ms=0)
    assert why_stopped(board) is None
    assert why_stopped(msgspec.structs.replace(board, paused=True)) == "the board b is paused"
    assert (
        why_stopped(msgspec.structs.replace(board, paused=True, archived=True)) == "the board b is archived"
    )


def test_the_caps_alone_can_be_asked() -> None:
    assert (
        find_cap_reached("coder", capacity=Capacity(hosts={"h": 0}), busy=Busy(), host="h") == "cap of host h"
    )
    assert (
        find_cap_reached("coder", capacity=Capacity(board=1), busy=Busy(board=1), host="h")
        == "cap of the board: 1"
    )
    assert find_cap_reached("coder", capacity=Capacity(board=2), busy=Busy(board=1), host="h") is None
    gpu, busy = Capacity(pools={"gpu": 1, "free": 1}), Busy(pools={"gpu": 1})
    assert find_cap_reached("coder", capacity=gpu, busy=busy, host="h") is None
    assert find_cap_reached("coder", capacity=gpu, busy=busy, host="h", pool="gpu") == "cap of pool gpu: 1"
    assert find_pools_reached(capacity=gpu, busy=busy) == {"gpu": "cap of pool gpu: 1"}
