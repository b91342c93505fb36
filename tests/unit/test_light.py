"""What stands for parts of the standard library is, as far as it goes, like them."""

import contextlib
import copy
import enum
import functools
import pickle
import signal
import subprocess
import sys
import typing
from typing import Any

import pytest

from holdfast import light
from holdfast.light import FEW, derived, replace, value


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


def make(base: typing.Any) -> typing.Any:
    class Point(base):  # type: ignore[misc] # one of two
        """Where it is."""

        x: int
        y: int = 2

        @property
        def total(self) -> int:
            return int(self.x + self.y)

    return Point


def test_a_named_tuple_is_as_the_library_makes_it() -> None:
    ours, theirs = make(light.NamedTuple), make(typing.NamedTuple)
    for made in (ours, theirs):
        point = made(1)
        assert (point, point.total, point._replace(x=5), made._make((3, 4))) == ((1, 2), 3, (5, 2), (3, 4))
        assert made.__annotations__ == {"x": int, "y": int}
        assert (made.__name__, made.__module__, made.__doc__) == ("Point", __name__, "Where it is.")
        assert repr(point) == "Point(x=1, y=2)"
        for _ in range(40):  # of ours, those after the first have another constructor
            assert made(1) == made(x=1) == (1, 2)
            assert made(1, y=3) == (1, 3)
            for args, named in (((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})):
                with pytest.raises(TypeError):
                    made(*args, **named)


def test_what_cannot_happen_is_raised() -> None:
    with pytest.raises(AssertionError):
        light.assert_never(1)  # type: ignore[arg-type]


def test_it_loads_neither_typing_nor_regular_expressions() -> None:
    code = "import sys, holdfast.light; print([m for m in ('typing', 're') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"


@value
class Point:
    """With a default."""

    x: int
    y: int = 7

    @property
    def sum(self) -> int:
        return self.x + self.y


@value
class Other:
    x: int
    y: int = 7


@value
class Doubled:
    x: int
    twice: int = derived()

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("negative")
        object.__setattr__(self, "twice", 2 * self.x)


@pytest.fixture(params=["few", "many"], autouse=True)
def uses(request: pytest.FixtureRequest) -> None:
    """Both constructors: the one that is shared, and the one that is compiled for a class in use."""
    if request.param == "many":
        for _ in range(FEW + 1):
            Point(1), Other(1), Doubled(1)


def test_fields_are_taken_by_place_and_by_name_with_their_defaults() -> None:
    assert (Point(1).x, Point(1).y, Point(1, 2).y, Point(y=3, x=1).y) == (1, 7, 2, 3)
    assert Point(1, 2).sum == 3
    assert repr(Point(1)) == "Point(x=1, y=7)"
    assert Point.__doc__ == "With a default."


@pytest.mark.parametrize(("args", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 2}), ((1,), {"z": 2})])
def test_a_missing_an_unknown_and_a_doubled_field_are_refused(
    args: tuple[int, ...], named: dict[str, int]
) -> None:
    with pytest.raises(TypeError):
        Point(*args, **named)


def test_equal_is_what_is_of_one_class_and_has_equal_fields() -> None:
    assert Point(1) == Point(1, 7)
    assert Point(1) != Point(2)
    assert not Point(1).__eq__(Other(1))
    assert len({Point(1), Point(1), Point(2), Other(1)}) == 3


def test_nothing_is_changed_and_nothing_is_added() -> None:
    point = Point(1)
    with pytest.raises(AttributeError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del point.x
    with pytest.raises(AttributeError):
        object.__setattr__(point, "z", 1)


def test_another_one_with_other_fields() -> None:
    assert replace(Point(1), y=2) == Point(1, 2)
    assert replace(Doubled(1), x=4).twice == 8


def test_a_derived_field_is_no_argument_and_not_compared() -> None:
    assert Doubled(3).twice == 6
    assert repr(Doubled(3)) == "Doubled(x=3)"
    with pytest.raises(TypeError):
        Doubled(3, 4)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="negative"):
        Doubled(-1)


def test_a_pattern_takes_it_apart() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_it_can_be_copied() -> None:
    assert copy.copy(Doubled(3)).twice == 6
