"""Streams between two nodes: the messages that the nodes exchange about them. Pure module.

A harness has dialled one node and its executor another; a bus carries messages between the two. The bus may
lose messages and others may use it, so a message is numbered and signed:

    kind 1 | sender 16 | link 16 | number 8 | body | signature 16

The key is derived from the one that nodes share through their store. The signature also covers the receiving
node; a message that does not verify is ignored. A number that was seen already is a repetition. A missing
number ends the link: the content is not known, so both ends must start again. Beats carry the number of
messages sent, so the loss of the last one is noticed too; a node that sends no beats counts as gone.

Flow control. The bus does not wait for slow receivers. So at most WINDOW bytes of frames are under way, until
the other side acknowledges that it has passed them on.
"""

import enum
import hmac
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import RemoteProtocolError

WINDOW: Final = 1024 * 1024  # bytes under way; with a round trip of two milliseconds that is 500 MB/s
TOLD_EVERY: Final = WINDOW // 4  # bytes passed on before a credit is sent
ID_BYTES: Final = 16
SIGNATURE_BYTES: Final = 16
MAX_ENTRIES: Final = 2000  # links in one beat: 48 KB
NOBODY: Final = bytes(ID_BYTES)  # the link id of messages that concern no single link

_HEAD: Final = struct.Struct(f"!B{ID_BYTES}s{ID_BYTES}sQ")
_ENTRY: Final = struct.Struct(f"!{ID_BYTES}sQ")
_TOTAL: Final = struct.Struct("!Q")
OVERHEAD: Final = _HEAD.size + SIGNATURE_BYTES


class MessageKind(enum.IntEnum):
    OPEN = 1  # a harness is here for an executor of the receiving node
    ACCEPT = 2
    REFUSE = 3
    FRAME = 4
    CREDIT = 5  # total bytes of frames that were passed on
    CLOSE = 6
    BEAT = 7  # total messages that were sent for these links


class Message(NamedTuple):
    kind: MessageKind
    sender: bytes
    link: bytes
    number: int
    body: bytes = b""


class Opening(msgspec.Struct, array_like=True):
    """The harness: its address's claims, its single-use bundle's id, and where it dialled from."""

    tenant: str
    environment: str
    registration: str
    id: str
    peer: str


class MessageLost(RemoteProtocolError):
    """The bus lost a message."""


# --- messages


def derive_key(signing_key: bytes) -> bytes:
    """Derive the nodes' key for the bus."""
    return hmac.digest(signing_key, b"holdfast relay bus 1", "sha256")


def mailbox_of(node_id: str, key: bytes) -> bytes:
    """The name of a node on the bus, which cannot be guessed without the key."""
    return hmac.digest(key, b"mailbox " + node_id.encode(), "sha256")[:ID_BYTES]


def seal(message: Message, to: bytes, key: bytes) -> bytes:
    head = _HEAD.pack(message.kind, message.sender, message.link, message.number)
    signed = b"".join((head, message.body))
    return signed + _sign(signed, to, key)


def unseal(raw: bytes, here: bytes, key: bytes) -> Message | None:
    """Verify and decode a message; None: no node has sent this to us."""
    signed, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
    if len(raw) < OVERHEAD or not hmac.compare_digest(signature, _sign(signed, here, key)):
        return None
    kind, sender, link, number = _HEAD.unpack_from(signed)
    try:
        return Message(MessageKind(kind), sender, link, number, signed[_HEAD.size :])
    except ValueError:
        return None  # from a later version


def _sign(signed: bytes, to: bytes, key: bytes) -> bytes:
    return hmac.digest(key, to + signed, "sha256")[:SIGNATURE_BYTES]


def encode_total(total: int) -> bytes:
    return _TOTAL.pack(total)


def decode_total(body: bytes) -> int:
    """Raises: RemoteProtocolError: the body is not a total."""
    if len(body) != _TOTAL.size:
        raise RemoteProtocolError("a credit is a number")
    return int(_TOTAL.unpack(body)[0])


def encode_beats(sent: Iterable[tuple[bytes, int]]) -> Iterator[bytes]:
    """Encode the bodies of beats about these links."""
    entries = [_ENTRY.pack(*one) for one in sent]
    for start in range(0, len(entries), MAX_ENTRIES):
        yield b"".join(entries[start : start + MAX_ENTRIES])


def decode_beats(body: bytes) -> list[tuple[bytes, int]]:
    whole = len(body) - len(body) % _ENTRY.size
    return [_ENTRY.unpack_from(body, at) for at in range(0, whole, _ENTRY.size)]


# --- one side of a link


class Flow:
    """What one side of a link has sent and received; `waiting_bytes` are of frames not sent yet."""

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
        """Return the number of the next message."""
        self.sent += 1
        return self.sent - 1

    def expect(self, number: int, now: float) -> bool:
        """Return whether a message is new, and not a repetition.

        Raises:
            MessageLost: an earlier message is missing.
        """
        if number > self.received:
            raise MessageLost("a message was lost")
        if number < self.received:
            return False
        self.received += 1
        self.heard = now
        return True

    def hear_beat(self, beat: int, sent: int, now: float) -> None:
        """Take a beat: `sent` messages were sent. Those that are still missing at the next beat are lost.

        Raises:
            MessageLost: messages are lost.
        """
        if beat <= self._beat:
            return
        if self._owed > self.received:
            raise MessageLost("the last messages were lost")
        self._beat, self._owed, self.heard = beat, sent, now

    # --- frames

    def send(self, frame: bytes) -> list[bytes]:
        """Queue a frame; return the frames that may be sent now, none while the window is full."""
        self._waiting.append(frame)
        self.waiting_bytes += len(frame)
        return self._release()

    def credit(self, total: int) -> list[bytes]:
        """Note the total bytes that the other side has passed on; return the frames that may be sent now.

        Raises:
            RemoteProtocolError: the total is impossible.
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
        """Note that a frame of this size was passed on to its recipient."""
        self._passed_on += size

    def owed_credit(self, *, least: int = TOLD_EVERY) -> int | None:
        """The total to report to the other side; None: not enough for a message."""
        if self._passed_on - self._told < max(1, least):
            return None
        self._told = self._passed_on
        return self._told
