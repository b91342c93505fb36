"""Keys in passing data: found where they are not allowed, masked where a server sends them back. Pure module.

A stream comes in pieces, and a key may be split between two. Bytes that may be the beginning of a key are
held back until it is clear that they are not.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from holdfast.egress.keys.placeholders import Key

_COVER: Final = b"*"
_TOLD: Final = 6  # characters after the public prefix by which a truncated key is recognised
_TOLD_ENCODED: Final = 8  # the same in base64


def spell(key: Key) -> dict[bytes, bytes]:
    """The spellings in which a server may send this key back, each with its replacement of the same length.

    The spellings are the plain key, its escaped forms in URLs and JSON, and base64 at each of the three
    offsets.
    """
    value = key.value.encode("ascii")
    found = (*_escape(key.value), *_encode_all(value))
    return {word: _COVER * len(word) for word in found} | {value: key.placeholder.encode("ascii")}


def measure(key: Key) -> dict[bytes, int]:
    """The length from which a truncated beginning of each spelling is masked.

    Servers truncate what they quote in errors, and the client chooses what precedes the key there.
    """
    shown = _count_same(key.value, key.placeholder)
    plain, encoded = shown + _TOLD, -(-shown * 4 // 3) + _TOLD_ENCODED
    least = dict.fromkeys(_encode_all(key.value.encode("ascii")), encoded)
    return least | dict.fromkeys((key.value.encode("ascii"), *_escape(key.value)), plain)


def _escape(value: str) -> list[bytes]:
    """The key as escaped in URLs and JSON."""
    escaped = json.dumps(value)[1:-1]
    said = (quote(value, safe=""), quote(value), escaped, escaped.replace("/", "\\/"))
    return [text.encode("ascii") for text in said]


def _encode_all(value: bytes) -> list[bytes]:
    return [encoded for start in range(3) for encoded in _encode(value, start)]


def _encode(value: bytes, start: int) -> Iterable[bytes]:
    """The part of its base64 that is the same whatever surrounds it, at this offset in a group of three."""
    end = (start + len(value)) // 3 * 3 - start
    padded = bytes(start) + value[:end]
    for encoded in (base64.b64encode(padded), base64.urlsafe_b64encode(padded)):
        yield encoded[(start * 8 + 5) // 6 :]


class Cover:
    """Masks words in one stream by others of the same length; a truncated word from its `least` length on."""

    def __init__(self, words: Mapping[bytes, bytes], least: Mapping[bytes, int] | None = None) -> None:
        self._words = dict(words)
        self._heads = {word: word[: (least or {}).get(word, len(word))] for word in self._words}
        longest = sorted(set(self._heads.values()), key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, longest))) if longest else None
        self._longest = max(map(len, self._words), default=0)
        self._held = b""

    def cover(self, data: bytes) -> bytes:
        """Mask a complete text."""
        return b"".join(self._cover(data, len(data))[0])

    def feed(self, data: bytes) -> bytes:
        """Take more of the stream; return what may be passed on of all data so far."""
        if self._any is None:
            return data
        data = self._held + data
        there = any(head in data for head in self._heads.values())  # faster than one expression for all
        passed, at = self._cover(data, None) if there else ([], 0)
        begun = self._find_begun(data, at)
        self._held = data[begun:]
        return b"".join((*passed, data[at:begun]))

    def finish(self) -> bytes:
        """Return the data held back, at the end of the stream."""
        held, self._held = self._held, b""
        return self.cover(held)

    def _cover(self, data: bytes, end: int | None) -> tuple[list[bytes], int]:
        """The masked pieces up to `end`; without an end up to the last complete word."""
        passed, at = [], 0
        begun = self._find_begun(data, at) if end is None else len(data)
        while self._any is not None and (found := self._any.search(data, at)) is not None:
            if at > begun:
                begun = self._find_begun(data, at)
            if found.start() >= begun:
                break
            said = self._cover_at(data, found.start(), begun)
            passed += [data[at : found.start()], said]
            at = found.start() + len(said)
        return [*passed, data[at:end]] if end is not None else passed, at

    def _cover_at(self, data: bytes, at: int, begun: int) -> bytes:
        """The replacement of the longest word that begins here, up to the beginning of the next word."""
        length, word = self._find_longest(data, at)
        end = at + length
        if length < len(word) and self._any is not None:
            inner = self._any.search(data, at + 1, end + self._longest)
            while inner is not None and inner.start() < end:
                if inner.start() + self._find_longest(data, inner.start())[0] > end:
                    end = inner.start()
                else:
                    inner = self._any.search(data, inner.start() + 1, end + self._longest)
            end = min(end, begun)
        return self._words[word][: end - at]

    def _find_longest(self, data: bytes, at: int) -> tuple[int, bytes]:
        """The word that matches longest here, and the length of the match; at least one begins here."""
        begun = [word for word, head in self._heads.items() if data.startswith(head, at)]
        return max((_count_same(word, data[at : at + len(word)]), word) for word in begun)

    def _find_begun(self, data: bytes, after: int) -> int:
        """Where the earliest incomplete word begins; the end of the data if there is none."""
        for at in range(max(after, len(data) - self._longest + 1), len(data)):
            rest = data[at:]
            if any(len(word) > len(rest) and word.startswith(rest) for word in self._words):
                return at
        return len(data)


def _count_same(one: Sequence[object], other: Sequence[object]) -> int:
    """The length of the common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


class Lookout:
    """Finds words in one stream."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self._words = tuple(words)
        self._longest = max(map(len, self._words), default=0)
        self._last = b""

    def sees(self, data: bytes) -> bool:
        """Whether one of the words has appeared in the stream so far."""
        if not self._words:
            return False
        data = self._last + data
        self._last = data[-(self._longest - 1) :] if self._longest > 1 else b""
        return any(word in data for word in self._words)
