"""Which side is the other machine, and what is tried again."""

from collections.abc import Callable

import pytest

from holdfast.client.copying.copying import ATTEMPTS, CopyJob, CopyTally, join, parse_job, split_there
from holdfast.errors import ConnectionLost, NotFound, OperationFailed, UsageError
from tests.support.rows import every_row


@every_row(
    ("source", "destination", "environment", "wanted"),
    [
        ("file", "box:dir/x", None, CopyJob("box", "file", "dir/x", True)),
        ("box:/etc/a:b", ".", None, CopyJob("box", "/etc/a:b", ".", False)),
        ("box:", ".", None, CopyJob("box", "", ".", False)),
        ("./a:b", "box:", None, CopyJob("box", "./a:b", "", True)),
        (":/x", "a:b", "ws://h:1", CopyJob("ws://h:1", "/x", "a:b", False)),
        ("x", ":", "unix:///s", CopyJob("unix:///s", "x", "", True)),
        ("C:\\x", "box\n:y", None, CopyJob("C", "\\x", "box\n:y", False)),
    ],
)
def test_the_side_with_a_name_is_the_other_machine(
    source: str, destination: str, environment: str | None, wanted: CopyJob
) -> None:
    assert parse_job(source, destination, environment) == wanted


@every_row(
    ("source", "destination", "environment"),
    [
        ("a", "b", None),
        ("x:a", "y:b", None),
        ("a", "b", "box"),
        ("box:a", "b", "box"),
        (":a", ":b", "box"),
        ("ws://h:1/a", "b", None),
        ("a", "unix:///s:/a", None),
    ],
)
def test_exactly_one_side_is_on_another_machine(
    source: str, destination: str, environment: str | None
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_job(source, destination, environment)
    assert caught.value.remedy


def test_paths_over_there_are_spelled_as_over_there() -> None:
    assert join("/a", "b/c") == "/a/b/c"
    assert join("/", "b") == "/b"
    assert join("C:\\a", "b/c") == "C:\\a\\b\\c"
    assert split_there("/a/b") == ("/a", "b")
    assert split_there("/") == ("/", "")


class Flaky:
    """Moves a byte, fails as often as told, then moves another."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    async def __call__(self, count: Callable[[int], None]) -> None:
        count(1)
        if self._errors:
            raise self._errors.pop(0)
        count(1)


async def test_a_lost_connection_is_tried_again_and_counted_once() -> None:
    seen: list[tuple[int, int]] = []
    tally = CopyTally(lambda done, total: seen.append((done, total)))
    tally.expect(2)
    assert await tally.attempt(Flaky(ConnectionLost("x"))) == 2
    assert seen[-1] == (2, 2)
    assert max(seen) == (2, 2)


async def test_it_is_not_tried_for_ever_nor_after_other_errors() -> None:
    seen: list[int] = []
    tally = CopyTally(lambda done, _: seen.append(done))
    with pytest.raises(ConnectionLost):
        await tally.attempt(Flaky(*(ConnectionLost("x") for _ in range(ATTEMPTS))))
    with pytest.raises(NotFound):
        await tally.attempt(Flaky(NotFound("x")))
    with pytest.raises(OperationFailed, match="file: No space left"):
        await tally.attempt(Flaky(OSError(28, "No space left", "file")))
    assert seen[-1] == 0
