"""Signs in words, and what is said of a table that is wrong."""

import pytest

from holdfast.agents.catalog.recordreader import MAX_WORDS, RecordReader, is_unsafe
from holdfast.errors import UsageError
from tests.support.rows import every_row

READER = RecordReader("agents.toml: [toy]")


def test_words_are_taken_as_they_stand() -> None:
    sign = READER.pattern("shows", "Allow (a+)+$? [y/N]")
    assert sign.search("x Allow (a+)+$? [y/N] x")
    assert not sign.search("Allow aaaa? [y/N]")


def test_a_gap_stays_on_its_line() -> None:
    sign = READER.pattern("shows", "^Run *? $")
    assert sign.search("a\nRun this? \nb")
    assert not sign.search("Run this\nor that? ")
    assert not sign.search("to Run this? ")


@every_row("words", ["", "^$", "*", "a\nb", "x" * (MAX_WORDS + 1)])
def test_a_sign_that_says_nothing_is_none(words: str) -> None:
    with pytest.raises(UsageError, match="words of one line"):
        READER.pattern("shows", words)


@every_row("path", ["", "/x", "a//b", "a/../b", ".", "a/", "a\0"])
def test_an_unsafe_path(path: str) -> None:
    assert is_unsafe(path)


def test_a_plain_path_is_safe() -> None:
    assert not is_unsafe("a/b.json")
