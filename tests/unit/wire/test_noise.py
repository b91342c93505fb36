"""The channel through a relay: the published vector, what a handshake proves, and what ends a channel."""

import hashlib
import itertools

import pytest

from holdfast.errors import RemoteProtocolError, UsageError
from holdfast.wire import noise
from holdfast.wire.noise import (
    MAX_RECORD_BYTES,
    PATTERN,
    STEPS,
    SYSTEM,
    Channel,
    ChannelBroken,
    Handshake,
    HandshakeState,
    KeyPair,
    MessageReader,
    Role,
    Turn,
    prologue,
)
from holdfast.wire.registry import PublicKey
from holdfast.wire.sizes import MAX_MESSAGE_BYTES
from tests.support.noisevector import Scripted, make_keys
from tests.support.rows import every_row

PROLOGUE = prologue("env-1", "registration-1", "stream-1")
FIRST = b'{"id":1,"method":"initialize","params":{"clientName":"x","resumeSessionId":null}}'


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def vector_pair() -> tuple[Handshake, Handshake]:
    initiator, responder = make_keys("i", "s"), make_keys("r", "s")
    return (
        Handshake(
            Role.INITIATOR, initiator, PROLOGUE, peer=responder.public, randomness=Scripted("i", "enc1")
        ),
        Handshake(Role.RESPONDER, responder, PROLOGUE, randomness=Scripted("r", "enc2", "enc3")),
    )


def fresh_pair(*, of: bytes = PROLOGUE, other: bytes = PROLOGUE) -> tuple[Handshake, Handshake]:
    executor = SYSTEM.keys()
    client = Handshake(Role.INITIATOR, SYSTEM.keys(), of, peer=executor.public)
    return client, Handshake(Role.RESPONDER, executor, other)


def open_channel() -> tuple[Channel, Channel]:
    client, executor = fresh_pair()
    executor.read(client.write(b"authorization"))
    client.read(executor.write())
    return client.finish(), executor.finish()


def exchange(sender: Channel, receiver: Channel, message: bytes) -> list[bytes]:
    return [got for record in sender.seal(message) for got in receiver.open(record.sealed)]


# --- the vector


def test_the_keys_of_the_vector() -> None:
    assert sha(noise.PROTOCOL_NAME) == "646856ce6fda9f9f037c69557c3c9f5ada7d1bc70b0c4beea72befcaf862edfa"
    initiator, responder = make_keys("i", "s").public, make_keys("r", "s").public
    assert initiator.x25519.hex() == "8b13039ffb586bacb8a4c11caa2db0d7b93bf10db4c764719c7d57a29746431b"
    assert responder.x25519.hex() == "eae57fcf822b57e69ffd91884b91df335763b92d1a17677951d7c084fcf2a874"
    assert sha(initiator.mlkem768) == "89991401fc9470b55e414b97e8812162fb40d6e1e10c2d1c233a8bdef730652f"
    assert sha(responder.mlkem768) == "bbfccb229550bd9733e67ac21ed31b65adefccb9c7ddd18af56f865060c36151"


def test_a_prologue_is_four_parts_with_their_lengths() -> None:
    assert len(PROLOGUE) == 91
    assert sha(PROLOGUE) == "61104073ea47510b85d9020fe87609c449d3b09aaa44c264d8834e112f6e69f1"
    assert prologue("ab", "c", "d") != prologue("a", "bc", "d")


def test_the_handshake_of_the_vector_byte_by_byte() -> None:
    client, executor = vector_pair()
    start = "64bf945ed93a87431c3f4c8dddc3f1de9e7bee8c77858e291fb27efea3ded3cd"
    assert (client.transcript.hex(), executor.transcript.hex()) == (start, start)
    first = client.write(b"authorization-1")
    assert len(first) == 3583
    assert sha(first) == "15f099249e4248cd928422cce43ea0aad7bff876672631fe98df193d424ebaad"
    assert first[-31:].hex() == "a0d195f1a8fa2f108585e80bcad8a5b3327f9ae6fbade31a4ca9f37b2b7900"
    assert executor.read(first) == b"authorization-1"
    half = "d184ab3b58e6b30a18a56b31a68d90baf8c10c35be8e613f560f8695497fa252"
    assert (client.transcript.hex(), executor.transcript.hex()) == (half, half)
    second = executor.write()
    assert len(second) == 3424
    assert sha(second) == "c7cc1b6fbdd274c58af1ec11d496ee11faafc8870e38df565c799e8a046ea943"
    assert second[-16:].hex() == "2a01ddf98035a4b084ee87cbb0adb4a5"
    assert client.read(second) == b""
    end = "e3d2ca589a968856156811f05470dc7a237a20b6d28684d848b99dbdde14dff6"
    assert (client.transcript.hex(), executor.transcript.hex()) == (end, end)


def test_the_first_record_of_the_vector() -> None:
    client, executor = vector_pair()
    executor.read(client.write(b"authorization-1"))
    client.read(executor.write())
    ((seq, sealed),) = client.finish().seal(FIRST)
    assert (seq, len(sealed)) == (0, 101)
    assert sha(sealed) == "5169d258dd561dcc5ff8847172cf1c0cd0b78d238c12edee81e259bfc2fe72bf"
    assert executor.finish().open(sealed) == [FIRST]


# --- what a handshake proves


def test_the_executor_learns_who_called_and_what_was_shown() -> None:
    executor, client = SYSTEM.keys(), SYSTEM.keys()
    calling = Handshake(Role.INITIATOR, client, PROLOGUE, peer=executor.public)
    called = Handshake(Role.RESPONDER, executor, PROLOGUE)
    assert called.read(calling.write(b"let me in")) == b"let me in"
    assert called.peer == client.public


def test_both_directions_have_keys_of_their_own() -> None:
    client, executor = open_channel()
    assert exchange(client, executor, b"ping") == [b"ping"]
    assert exchange(executor, client, b"pong") == [b"pong"]
    ((_, sealed),) = client.seal(b"again")
    with pytest.raises(ChannelBroken):
        client.open(sealed)


def test_a_message_for_another_executor_is_not_read() -> None:
    calling = Handshake(Role.INITIATOR, SYSTEM.keys(), PROLOGUE, peer=SYSTEM.keys().public)
    with pytest.raises(ChannelBroken):
        Handshake(Role.RESPONDER, SYSTEM.keys(), PROLOGUE).read(calling.write(b""))


@every_row("half", ["x25519", "mlkem768"])
def test_either_half_of_the_executors_key_is_pinned(half: str) -> None:
    executor, other = SYSTEM.keys(), SYSTEM.keys().public
    wrong = {
        "x25519": PublicKey.of(other.x25519, executor.public.mlkem768),
        "mlkem768": PublicKey.of(executor.public.x25519, other.mlkem768),
    }[half]
    calling = Handshake(Role.INITIATOR, SYSTEM.keys(), PROLOGUE, peer=wrong)
    with pytest.raises(ChannelBroken):
        Handshake(Role.RESPONDER, executor, PROLOGUE).read(calling.write(b""))


@every_row("other", [("env-2", "registration-1", "stream-1"), ("env-1", "registration-2", "stream-1"),
                     ("env-1", "registration-1", "stream-2")])  # fmt: skip
def test_a_handshake_is_for_one_environment_registration_and_stream(*, other: tuple[str, str, str]) -> None:
    client, executor = fresh_pair(other=prologue(*other))
    with pytest.raises(ChannelBroken):
        executor.read(client.write(b""))


@every_row("at", [0, 1087, 1088, 1120, 2304, 2352, 3551, 3552, 3567])
def test_one_changed_bit_of_the_first_message_is_noticed(at: int) -> None:
    client, executor = fresh_pair()
    message = bytearray(client.write(b""))
    message[at] ^= 1
    with pytest.raises(ChannelBroken):
        executor.read(bytes(message))
    assert executor.state is HandshakeState.FAILED


@every_row("at", [0, 1088, 2191, 2192, 2224, 3407, 3408, 3423])
def test_one_changed_bit_of_the_second_message_is_noticed(at: int) -> None:
    client, executor = fresh_pair()
    executor.read(client.write(b""))
    message = bytearray(executor.write())
    message[at] ^= 1
    with pytest.raises(ChannelBroken):
        client.read(bytes(message))


def test_the_answer_to_another_handshake_is_noticed() -> None:
    executor, identity = SYSTEM.keys(), SYSTEM.keys()
    one, two = (Handshake(Role.INITIATOR, identity, PROLOGUE, peer=executor.public) for _ in range(2))
    one.write(b"")
    called = Handshake(Role.RESPONDER, executor, PROLOGUE)
    called.read(two.write(b""))
    with pytest.raises(ChannelBroken):
        one.read(called.write())


@every_row("size", [0, 1, 3567, 65_536])
def test_a_first_message_of_an_impossible_length_is_refused(size: int) -> None:
    with pytest.raises(ChannelBroken, match="length"):
        Handshake(Role.RESPONDER, SYSTEM.keys(), PROLOGUE).read(bytes(size))


def test_an_answer_with_a_payload_is_refused() -> None:
    client, executor = fresh_pair()
    executor.read(client.write(b""))
    with pytest.raises(ChannelBroken, match="length"):
        client.read(executor.write(b"more"))


def test_a_point_of_low_order_is_no_key() -> None:
    executor = SYSTEM.keys()
    weak = PublicKey.of(bytes(32), executor.public.mlkem768)
    with pytest.raises(ChannelBroken, match="impossible keys"):
        Handshake(Role.INITIATOR, SYSTEM.keys(), PROLOGUE, peer=weak).write(b"")


def test_an_authorization_that_no_message_holds_is_refused_before_it_is_sent() -> None:
    client, _ = fresh_pair()
    with pytest.raises(UsageError):
        client.write(bytes(65_535 - 3568 + 1))
    client, executor = fresh_pair()
    assert len(executor.read(client.write(bytes(65_535 - 3568)))) == 65_535 - 3568


@every_row(
    ("role", "state", "turn"),
    sorted(set(itertools.product(Role, HandshakeState, Turn)) - set(STEPS), key=str),
)
def test_a_step_that_is_not_in_the_table_is_not_taken(role: Role, state: HandshakeState, turn: Turn) -> None:
    client, executor = fresh_pair()
    side = client if role is Role.INITIATOR else executor
    side.state = state
    with pytest.raises(AssertionError):
        side.write() if turn is Turn.WRITE else side.read(b"")


def test_every_state_with_a_message_has_one_who_writes_and_one_who_reads_it() -> None:
    for state in PATTERN:
        assert {(role, turn) for role, at, turn in STEPS if at is state} in (
            {(Role.INITIATOR, Turn.WRITE), (Role.RESPONDER, Turn.READ)},
            {(Role.INITIATOR, Turn.READ), (Role.RESPONDER, Turn.WRITE)},
        )


def test_an_identity_follows_from_its_seed_and_shows_nothing_of_it() -> None:
    seed = bytes(range(32))
    assert KeyPair.from_seed(seed).public == KeyPair.from_seed(seed).public
    assert KeyPair.from_seed(seed).public != KeyPair.from_seed(bytes(32)).public
    assert "X25519PrivateKey" not in repr(KeyPair.from_seed(seed))


# --- what ends a channel


def test_a_changed_record_is_noticed() -> None:
    client, executor = open_channel()
    ((_, sealed),) = client.seal(b"hello")
    for at in (0, len(sealed) - 1):
        with pytest.raises(ChannelBroken):
            executor.open(sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :])


def test_a_repeated_record_is_noticed() -> None:
    client, executor = open_channel()
    ((_, sealed),) = client.seal(b"hello")
    assert executor.open(sealed) == [b"hello"]
    with pytest.raises(ChannelBroken):
        executor.open(sealed)


def test_a_missing_record_is_noticed() -> None:
    client, executor = open_channel()
    next(client.seal(b"lost"))
    with pytest.raises(ChannelBroken):
        executor.open(next(client.seal(b"hello")).sealed)


def test_a_record_of_another_channel_is_noticed() -> None:
    (client, _), (_, executor) = open_channel(), open_channel()
    with pytest.raises(ChannelBroken):
        executor.open(next(client.seal(b"hello")).sealed)


@every_row("size", [0, 15, MAX_RECORD_BYTES + 17])
def test_a_record_of_an_impossible_length_is_refused(size: int) -> None:
    _, executor = open_channel()
    with pytest.raises(ChannelBroken, match="length"):
        executor.open(bytes(size))


def test_a_large_message_is_cut_and_put_together() -> None:
    client, executor = open_channel()
    message = bytes(range(256)) * 1024
    records = list(client.seal(message))
    assert [record.seq for record in records] == list(range(5))
    assert max(len(record.sealed) for record in records) == MAX_RECORD_BYTES + 16
    assert [got for record in records for got in executor.open(record.sealed)] == [message]


@every_row(
    "size", [MAX_RECORD_BYTES - 5, MAX_RECORD_BYTES - 4, MAX_RECORD_BYTES - 3, 2 * MAX_RECORD_BYTES - 4]
)
def test_a_record_is_filled_and_never_overfilled(size: int) -> None:
    client, executor = open_channel()
    records = list(client.seal(bytes(size)))
    assert len(records) == -(-(size + 4) // MAX_RECORD_BYTES)
    assert [len(got) for record in records for got in executor.open(record.sealed)] == [size]


def test_many_messages_in_one_record_are_all_delivered() -> None:
    reader = MessageReader()
    assert reader.feed(b"".join(b"\0\0\0\1" + bytes((n,)) for n in range(100))) == [
        bytes((n,)) for n in range(100)
    ]


@every_row("size", [0, MAX_MESSAGE_BYTES + 1, 2**32 - 1])
def test_an_impossible_length_is_refused_before_anything_of_it_comes(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        MessageReader().feed(size.to_bytes(4, "big"))


def test_the_longest_length_is_accepted() -> None:
    assert MessageReader().feed(MAX_MESSAGE_BYTES.to_bytes(4, "big")) == []


def test_a_channel_ends_before_its_numbers_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "MAX_SEQ", 1)
    client, _ = open_channel()
    assert [next(client.seal(b"x")).seq for _ in range(2)] == [0, 1]
    with pytest.raises(ChannelBroken, match="used up"):
        next(client.seal(b"x"))
