"""Streams on one connection to a relay, one rule at a time."""

from collections.abc import Callable

from holdfast.server.remote.streams import (
    FULL,
    MAX_FAILURES,
    MAX_STREAMS,
    MAX_VALIDATIONS,
    PAUSE_S,
    PAUSED,
    UNREADABLE,
    Action,
    Close,
    Deliver,
    Note,
    Open,
    Send,
    Streams,
    Validate,
)
from holdfast.wire import relayframes
from holdfast.wire.noise import Channel, Handshake, KeyPair, Role, prologue
from holdfast.wire.relayframes import MAX_GAP_S, Body
from tests.support.rows import every_row

EXECUTOR = KeyPair.from_seed(bytes(32))
CLIENT = KeyPair.from_seed(bytes(31) + b"\1")
NOW = 1000.0


def streams() -> Streams:
    return Streams(EXECUTOR, "env", "reg")


def calling(stream: str, *, key: KeyPair = EXECUTOR) -> Handshake:
    return Handshake(Role.INITIATOR, CLIENT, prologue("env", "reg", stream), peer=key.public)


def greeting(stream: str, payload: bytes = b"auth", *, key: KeyPair = EXECUTOR) -> bytes:
    return relayframes.handshake(stream, calling(stream, key=key).write(payload))


def resets(actions: list[Action]) -> list[str]:
    frames = [relayframes.decode(action.frame) for action in actions if isinstance(action, Send)]
    return [frame.stream_id for frame in frames if frame.body is Body.RESET]


def opened(all_: Streams, stream: str = "s", *, now: float = NOW) -> tuple[int, Channel]:
    """A stream past its handshake: its number, and the client's end of it."""
    client = calling(stream)
    (asked,) = all_.take(relayframes.handshake(stream, client.write(b"auth")), now)
    assert isinstance(asked, Validate)
    answer, new = all_.settle(asked.attempt, allowed=True, now=now)
    assert isinstance(answer, Send)
    assert isinstance(new, Open)
    client.read(relayframes.decode(answer.frame).payload)
    return new.stream, client.finish()


def says(channel: Channel, message: bytes, stream: str = "s") -> list[bytes]:
    return [relayframes.data(stream, seq, sealed) for seq, sealed in channel.seal(message)]


def test_a_stream_exists_once_the_registry_has_let_its_caller_in() -> None:
    all_ = streams()
    (asked,) = all_.take(greeting("s"), NOW)
    assert isinstance(asked, Validate)
    assert (asked.stream_id, asked.key, asked.authorization) == ("s", CLIENT.public, "auth")
    assert "auth" not in repr(asked)
    answer, new = all_.settle(asked.attempt, allowed=True, now=NOW)
    assert isinstance(answer, Send)
    assert relayframes.decode(answer.frame).body is Body.HANDSHAKE
    assert isinstance(new, Open)


def test_messages_go_both_ways() -> None:
    all_ = streams()
    number, client = opened(all_)
    (frame,) = says(client, b"hello")
    assert all_.take(frame, NOW) == [Deliver(number, b"hello")]
    heard = [client.open(relayframes.decode(raw).payload) for raw in all_.seal(number, bytes(100_000))]
    assert heard == [[], [bytes(100_000)]]


def test_records_are_put_in_order_and_copies_dropped() -> None:
    all_ = streams()
    number, client = opened(all_)
    one, two, three = (says(client, text)[0] for text in (b"1", b"2", b"3"))
    assert all_.take(three, NOW) == []
    assert all_.take(one, NOW) == [Deliver(number, b"1")]
    assert all_.take(one, NOW) == []
    assert all_.take(two, NOW) == [Deliver(number, b"2"), Deliver(number, b"3")]


def test_a_stream_whose_record_stays_missing_is_reset_and_no_other() -> None:
    all_ = streams()
    number, client = opened(all_)
    other, other_client = opened(all_, "t")
    first, second = (says(other_client, text, "t")[0] for text in (b"1", b"2"))
    assert all_.take(second, NOW) == []
    says(client, b"1")
    assert all_.take(says(client, b"2")[0], NOW + 1) == []
    assert all_.take(first, NOW + 2) == [Deliver(other, b"1"), Deliver(other, b"2")]
    assert all_.gap_ends == NOW + 1 + MAX_GAP_S
    assert all_.check(NOW + MAX_GAP_S) == []
    done = all_.check(NOW + 1 + MAX_GAP_S)
    assert done[0] == Close(number)
    assert resets(done) == ["s"]
    assert all_.check(NOW + 100) == []


def test_a_stream_that_ends_is_no_longer_waited_for() -> None:
    all_ = streams()
    _, client = opened(all_)
    says(client, b"1")
    all_.take(says(client, b"2")[0], NOW)
    all_.take(relayframes.reset("s"), NOW)
    assert all_.gap_ends is None


def test_a_changed_record_ends_its_stream_and_no_other() -> None:
    all_ = streams()
    number, client = opened(all_)
    other, other_client = opened(all_, "t")
    (frame,) = says(client, b"hello")
    done = all_.take(frame[:-1] + bytes((frame[-1] ^ 1,)), NOW)
    assert done[0] == Close(number)
    assert resets(done) == ["s"]
    assert resets(all_.take(frame, NOW)) == ["s"]  # also what was good of it
    assert all_.take(says(other_client, b"hello", "t")[0], NOW) == [Deliver(other, b"hello")]


def test_a_record_of_another_stream_ends_the_one_that_it_is_put_into() -> None:
    all_ = streams()
    number, _ = opened(all_)
    _, other_client = opened(all_, "t")
    done = all_.take(says(other_client, b"hello", "s")[0], NOW)
    assert done[0] == Close(number)


def test_a_handshake_for_an_open_stream_changes_nothing_of_it() -> None:
    all_ = streams()
    number, client = opened(all_)
    for _ in range(MAX_FAILURES + 1):  # it is no failure either
        assert resets(all_.take(greeting("s"), NOW)) == ["s"]
    assert all_.take(says(client, b"hello")[0], NOW) == [Deliver(number, b"hello")]
    opened(all_, "t")


def test_a_second_handshake_takes_the_first_one_with_it() -> None:
    all_ = streams()
    (asked,) = all_.take(greeting("s"), NOW)
    assert isinstance(asked, Validate)
    assert resets(all_.take(greeting("s"), NOW)) == ["s"]
    assert all_.settle(asked.attempt, allowed=True, now=NOW) == []


def test_a_late_verdict_is_not_taken_for_one_about_a_later_handshake() -> None:
    all_ = streams()
    (first,) = all_.take(greeting("s"), NOW)
    all_.take(relayframes.reset("s"), NOW)
    (second,) = all_.take(greeting("s"), NOW)
    assert isinstance(first, Validate)
    assert isinstance(second, Validate)
    assert all_.settle(first.attempt, allowed=True, now=NOW) == []
    assert len(all_.settle(second.attempt, allowed=True, now=NOW)) == 2


def test_whoever_is_not_let_in_is_reset() -> None:
    all_ = streams()
    (asked,) = all_.take(greeting("s"), NOW)
    assert isinstance(asked, Validate)
    assert resets(all_.settle(asked.attempt, allowed=False, now=NOW)) == ["s"]


def test_data_before_the_verdict_ends_the_handshake() -> None:
    all_ = streams()
    (asked,) = all_.take(greeting("s"), NOW)
    assert isinstance(asked, Validate)
    assert resets(all_.take(relayframes.data("s", 0, b"x"), NOW)) == ["s"]
    assert all_.settle(asked.attempt, allowed=True, now=NOW) == []


def test_data_for_no_stream_is_answered_with_a_reset() -> None:
    assert resets(streams().take(relayframes.data("s", 0, b"x"), NOW)) == ["s"]


@every_row("payload", [bytes(4097), b"\xff"], ids=["long", "not UTF-8"])
def test_an_impossible_authorization_is_not_shown_to_the_registry(payload: bytes) -> None:
    assert resets(streams().take(greeting("s", payload), NOW)) == ["s"]


def test_the_longest_authorization_and_an_empty_one_are_shown() -> None:
    for payload in (b"x" * 4096, b""):
        (asked,) = streams().take(greeting("s", payload), NOW)
        assert isinstance(asked, Validate)


def _wrong_key(all_: Streams) -> None:
    assert resets(all_.take(greeting("w", key=CLIENT), NOW)) == ["w"]


def _not_let_in(all_: Streams) -> None:
    (asked,) = all_.take(greeting("w"), NOW)
    assert isinstance(asked, Validate)
    all_.settle(asked.attempt, allowed=False, now=NOW)


def _twice(all_: Streams) -> None:
    (asked,) = all_.take(greeting("w"), NOW)
    assert isinstance(asked, Validate)
    all_.take(greeting("w"), NOW)
    all_.settle(asked.attempt, allowed=True, now=NOW)


def _too_early(all_: Streams) -> None:
    (asked,) = all_.take(greeting("w"), NOW)
    assert isinstance(asked, Validate)
    all_.take(relayframes.data("w", 0, b"x"), NOW)
    all_.settle(asked.attempt, allowed=True, now=NOW)


def _too_long(all_: Streams) -> None:
    assert resets(all_.take(greeting("w", bytes(4097)), NOW)) == ["w"]


@every_row("fail", [_wrong_key, _not_let_in, _twice, _too_early, _too_long])
def test_after_eight_failures_no_handshake_is_looked_at_for_a_while(fail: Callable[[Streams], None]) -> None:
    all_ = streams()
    number, client = opened(all_)
    for _ in range(MAX_FAILURES - 1):
        fail(all_)
    opened(all_, "t")
    fail(all_)
    for at in (NOW, NOW + PAUSE_S - 0.1):
        assert resets(all_.take(greeting("u"), at)) == ["u"]
    assert all_.take(says(client, b"still here")[0], NOW) == [Deliver(number, b"still here")]
    opened(all_, "u", now=NOW + PAUSE_S)


def notes(actions: list[Action]) -> list[str]:
    return [action.reason for action in actions if isinstance(action, Note)]


def test_why_nobody_comes_in_is_said_and_not_for_each_of_those_who_knock() -> None:
    all_ = streams()
    said = [notes(all_.take(greeting("w", key=CLIENT), NOW)) for _ in range(MAX_FAILURES)]
    assert said == [[UNREADABLE], *[[]] * (MAX_FAILURES - 2), [PAUSED]]
    assert notes(all_.take(greeting("w"), NOW)) == []
    later = NOW + PAUSE_S
    assert notes(all_.take(greeting("w", key=CLIENT), later)) == [UNREADABLE]
    for n in range(MAX_STREAMS):
        opened(all_, f"s{n}", now=later)
    for at, wanted in ((later, [FULL]), (later, []), (later + PAUSE_S, [FULL])):
        assert notes(all_.take(greeting("more"), at)) == wanted


def test_there_are_only_so_many_streams() -> None:
    all_ = streams()
    numbers = [opened(all_, f"s{n}")[0] for n in range(MAX_STREAMS)]
    for _ in range(MAX_FAILURES + 1):
        assert resets(all_.take(greeting("more"), NOW)) == ["more"]
    all_.end(numbers[0])
    opened(all_, "more")


def test_a_stream_that_would_be_one_too_many_by_now_is_reset() -> None:
    all_ = streams()
    (asked,) = all_.take(greeting("late"), NOW)
    assert isinstance(asked, Validate)
    for n in range(MAX_STREAMS):
        opened(all_, f"s{n}")
    assert resets(all_.settle(asked.attempt, allowed=True, now=NOW)) == ["late"]


def test_the_registry_is_asked_only_so_much_at_once() -> None:
    all_ = streams()
    asked = [all_.take(greeting(f"s{n}"), NOW)[0] for n in range(MAX_VALIDATIONS)]
    all_.take(relayframes.reset("s0"), NOW)  # the question is still under way
    assert resets(all_.take(greeting("more"), NOW)) == ["more"]
    first = asked[0]
    assert isinstance(first, Validate)
    all_.settle(first.attempt, allowed=True, now=NOW)
    assert isinstance(all_.take(greeting("more"), NOW)[0], Validate)


def test_a_reset_ends_a_stream_and_is_not_answered() -> None:
    all_ = streams()
    number, _ = opened(all_)
    assert all_.take(relayframes.reset("s", "whatever"), NOW) == [Close(number)]
    assert all_.take(relayframes.reset("s", "whatever"), NOW) == []


def test_our_own_end_tells_the_other_side_once() -> None:
    all_ = streams()
    number, _ = opened(all_)
    assert resets(all_.end(number)) == ["s"]
    assert all_.end(number) == []


def test_the_end_of_an_old_stream_leaves_a_new_one_of_its_name() -> None:
    all_ = streams()
    old, _ = opened(all_)
    all_.take(relayframes.reset("s"), NOW)
    new, client = opened(all_)
    assert all_.end(old) == []
    assert all_.take(says(client, b"hello")[0], NOW) == [Deliver(new, b"hello")]


@every_row(
    "raw",
    [None, b"\xff", b"", relayframes.resume("s"), relayframes.encode(relayframes.RelayFrame("s", Body.ACK)),
     relayframes.encode(relayframes.RelayFrame("s", Body.HEARTBEAT)),
     relayframes.encode(relayframes.RelayFrame("s", Body.HANDSHAKE, b"x", version=2)),
     relayframes.encode(relayframes.RelayFrame("s", Body.DATA, b"x", segment_count=2))],
    ids=range(8),
)  # fmt: skip
def test_what_is_no_frame_and_what_means_nothing_here_is_dropped(raw: bytes | None) -> None:
    assert streams().take(raw, NOW) == []
