"""What stands for parts of the standard library is, as far as it goes, like them."""

import contextlib
import copy
import enum
import functools
import pickle
import signal
from typing import Any

import pytest

from holdfast import light


class Size(light.IntEnum):
    SMALL = 1
    LARGE = 2

    @property
    def double(self) -> int:
        return self * 2


class Colour(light.StrEnum):
    RED = "red"
    BLUE = "blue"


class Kind(light.Enum):
    ONE = "one"
    TWO = "two"


class RealSize(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class RealColour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


PAIRS = [(Size, RealSize), (Colour, RealColour)]


@pytest.mark.parametrize(("ours", "real"), PAIRS)
def test_members_are_what_the_real_ones_are(ours: type[enum.Enum], real: type[enum.Enum]) -> None:
    for mine, theirs in zip(ours, real, strict=True):
        assert (mine.name, mine.value, str(mine)) == (theirs.name, theirs.value, str(theirs))
        assert mine == theirs == mine.value
        assert hash(mine) == hash(mine.value)
        assert ours(mine.value) is ours(mine) is mine
        assert repr(mine) == repr(theirs).replace(real.__name__, ours.__name__)
        assert f"{mine}" == f"{theirs}"
    assert len(ours) == len(real)


def test_a_member_is_one_object_also_as_a_copy() -> None:
    for member in (*Size, *Colour, *Kind):
        assert pickle.loads(pickle.dumps(member)) is copy.deepcopy(member) is member  # noqa: S301 - our own
        assert member in type(member)


def test_numbers_are_ordered_and_a_property_is_no_member() -> None:
    assert max(Size) is Size.LARGE
    assert Size.LARGE.double == 4
    assert [member.name for member in Size] == ["SMALL", "LARGE"]


def test_plain_members_equal_nothing_but_themselves() -> None:
    assert [member for member in Kind if member in ("one", Kind.TWO)] == [Kind.TWO]
    assert {Kind.ONE: 1}[Kind("one")] == 1


@pytest.mark.parametrize("wrong", [3, "three", None, []])
@pytest.mark.parametrize("kind", [Size, Colour, Kind])
def test_what_is_no_value_is_refused(kind: type[enum.Enum], wrong: object) -> None:
    with pytest.raises(ValueError, match=f"not a valid {kind.__name__}"):
        kind(wrong)


def test_only_what_is_named_is_suppressed() -> None:
    with light.suppress(OSError, KeyError):
        raise FileNotFoundError
    for suppress in (light.suppress, contextlib.suppress):
        with pytest.raises(ValueError, match="other"), suppress(OSError):
            raise ValueError("other")


@pytest.mark.parametrize("cache", [light.cache, functools.cache])
def test_a_call_is_remembered_by_all_its_arguments(cache: Any) -> None:
    calls = []

    def count(*args: int, **named: int) -> int:
        calls.append((args, named))
        return len(calls)

    act = cache(count)
    assert [act(1), act(1), act(2), act(1, more=1), act(1, more=1), act(1, more=2)] == [1, 1, 2, 3, 3, 4]


def test_signals_are_those_of_the_system() -> None:
    assert light.signal.SIGKILL == signal.SIGKILL
    assert set(light.signal.valid_signals()) == set(signal.valid_signals())
