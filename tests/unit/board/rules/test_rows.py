"""What may be kept: everything has its bounds."""

import pytest

from holdfast.board.rules.rows import (
    MAX_METADATA,
    MAX_NAME,
    MAX_PARENTS,
    MAX_PATH,
    MAX_PRIORITY,
    MAX_RUNTIME_S,
    MAX_TEXT,
    MAX_TITLE,
    Edit,
    NewTask,
    Run,
    RunRef,
    WorkspaceKind,
    check_text,
    file_name,
    metadata_text,
)
from holdfast.errors import UsageError
from tests.support.rows import every_row
from tests.unit.board.rules.test_assign import task


@every_row(
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
        {"title": "x", "workspace": "/srv/p"},
        {"title": "x", "workspace_kind": WorkspaceKind.DIR},
        {"title": "x", "workspace_kind": WorkspaceKind.DIR, "workspace": "x" * (MAX_PATH + 1)},
        {"title": "x", "workspace_kind": WorkspaceKind.WORKTREE, "workspace": "\0"},
        {"title": "x", "max_runtime_s": 0},
        {"title": "x", "max_runtime_s": MAX_RUNTIME_S + 1},
    ],
)
def test_a_task_out_of_bounds_is_refused(wishes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        NewTask(**wishes)  # type: ignore[arg-type]  # on purpose


def test_the_bounds_themselves_are_fine() -> None:
    NewTask(title="x" * MAX_TITLE, body="x" * MAX_TEXT, max_attempts=100, priority=-MAX_PRIORITY)
    assert check_text("note", "x" * MAX_TEXT)


def test_a_wish_that_the_first_schema_had_is_still_the_same_question() -> None:
    plain = NewTask(title="x").fingerprint_parts()
    assert len(plain) == 1
    placed = NewTask(title="x", workspace_kind=WorkspaceKind.DIR, workspace="/srv/p").fingerprint_parts()
    assert placed[0] == plain[0]
    assert placed != plain


def test_the_same_wish_at_another_moment_is_the_same_question() -> None:
    assert (
        NewTask(title="x", wake_ms=1).fingerprint_parts() == NewTask(title="x", wake_ms=2).fingerprint_parts()
    )
    assert NewTask(title="x", wake_ms=1).fingerprint_parts() != NewTask(title="x").fingerprint_parts()


def test_an_edit_changes_what_it_names_within_the_bounds() -> None:
    before = task("t", max_runtime_s=5)
    assert Edit(priority=3).apply_to(before) == task("t", max_runtime_s=5, priority=3)
    assert Edit(max_runtime_s=None).apply_to(before) == task("t")
    assert Edit(max_runtime_s=None).members() == ["max_runtime_s"]
    for change in (Edit(), Edit(title=""), Edit(workspace="/srv/p")):
        with pytest.raises(UsageError):
            change.apply_to(before)


@every_row("name", ["", ".", "..", "a/b", "a\0", "a\n", "x" * (MAX_NAME + 1)])
def test_a_file_has_one_plain_name(name: str) -> None:
    assert file_name("a b.patch") == "a b.patch"
    with pytest.raises(UsageError):
        file_name(name)


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
