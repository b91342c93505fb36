"""Frozen values: as a frozen dataclass with slots, in the first few instances and in the many after."""

import copy

import pytest

from holdfast.annotations import FEW
from holdfast.sandbox.values import derived, replace, value


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
