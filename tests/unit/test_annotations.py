"""What takes the place of `typing` on the way of a start is like it where it does anything."""

import subprocess
import sys
import typing

import pytest

from holdfast import annotations


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
    ours, theirs = make(annotations.NamedTuple), make(typing.NamedTuple)
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
        annotations.assert_never(1)  # type: ignore[arg-type]


def test_it_loads_neither_typing_nor_regular_expressions() -> None:
    code = "import sys, holdfast.annotations; print([m for m in ('typing', 're') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"
