"""What others wrote is shown on a terminal without being obeyed by it, and no two names look alike."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.local.shown import count, cut_words, is_text, show_bytes, show_name, show_text, strip_sequences


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain name.txt", "plain name.txt"),
        (os.fsdecode(b"bad\xff"), r"bad\xff"),
        (r"bad\xff", r"bad\\xff"),
        ("two\nlines", r"two\nlines"),
        ("\x1b]0;t\x07", r"\x1b]0;t\x07"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\x9b2J", r"\u009b2J"),
        ("grün", "grün"),
    ],
)
def test_a_name_is_spelled_out(name: str, shown: str) -> None:
    assert show_name(name) == shown


def test_one_is_no_plural() -> None:
    assert [count(n, "worker") for n in (0, 1, 2)] == ["0 workers", "1 worker", "2 workers"]
    assert [count(n, "process", "processes") for n in (1, 3)] == ["1 process", "3 processes"]


def test_text_keeps_its_lines() -> None:
    assert show_text("a\tb\r\nc\rd\x1b[31m\n") == "a\tb\nc\\rd\\x1b[31m\n"
    assert show_bytes(b"x\xff\x9b\n") == "x\\xff\\x9b\n"


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_two_names_are_never_shown_alike(one: bytes, other: bytes) -> None:
    first, second = show_name(os.fsdecode(one)), show_name(os.fsdecode(other))
    assert (first == second) == (one == other)
    assert is_text(first)
    assert "\x1b" not in first
    assert "\n" not in first


def test_what_is_no_text_is_told_from_what_is() -> None:
    assert is_text("grün")
    assert not is_text(os.fsdecode(b"gr\xfcn"))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38;2;1;2;3mx\x1b[?25l", "x"),
        ("\x1b]0;title\x07end", "end"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Bx\x1b=", "x"),
        ("\x9b2Jx", "x"),
        ("\x1bPq#0\x1b\\x", "x"),
        ("[31m is text here", "[31m is text here"),
        ("no end \x1b[", "no end "),
    ],
)
def test_what_only_a_terminal_obeys_is_left_out(text: str, read: str) -> None:
    assert strip_sequences(text) == read


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("short", "short"),
        ("two\nlines", "two lines"),
        ("one two three", "one two…"),
        ("one two, three", "one two…"),
        ("onetwothree", "onetwoth…"),
        ("\x1b[31mone\x1b[0m two", "one two"),
    ],
)
def test_a_line_is_cut_after_a_whole_word(text: str, line: str) -> None:
    assert cut_words(text, 9) == line
