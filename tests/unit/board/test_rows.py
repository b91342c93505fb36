"""What may be kept: everything has its bounds."""

import pytest

from holdfast.board.rows import (
    MAX_METADATA,
    MAX_PARENTS,
    MAX_PRIORITY,
    MAX_TEXT,
    MAX_TITLE,
    NewTask,
    Run,
    RunRef,
    bounded,
    metadata_text,
)
from holdfast.errors import UsageError


@pytest.mark.parametrize(
    "wishes",
    [
        {"title": ""},
        {"title": "x" * (MAX_TITLE + 1)},
        {"title": "two\nlines"},
        {"title": "x", "body": "x" * (MAX_TEXT + 1)},
        {"title": "x", "body": "\0"},
        {"title": "x", "max_attempts": 0},
        {"title": "x", "max_attempts": 101},
        {"title": "x", "priority": MAX_PRIORITY + 1},
        {"title": "x", "parents": ("t",) * (MAX_PARENTS + 1)},
        {"title": "x", "assignee": "x" * (MAX_TITLE + 1)},
        {"title": "x", "triage": True, "wake_ms": 1},
    ],
)
def test_a_task_out_of_bounds_is_refused(wishes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        NewTask(**wishes)  # type: ignore[arg-type]  # on purpose


def test_the_bounds_themselves_are_fine() -> None:
    NewTask(title="x" * MAX_TITLE, body="x" * MAX_TEXT, max_attempts=100, priority=-MAX_PRIORITY)
    assert bounded("note", "x" * MAX_TEXT)


def test_metadata_is_a_bounded_json_object() -> None:
    assert metadata_text({"a": [1]}) == '{"a":[1]}'
    with pytest.raises(UsageError):
        metadata_text({"a": "x" * MAX_METADATA})
    with pytest.raises(UsageError):
        metadata_text({"a": object()})


def test_a_run_is_named_with_its_generation() -> None:
    run = Run(
        id="r",
        task_id="t",
        board="b",
        generation=7,
        worker="w",
        host="h",
        profile="p",
        lease_until_ms=0,
        heartbeat_ms=0,
        note="",
        started_ms=0,
        ended_ms=None,
        outcome=None,
        failure=None,
        summary=None,
        metadata={},
        error=None,
    )
    assert run.ref == RunRef("r", 7)
