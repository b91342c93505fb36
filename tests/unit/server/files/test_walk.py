"""The walk: order, bounds, links, and what it does with names it cannot spell."""

import os
from pathlib import Path

import pytest

from holdfast.errors import InvalidRequest, NotFound, OperationFailed
from holdfast.server.files import walk as module
from holdfast.server.files.walk import walk
from holdfast.wire.files import WalkOptions, WalkParams, WalkResult
from holdfast.wire.paths import PathUri
from tests.support.rows import every_row


def run(
    root: Path,
    *,
    depth: int = 64,
    directories: int = 10_000,
    entries: int = 50_000,
    follow: bool = False,
    prune: bool = False,
) -> WalkResult:
    options = WalkOptions(depth, directories, entries, follow, prune)
    return walk(WalkParams(PathUri.from_native(str(root)), options))


def names(root: Path, result: WalkResult) -> list[str]:
    """Relative paths, directories with a slash behind."""
    start = PathUri.from_native(str(root)).uri.rstrip("/") + "/"
    assert all(entry.path.startswith(start) for entry in result.entries)
    return [
        entry.path.removeprefix(start) + ("/" if entry.kind == "directory" else "")
        for entry in result.entries
    ]


def make(root: Path, *paths: str) -> None:
    for path in paths:
        target = root / path
        if path.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
        elif "->" in path:
            link, destination = path.split("->")
            (root / link).symlink_to(destination)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()


def test_entries_come_breadth_first_and_by_code_point(tmp_path: Path) -> None:
    make(tmp_path, "b/deep/z", "b/a", "a/x", "B", ".hidden", "é", "\U0001f600", "\uffee", "a b")
    assert names(tmp_path, run(tmp_path)) == [
        *(".hidden", "B", "a/", "a%20b", "b/", "%C3%A9", "%EF%BF%AE", "%F0%9F%98%80"),
        *("a/x", "b/a", "b/deep/", "b/deep/z"),
    ]


@pytest.mark.parametrize(
    ("depth", "expected"),
    [(0, ["a/"]), (1, ["a/", "a/b/"]), (2, ["a/", "a/b/", "a/b/c"])],
)
def test_a_directory_at_the_depth_limit_is_listed_but_not_entered(
    tmp_path: Path, depth: int, expected: list[str]
) -> None:
    make(tmp_path, "a/b/c")
    result = run(tmp_path, depth=depth)
    assert (names(tmp_path, result), result.truncated) == (expected, False)


@pytest.mark.parametrize(
    ("limit", "expected", "truncated"),
    [
        (1, ["a/", "b/", "c"], True),
        (2, ["a/", "b/", "c", "a/x"], True),
        (3, ["a/", "b/", "c", "a/x", "b/y"], False),
    ],
)
def test_directories_beyond_their_limit_are_not_entered(
    tmp_path: Path, limit: int, expected: list[str], truncated: bool
) -> None:
    make(tmp_path, "a/x", "b/y", "c")
    result = run(tmp_path, directories=limit)
    assert (names(tmp_path, result), result.truncated) == (expected, truncated)


@pytest.mark.parametrize(("limit", "truncated"), [(1, True), (2, True), (3, True), (4, False)])
def test_the_walk_stops_after_so_many_entries(tmp_path: Path, limit: int, truncated: bool) -> None:
    make(tmp_path, "a/x", "b/", "c", "0->nowhere")  # a broken link counts for nothing
    result = run(tmp_path, entries=limit)
    assert names(tmp_path, result) == ["a/", "b/", "c", "a/x"][:limit]
    assert result.truncated is truncated


def test_entries_that_are_not_listed_count_as_examined(tmp_path: Path) -> None:
    make(tmp_path, "b", "a->b", "c")
    assert names(tmp_path, run(tmp_path, entries=2)) == ["b"]


def test_of_a_huge_directory_only_the_first_names_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, *(f"{number:03}" for number in range(100)))
    monkeypatch.setattr(module, "_LISTED_AT_ONCE", 20)
    result = run(tmp_path, entries=5)
    assert (names(tmp_path, result), result.truncated) == (["000", "001", "002", "003", "004"], True)


@every_row(
    ("depth", "directories", "entries", "text"),
    [
        (0, 0, 1, "filesystem walk limits must be greater than zero"),
        (0, 1, 0, "filesystem walk limits must be greater than zero"),
        (65, 1, 1, "filesystem walk limits exceed maximums: depth=64, directories=10000, entries=50000"),
        (64, 10_001, 1, "filesystem walk limits exceed maximums"),
        (64, 1, 50_001, "filesystem walk limits exceed maximums"),
    ],
)
def test_limits_out_of_range_are_refused(depth: int, directories: int, entries: int, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        run(Path("/nowhere"), depth=depth, directories=directories, entries=entries)


def test_a_root_that_is_no_directory_has_nothing_below(tmp_path: Path) -> None:
    make(tmp_path, "d/x", "f", "lf->f", "ld->d")
    for name in ("f", "lf", "ld"):
        assert run(tmp_path / name) == WalkResult([], [], truncated=False)
    assert names(tmp_path / "ld", run(tmp_path / "ld", follow=True)) == ["x"]


def test_a_root_that_is_missing_broken_or_foreign_is_an_error(tmp_path: Path) -> None:
    make(tmp_path, "dangling->nowhere", "loop->loop")
    for name, error in (("no", NotFound), ("dangling", NotFound), ("loop", OperationFailed)):
        with pytest.raises(error):
            run(tmp_path / name)
    with pytest.raises(InvalidRequest):
        walk(WalkParams(PathUri.parse("file:///C:/x"), WalkOptions(1, 1, 1, False)))


def test_links_are_listed_only_if_followed_and_only_to_directories(tmp_path: Path) -> None:
    make(tmp_path, "d/x", "f", "lf->f", "ld->d", "dangling->nowhere", "loop->loop")
    os.mkfifo(tmp_path / "fifo")
    assert names(tmp_path, run(tmp_path)) == ["d/", "f", "d/x"]
    assert names(tmp_path, run(tmp_path, follow=True)) == ["d/", "f", "ld/", "d/x"]


def test_a_cycle_is_entered_once(tmp_path: Path) -> None:
    make(tmp_path, "d/x", "d/up->..", "d/self->.")
    assert names(tmp_path, run(tmp_path, follow=True)) == ["d/", "d/self/", "d/up/", "d/x"]


def test_a_directory_is_entered_under_the_name_that_came_first(tmp_path: Path) -> None:
    make(tmp_path, "z/x", "alias->z")
    assert names(tmp_path, run(tmp_path, follow=True)) == ["alias/", "z/", "alias/x"]


def test_hidden_directories_are_pruned_but_not_their_visible_aliases(tmp_path: Path) -> None:
    make(tmp_path, ".git/x", ".alias->.git", "visible->.git", ".file")
    assert names(tmp_path, run(tmp_path, prune=True)) == [".file", ".git/"]
    assert names(tmp_path, run(tmp_path, follow=True, prune=True)) == [
        *(".alias/", ".file", ".git/", "visible/", "visible/x"),
    ]


def test_a_hidden_root_is_walked_all_the_same(tmp_path: Path) -> None:
    make(tmp_path, ".git/x")
    assert names(tmp_path / ".git", run(tmp_path / ".git", prune=True)) == ["x"]


def test_names_that_are_not_utf8_are_errors_under_a_lossy_spelling(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff")).mkdir()
    make(tmp_path, "ok")
    result = run(tmp_path)
    assert names(tmp_path, result) == ["ok"]
    assert [error.path for error in result.errors] == [
        PathUri.from_native(str(tmp_path)).uri + "/bad%EF%BF%BD"
    ]


def test_control_characters_and_reserved_ones_are_spelled_as_escapes(tmp_path: Path) -> None:
    make(tmp_path, "a\tb", "a%b?#", "C:/q")
    assert names(tmp_path, run(tmp_path)) == ["C:/", "a%09b", "a%25b%3F%23", "C:/q"]


def test_below_a_directory_without_a_faithful_uri_every_path_is_opaque(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "x")
    monkeypatch.setattr(module, "uri_of", lambda path: f"file:///%00/bad/path/{len(path)}")
    assert [entry.path for entry in run(tmp_path).entries] == [
        f"file:///%00/bad/path/{len(str(tmp_path / 'x'))}"
    ]


def test_children_of_the_root_directory_have_one_slash() -> None:
    assert all(not entry.path.startswith("file:////") for entry in run(Path("/"), depth=0).entries)


def test_an_unreadable_directory_is_an_error_and_the_walk_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a/x", "b/y")
    scandir = os.scandir

    def guarded(path: str) -> object:
        if path.endswith("/a"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    result = run(tmp_path)
    assert names(tmp_path, result) == ["a/", "b/", "b/y"]
    assert [(Path(error.path).name, error.message) for error in result.errors] == [
        ("a", "Permission denied (os error 13)")
    ]


def test_the_byte_budget_counts_entries_and_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a", "b", "c")
    each = 64 + len(PathUri.from_native(str(tmp_path / "a")).uri)
    for budget, expected in ((3 * each, 3), (3 * each - 1, 2), (each - 1, 0)):
        monkeypatch.setattr(module, "MAX_RESPONSE_BYTES", budget)
        result = run(tmp_path)
        assert (len(result.entries), result.truncated) == (expected, expected < 3)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/A\xff")).touch()
    monkeypatch.setattr(module, "MAX_RESPONSE_BYTES", 3 * each)
    result = run(tmp_path)
    assert (len(result.errors), len(result.entries), result.truncated) == (1, 1, True)
    monkeypatch.setattr(module, "MAX_RESPONSE_BYTES", 5 * each)
    assert (len(run(tmp_path).errors), len(run(tmp_path).entries)) == (1, 3)


def test_cancellation_stops_before_the_next_directory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a/x", "b/y")
    params = WalkParams(PathUri.from_native(str(tmp_path)), WalkOptions(64, 10, 10, False))
    answers = iter([False, True])
    result = walk(params, lambda: next(answers))
    assert (names(tmp_path, result), result.truncated) == (["a/", "b/"], True)
    monkeypatch.setattr(os, "scandir", lambda path: pytest.fail("read a directory"))
    assert walk(params, lambda: True) == WalkResult([], [], truncated=True)
