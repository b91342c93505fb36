"""Whatever a column of Hermes holds, it becomes something within our bounds."""

import json

from holdfast.board.hermes import hermesrow
from holdfast.board.hermes.hermesrow import epoch_ms, integer, json_object, text
from holdfast.board.rules.rows import MAX_METADATA, MAX_TEXT, MAX_TITLE, WorkspaceKind
from tests.support.rows import every_row


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
    assert json.loads(hermesrow.metadata({"a": 1})) == {"a": 1}
    stored = hermesrow.metadata({"a": "\x01é" * MAX_METADATA})
    assert len(stored.encode()) <= MAX_METADATA
    assert list(json.loads(stored)) == ["cut"]


def test_a_title_of_one_line_stays_and_another_is_kept_in_the_body() -> None:
    assert hermesrow.headed(" fix it ", "how") == ("fix it", ("how", False))
    assert hermesrow.headed("", "how") == ("(untitled)", ("how", False))
    assert hermesrow.headed("one\ntwo", "how") == ("one two", ("one\ntwo\n\nhow", False))
    title, body = hermesrow.headed("x" * (MAX_TITLE + 1), "y" * MAX_TEXT)
    assert len(title) == MAX_TITLE
    assert body.cut
    assert len(body.text) == MAX_TEXT


def test_the_rest_of_a_row_is_what_it_says_elsewhere() -> None:
    row = {"id": "t_1", "tenant": "acme", "empty": "", "none": None, "zero": 0, "long": "x" * 10_000}
    assert hermesrow.rest(row, {"id"}) == {"tenant": "acme", "long": "x" * hermesrow.MAX_REST}


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
    assert hermesrow.workspace({"workspace_kind": kind, "workspace_path": path}, "/srv/board") == expected


def test_a_row_of_a_task_that_is_not_new_is_here_or_gone() -> None:
    assert {hermesrow.absent("t_1", {}), hermesrow.absent("t_1", {"t_1": object()})} == {  # type: ignore[dict-item]
        "here before",
        "left out: its task is gone",
    }
