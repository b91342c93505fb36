"""Keys in what passes by: found where they must not be, covered where a server says them back. Pure module.

A stream comes in pieces, and a key may lie across the border of two; nothing of one is let go before it is
clear that it is none.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

from holdfast.egress.keys.placeholders import Key

_COVER: Final = b"*"


def spell(key: Key) -> dict[bytes, bytes]:
    """How a server may say this key back, and what is said instead, which is as long.

    As it is, as a URL and JSON have it, and in base64, wherever it begins in what was encoded.
    """
    value = key.value.encode("ascii")
    found = [
        quote(key.value, safe="").encode("ascii"),
        quote(key.value).encode("ascii"),
        (escaped := json.dumps(key.value)[1:-1]).encode("ascii"),
        escaped.replace("/", "\\/").encode("ascii"),
        *(encoded for start in range(3) for encoded in _encode(value, start)),
    ]
    return {word: _COVER * len(word) for word in found} | {value: key.placeholder.encode("ascii")}


def _encode(value: bytes, start: int) -> Iterable[bytes]:
    """What is the same of its base64 whatever is around it, when it begins at this byte of three."""
    end = (start + len(value)) // 3 * 3 - start
    padded = bytes(start) + value[:end]
    for encoded in (base64.b64encode(padded), base64.urlsafe_b64encode(padded)):
        yield encoded[(start * 8 + 5) // 6 :]


class Cover:
    """Covers words in one stream, by others of the same length."""

    def __init__(self, words: Mapping[bytes, bytes]) -> None:
        self._words = dict(words)
        longest = sorted(self._words, key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, longest))) if longest else None
        self._longest = max(map(len, longest), default=0)
        self._held = b""

    def cover(self, data: bytes) -> bytes:
        """A whole text."""
        return data if self._any is None else self._any.sub(lambda found: self._words[found[0]], data)

    def feed(self, data: bytes) -> bytes:
        """Some more of the stream; what may be passed on of all that came."""
        if self._any is None:
            return data
        data, at = self._held + data, 0
        passed = []
        there = any(word in data for word in self._words)  # ten times as fast as an expression of all
        while True:
            begun = self._find_begun(data, at)
            found = self._any.search(data, at) if there else None
            if found is None or found.start() >= begun:
                break
            passed += [data[at : found.start()], self._words[found[0]]]
            at = found.end()
        self._held = data[begun:]
        return b"".join((*passed, data[at:begun]))

    def finish(self) -> bytes:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return self.cover(held)

    def _find_begun(self, data: bytes, after: int) -> int:
        """Where the earliest word begins that is not whole yet; the end if none does."""
        for at in range(max(after, len(data) - self._longest + 1), len(data)):
            rest = data[at:]
            if any(len(word) > len(rest) and word.startswith(rest) for word in self._words):
                return at
        return len(data)


class Lookout:
    """Finds words in one stream."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self._words = tuple(words)
        self._longest = max(map(len, self._words), default=0)
        self._last = b""

    def sees(self, data: bytes) -> bool:
        """Whether one of them has passed by now."""
        if not self._words:
            return False
        data = self._last + data
        self._last = data[-(self._longest - 1) :] if self._longest > 1 else b""
        return any(word in data for word in self._words)
