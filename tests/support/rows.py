"""A table of cases as one test.

    @every_row(("text", "wanted"), [("a", 1), ("b", 2)])
    def test_it_is_read(text: str, wanted: int) -> None: ...

is written like `pytest.mark.parametrize` and is one test: every row is tried, and each that fails is reported
as a subtest under its own id. A row that is skipped has the test skipped, after all others. Rows share the
fixtures of the test, so a fixture that a row changes does not belong here.
"""

import contextlib
import enum
import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pytest

Test: TypeAlias = Callable[..., Any]
Name: TypeAlias = Callable[[Any], object]
_SPEAKING: Final = (str, bytes, int, float, bool, enum.Enum, type(None))


class Row(NamedTuple):
    id: str
    values: Mapping[str, object]


def every_row(
    names: str | Sequence[str], table: Iterable[Any], *, ids: Name | Iterable[object] | None = None
) -> Callable[[Test], Test]:
    """Every row of the table is tried by one test. Two of these above each other try every combination.

    Raises:
        ValueError: the table has no row, or one that is not as long as the names.
    """
    words = [word.strip() for word in names.split(",")] if isinstance(names, str) else list(names)
    own = read(words, list(table), ids)

    def decorate(test: Test) -> Test:
        inner: Sequence[Row] = getattr(test, "rows", ())
        found = [_both(*pair) for pair in itertools.product(inner, own)] if inner else own
        return _over(getattr(test, "tries", test), found, test)

    return decorate


def read(words: Sequence[str], table: Collection[Any], ids: Name | Iterable[object] | None) -> list[Row]:
    """The rows with their ids, as `pytest.mark.parametrize` reads them."""
    given = None if ids is None or callable(ids) else list(ids)
    if not table or (given is not None and len(given) != len(table)):
        raise ValueError(f"{len(table)} rows of {words}, ids: {given}")
    found = []
    for number, entry in enumerate(table):
        own_id: object = entry.id if isinstance(entry, _PARAM) else None
        values = entry.values if isinstance(entry, _PARAM) else (entry,) if len(words) == 1 else tuple(entry)
        if isinstance(entry, _PARAM) and entry.marks:
            raise ValueError(f"row {number} has a mark, which only a test of its own can have")
        row = dict(zip(words, values, strict=True))
        if own_id is None and given is not None:
            own_id = given[number]
        if own_id is None:
            name = ids if callable(ids) else None
            own_id = "-".join(_called(word, value, number, name) for word, value in row.items())
        found.append(Row(str(own_id), row))
    return found


_PARAM: Final = type(pytest.param())


def _called(word: str, value: object, number: int, name: Name | None) -> str:
    if name is not None and (said := name(value)) is not None:
        return str(said)
    if isinstance(value, _SPEAKING):
        return str(value)
    return str(getattr(value, "__name__", f"{word}{number}"))


def _both(inner: Row, outer: Row) -> Row:
    return Row(f"{inner.id}-{outer.id}", {**inner.values, **outer.values})


def _over(tries: Test, found: Sequence[Row], known_as: Test) -> Test:
    """A test with the other arguments of `tries`, which it calls with each row."""
    whole_table: Any
    if inspect.iscoroutinefunction(tries):

        @functools.wraps(known_as)
        async def whole_table(subtests: pytest.Subtests, **given: object) -> None:
            __tracebackhide__ = True
            skipped: list[str] = []
            for row in found:
                with _trying(row, subtests, skipped):
                    await tries(**row.values, **given)
            _skip(skipped)
    else:

        @functools.wraps(known_as)
        def whole_table(subtests: pytest.Subtests, **given: object) -> None:
            __tracebackhide__ = True
            skipped: list[str] = []
            for row in found:
                with _trying(row, subtests, skipped):
                    tries(**row.values, **given)
            _skip(skipped)

    others = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(tries).parameters.values()
        if each.name not in found[0].values
    ]
    own = inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    whole_table.__signature__ = inspect.Signature([own, *others])
    whole_table.rows, whole_table.tries = found, tries
    return whole_table  # type: ignore[no-any-return]  # a function whose signature was made here


@contextlib.contextmanager
def _trying(row: Row, subtests: pytest.Subtests, skipped: list[str]) -> Iterator[None]:
    """Only what fails is a subtest: each costs more than most rows."""
    __tracebackhide__ = True
    try:
        yield
    except pytest.skip.Exception as exc:
        skipped.append(f"[{row.id}] {exc.msg}")
    except (Exception, pytest.fail.Exception) as exc:
        with subtests.test(msg=row.id):
            raise exc


def _skip(skipped: list[str]) -> None:
    __tracebackhide__ = True
    if skipped:
        pytest.skip("; ".join(skipped))
