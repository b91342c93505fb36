import msgspec
import pytest

from holdfast.board.rules.rows import Run
from holdfast.dispatch.rules.pressure import YOUNG_S
from holdfast.dispatch.rules.rounds import (
    BEATS,
    OVER_TRIES,
    REST_S,
    TICK_S,
    TRIES,
    Round,
    Rounds,
    Starts,
    find_pause,
    hold_up,
    max_tries,
)
from holdfast.errors import OperationFailed, Unreachable, UsageError
from tests.support.dispatch import a_run

LEASE_S = 40.0


def run(id: str) -> Run:
    return msgspec.structs.replace(a_run(), id=id)


def rounds(*, claiming: bool = True, once: bool = False) -> Rounds:
    return Rounds(lease_s=LEASE_S, claiming=claiming, once=once)


def test_the_first_round_does_everything() -> None:
    held = [run("r_1"), run("r_2")]
    assert rounds().plan(held, ["r_2", "r_3"], 5.0) == Round(
        give_back=(),
        drive=(held[0],),
        over=("r_3",),
        renew=tuple(held),
        expire=True,
        end_lost=False,
        claim=True,
    )


def test_leases_are_renewed_several_times_in_each() -> None:
    told, held = rounds(), [run("r_1")]
    told.finish(told.plan(held, ["r_1"], 100.0), 100.0)
    for at, due in ((100.0, False), (100.0 + LEASE_S / BEATS, False), (100.1 + LEASE_S / BEATS, True)):
        assert bool(told.plan(held, ["r_1"], at).renew) is due


def test_leases_that_ran_out_are_looked_for_with_every_tick() -> None:
    told = rounds()
    told.finish(told.plan([], [], 100.0), 100.0)
    assert not told.plan([], [], 100.0 + TICK_S).expire
    assert told.plan([], [], 100.1 + TICK_S).expire


def test_leaving_it_begins_nothing_and_gives_back_what_it_holds() -> None:
    told, held = rounds(), [run("r_1"), run("r_2")]
    told.leave()
    assert told.plan(held, ["r_1"], 5.0) == Round(
        give_back=tuple(held), drive=(), over=("r_1",), renew=(), expire=False, end_lost=False, claim=False
    )
    told.finish(told.plan([], [], 6.0), 6.0)
    assert told.is_over([])


def test_a_round_that_was_not_finished_is_planned_again() -> None:
    told, held = rounds(once=True), [run("r_1")]
    first = told.plan(held, [], 100.0)
    assert told.plan(held, [], 100.5) == first
    assert not told.is_over([])


def test_a_clock_that_begins_at_zero_delays_nothing() -> None:
    assert rounds().plan([run("r_1")], [], 0.0).renew


def test_once_claims_in_one_round_only() -> None:
    told = rounds(once=True)
    todo = told.plan([], [], 1.0)
    assert todo.claim
    told.finish(todo, 1.0)
    assert not told.plan([], [], 2.0).claim


@pytest.mark.parametrize(
    ("claiming", "once", "driven", "over"),
    [
        (True, False, [], False),
        (True, True, [], True),
        (True, True, ["r_1"], False),
        (False, False, [], True),
        (False, False, ["r_1"], False),
    ],
)
def test_it_is_over_when_nothing_is_driven_nor_will_be(
    claiming: bool, once: bool, driven: list[str], over: bool
) -> None:
    told = rounds(claiming=claiming, once=once)
    assert not told.is_over(driven)  # before it has looked
    told.finish(told.plan([], driven, 1.0), 1.0)
    assert told.is_over(driven) is over


def test_a_start_is_young_for_a_while_and_only_if_it_still_runs() -> None:
    starts = Starts()
    for at in (0.0, 1.0, 2.0):
        starts.add(at)
    assert starts.young(3, YOUNG_S - 0.1) == 3
    assert starts.young(1, YOUNG_S - 0.1) == 1
    assert starts.young(3, YOUNG_S + 1.0) == 1
    assert starts.young(3, YOUNG_S + 2.0) == 0


def test_a_full_host_says_so_and_is_not_asked_what_else_holds_it_up() -> None:
    def held(running: int, young: int) -> str:
        return f"{running} run, {young} of them young"

    assert hold_up(2, 1, most=2, held=held) == ("2 runs at once are the most", True)
    assert hold_up(1, 1, most=2, held=held) == ("1 run, 1 of them young", False)
    assert hold_up(1, 1, most=2, held=lambda _running, _young: None) == (None, False)


@pytest.mark.parametrize(
    ("exc", "over", "tries"),
    [
        (Unreachable("the store"), False, None),
        (Unreachable("the store"), True, None),
        (TimeoutError(), True, None),
        (OperationFailed("the exec server does not start"), False, None),
        (OperationFailed("nobody saw its end"), True, OVER_TRIES),
        (UnicodeEncodeError("utf-8", "x", 0, 1, "surrogates"), False, TRIES),
        (RecursionError(), True, TRIES),
        (UsageError("wrong"), False, TRIES),
    ],
)
def test_only_what_may_come_back_is_waited_for(exc: Exception, over: bool, tries: int | None) -> None:
    assert max_tries(exc, over=over) == tries


def test_rounds_are_rare_only_while_time_alone_moves_no_task() -> None:
    assert find_pause([{}, {"done": 3, "waiting_human": 1, "review": 2, "triage": 1}]) == REST_S
    for status in ("todo", "scheduled", "ready", "running", "waiting_system", "handoff_failed"):
        assert find_pause([{"done": 1}, {status: 1}]) == TICK_S, status
