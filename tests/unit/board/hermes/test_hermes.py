"""What a board of Hermes becomes, task by task."""

import json
from collections import defaultdict

import msgspec
import pytest

from holdfast.board.hermes import hermes
from holdfast.board.hermes.hermes import ImportPlan, Known, Row, Source, epoch_ms, integer, json_object, text
from holdfast.board.rules.rows import MAX_METADATA, MAX_TEXT, MAX_TITLE, WorkspaceKind
from holdfast.board.rules.transitions import ENDS, Status
from holdfast.errors import InvalidRequest
from tests.support.rows import every_row

NOW = 1_800_000_000_000


def task(name: str, status: str = "ready", **columns: object) -> Row:
    return {"id": f"t_{name}", "title": name, "status": status, "created_at": 1_700_000_000, **columns}


def event(name: str, kind: str, payload: str = "{}") -> Row:
    return {"id": 1, "task_id": f"t_{name}", "kind": kind, "payload": payload, "created_at": 1_700_000_001}


def link(parent: str, child: str) -> Row:
    return {"parent_id": f"t_{parent}", "child_id": f"t_{child}"}


def source(*tasks: Row, **tables: list[Row]) -> Source:
    empty: dict[str, list[Row]] = {
        name: [] for name in ("links", "comments", "runs", "events", "attachments", "subscriptions")
    }
    return Source(title="", directory="", tasks=list(tasks), **empty | tables)


def planned(given: Source, known: dict[str, Known] | None = None) -> ImportPlan:
    return hermes.plan(given, "b", known or {}, now_ms=NOW)


def statuses(plan: ImportPlan) -> dict[str, object]:
    return {str(row["title"]): row["status"] for row in plan.tasks}


@every_row(
    ("status", "events", "expected"),
    [
        ("triage", [], Status.TRIAGE),
        ("todo", [], Status.READY),  # nothing holds it: the next look of Hermes would have promoted it
        ("ready", [], Status.READY),
        ("running", [], Status.WAITING_HUMAN),
        ("scheduled", [], Status.WAITING_HUMAN),
        ("review", [], Status.REVIEW),
        ("done", [], Status.DONE),
        ("archived", [], Status.ARCHIVED),
        ("blocked", [], Status.WAITING_HUMAN),
        ("blocked", [("blocked", "{}")], Status.WAITING_HUMAN),
        ("blocked", [("blocked", "{}"), ("gave_up", "{}")], Status.FAILED),
        ("blocked", [("gave_up", '{"protocol_violations": 3}')], Status.HANDOFF_FAILED),
        ("blocked", [("gave_up", "{}"), ("unblocked", "{}"), ("blocked", "{}")], Status.WAITING_HUMAN),
        ("of a later version", [], Status.WAITING_HUMAN),
    ],
)
def test_a_status_means_what_it_meant_there(
    status: str, events: list[tuple[str, str]], expected: Status
) -> None:
    plan = planned(source(task("a", status), events=[event("a", *words) for words in events]))
    [row] = plan.tasks
    assert row["status"] is expected
    assert (row["question"] is not None) == (expected is Status.WAITING_HUMAN)
    assert (row["ended_ms"] is not None) == (expected in ENDS)
    assert plan.counts["tasks"] == {f"{status} → {expected}": 1}


def test_every_status_of_hermes_is_in_the_table() -> None:
    assert set(hermes.STATUSES) == {
        *("triage", "todo", "scheduled", "ready", "running", "blocked", "review", "done", "archived")
    }


def test_what_a_person_was_asked_is_asked_again() -> None:
    given = source(
        task("a", "blocked"),
        task("b", "blocked", last_failure_error="no credentials"),
        events=[event("a", "blocked", '{"reason": "which database?"}')],
    )
    assert [row["question"] for row in planned(given).tasks] == ["which database?", "no credentials"]


def test_a_child_waits_for_parents_that_are_neither_done_nor_archived() -> None:
    given = source(
        *(task("done", "done"), task("gone", "archived"), task("open"), task("free"), task("held", "ready")),
        links=[link("done", "free"), link("gone", "free"), link("open", "held"), link("done", "held")],
    )
    plan = planned(given)
    assert {name: status for name, status in statuses(plan).items() if name in ("free", "held")} == {
        "free": Status.READY,
        "held": Status.TODO,
    }
    assert plan.counts["links"] == {"satisfied": 3, "open": 1}
    assert {row["title"]: row["open_parents"] for row in plan.tasks}["held"] == 1


def test_a_link_to_nothing_or_to_itself_is_left_out_and_counted() -> None:
    plan = planned(source(task("a"), links=[link("nobody", "a"), link("a", "a")]))
    assert plan.links == []
    assert plan.counts["links"] == {"left out: a task of it is gone": 2}


def test_what_is_here_stays_as_it_is_and_a_change_since_is_told() -> None:
    given = source(task("a"), task("b"), task("c"), links=[link("a", "b"), link("c", "b"), link("a", "c")])
    digests = hermes.digests(given)
    known = {
        "t_a": Known("b", Status.DONE, frozenset(), digests["t_a"]),
        "t_b": Known("b", Status.TODO, frozenset({"t_a"}), "of another time"),
    }
    plan = planned(given, known)
    assert [row["title"] for row in plan.tasks] == ["c"]
    assert plan.links == [{"parent": "t_a", "child": "t_c", "open": 0}]
    assert plan.counts["tasks"] == {
        "here before": 1,
        "here before, and changed in Hermes since": 1,
        "ready → ready": 1,
    }
    assert plan.counts["links"] == {
        "here before": 1,
        "left out: its child was here before": 1,
        "satisfied": 1,
    }


def test_a_task_on_another_board_is_not_taken_from_it() -> None:
    with pytest.raises(InvalidRequest):
        planned(source(task("a")), {"t_a": Known("other", Status.DONE, frozenset(), None)})


def test_an_id_that_could_not_be_the_name_of_a_folder_is_refused() -> None:
    for name in ("../../etc", "", "a/b", ".hidden", "x" * 65):
        with pytest.raises(InvalidRequest):
            planned(source({"id": name, "title": "x", "status": "ready"}))


def test_a_key_belongs_to_the_first_task_that_is_not_archived() -> None:
    plan = planned(
        source(
            task("a", "archived", idempotency_key="k"),
            task("b", idempotency_key="k"),
            task("c", idempotency_key="k"),
        )
    )
    assert plan.keys == {"k": "t_b"}
    assert sum(plan.counts["idempotency keys"].values()) == 3


def test_what_has_no_place_here_stays_with_the_task() -> None:
    plan = planned(source(task("a", tenant="acme", branch_name="wt/x", of_a_later_version=1)))
    kept = plan.imported["t_a"]
    assert {"tenant": "acme", "branch_name": "wt/x", "of_a_later_version": 1}.items() <= kept.items()


def test_a_worktree_without_a_repository_is_told() -> None:
    plan = planned(source(task("a", workspace_kind="worktree")))
    assert plan.tasks[0]["workspace_kind"] == "scratch"
    assert len(plan.notes) == 1


def test_bounds_are_kept() -> None:
    [row] = planned(
        source(task("a", priority=10**12, max_retries=10**6, max_runtime_seconds=10**12, assignee="x" * 999))
    ).tasks
    assert (row["priority"], row["max_attempts"], row["max_runtime_s"]) == (1_000_000, 100, 30 * 86_400)
    assert len(str(row["assignee"])) == 200


NEW: dict[str, Row] = {"t_1": {"id": "t_1"}}


def run(number: int, **columns: object) -> Row:
    return {"id": number, "task_id": "t_1", "status": "running", "started_at": 1_700_000_000, **columns}


def made(*rows: Row, events: list[Row] | None = None) -> tuple[ImportPlan, dict[int, str]]:
    plan = ImportPlan()
    of_tasks = defaultdict(list, {"t_1": events or []})
    return plan, hermes.add_runs(plan, list(rows), NEW, {}, "b", of_tasks, NOW)


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
    hermes.add_comments(plan, rows, NEW, {}, NOW)
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
    hermes.add_events(plan, rows, NEW, {}, "b", {7: "r_1_7"}, NOW)
    assert [(row["kind"], row["actor"], row["run_id"], row["at_ms"]) for row in plan.events] == [
        ("complete", "hermes", "r_1_7", 1_700_000_000_000),
        ("hermes_gave_up", "hermes", None, 2000),
    ]
    assert msgspec.json.decode(str(plan.events[1]["payload"])) == {"failures": 2, "hermes_event": 6}
    assert sum(plan.counts["events"].values()) == len(rows)


@every_row(
    ("value", "expected"),
    [
        (1_700_000_000, 1_700_000_000_000),
        (1_700_000_000.5, 1_700_000_000_500),
        ("1700000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        *((value, None) for value in (None, "", "soon", -5, 0, 10**15, float("nan"), float("inf"), b"x")),
    ],
)
def test_a_time_is_seconds_or_a_date(value: object, expected: int | None) -> None:
    assert epoch_ms(value) == expected


def test_text_never_holds_a_zero_byte() -> None:
    assert text({"a": "x\0y", "n": 5, "none": None}, "a") == "x\N{REPLACEMENT CHARACTER}y"
    assert [text({"n": 5, "none": None}, name) for name in ("n", "none", "absent")] == ["5", "", ""]


def test_a_number_that_no_store_keeps_is_none() -> None:
    row = {"a": 7, "b": 1 << 62, "c": "seven", "d": float("inf"), "e": 2.9}
    assert [integer(row, name) for name in "abcdef"] == [7, 0, 0, 0, 2, 0]


def test_json_that_is_no_object_is_put_into_one() -> None:
    row = {"a": '{"x": 1}', "b": "[1]", "c": "{cut off", "d": None, "e": "[" * 100_000}
    found = [json_object(row, name) for name in "abcd"]
    assert found == [{"x": 1}, {"value": [1]}, {"value": "{cut off"}, {}]
    assert json_object(row, "e")["value"] == "[" * 100_000


def test_metadata_that_is_too_large_says_that_it_was_cut() -> None:
    assert json.loads(hermes.encode_metadata({"a": 1})) == {"a": 1}
    stored = hermes.encode_metadata({"a": "\x01é" * MAX_METADATA})
    assert len(stored.encode()) <= MAX_METADATA
    assert list(json.loads(stored)) == ["cut"]


def test_a_title_of_one_line_stays_and_another_is_kept_in_the_body() -> None:
    assert hermes.split_title(" fix it ", "how") == ("fix it", ("how", False))
    assert hermes.split_title("", "how") == ("(untitled)", ("how", False))
    assert hermes.split_title("one\ntwo", "how") == ("one two", ("one\ntwo\n\nhow", False))
    title, body = hermes.split_title("x" * (MAX_TITLE + 1), "y" * MAX_TEXT)
    assert len(title) == MAX_TITLE
    assert body.cut
    assert len(body.text) == MAX_TEXT


def test_the_rest_of_a_row_is_what_it_says_elsewhere() -> None:
    row = {"id": "t_1", "tenant": "acme", "empty": "", "none": None, "zero": 0, "long": "x" * 10_000}
    assert hermes.leftover(row, {"id"}) == {"tenant": "acme", "long": "x" * hermes.MAX_REST}


@every_row(
    ("kind", "path", "expected"),
    [
        ("scratch", "/tmp/somewhere", (WorkspaceKind.SCRATCH, "")),
        (None, None, (WorkspaceKind.SCRATCH, "")),
        ("dir", "/srv/x", (WorkspaceKind.DIR, "/srv/x")),
        ("dir", None, None),
        ("worktree", "/srv/repo", (WorkspaceKind.WORKTREE, "/srv/repo")),
        ("worktree", "/srv/repo/.worktrees/t_1", (WorkspaceKind.WORKTREE, "/srv/repo")),
        ("worktree", None, (WorkspaceKind.WORKTREE, "/srv/board")),
    ],
)
def test_a_workspace_is_a_directory_or_a_repository(
    kind: str | None, path: str | None, expected: object
) -> None:
    assert hermes.workspace_of({"workspace_kind": kind, "workspace_path": path}, "/srv/board") == expected


def test_a_row_of_a_task_that_is_not_new_is_here_or_gone() -> None:
    assert {hermes.absence("t_1", {}), hermes.absence("t_1", {"t_1": object()})} == {  # type: ignore[dict-item]
        "here before",
        "left out: its task is gone",
    }
