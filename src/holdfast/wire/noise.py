"""The channel between a client and an executor, which a relay carries but cannot read. Pure module.

The handshake is Noise's pattern IK, revision 34, with key encapsulations in front, so that an attacker who
records the traffic must break both X25519 and ML-KEM-768:

    <- s
    ...
    -> skem, e, es, s, ss        the client's: 3568 bytes and its authorization
    <- ekem, skem, e, ee, se     the executor's: 3424 bytes

Every key is a pair, X25519 first. `PATTERN` is the handshake and `STEPS` defines which role may do what in
which state; any failure ends the handshake permanently. After it, `Channel` splits messages into records, one
nonce each, and joins them again. A forged, repeated or missing record ends the channel.

Needs `cryptography`, so only code that opens such a channel imports this module.
"""

import enum
import hashlib
import hmac
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.errors import RemoteProtocolError, UsageError
from holdfast.wire.registry import PublicKey
from holdfast.wire.relayframes import MAX_SEQ
from holdfast.wire.sizes import MAX_MESSAGE_BYTES

T = TypeVar("T")

PROTOCOL_NAME: Final = b"Noise_hybridIK_25519+MLKEM768_AESGCM_SHA256"  # without the X of the suite's name
PROLOGUE_DOMAIN: Final = b"codex-exec-server-relay-noise/v1"

X25519_BYTES: Final = 32
MLKEM_PUBLIC_BYTES: Final = 1184
MLKEM_CIPHERTEXT_BYTES: Final = 1088
MLKEM_SEED_BYTES: Final = 64
TAG_BYTES: Final = 16
SEED_BYTES: Final = 32  # of an identity that is stored

MAX_NOISE_BYTES: Final = 65_535  # of any message of the handshake, and of any record
MESSAGE_1_BYTES: Final = 3568  # without its payload
MESSAGE_2_BYTES: Final = 3424
MAX_RECORD_BYTES: Final = 60 * 1024  # of plaintext: a frame with it stays far below a Noise message's limit
PREFIX_BYTES: Final = 4  # the length of a message, before its bytes

_MAX_NONCE: Final = 2**64 - 2  # the last one is reserved by Noise
_LENGTH: Final = struct.Struct(">I")


class ChannelBroken(RemoteProtocolError):
    """The peer is a different one, or an intermediary changed, repeated or withheld messages."""


# --- keys


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Both private keys of one party, long-term or for one handshake."""

    x25519: X25519PrivateKey = field(repr=False)
    mlkem: MLKEM768PrivateKey = field(repr=False)
    public: PublicKey

    @classmethod
    def make(cls, x25519: X25519PrivateKey, mlkem: MLKEM768PrivateKey) -> "KeyPair":
        public = PublicKey.of(x25519.public_key().public_bytes_raw(), mlkem.public_key().public_bytes_raw())
        return cls(x25519, mlkem, public)

    @classmethod
    def from_seed(cls, seed: bytes) -> "KeyPair":
        """Derive the identity from a secret of SEED_BYTES: always the same one."""
        if len(seed) != SEED_BYTES:
            raise AssertionError(f"a seed has {SEED_BYTES} bytes")
        low, high, curve = (_hmac(seed, b"holdfast executor identity " + one) for one in (b"d", b"z", b"x"))
        return cls.make(
            X25519PrivateKey.from_private_bytes(curve), MLKEM768PrivateKey.from_seed_bytes(low + high)
        )


class Randomness(Protocol):
    """The source of the random part of a handshake."""

    def keys(self) -> KeyPair:
        """Return a new pair."""

    def encapsulate(self, public: bytes) -> tuple[bytes, bytes]:
        """Return a shared secret and its ciphertext for the owner of an ML-KEM key. Raises: ValueError."""


class SystemRandomness:
    """The operating system's randomness."""

    def keys(self) -> KeyPair:
        return KeyPair.make(X25519PrivateKey.generate(), MLKEM768PrivateKey.generate())

    def encapsulate(self, public: bytes) -> tuple[bytes, bytes]:
        return MLKEM768PublicKey.from_public_bytes(public).encapsulate()


SYSTEM: Final = SystemRandomness()


def prologue(environment_id: str, registration_id: str, stream_id: str) -> bytes:
    """What both sides must agree on before the first byte: environment, registration, stream."""
    parts = (PROLOGUE_DOMAIN, environment_id.encode(), registration_id.encode(), stream_id.encode())
    return b"".join(struct.pack(">Q", len(part)) + part for part in parts)


# --- symmetric state


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _hkdf(chaining: bytes, material: bytes, count: int) -> list[bytes]:
    secret = _hmac(chaining, material)
    made: list[bytes] = []
    previous = b""
    for number in range(1, count + 1):
        previous = _hmac(secret, previous + bytes((number,)))
        made.append(previous)
    return made


class CipherState:
    """One key and its counter; each nonce is used once."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._nonce = 0

    def _next(self) -> bytes:
        if self._nonce > _MAX_NONCE:
            raise ChannelBroken("the channel is used up")
        return b"\0\0\0\0" + self._nonce.to_bytes(8, "big")

    def encrypt(self, plain: bytes | memoryview, associated: bytes | None = None) -> bytes:
        sealed = self._cipher.encrypt(self._next(), plain, associated)
        self._nonce += 1
        return sealed

    def decrypt(self, sealed: bytes, associated: bytes | None = None) -> bytes:
        """Raises: ChannelBroken: these are not the peer's next bytes."""
        try:
            plain = self._cipher.decrypt(self._next(), sealed, associated)
        except (InvalidTag, ValueError):
            raise ChannelBroken("what came through the relay is not what the peer sent") from None
        self._nonce += 1
        return plain


class _SymmetricState:
    def __init__(self) -> None:
        self.hash = self.chaining = hashlib.sha256(PROTOCOL_NAME).digest()
        self._cipher: CipherState | None = None

    def mix_hash(self, data: bytes) -> bytes:
        self.hash = hashlib.sha256(self.hash + data).digest()
        return data

    def mix_key(self, material: bytes) -> None:
        self.chaining, key = _hkdf(self.chaining, material, 2)
        self._cipher = CipherState(key)

    def mix_key_and_hash(self, material: bytes) -> None:
        self.chaining, mixed, key = _hkdf(self.chaining, material, 3)
        self.mix_hash(mixed)
        self._cipher = CipherState(key)

    @property
    def overhead(self) -> int:
        return 0 if self._cipher is None else TAG_BYTES

    def encrypt(self, plain: bytes) -> bytes:
        return self.mix_hash(plain if self._cipher is None else self._cipher.encrypt(plain, self.hash))

    def decrypt(self, sealed: bytes) -> bytes:
        plain = sealed if self._cipher is None else self._cipher.decrypt(sealed, self.hash)
        self.mix_hash(sealed)
        return plain

    def split(self) -> tuple[CipherState, CipherState]:
        first, second = _hkdf(self.chaining, b"", 2)
        return CipherState(first), CipherState(second)


# --- handshake


class Role(enum.Enum):
    """The client sends the first message; the executor answers."""

    INITIATOR = "initiator"
    RESPONDER = "responder"


class Token(enum.Enum):
    """A step of a message. Of two letters the first is the initiator's key, the second the responder's."""

    E = "e"
    S = "s"
    EE = "ee"
    ES = "es"
    SE = "se"
    SS = "ss"
    EKEM = "ekem"
    SKEM = "skem"


class Turn(enum.Enum):
    """What a side does with a message."""

    WRITE = "write"
    READ = "read"


class HandshakeState(enum.Enum):
    """The state of a handshake."""

    NEW = "new"
    HALF = "half"
    DONE = "done"
    FAILED = "failed"


PATTERN: Final[dict[HandshakeState, tuple[Token, ...]]] = {
    HandshakeState.NEW: (Token.SKEM, Token.E, Token.ES, Token.S, Token.SS),
    HandshakeState.HALF: (Token.EKEM, Token.SKEM, Token.E, Token.EE, Token.SE),
}
STEPS: Final[dict[tuple[Role, HandshakeState, Turn], HandshakeState]] = {
    (Role.INITIATOR, HandshakeState.NEW, Turn.WRITE): HandshakeState.HALF,
    (Role.INITIATOR, HandshakeState.HALF, Turn.READ): HandshakeState.DONE,
    (Role.RESPONDER, HandshakeState.NEW, Turn.READ): HandshakeState.HALF,
    (Role.RESPONDER, HandshakeState.HALF, Turn.WRITE): HandshakeState.DONE,
}


class Handshake:
    """One side of one handshake.

    The initiator knows its peer in advance; the responder learns its peer's key.
    """

    def __init__(
        self,
        role: Role,
        own: KeyPair,
        prologue: bytes,
        *,
        peer: PublicKey | None = None,
        randomness: Randomness = SYSTEM,
    ) -> None:
        if (role is Role.INITIATOR) != (peer is not None):
            raise AssertionError("the initiator, and nobody else, knows its peer from the start")
        self.role = role
        self.state = HandshakeState.NEW
        self._own = own
        self._own_ephemeral: KeyPair | None = None
        self._peer = peer
        self._peer_ephemeral: PublicKey | None = None
        self._random = randomness
        self._symmetric = _SymmetricState()
        self._symmetric.mix_hash(prologue)
        responder = peer or own.public
        self._symmetric.mix_hash(responder.x25519)
        self._symmetric.mix_hash(responder.mlkem768)

    @property
    def peer(self) -> PublicKey:
        """The other side's identity, proven once its message was read."""
        return _known(self._peer)

    @property
    def transcript(self) -> bytes:
        """The hash of the whole exchange."""
        return self._symmetric.hash

    def write(self, payload: bytes = b"") -> bytes:
        """Return our next message.

        Raises:
            UsageError: the payload is too long for one message.
            ChannelBroken: the peer's keys are invalid.
        """
        tokens, after = self._enter(Turn.WRITE)
        if self.state is HandshakeState.NEW and len(payload) > MAX_NOISE_BYTES - MESSAGE_1_BYTES:
            self.state = HandshakeState.FAILED
            raise UsageError("the authorization is too long for a handshake")
        try:
            parts = [part for token in tokens for part in self._write(token)]
            parts.append(self._symmetric.encrypt(payload))
        except ValueError:
            self.state = HandshakeState.FAILED
            raise ChannelBroken("the peer has impossible keys") from None
        self.state = after
        return b"".join(parts)

    def read(self, message: bytes) -> bytes:
        """Read the peer's next message and return its payload.

        Raises:
            ChannelBroken: it is not such a message, or not for us.
        """
        tokens, after = self._enter(Turn.READ)
        final = self.state is HandshakeState.HALF
        self.state = HandshakeState.FAILED  # until all of it is verified
        size = MESSAGE_2_BYTES if final else MESSAGE_1_BYTES
        if not size <= len(message) <= MAX_NOISE_BYTES or (final and len(message) != size):
            raise ChannelBroken("a handshake has the wrong length")
        reader = _Reader(message)
        try:
            for token in tokens:
                self._read(token, reader)
            payload = self._symmetric.decrypt(reader.rest())
        except ValueError:  # an invalid key
            raise ChannelBroken("the peer has impossible keys") from None
        self.state = after
        return payload

    def finish(self) -> "Channel":
        """Create the channel from a finished handshake."""
        if self.state is not HandshakeState.DONE:
            raise AssertionError("a channel is open once the handshake is done")
        first, second = self._symmetric.split()
        ours = self.role is Role.INITIATOR
        return Channel(send=first if ours else second, receive=second if ours else first)

    def _enter(self, turn: Turn) -> tuple[tuple[Token, ...], HandshakeState]:
        after = STEPS.get((self.role, self.state, turn))
        if after is None:
            raise AssertionError(f"the {self.role.value} does not {turn.value} when {self.state.value}")
        return PATTERN[self.state], after

    def _write(self, token: Token) -> Iterator[bytes]:
        symmetric = self._symmetric
        match token:
            case Token.E:
                self._own_ephemeral = self._random.keys()
                yield symmetric.mix_hash(self._own_ephemeral.public.x25519)
                yield symmetric.mix_hash(self._own_ephemeral.public.mlkem768)
            case Token.S:
                yield symmetric.encrypt(self._own.public.x25519)
                yield symmetric.encrypt(self._own.public.mlkem768)
            case Token.EKEM:
                secret, sealed = self._random.encapsulate(_known(self._peer_ephemeral).mlkem768)
                yield symmetric.mix_hash(sealed)
                symmetric.mix_key(secret)
            case Token.SKEM:
                secret, sealed = self._random.encapsulate(self.peer.mlkem768)
                yield symmetric.encrypt(sealed)
                symmetric.mix_key_and_hash(secret)
            case _:
                self._mix_exchange(token)

    def _read(self, token: Token, message: "_Reader") -> None:
        symmetric = self._symmetric
        tag = symmetric.overhead
        match token:
            case Token.E:
                curve = symmetric.mix_hash(message.take(X25519_BYTES))
                kem = symmetric.mix_hash(message.take(MLKEM_PUBLIC_BYTES))
                self._peer_ephemeral = PublicKey.of(curve, kem)
            case Token.S:
                curve = symmetric.decrypt(message.take(X25519_BYTES + tag))
                kem = symmetric.decrypt(message.take(MLKEM_PUBLIC_BYTES + tag))
                self._peer = PublicKey.of(curve, kem)
            case Token.EKEM:
                sealed = symmetric.mix_hash(message.take(MLKEM_CIPHERTEXT_BYTES))
                symmetric.mix_key(_known(self._own_ephemeral).mlkem.decapsulate(sealed))
            case Token.SKEM:
                sealed = symmetric.decrypt(message.take(MLKEM_CIPHERTEXT_BYTES + tag))
                symmetric.mix_key_and_hash(self._own.mlkem.decapsulate(sealed))
            case _:
                self._mix_exchange(token)

    def _mix_exchange(self, token: Token) -> None:
        mine, theirs = token.value[0], token.value[1]
        if self.role is Role.RESPONDER:
            mine, theirs = theirs, mine
        own = _known(self._own_ephemeral) if mine == "e" else self._own
        peer = _known(self._peer_ephemeral) if theirs == "e" else self.peer
        self._symmetric.mix_key(own.x25519.exchange(X25519PublicKey.from_public_bytes(peer.x25519)))


class _Reader:
    """Reads a message from front to back; its length was checked."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._at = 0

    def take(self, size: int) -> bytes:
        self._at += size
        return self._message[self._at - size : self._at]

    def rest(self) -> bytes:
        return self._message[self._at :]


def _known(value: T | None) -> T:
    if value is None:
        raise AssertionError("the pattern has this key by now")
    return value


# --- channel


class Record(NamedTuple):
    """The content of one frame; `seq` is the nonce as well."""

    seq: int
    sealed: bytes


class Channel:
    """Converts messages to records and back. Each record is sealed once, in the order of sending."""

    def __init__(self, *, send: CipherState, receive: CipherState) -> None:
        self._send = send
        self._receive = receive
        self._sent = 0
        self._messages = MessageReader()

    def seal(self, message: bytes) -> Iterator[Record]:
        """Yield the records of a message, created on demand; all must be taken before the next message."""
        if not 0 < len(message) <= MAX_MESSAGE_BYTES:
            raise AssertionError("whoever sends knows the limit")
        prefix = _LENGTH.pack(len(message))
        head = MAX_RECORD_BYTES - PREFIX_BYTES
        yield self._record(prefix + message[:head])
        view = memoryview(message)
        for start in range(head, len(message), MAX_RECORD_BYTES):
            yield self._record(view[start : start + MAX_RECORD_BYTES])

    def _record(self, plain: bytes | memoryview) -> Record:
        seq = self._sent
        if seq > MAX_SEQ:
            raise ChannelBroken("the channel is used up")
        self._sent += 1
        return Record(seq, self._send.encrypt(plain))

    def open(self, sealed: bytes) -> list[bytes]:
        """Return the messages that the peer's next record completes.

        Raises:
            ChannelBroken: it is not the peer's next record.
            RemoteProtocolError: it is, but its content is invalid.
        """
        if not TAG_BYTES <= len(sealed) <= MAX_RECORD_BYTES + TAG_BYTES:
            raise ChannelBroken("a record has an impossible length")
        return self._messages.feed(self._receive.decrypt(sealed))


class MessageReader:
    """Joins the messages of one direction: each is preceded by its length, in four bytes."""

    def __init__(self, *, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, plain: bytes) -> list[bytes]:
        """Return the messages completed by these bytes.

        Raises:
            RemoteProtocolError: a message's length is zero or too large.
        """
        alone = len(plain) - PREFIX_BYTES
        if not self._buffer and 0 < alone <= self._max_bytes and plain.startswith(_LENGTH.pack(alone)):
            return [plain[PREFIX_BYTES:]]  # the usual case: one record, one message
        self._buffer += plain
        messages: list[bytes] = []
        at = 0
        while len(self._buffer) - at >= PREFIX_BYTES:
            (size,) = _LENGTH.unpack_from(self._buffer, at)
            if not 0 < size <= self._max_bytes:
                raise RemoteProtocolError("a message through the relay is empty or too long")
            if len(self._buffer) - at - PREFIX_BYTES < size:
                break
            at += PREFIX_BYTES
            with memoryview(self._buffer) as view:
                messages.append(bytes(view[at : at + size]))
            at += size
        del self._buffer[:at]
        return messages
