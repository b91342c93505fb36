"""Who owns which session, and until when. Pure module.

A session is made by a connection, survives it, and is either attached to exactly one connection
or detached with a deadline. Nothing here has a clock: `now` is an argument.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from holdfast.errors import InvalidRequest, SessionAttached

DETACHED_S: Final = 30.0  # long enough to reconnect, short enough that nothing runs unwatched for long

T = TypeVar("T")
C = TypeVar("C")


@dataclass(slots=True)
class _Entry(Generic[T, C]):
    value: T
    owner: C | None
    expires: float = 0.0


class Sessions(Generic[T, C]):
    """Sessions of type T by id, each owned by at most one connection of type C."""

    def __init__(self, *, detached_s: float = DETACHED_S) -> None:
        self._detached_s = detached_s
        self._entries: dict[str, _Entry[T, C]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[T]:
        return iter([entry.value for entry in self._entries.values()])

    def add(self, session_id: str, value: T, owner: C) -> None:
        """A new session, attached to the connection that asked for it."""
        if session_id in self._entries:
            raise AssertionError("session ids are random and do not repeat")
        self._entries[session_id] = _Entry(value, owner)

    def resume(self, session_id: str, owner: C, now: float) -> T:
        """Attach a detached session to a new connection.

        Raises:
            InvalidRequest: there is no such session, or no longer.
            SessionAttached: another connection has it.
        """
        entry = self._entries.get(session_id)
        if entry is None or (entry.owner is None and now >= entry.expires):
            raise InvalidRequest(f"unknown session id {session_id}")
        if entry.owner is not None:
            raise SessionAttached(f"session {session_id} is already attached to another connection")
        entry.owner = owner
        return entry.value

    def detach(self, session_id: str, owner: C, now: float, *, keep_s: float | None = None) -> bool:
        """The connection is gone; False when the session was not its own any more.

        It waits for another connection, for `keep_s` if that is given.
        """
        entry = self._entries.get(session_id)
        if entry is None or entry.owner is not owner:
            return False
        entry.owner = None
        entry.expires = now + (self._detached_s if keep_s is None else keep_s)
        return True

    def remove(self, session_id: str) -> T | None:
        """Forget a session, attached or not."""
        entry = self._entries.pop(session_id, None)
        return None if entry is None else entry.value

    def expire(self, now: float) -> list[T]:
        """Forget and return the sessions whose time is over."""
        over = [key for key, entry in self._entries.items() if entry.owner is None and now >= entry.expires]
        return [self._entries.pop(key).value for key in over]

    def list_detached(self) -> list[T]:
        """Those that nobody holds, the one that ends next first."""
        waiting = [entry for entry in self._entries.values() if entry.owner is None]
        return [entry.value for entry in sorted(waiting, key=lambda entry: entry.expires)]

    def next_expiry(self) -> float | None:
        """When to call `expire` next; None while every session is attached."""
        return min((e.expires for e in self._entries.values() if e.owner is None), default=None)
