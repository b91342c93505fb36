"""What others wrote is shown on a terminal without being obeyed by it, and no two names look alike."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.local.shown import is_text, show_bytes, show_name, show_text


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
