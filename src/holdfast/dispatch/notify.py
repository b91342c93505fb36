"""Run a program of the user's for each task that waits for a person, with JSON on its standard input.

It runs after the fact, outside of any transaction and sandbox, one at a time. What is owed is kept in
HOME/notify.json and written before it is acted on, so a reminder is given at least once, and perhaps again
after a crash.
"""

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from holdfast import decoding
from holdfast.board.asyncstore import AsyncStore
from holdfast.board.store import Store
from holdfast.board.verbs import inbox
from holdfast.board.verbs.inbox import Waiting
from holdfast.dispatch.rules import reminders
from holdfast.dispatch.rules.reminders import ReminderBook
from holdfast.local.atomicfile import replace_file

log = logging.getLogger(__name__)

PROGRAM: Final = "notify"  # in the home: run if it is there and no command is given
BOOK: Final = "notify.json"
PROGRAM_S: Final = 30.0  # for one delivery; a program that hangs delays the others
LAST_S: Final = 2.0  # the time a leaving dispatcher still grants a delivery
LOOK_S: Final = 1.0  # between looks at the events
PAGE: Final = 100  # events at once
SCHEMA: Final = 1


class Notifier:
    """Reminders for some boards of one home. What is owed at its end is delivered by the next dispatcher."""

    def __init__(
        self,
        home: Path,
        store: AsyncStore,
        boards: Sequence[str],
        argv: Sequence[str],
        environ: Mapping[str, str],
    ) -> None:
        self._place = home / BOOK
        self._store = store
        self._boards = tuple(boards)
        self._argv = tuple(argv)
        self._environ = dict(environ)
        self._book = _read(self._place)

    async def look(self) -> None:
        """Read new events, and deliver the reminders that are due.

        Raises:
            HoldfastError: the store does not answer.
            OSError: what is owed cannot be written down.
        """
        for board in self._boards:
            while reminders.has_room(self._book) and await self._read_events(board):
                pass
        now_ms = await self._store.ask(Store.now_ms)
        for task in reminders.find_due(self._book, now_ms):
            found = await self._store.ask(Store.waiting, task)
            owed = self._book.owed[task]
            if found is None or not reminders.is_still_owed(owed, found.since_ms, found.acknowledged_ms):
                self._write(reminders.forget(self._book, task))
                continue
            await self._tell(found, now_ms)

    async def _read_events(self, board: str) -> bool:
        """Read the next events of a board; whether there were any.

        A new book starts after the board's last event.
        """
        if board not in self._book.read:
            last = await self._store.ask(lambda store: store.stats(board).board.last_seq)
            self._write(reminders.note(self._book, board, last, {}))
            return False
        after = self._book.read[board]
        seq, waiting = await self._store.ask(_read_since, board, after)
        if seq > after:
            self._write(reminders.note(self._book, board, seq, waiting))
        return seq > after

    async def _tell(self, waiting: Waiting, now_ms: int) -> None:
        """Deliver a reminder and record it, even if cancelled, or the next look would deliver it again."""
        delivering = asyncio.ensure_future(self._deliver(waiting))
        delivered = False
        try:
            delivered = await asyncio.shield(delivering)
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_S):
                    delivered = await delivering
            raise
        finally:
            self._write(reminders.record_try(self._book, waiting.task, delivered=delivered, now_ms=now_ms))

    async def _deliver(self, waiting: Waiting) -> bool:
        said = msgspec.json.encode({"schemaVersion": SCHEMA, **msgspec.to_builtins(waiting)}) + b"\n"
        try:
            with tempfile.TemporaryFile() as file:  # not a pipe: the program may end without reading
                file.write(said)
                file.seek(0)
                process = await asyncio.create_subprocess_exec(
                    *self._argv,
                    stdin=file,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    env=self._environ,
                    start_new_session=True,
                )
        except OSError as exc:
            log.warning("the program for reminders does not start", extra={"missing": exc.strerror})
            return False
        try:
            async with asyncio.timeout(PROGRAM_S):
                await process.wait()
        except TimeoutError:
            log.warning("the program for reminders takes too long", extra={"task_id": waiting.task})
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            log.warning(
                "the program for reminders failed",
                extra={"task_id": waiting.task, "exit_code": process.returncode},
            )
        return process.returncode == 0

    def _write(self, book: ReminderBook) -> None:
        if book == self._book:
            return
        replace_file(self._place, msgspec.json.encode(book))
        self._book = book


def _read(place: Path) -> ReminderBook:
    try:
        return decoding.decode(place.read_bytes(), ReminderBook)
    except FileNotFoundError:
        return ReminderBook()
    except (OSError, msgspec.MsgspecError):
        log.warning("what reminders were owed cannot be read: they begin anew")
        return ReminderBook()


def _read_since(store: Store, board: str, after: int) -> tuple[int, dict[str, int]]:
    """The last event read, and the tasks that have begun to wait since then, with the time they began."""
    events = store.events(board, after=after, limit=PAGE)
    begun = {event.task_id for event in events if event.task_id is not None and inbox.may_begin(event)}
    waits = {task: store.waiting(task) for task in sorted(begun)}
    found = {name: one.since_ms for name, one in waits.items() if one is not None}
    return (events[-1].seq if events else after), found
