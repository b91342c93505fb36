"""Whatever a file of Hermes holds: each row is counted once, the store is sound, again nothing changes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.board.hermes import hermes
from holdfast.board.hermes.hermes import COUNTED, Row, Source
from holdfast.board.hermes.intake import bring_in
from holdfast.board.store import open_store

IDS = st.sampled_from([f"t_{number}" for number in range(6)])
WORDS = st.none() | st.text(max_size=12) | st.sampled_from(["x" * 600, "a\nb", "\0"])
NUMBERS = st.none() | st.integers() | st.floats() | st.sampled_from([1_700_000_000, "2026-05-10T15:00:00Z"])
JSON = st.sampled_from(
    [None, "{}", "[]", "{", '{"reason": "why"}', '{"protocol_violations": 3}', '{"note": 1}']
)


def rows(**columns: st.SearchStrategy[object]) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.fixed_dictionaries(columns), max_size=8)


def numbered(found: list[Row]) -> list[Row]:
    return [{**row, "id": number} for number, row in enumerate(found, 1)]


TASKS = st.lists(
    st.fixed_dictionaries(
        {
            "id": IDS,
            "title": WORDS,
            "body": WORDS,
            "assignee": WORDS,
            "status": st.sampled_from([*hermes.STATUSES, "later", None]),
            "priority": NUMBERS,
            "created_at": NUMBERS,
            "completed_at": NUMBERS,
            "workspace_kind": st.sampled_from([None, "scratch", "dir", "worktree", "odd"]),
            "workspace_path": WORDS,
            "max_retries": NUMBERS,
            "max_runtime_seconds": NUMBERS,
            "idempotency_key": WORDS,
            "result": WORDS,
        }
    ),
    max_size=6,
    unique_by=lambda row: str(row["id"]),
)
SOURCES = st.builds(
    Source,
    title=st.just(""),
    directory=st.just(""),
    tasks=TASKS,
    links=st.lists(
        st.fixed_dictionaries({"parent_id": IDS, "child_id": IDS}),
        max_size=8,
        unique_by=lambda row: (row["parent_id"], row["child_id"]),
    ),
    comments=rows(task_id=IDS, author=WORDS, body=WORDS, created_at=NUMBERS).map(numbered),
    runs=rows(
        task_id=IDS,
        status=WORDS,
        outcome=st.sampled_from(["completed", "crashed", "reclaimed", None, "later"]),
        started_at=NUMBERS,
        ended_at=NUMBERS,
        metadata=JSON,
        summary=WORDS,
    ).map(numbered),
    events=rows(
        task_id=IDS,
        run_id=st.none() | st.integers(1, 8),
        kind=st.sampled_from(["created", "blocked", "gave_up", "unblocked", "heartbeat", "later"]),
        payload=JSON,
        created_at=NUMBERS,
    ).map(numbered),
    attachments=rows(task_id=IDS, stored_path=WORDS, uploaded_by=WORDS).map(numbered),
    subscriptions=rows(task_id=IDS),
)


@settings(deadline=None)
@given(SOURCES)
def test_nothing_is_lost_unsaid_and_a_second_import_changes_nothing(source: Source) -> None:
    given_rows = {name: len(getattr(source, name)) for name in COUNTED if name in Source._fields}
    with open_store(":memory:") as store:
        report = bring_in(store, source, lambda _: b"content", board="b", who="me")
        assert store.faults() == []
        for table, count in given_rows.items():
            assert sum(report.counts.get(table, {}).values()) == count
        before = store.events("b", after=0, limit=500)
        again = bring_in(store, source, lambda _: b"content", board="b", who="me")
        assert again.counts.get("tasks", {}) == ({"here before": len(source.tasks)} if source.tasks else {})
        assert store.events("b", after=0, limit=500) == before
        assert store.faults() == []
