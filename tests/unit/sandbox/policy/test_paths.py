"""Paths as text: folding, measuring and comparing by whole components."""

import pytest

from holdfast.errors import UsageError
from holdfast.sandbox.policy.paths import absolute, depth, grantable, is_file_name, join, name, parent, within
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


@every_row(
    ("path", "folder", "granted"),
    [
        ("/home/me", False, "/home/me"),
        ("/home/me/new", False, "/home/me"),
        ("/home/me/.npm", True, "/home/me/.npm"),
        ("/home/me/.npm/_logs/x", False, "/home/me/.npm"),
        ("/home/me/a.json/x", False, "/home/me"),
        ("/home/me/.bashrc", True, "/home/me"),
        ("/srv/x", True, "/srv/x"),  # nothing above is there but the root, which is not granted
    ],
)
def test_what_is_missing_is_granted_by_itself_where_it_is_a_directory(
    path: str, folder: bool, granted: str
) -> None:
    assert grantable(path, {"/home", "/home/me"}.__contains__, folder=folder) == granted


@every_row(
    ("path", "file"),
    [
        ("/h/.npm", False),
        ("/h/.cache", False),
        ("/h/.local", False),
        ("/h/node_modules", False),
        ("/h/v1.2.3", False),
        ("/h/a.json", True),
        ("/h/.bashrc", True),
        ("/h/.python_history", True),
        ("/h/.gitconfig", True),
    ],
)
def test_a_name_tells_a_file_from_a_directory(path: str, file: bool) -> None:
    assert is_file_name(path) is file
