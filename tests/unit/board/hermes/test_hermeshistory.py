"""Runs, comments and events of Hermes as ours."""

from collections import defaultdict

import msgspec

from holdfast.board.hermes import hermeshistory
from holdfast.board.hermes.hermesrow import ImportPlan, Row
from tests.support.rows import every_row

NEW: dict[str, Row] = {"t_1": {"id": "t_1"}}
NOW = 1_800_000_000_000


def run(number: int, **columns: object) -> Row:
    return {"id": number, "task_id": "t_1", "status": "running", "started_at": 1_700_000_000, **columns}


def made(*rows: Row, events: list[Row] | None = None) -> tuple[ImportPlan, dict[int, str]]:
    plan = ImportPlan()
    of_tasks = defaultdict(list, {"t_1": events or []})
    return plan, hermeshistory.runs(plan, list(rows), NEW, {}, "b", of_tasks, NOW)


@every_row(
    ("columns", "expected"),
    [
        ({"outcome": "completed"}, ("completed", None)),
        ({"outcome": "crashed"}, ("failed", "infra")),
        ({"outcome": "crashed", "metadata": '{"protocol_violation": true}'}, ("handoff_failed", "handoff")),
        ({"outcome": "rate_limited"}, ("failed", "quota")),
        ({"outcome": "reclaimed"}, ("lost", "infra")),
        ({"outcome": None, "status": "done"}, ("completed", None)),
        ({"outcome": None, "status": "running"}, ("superseded", None)),
        ({"outcome": "of a later version"}, ("superseded", None)),
    ],
)
def test_an_outcome_is_mapped_by_the_table(columns: Row, expected: object) -> None:
    plan, _ = made(run(7, **columns))
    assert (plan.runs[0]["outcome"], plan.runs[0]["failure"]) == expected
    assert sum(plan.counts["runs"].values()) == 1


def test_runs_are_numbered_in_the_order_in_which_they_began_and_are_over() -> None:
    plan, names = made(run(9, started_at=1_700_000_001), run(3, started_at=1_700_000_005), run(8))
    assert [(row["id"], row["generation"]) for row in plan.runs] == [
        ("r_1_8", 1),
        ("r_1_9", 2),
        ("r_1_3", 3),
    ]
    assert names == {8: "r_1_8", 9: "r_1_9", 3: "r_1_3"}
    assert all(row["ended_ms"] == NOW for row in plan.runs)


def test_a_run_keeps_the_last_note_of_its_heartbeats_and_what_hermes_called_it() -> None:
    beats: list[Row] = [
        {"kind": "heartbeat", "run_id": 7, "payload": '{"note": "first"}'},
        {"kind": "heartbeat", "run_id": 7, "payload": '{"note": "half way"}'},
        {"kind": "heartbeat", "run_id": 7, "payload": None},
        {"kind": "heartbeat", "run_id": 8, "payload": '{"note": "of another"}'},
    ]
    plan, _ = made(run(7, outcome="timed_out", metadata='{"turns": 4}', worker_pid=12), events=beats)
    [row] = plan.runs
    assert row["note"] == "half way"
    metadata = msgspec.json.decode(str(row["metadata"]))
    assert metadata == {"turns": 4, "hermes": {"run": 7, "outcome": "timed_out", "pid": 12}}


def test_comments_are_numbered_for_each_task_and_none_is_lost_unsaid() -> None:
    plan = ImportPlan()
    rows: list[Row] = [
        {"id": 1, "task_id": "t_1", "author": "ann", "body": "a", "created_at": 1_700_000_000},
        {"id": 2, "task_id": "t_gone", "author": "ann", "body": "b", "created_at": 1_700_000_000},
        {"id": 3, "task_id": "t_1", "author": "bob", "body": "c", "created_at": "long ago"},
    ]
    hermeshistory.comments(plan, rows, NEW, {}, NOW)
    assert [(row["number"], row["body"], row["at_ms"]) for row in plan.comments] == [
        (1, "a", 1_700_000_000_000),
        (2, "c", NOW),
    ]
    assert plan.counts["comments"] == {"kept": 2, "left out: its task is gone": 1}


def test_events_keep_their_times_and_say_who_they_come_from() -> None:
    plan = ImportPlan()
    rows: list[Row] = [
        {"id": 5, "task_id": "t_1", "run_id": 7, "kind": "completed", "created_at": 1_700_000_000},
        {"id": 6, "task_id": "t_1", "kind": "gave_up", "payload": '{"failures": 2}', "created_at": 2},
        {"id": 7, "task_id": "t_1", "kind": "heartbeat", "created_at": 3},
    ]
    hermeshistory.events(plan, rows, NEW, {}, "b", {7: "r_1_7"}, NOW)
    assert [(row["kind"], row["actor"], row["run_id"], row["at_ms"]) for row in plan.events] == [
        ("complete", "hermes", "r_1_7", 1_700_000_000_000),
        ("hermes_gave_up", "hermes", None, 2000),
    ]
    assert msgspec.json.decode(str(plan.events[1]["payload"])) == {"failures": 2, "hermes_event": 6}
    assert sum(plan.counts["events"].values()) == len(rows)
