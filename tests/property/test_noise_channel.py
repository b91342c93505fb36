"""Messages through the channel, however they are cut, and what happens to any record that was touched."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.noise import (
    SYSTEM,
    Channel,
    ChannelBroken,
    CipherState,
    Handshake,
    KeyPair,
    MessageReader,
    Role,
)

messages = st.lists(st.binary(min_size=1, max_size=200) | st.just(bytes(70_000)), min_size=1, max_size=6)


def channels() -> tuple[Channel, Channel]:
    """The two ends, with keys that a test may know."""
    one, two = bytes(32), bytes(31) + b"\1"
    return (
        Channel(send=CipherState(one), receive=CipherState(two)),
        Channel(send=CipherState(two), receive=CipherState(one)),
    )


@given(messages)
def test_what_goes_in_comes_out(said: list[bytes]) -> None:
    client, executor = channels()
    heard = [got for one in said for record in client.seal(one) for got in executor.open(record.sealed)]
    assert heard == said


@given(messages, st.data())
def test_bytes_may_be_cut_anywhere(said: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(one).to_bytes(4, "big") + one for one in said)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader, heard = MessageReader(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        heard += reader.feed(stream[begin:end])
    assert heard == said


@given(messages, st.data())
def test_whatever_is_done_to_the_records_nothing_false_is_heard(
    said: list[bytes], data: st.DataObject
) -> None:
    """Dropped, repeated, swapped, cut or changed: what is heard is a beginning of what was said."""
    client, executor = channels()
    records = [record.sealed for one in said for record in client.seal(one)]
    at = data.draw(st.integers(0, len(records) - 1))
    match data.draw(st.sampled_from(["drop", "repeat", "swap", "cut", "change"])):
        case "drop":
            touched = records[:at] + records[at + 1 :] + [bytes(40)]
        case "repeat":
            touched = records[: at + 1] + records[at:]
        case "swap":
            other = data.draw(st.integers(0, len(records) - 1))
            touched = list(records)
            touched[at], touched[other] = touched[other], touched[at]
            touched.append(bytes(40))
        case "cut":
            touched = [*records[:at], records[at][:-1], *records[at + 1 :]]
        case _:
            byte = data.draw(st.integers(0, len(records[at]) - 1))
            changed = bytearray(records[at])
            changed[byte] ^= data.draw(st.integers(1, 255))
            touched = [*records[:at], bytes(changed), *records[at + 1 :]]
    heard: list[bytes] = []
    broken = False
    for sealed in touched:
        try:
            heard += executor.open(sealed)
        except ChannelBroken:
            broken = True
            break
    assert broken
    assert heard == said[: len(heard)]


@functools.cache
def greeting() -> tuple[KeyPair, bytes]:
    executor = SYSTEM.keys()
    return executor, Handshake(Role.INITIATOR, SYSTEM.keys(), b"p", peer=executor.public).write(b"payload")


@given(st.integers(0, 3574), st.integers(1, 255))
def test_no_changed_byte_of_a_greeting_passes(at: int, change: int) -> None:
    executor, sent = greeting()
    changed = bytearray(sent)
    changed[at] ^= change
    with pytest.raises(ChannelBroken):
        Handshake(Role.RESPONDER, executor, b"p").read(bytes(changed))
