"""Names as addresses: the messages of a name server that queries no other, and the table of addresses and
names. Pure module.

Each name that may be reached has an address from two blocks that lead nowhere outside: one for benchmarks
(RFC 2544), one of a private prefix of ours. It is assigned at the first question and never reused. All other
names get NXDOMAIN. No part of a question leaves the machine, so its labels cannot carry data out.
"""

import enum
import ipaddress
import re
import struct
from dataclasses import dataclass
from typing import Final

from holdfast.egress.addresses import Address

BLOCK_V4: Final = ipaddress.IPv4Network("198.18.0.0/15")
BLOCK_V6: Final = ipaddress.IPv6Network("fd68:6f6c:6466:6173::/64")
MAX_NAMES: Final = 1024  # with an address at a time: each costs the listening process a few descriptors
MAX_QUESTION: Final = 512  # bytes of a message; a name has at most 255, and the rest is not read
TTL_S: Final = 60  # an address stays assigned to its name as long as the command runs
_FIRST: Final = 256  # the first host number: users assign addresses below it themselves
_HEADER: Final = struct.Struct("!HHHHHH")
_MAX_NAME: Final = 255
_LABEL: Final = re.compile(rb"[A-Za-z0-9_-]{1,63}")
# RFC 1035, 3596
_RESPONSE, _OPCODE, _AUTHORITATIVE, _RECURSION_WANTED, _RECURSION = 0x8000, 0x7800, 0x0400, 0x0100, 0x0080
_INTERNET, _ANY = 1, 255


class RecordType(enum.IntEnum):
    """Record types that are answered."""

    A = 1
    AAAA = 28
    ANY = 255


class Rcode(enum.IntEnum):
    NO_ERROR = 0
    FORMAT_ERROR = 1
    SERVER_FAILURE = 2
    NAME_ERROR = 3  # NXDOMAIN
    NOT_IMPLEMENTED = 4


@dataclass(frozen=True, slots=True)
class Question:
    """A question. `name` is None when it cannot be a host: invalid bytes, too long, the root."""

    id: int
    flags: int
    name: str | None
    kind: int
    asked: bytes  # the question as received: the answer repeats its letter case

    @property
    def about_host(self) -> bool:
        """Whether it is about a host, not about a reverse lookup."""
        return self.name is not None and not self.name.endswith(".arpa")

    @property
    def wants_address(self) -> bool:
        return self.kind in (RecordType.A, RecordType.AAAA, RecordType.ANY)


class BadMessage(ValueError):
    """Not a question; the answer to it, if there is one, reports only that."""

    def __init__(self, answer: bytes | None) -> None:
        super().__init__("not a question")
        self.answer = answer


def read_question(message: bytes) -> Question:
    """Parse the one question of a message.

    Raises:
        BadMessage: it cannot be answered.
    """
    if len(message) < _HEADER.size:
        raise BadMessage(None)
    id_, flags, questions, *_ = _HEADER.unpack_from(message)
    if flags & _RESPONSE:
        raise BadMessage(None)  # two servers could answer each other for ever
    if flags & _OPCODE:
        raise BadMessage(_head(id_, flags, Rcode.NOT_IMPLEMENTED, 0, 0))
    try:
        if questions != 1:
            raise ValueError
        labels, at = _read_labels(message, _HEADER.size)
        kind, klass = struct.unpack_from("!HH", message, at)
    except (ValueError, struct.error):
        raise BadMessage(_head(id_, flags, Rcode.FORMAT_ERROR, 0, 0)) from None
    odd = not labels or not all(map(_LABEL.fullmatch, labels)) or klass not in (_INTERNET, _ANY)
    name = None if odd else b".".join(labels).decode("ascii").lower()
    return Question(id_, flags, name, kind, message[_HEADER.size : at + 4])


def _read_labels(message: bytes, at: int) -> tuple[list[bytes], int]:
    """The labels of a name, and where it ends. A question has nothing before it for a pointer to refer to."""
    labels: list[bytes] = []
    begin = at
    while True:
        if at >= len(message):
            raise ValueError
        length = message[at]
        if length > 63 or at + 1 + length - begin > _MAX_NAME:
            raise ValueError
        at += 1
        if length == 0:
            return labels, at
        if at + length > len(message):
            raise ValueError
        labels.append(message[at : at + length])
        at += length


def answer(question: Question, addresses: tuple[Address, ...]) -> bytes:
    """The answer with the addresses of a name; skip those of another record type than asked for."""
    records = [
        struct.pack("!HHHIH", 0xC00C, record, _INTERNET, TTL_S, len(address.packed)) + address.packed
        for address in addresses
        for record in (RecordType.A if address.version == 4 else RecordType.AAAA,)
        if question.kind in (record, RecordType.ANY)
    ]
    head = _head(question.id, question.flags, Rcode.NO_ERROR, 1, len(records))
    return head + question.asked + b"".join(records)


def refuse(question: Question, rcode: Rcode = Rcode.NAME_ERROR) -> bytes:
    """The answer that there is no such name."""
    return _head(question.id, question.flags, rcode, 1, 0) + question.asked


def _head(id_: int, flags: int, rcode: Rcode, questions: int, answers: int) -> bytes:
    told = _RESPONSE | _AUTHORITATIVE | _RECURSION | (flags & _RECURSION_WANTED) | rcode
    return _HEADER.pack(id_, told, questions, answers, 0, 0)


class NameTable:
    """Maps names to addresses and back."""

    def __init__(self, most: int = MAX_NAMES) -> None:
        self._most = most
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def find(self, name: str) -> tuple[Address, Address] | None:
        """The addresses of a name; None if it has none yet."""
        number = self._numbers.get(name)
        return None if number is None else _addresses(number)

    def give(self, name: str) -> tuple[Address, Address] | None:
        """Assign addresses to a name; None if the table is full."""
        if name not in self._numbers:
            if len(self._names) >= self._most:
                return None
            self._numbers[name] = len(self._names)
            self._names.append(name)
        return _addresses(self._numbers[name])

    def name_at(self, address: str) -> str | None:
        """The name of an address; None if it has none."""
        try:
            given = ipaddress.ip_address(address)
        except ValueError:
            return None
        block = BLOCK_V4 if given.version == 4 else BLOCK_V6
        number = int(given) - int(block.network_address) - _FIRST
        return self._names[number] if 0 <= number < len(self._names) else None


def _addresses(number: int) -> tuple[Address, Address]:
    return BLOCK_V4[_FIRST + number], BLOCK_V6[_FIRST + number]
