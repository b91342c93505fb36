"""What stands for a key shows nothing of it but its kind."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress.keys.placeholders import MAX_KEY, PREFIXES, BadKey, Key, make_placeholder
from tests.support.rows import every_row

WORDS = st.text(string.ascii_letters + string.digits + "-_+/", min_size=8, max_size=60)
choose = random.Random(7).choice  # noqa: S311 - the same in each run


@given(st.sampled_from(("", *PREFIXES)), WORDS)
def test_it_is_as_long_and_has_the_beginning_of_its_kind(prefix: str, rest: str) -> None:
    value = prefix + rest
    made = make_placeholder(value, choose)
    assert len(made) == len(value)
    assert made.startswith(prefix)
    assert made != value
    assert made.isascii()


def test_what_is_no_known_beginning_is_not_shown() -> None:
    made = make_placeholder("correct-horse-battery-staple", choose)
    assert "-" not in made
    assert not {"correct", "horse"} & {made[:7], made[8:13]}


def test_the_parts_of_a_token_stay_apart_and_hexadecimal_stays_so() -> None:
    assert [len(part) for part in make_placeholder("abcdefghij.0123456789.xyz==", choose).split(".")] == [
        10,
        10,
        5,
    ]
    assert set(make_placeholder("0123456789abcdef" * 4, choose)) <= set("0123456789abcdef")


def test_two_runs_have_two_of_them() -> None:
    assert make_placeholder("sk-" + "a" * 30, choose) != make_placeholder("sk-" + "a" * 30, choose)


@every_row(
    "value",
    ["", "short", "sk-proj-1234567", "with\nnewline-12345", "käse-1234567890", " padded-12345", "x" * 9000],
    ids=repr,
)
def test_what_cannot_be_kept_outside_is_refused_without_being_named(value: str) -> None:
    assert len("x" * 9000) > MAX_KEY
    with pytest.raises(BadKey) as caught:
        make_placeholder(value, choose)
    assert not value or value not in str(caught.value)


def test_a_key_does_not_show_itself() -> None:
    key = Key("API_KEY", "sk-the-real-one", "sk-placeholder!", frozenset({("api.test", 443)}))
    assert "the-real-one" not in f"{key!r} {key}"
