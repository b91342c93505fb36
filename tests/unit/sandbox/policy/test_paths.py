"""Paths as text: folding, measuring and comparing by whole components."""

import pytest

from holdfast.errors import UsageError
from holdfast.sandbox.policy.paths import absolute, depth, join, name, parent, within
from tests.support.rows import every_row


@every_row(
    ("path", "folded"),
    [
        ("/", "/"),
        ("//a///b/", "/a/b"),
        ("/a/./b/../c", "/a/c"),
        ("/../..", "/"),
        ("b", "/w/b"),
        ("../x", "/x"),
        (".", "/w"),
        ("/a\udcff", "/a\udcff"),
    ],
)
def test_a_path_is_folded(path: str, folded: str) -> None:
    assert absolute(path, "/w") == folded


@every_row(("path", "cwd"), [("", "/w"), ("a", ""), ("a", "w"), ("/a\0", "/w"), ("a", "/w\0")])
def test_what_has_no_place_is_refused(path: str, cwd: str) -> None:
    with pytest.raises(UsageError):
        absolute(path, cwd)


def test_paths_are_measured_in_components() -> None:
    assert [depth(path) for path in ("/", "/a", "/a/b")] == [0, 1, 2]


@every_row(
    ("path", "top", "inside"),
    [
        ("/a", "/", True),
        ("/", "/", True),
        ("/a/b", "/a", True),
        ("/a", "/a", True),
        ("/ab", "/a", False),
        ("/", "/a", False),
    ],
)
def test_being_inside_goes_by_whole_components(path: str, top: str, *, inside: bool) -> None:
    assert within(path, top) is inside


def test_paths_come_apart_and_together() -> None:
    assert (parent("/a/b"), parent("/a"), parent("/")) == ("/a", "/", "/")
    assert (name("/a/b"), name("/a")) == ("b", "a")
    assert (join("/", "a"), join("/a", "b")) == ("/a", "/a/b")
