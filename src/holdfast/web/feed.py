"""One stream of changes for each page, as server-sent events.

A stream keeps only the number of the last event it has sent: it reads later events from the store, and only
once the last piece has been accepted. A client that does not read is disconnected, and continues later from
the number it knows.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
from starlette.types import Message, Receive, Scope, Send

from holdfast.board.asyncstore import AsyncStore
from holdfast.board.rules.rows import TaskEvent
from holdfast.board.store import Store
from holdfast.errors import Conflict, HoldfastError
from holdfast.web import replies

log = logging.getLogger(__name__)

BATCH: Final = 200  # events of one message
MAX_BEHIND: Final = 2000  # events; a page that has missed more must reload everything
MAX_STREAMS: Final = 50  # at once; a person has few pages open
BEAT_S: Final = 15.0  # a heartbeat, so that either side notices when the other is gone
SLOW_S: Final = 20.0  # for one message to be accepted by the client
_HEAD: Final = ((b"content-type", b"text/event-stream; charset=utf-8"),)


class Feed:
    """Wakes all streams when the board may have changed."""

    def __init__(self, store: AsyncStore, *, slow_s: float = SLOW_S) -> None:
        self.store = store
        self.slow_s = slow_s
        self.streams = 0
        self.closing = False
        self._bell = asyncio.Event()

    @property
    def bell(self) -> asyncio.Event:
        """An event that is set once: take it before looking, so that no change is missed."""
        return self._bell

    def ring(self) -> None:
        self._bell.set()
        self._bell = asyncio.Event()

    def close(self) -> None:
        """Let the streams end."""
        self.closing = True
        self.ring()

    async def hear(self) -> None:
        """Ring at every change of the board, until cancelled."""
        while True:
            await self.store.news.wait()
            self.store.news.clear()
            self.ring()


class EventStream:
    """A continuing response: the changes of a board after an event. `cut` closes the connection."""

    def __init__(
        self, feed: Feed, board: str, after: int | None, last: int, cut: Callable[[Scope], None]
    ) -> None:
        """Raises Conflict when there are too many; `last` is the number of the board's newest event."""
        if feed.streams >= MAX_STREAMS:
            raise Conflict(f"{MAX_STREAMS} pages are open", remedy="close some of them")
        self._feed, self._board, self._cut = feed, board, cut
        self._reset = after is not None and not last - MAX_BEHIND <= after <= last
        self._after = last if after is None or self._reset else after
        self._last = last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_gone(receive))
        self._feed.streams += 1
        try:
            await self._say(send, {"type": "http.response.start", "status": 200, "headers": list(_HEAD)})
            async for chunk in self._chunks(gone):
                await self._say(send, {"type": "http.response.body", "body": chunk, "more_body": True})
            await self._say(send, {"type": "http.response.body", "body": b""})
        except TimeoutError:
            log.info("a page that does not read was cut off")
            self._cut(scope)
        finally:
            self._feed.streams -= 1
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _chunks(self, gone: "asyncio.Future[None]") -> AsyncIterator[bytes]:
        yield _message("hello", {"seq": self._after, "reset": self._reset}, seq=self._after)
        while not gone.done() and not self._feed.closing:
            bell = self._feed.bell
            try:
                found = await self._feed.store.ask(self._look)
            except HoldfastError as exc:
                yield b"event: fault\ndata: " + replies.fault(exc) + b"\n\n"
                return
            if found:
                self._after = found[-1].seq
                yield _message("changes", {"seq": self._after, "events": _slim(found)}, seq=self._after)
                continue
            waiting = asyncio.ensure_future(_rung(bell))
            ready, _ = await asyncio.wait(
                {gone, waiting}, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED
            )
            waiting.cancel()
            if not ready:
                yield b": here\n\n"

    def _look(self, store: Store) -> list[TaskEvent]:
        return store.events(self._board, after=self._after, limit=BATCH)

    async def _say(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self._feed.slow_s):
            await send(message)


def _slim(events: list[TaskEvent]) -> list[dict[str, object]]:
    """The events without payload: a page requests the tasks that it shows."""
    return [
        {name: getattr(one, name) for name in ("seq", "task_id", "run_id", "kind", "actor", "at_ms")}
        for one in events
    ]


def _message(kind: str, members: dict[str, object], *, seq: int) -> bytes:
    data = msgspec.json.encode({"schemaVersion": replies.SCHEMA, **members})
    return f"id: {seq}\nevent: {kind}\ndata: ".encode() + data + b"\n\n"


async def _rung(bell: asyncio.Event) -> None:
    await bell.wait()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
