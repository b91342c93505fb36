"""The tool calls of a worker, as far as its event stream tells: does it try anything new? Pure module."""

import hashlib
from collections import deque
from typing import Final

WINDOW: Final = 30  # of the newest calls: more than one round of edit, build and test
MAX_WHAT: Final = 160  # characters of a call that is shown


class Calls:
    """Counted as they come; `fresh` are those that were not among the newest when they were made."""

    def __init__(self) -> None:
        self.count = 0
        self.fresh = 0
        self.in_a_row = 0  # the same as the last one, with that
        self.last = ""
        self._newest: deque[bytes] = deque(maxlen=WINDOW)

    def add(self, whole: str, what: str) -> None:
        """A call: `whole` is what makes it another one, `what` is shown of it."""
        key = hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=8).digest()
        self.count += 1
        self.fresh += key not in self._newest
        self.in_a_row = self.in_a_row + 1 if self._newest and self._newest[-1] == key else 1
        self.last = what
        self._newest.append(key)

    @property
    def recent(self) -> int:
        """How many of the newest are looked at."""
        return len(self._newest)

    @property
    def different(self) -> int:
        """How many of them are not the same."""
        return len(set(self._newest))
