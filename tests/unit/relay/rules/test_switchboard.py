"""Which socket a frame goes to."""

import pytest

from holdfast.errors import RemoteProtocolError
from holdfast.relay.rules.switchboard import GONE, MOST_HARNESSES, HarnessSocket, Held, Switchboard
from holdfast.wire import relayframes
from tests.support.rows import every_row

HARNESS = "tok_h"
HELD = Held("t", "box", "reg_1", "tok_e", 1)


def join(board: Switchboard[str], socket: str, token: str = HARNESS) -> HarnessSocket[str]:
    made = board.add_harness("t", "box", "reg_1", token, socket)
    assert made is not None
    return made


def test_frames_find_the_stream_that_they_are_of() -> None:
    board: Switchboard[str] = Switchboard()
    executor, _ = board.add_executor(HELD, "E")
    one, two = join(board, "one"), join(board, "two")
    assert [
        board.from_harness(*each)
        for each in ((one, relayframes.resume("s1")), (two, relayframes.resume("s2")))
    ] == ["E", "E"]
    assert board.from_harness(one, relayframes.data("s1", 0, b"x")) == "E"
    assert board.from_executor(executor, relayframes.data("s1", 0, b"x")) == "one"
    assert board.from_executor(executor, relayframes.reset("s2")) == "two"
    assert board.from_executor(executor, relayframes.reset("s3")) is None


@every_row(
    "frames",
    [
        [b"\xff"],
        [b""],
        [relayframes.data("s1", 0, b"x")],
        [relayframes.handshake("s1", b"x")],
        [relayframes.resume("s1"), relayframes.data("s2", 0, b"x")],
        [relayframes.resume("s1"), relayframes.reset("taken")],
        [relayframes.resume("taken")],
        [relayframes.resume(" ")],
    ],
    ids=repr,
)
def test_a_harness_speaks_for_its_own_stream_only(frames: list[bytes]) -> None:
    board: Switchboard[str] = Switchboard()
    executor, _ = board.add_executor(HELD, "E")
    board.from_harness(join(board, "other"), relayframes.resume("taken"))
    harness = join(board, "one")
    for frame in frames[:-1]:
        board.from_harness(harness, frame)
    with pytest.raises(RemoteProtocolError):
        board.from_harness(harness, frames[-1])
    assert board.from_executor(executor, relayframes.reset("taken")) == "other"


def test_a_harness_that_leaves_has_its_stream_reset_once_and_nobody_gets_its_frames() -> None:
    board: Switchboard[str] = Switchboard()
    executor, _ = board.add_executor(HELD, "E")
    harness = join(board, "one")
    board.from_harness(harness, relayframes.resume("s1"))
    assert board.remove_harness(harness) == relayframes.reset("s1", GONE)
    assert board.remove_harness(harness) is None
    assert board.from_executor(executor, relayframes.data("s1", 0, b"x")) is None
    assert board.from_harness(join(board, "two"), relayframes.resume("s1")) == "E"


def test_a_harness_that_claimed_nothing_leaves_without_a_word() -> None:
    board: Switchboard[str] = Switchboard()
    board.add_executor(HELD, "E")
    assert board.remove_harness(join(board, "one")) is None


def test_an_executor_that_leaves_takes_its_harnesses_with_it() -> None:
    board: Switchboard[str] = Switchboard()
    executor, _ = board.add_executor(HELD, "E")
    harness = join(board, "one")
    board.from_harness(harness, relayframes.resume("s1"))
    assert board.remove_executor(executor) == ["one"]
    assert board.remove_harness(harness) is None
    assert board.add_harness("t", "box", "reg_1", "tok_h", "two") is None


def test_the_newest_socket_of_an_environment_has_it() -> None:
    board: Switchboard[str] = Switchboard()
    first, before = board.add_executor(HELD, "E1")
    assert before is None
    join(board, "one")
    second, before = board.add_executor(HELD._replace(epoch=2), "E2")
    assert before is first
    assert board.remove_executor(first) == ["one"]
    assert board.from_harness(join(board, "two"), relayframes.resume("s")) == "E2"
    assert board.held_until("t", "box", 1) is None
    assert board.held_until("t", "box", 2) == "E2"
    assert board.executors() == [second]
    newer = [board.has_newer(HELD._replace(epoch=epoch)) for epoch in (1, 2, 3)]
    assert newer == [True, False, False]


@every_row(
    "place",
    [("u", "box", "reg_1"), ("t", "bax", "reg_1"), ("t", "box", "reg_2")],
    ids=["tenant", "environment", "registration"],
)
def test_no_harness_meets_the_executor_of_another(place: tuple[str, str, str]) -> None:
    board: Switchboard[str] = Switchboard()
    board.add_executor(HELD, "E")
    assert board.add_harness(*place, "tok_h", "one") is None


def test_an_executor_has_a_bounded_number_of_harnesses() -> None:
    board: Switchboard[str] = Switchboard()
    board.add_executor(HELD, "E")
    for number in range(MOST_HARNESSES):
        join(board, str(number))
    assert board.add_harness("t", "box", "reg_1", "tok_h", "more") is None


def test_what_a_token_opened_is_found() -> None:
    board: Switchboard[str] = Switchboard()
    board.add_executor(HELD, "E")
    board.add_executor(HELD._replace(environment="other"), "F")
    join(board, "one")
    join(board, "two", "tok_2")
    assert sorted(board.opened_by("tok_e")) == ["E", "F"]
    assert sorted(board.opened_by("tok_h")) == ["one"]


def test_an_executor_is_read_from_while_anybody_can_take_what_it_says() -> None:
    board: Switchboard[str] = Switchboard()
    executor, _ = board.add_executor(HELD, "E")
    seen = [executor.readable]
    one, two = join(board, "one"), join(board, "two")
    for harness in (one, two):
        harness.behind = True
        seen.append(executor.readable)
    board.remove_harness(two)
    seen.append(executor.readable)
    join(board, "three")
    assert [*seen, executor.readable] == [True, True, False, False, True]
