"""Streams whose ends are at two nodes: what the nodes say to each other about them. Pure module.

A harness has dialled one node and its executor another; a bus carries messages between the two. The bus may
lose messages and belongs to others too, so a message is numbered and signed:

    kind 1 | sender 16 | link 16 | number 8 | body | signature 16

The key is made of the one that nodes share through their store. The signature is also of the node that it is
for; what does not verify is nobody's message and changes nothing. A number that was seen is a repetition. One
that is missing ends the link: what was in it is not known, so both ends must begin anew. Beats say how many
messages were sent, so the last of them cannot be missed either; and whoever sends none is gone.

Flow. The bus does not wait for whoever is slow. So at most WINDOW bytes of frames are on their way, until the
other side has passed them on and said so.
"""

import enum
import hmac
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import RemoteProtocolError

WINDOW: Final = 1024 * 1024  # bytes on their way; at two milliseconds there and back that is 500 MB/s
TOLD_EVERY: Final = WINDOW // 4  # bytes passed on before the sender hears of it
ID_BYTES: Final = 16
SIGNATURE_BYTES: Final = 16
MAX_ENTRIES: Final = 2000  # links in one beat: 48 KB
NOBODY: Final = bytes(ID_BYTES)  # the link of what is about no single one

_HEAD: Final = struct.Struct(f"!B{ID_BYTES}s{ID_BYTES}sQ")
_ENTRY: Final = struct.Struct(f"!{ID_BYTES}sQ")
_TOTAL: Final = struct.Struct("!Q")
OVERHEAD: Final = _HEAD.size + SIGNATURE_BYTES


class MessageKind(enum.IntEnum):
    OPEN = 1  # a harness is here, for an executor of yours
    ACCEPT = 2
    REFUSE = 3
    FRAME = 4
    CREDIT = 5  # so many bytes of frames were passed on, in all
    CLOSE = 6
    BEAT = 7  # so many messages of these links were sent, in all


class Message(NamedTuple):
    kind: MessageKind
    sender: bytes
    link: bytes
    number: int
    body: bytes = b""


class Opening(msgspec.Struct, array_like=True):
    """The harness: what its address claims, which it may do once, and where it dialled from."""

    tenant: str
    environment: str
    registration: str
    id: str
    peer: str


class MessageLost(RemoteProtocolError):
    """The bus did not carry what was sent."""


# --- messages


def derive_key(signing_key: bytes) -> bytes:
    """The nodes' key for the bus."""
    return hmac.digest(signing_key, b"holdfast relay bus 1", "sha256")


def mailbox_of(node_id: str, key: bytes) -> bytes:
    """By what a node is named on the bus: who has no key cannot guess it."""
    return hmac.digest(key, b"mailbox " + node_id.encode(), "sha256")[:ID_BYTES]


def seal(message: Message, to: bytes, key: bytes) -> bytes:
    head = _HEAD.pack(message.kind, message.sender, message.link, message.number)
    signed = b"".join((head, message.body))
    return signed + _sign(signed, to, key)


def unseal(raw: bytes, here: bytes, key: bytes) -> Message | None:
    """The message; None: no node has sent this to us."""
    signed, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
    if len(raw) < OVERHEAD or not hmac.compare_digest(signature, _sign(signed, here, key)):
        return None
    kind, sender, link, number = _HEAD.unpack_from(signed)
    try:
        return Message(MessageKind(kind), sender, link, number, signed[_HEAD.size :])
    except ValueError:
        return None  # of a later version


def _sign(signed: bytes, to: bytes, key: bytes) -> bytes:
    return hmac.digest(key, to + signed, "sha256")[:SIGNATURE_BYTES]


def encode_total(total: int) -> bytes:
    return _TOTAL.pack(total)


def decode_total(body: bytes) -> int:
    """Raises: RemoteProtocolError: it is none."""
    if len(body) != _TOTAL.size:
        raise RemoteProtocolError("a credit is a number")
    return int(_TOTAL.unpack(body)[0])


def encode_beats(sent: Iterable[tuple[bytes, int]]) -> Iterator[bytes]:
    """The bodies of beats about these links."""
    entries = [_ENTRY.pack(*one) for one in sent]
    for start in range(0, len(entries), MAX_ENTRIES):
        yield b"".join(entries[start : start + MAX_ENTRIES])


def decode_beats(body: bytes) -> list[tuple[bytes, int]]:
    whole = len(body) - len(body) % _ENTRY.size
    return [_ENTRY.unpack_from(body, at) for at in range(0, whole, _ENTRY.size)]


# --- one side of a link


class Flow:
    """What one side of a link has sent and received; `waiting_bytes` are of frames that may not go yet."""

    __slots__ = (
        "_beat",
        "_credited",
        "_owed",
        "_passed_on",
        "_sent_bytes",
        "_told",
        "_waiting",
        "heard",
        "received",
        "sent",
        "waiting_bytes",
    )

    def __init__(self, now: float) -> None:
        self.sent = 0  # messages
        self.received = 0
        self.heard = now
        self.waiting_bytes = 0
        self._waiting: deque[bytes] = deque()
        self._sent_bytes = 0
        self._credited = 0
        self._passed_on = 0
        self._told = 0
        self._beat = 0
        self._owed = 0

    # --- numbers

    def count(self) -> int:
        """The number of the next message."""
        self.sent += 1
        return self.sent - 1

    def expect(self, number: int, now: float) -> bool:
        """Whether a message is new; a repetition is not.

        Raises:
            MessageLost: there was another before it.
        """
        if number > self.received:
            raise MessageLost("a message was lost")
        if number < self.received:
            return False
        self.received += 1
        self.heard = now
        return True

    def hear_beat(self, beat: int, sent: int, now: float) -> None:
        """So many were sent. Those that have not come with the next beat either do not come any more.

        Raises:
            MessageLost: they did not.
        """
        if beat <= self._beat:
            return
        if self._owed > self.received:
            raise MessageLost("the last messages were lost")
        self._beat, self._owed, self.heard = beat, sent, now

    # --- frames

    def send(self, frame: bytes) -> list[bytes]:
        """What may go now: this frame, or none while the window is full."""
        self._waiting.append(frame)
        self.waiting_bytes += len(frame)
        return self._release()

    def credit(self, total: int) -> list[bytes]:
        """The other side has passed on so many bytes; what may go now.

        Raises:
            RemoteProtocolError: it cannot have.
        """
        if not self._credited <= total <= self._sent_bytes:
            raise RemoteProtocolError("a credit for what was not sent")
        self._credited = total
        return self._release()

    def _release(self) -> list[bytes]:
        free = []
        while self._waiting and self._sent_bytes - self._credited < WINDOW:
            frame = self._waiting.popleft()
            self.waiting_bytes -= len(frame)
            self._sent_bytes += len(frame)
            free.append(frame)
        return free

    def pass_on(self, size: int) -> None:
        """A frame of this size has gone to whom it is for."""
        self._passed_on += size

    def owed_credit(self, *, least: int = TOLD_EVERY) -> int | None:
        """What to tell the other side; None: nothing worth a message."""
        if self._passed_on - self._told < max(1, least):
            return None
        self._told = self._passed_on
        return self._told
