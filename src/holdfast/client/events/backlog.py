"""Buffer the events of one process between the link and its readers. Pure module.

Each stream has a lane; exit and close share one of their own. A reader has a position in every lane it wants.
Unread events are never dropped. Events that some reader has read are kept for later readers, up to KEPT_BYTES
per lane. When more than FULL_BYTES have piled up the backlog is full, and its owner makes the sender wait
until it is not.
"""

import weakref
from collections import deque
from typing import Final

from holdfast.client.events.ordering import Event, Output

KEPT_BYTES: Final = 1024 * 1024  # read events per lane: as much as a server keeps of a process
FULL_BYTES: Final = 4 * 1024 * 1024  # of one process: bounds memory, and lets bursts pass without a stop
ROOM_BYTES: Final = 3 * 1024 * 1024  # below it no longer full; above what is kept, or it stays full for ever
EVENT_BYTES: Final = 256  # overhead of an event beside its data, so that many small ones count as well
PIECE_BYTES: Final = 4096  # smaller pieces of output are joined up to this size for a result

ENDS: Final = "ends"
LANES: Final = ("stdout", "stderr", "pty", ENDS)


class _Lane:
    """Events in order; positions count from the first event ever."""

    __slots__ = ("bytes", "dropped_bytes", "events", "first", "read")

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.first = 0
        self.read = 0
        self.bytes = 0
        self.dropped_bytes = 0


class Backlog:
    """The lanes of one process."""

    def __init__(self) -> None:
        self._lanes = {name: _Lane() for name in LANES}
        self._readers: weakref.WeakSet[Reader] = weakref.WeakSet()
        self._bytes = 0
        self._full = False

    @property
    def full(self) -> bool:
        """Whether the sender should wait. Once true, it stays so until the backlog is below ROOM_BYTES."""
        self._full = self._bytes > (ROOM_BYTES if self._full else FULL_BYTES)
        return self._full

    def add(self, event: Event, *, read: bool = False) -> None:
        """Add one event; `read` says that the caller has delivered it to a reader already."""
        name = event.stream if isinstance(event, Output) else ENDS
        lane = self._lanes[name]
        lane.events.append(event)
        size = _size(event)
        lane.bytes += size
        self._bytes += size
        if read:
            lane.read = lane.first + len(lane.events)
            if lane.bytes > KEPT_BYTES:
                self.trim(lane, name)

    def read_all(self) -> tuple[list[Event], int]:
        """Return all events that are kept, in order, and the number of output bytes that were dropped."""
        events = [event for lane in self._lanes.values() for event in lane.events]
        events.sort(key=lambda event: event.seq)
        missing = sum(lane.dropped_bytes for lane in self._lanes.values())
        for name, lane in self._lanes.items():
            lane.read = lane.first + len(lane.events)
            self.trim(lane, name)
        return events, missing

    def reader(self, *streams: str) -> "Reader":
        """Return a reader of these streams from the oldest event that is kept; without streams, of all."""
        reader = Reader(self, {name: self._lanes[name] for name in streams or LANES})
        self._readers.add(reader)
        return reader

    def trim(self, lane: _Lane, name: str) -> None:
        """Drop events that every reader has read, down to KEPT_BYTES."""
        needed = lane.read
        for reader in self._readers:
            needed = min(needed, reader.places.get(name, needed))
        while lane.bytes > KEPT_BYTES and lane.first < needed:
            event = lane.events.popleft()
            lane.first += 1
            size = _size(event)
            lane.bytes -= size
            self._bytes -= size
            if isinstance(event, Output):
                lane.dropped_bytes += len(event.data)


class Reader:
    """A position in each lane; the backlog holds it by a weak reference only."""

    def __init__(self, backlog: Backlog, lanes: dict[str, _Lane]) -> None:
        self._backlog = backlog
        self._lanes = lanes
        self.places = {name: lane.first for name, lane in lanes.items()}

    def next(self) -> Event | None:
        """The next event in order; None when there is none yet."""
        best: str | None = None
        found: Event | None = None
        for name, lane in self._lanes.items():
            place = self.places[name] - lane.first
            if place < len(lane.events):
                event = lane.events[place]
                if found is None or event.seq < found.seq:
                    best, found = name, event
        if best is None:
            return None
        lane = self._lanes[best]
        self.places[best] += 1
        lane.read = max(lane.read, self.places[best])
        if lane.bytes > KEPT_BYTES:
            self._backlog.trim(lane, best)
        return found


class Ends:
    """The head and the tail of a stream's output, within `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._head_room = max_bytes - max_bytes // 2
        self._tail_bytes = max_bytes // 2
        self._head: deque[bytes] = deque()
        self._tail: deque[bytes] = deque()
        self._held_bytes = 0
        self._dropped_bytes = 0

    def add(self, data: bytes) -> None:
        if self._head_room:
            fits = data[: self._head_room]
            _append(self._head, fits)
            self._head_room -= len(fits)
            data = data[len(fits) :]
        if data:
            _append(self._tail, data)
            self._held_bytes += len(data)
            while self._held_bytes - len(self._tail[0]) > self._tail_bytes:
                dropped = len(self._tail.popleft())
                self._held_bytes -= dropped
                self._dropped_bytes += dropped

    def read(self) -> tuple[bytes, int]:
        """Return what was kept, and the number of bytes missing in its middle."""
        tail = b"".join(self._tail)
        over = max(0, len(tail) - self._tail_bytes)
        return b"".join([*self._head, tail[over:]]), self._dropped_bytes + over


def _append(pieces: deque[bytes], data: bytes) -> None:
    """Append data; tiny pieces are joined, since each would cost more than it holds."""
    if pieces and len(pieces[-1]) + len(data) <= PIECE_BYTES:
        pieces[-1] += data
    else:
        pieces.append(data)


def _size(event: Event) -> int:
    return EVENT_BYTES + (len(event.data) if isinstance(event, Output) else 0)
