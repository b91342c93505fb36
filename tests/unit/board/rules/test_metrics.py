"""Numbers about a board, from its newest events."""

from holdfast.board.database.database import SQL
from holdfast.board.rules import metrics
from holdfast.board.rules.budget import BudgetUse
from holdfast.board.rules.metrics import Profile, Recent, Runs
from holdfast.board.rules.rows import TaskEvent
from holdfast.board.rules.transitions import TABLE, Move, TaskStatus
from tests.support.rows import every_row


def event(task: str, kind: str, at_ms: int, **payload: object) -> TaskEvent:
    return TaskEvent(
        board="b", seq=1, task_id=task, run_id=None, kind=kind, actor="x", at_ms=at_ms, payload=payload
    )


def runs(**members: object) -> Runs:
    values: dict[str, object] = {"profile": "x", "outcome": None, "failure": None, "count": 1, "told": 0}
    return Runs(**{**values, "tokens": 0, "cost": 0, "turns": 0, **members})  # type: ignore[arg-type]  # a test that errs here fails here


@every_row(
    ("events", "waits"),
    [
        ([], []),
        ([event("t", "claim", 5)], []),
        ([event("t", "created", 1, status="ready"), event("t", "claim", 5)], [4]),
        ([event("t", "created", 1, status="todo"), event("t", "claim", 5)], []),
        ([event("t", "promote", 3, after="p"), event("t", "claim", 5)], [2]),
        ([event("t", "wake", 3, to="ready"), event("u", "claim", 4), event("t", "claim", 5)], [2]),
        ([event("t", "wake", 3, to="ready"), event("t", "claim", 5), event("t", "claim", 9)], [2]),
        ([event("t", "created", 9, status="ready"), event("t", "claim", 5)], [0]),
    ],
)
def test_a_wait_is_from_ready_to_claimed(events: list[TaskEvent], waits: list[int]) -> None:
    assert metrics.waits_ms(events) == waits


def test_every_move_that_makes_a_task_ready_is_looked_at() -> None:
    moves = {move for (_, move), after in TABLE.items() if after is TaskStatus.READY} | {Move.CLAIM}
    [query] = [
        text
        for text in (SQL / "queries.sql").read_text("utf-8").split("-- name: ")
        if text.startswith("events_of_claims\n")
    ]
    assert [move for move in sorted(moves) if f"'{move}'" not in query] == []


def test_what_was_used_is_added_up_by_profile() -> None:
    recent = Recent(
        events=9,
        runs=[
            runs(count=2, told=1, tokens=10, cost=5, turns=1, outcome="completed"),
            runs(count=1, told=1, tokens=7, cost=0, turns=2, outcome="failed", failure="task"),
            runs(profile="y"),
        ],
        waits_ms=[],
    )
    found = metrics.profiles(recent)
    assert found == {
        "x": Profile(runs=3, told=2, tokens=17, cost=5, turns=3),
        "y": Profile(runs=1, told=0, tokens=0, cost=0, turns=0),
    }
    assert metrics.used(found["x"]) == BudgetUse(17, 5, 3)


def test_the_text_is_what_prometheus_reads() -> None:
    recent = Recent(
        events=7,
        runs=[
            runs(
                profile='a"\\\n',
                outcome="failed",
                failure="task",
                count=2,
                told=2,
                tokens=1_234_567,
                cost=1_500_000,
            )
        ],
        waits_ms=[100, 2000, 10**9],
    )
    lines = metrics.exposition("b", {"ready": 3}, 1500, recent)
    assert {
        'holdfast_tasks{board="b",status="ready"} 3',
        'holdfast_oldest_ready_seconds{board="b"} 1.5',
        'holdfast_recent_events{board="b"} 7',
        'holdfast_recent_runs{board="b",profile="a\\"\\\\\\n",outcome="failed",failure="task"} 2',
        'holdfast_recent_tokens{board="b",profile="a\\"\\\\\\n"} 1234567',
        'holdfast_recent_cost_dollars{board="b",profile="a\\"\\\\\\n"} 1.5',
        'holdfast_recent_runs_that_say_usage{board="b",profile="a\\"\\\\\\n"} 2',
        'holdfast_recent_wait_seconds_bucket{board="b",le="0.1"} 1',
        'holdfast_recent_wait_seconds_bucket{board="b",le="5"} 2',
        'holdfast_recent_wait_seconds_bucket{board="b",le="+Inf"} 3',
        'holdfast_recent_wait_seconds_sum{board="b"} 1000002.1',
        'holdfast_recent_wait_seconds_count{board="b"} 3',
    } <= set(lines)
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert all(line.startswith(("#", *names)) for line in lines)


def test_a_board_on_which_nothing_is_ready_has_no_old_task() -> None:
    lines = metrics.exposition("b", {}, None, Recent(events=0, runs=[], waits_ms=[]))
    assert 'holdfast_oldest_ready_seconds{board="b"} 0' in lines
