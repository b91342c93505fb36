"""Patterns as regular expressions for Seatbelt: what they must match, and what they are made of."""

import os
import re

import pytest

from holdfast.sandbox.backends.seatbelt_regex import ancestors, denied, metadata
from holdfast.sandbox.policy.globs import Pattern, bind_pattern
from tests.support.rows import every_row


def bound(pattern: str) -> Pattern:
    [one] = bind_pattern(pattern, "/", ())
    return one


def found(regex: str, path: str) -> bool:
    return re.search(regex.encode(), os.fsencode(path)) is not None


@every_row(
    ("pattern", "regex"),
    [
        ("/w/.env", r"^/w/\.env($|/)"),
        ("/", "^/"),
        ("/w/*.env", r"^/w/[^/]*\.env($|/)"),
        ("/w/**", "^/w/[^/]"),
        ("/w/**/x/*", "^/w/([^/]+/)*x/[^/]*($|/)"),
        ("/**/x", "^/([^/]+/)*x($|/)"),
        ("/w/a/**/b/**", "^/w/a/([^/]+/)*b/[^/]"),
        ("/w/k[a-c_]*", "^/w/k[a-c_][^/]*($|/)"),
        ("/w/[x*", r"^/w/\[x[^/]*($|/)"),
        (r"/w/\**", r"^/w/\*[^/]*($|/)"),
    ],
)
def test_a_pattern_is_spelled_for_the_whole_component(pattern: str, regex: str) -> None:
    assert denied(bound(pattern)) == regex


@every_row(
    ("pattern", "path"),
    [
        ("/w/?", "/w/a"),
        ("/w/?", "/w/é"),
        ("/w/?", "/w/🔑"),
        ("/w/[!a]", "/w/é"),
        ("/w/[é]", "/w/é"),
        ('/w/["]x', '/w/"x'),
        ("/w/[]]", "/w/]"),
        ("/w/a\nb*", "/w/a\nbc/d"),
        ("/w/**/x", "/w/a\nb/x"),
        ('/w/a"b', '/w/a"b'),
        ("/w/a\\\\b*", "/w/a\\b"),
        ("/w/é*", "/w/éa"),
        ("/w/\udcff*", "/w/\udcff"),
    ],
)
def test_what_is_hard_to_spell_is_denied_all_the_same(pattern: str, path: str) -> None:
    assert bound(pattern).matches(path)
    assert found(denied(bound(pattern)), path)


@pytest.mark.parametrize(
    ("pattern", "path"), [("/w/?", "/w/ab"), ("/w/[!a]", "/w/a"), ("/w/[!a]", "/w/bc"), ("/w/x?", "/w/x/y")]
)
def test_one_character_is_not_two(pattern: str, path: str) -> None:
    assert not found(denied(bound(pattern)), path)


def test_ancestors_are_every_directory_that_may_hold_a_match() -> None:
    assert ancestors(bound("/w/k*/**/x/*.pem")) == (
        "^/w/k[^/]*$",
        "^/w/k[^/]*/[^/]",
        "^/w/k[^/]*/([^/]+/)*x$",
    )
    assert ancestors(bound("/w/*.pem")) == ancestors(bound("/w/plain")) == ()


@pytest.mark.parametrize("path", ["/w/.git", "/w/.GIT", "/w/.Git/hooks/x"])
def test_metadata_is_meant_in_every_case(path: str) -> None:
    assert found(metadata("/w", ".git"), path)


@every_row("path", ["/w/.gitignore", "/w/a/.git", "/w/xgit", "/v/.git", "/x/w/.git"])
def test_metadata_is_nothing_else(path: str) -> None:
    assert not found(metadata("/w", ".git"), path)


def test_metadata_of_the_root_directory_is_meant_too() -> None:
    assert found(metadata("/", ".git"), "/.git/config")
