"""What the sandbox refused to a watched process, as its watcher saw it.

What is alike comes again with a larger count. A lost link loses nothing: what was missed is asked for by
number on the next one.
"""

import asyncio
from collections.abc import AsyncIterator

from holdfast.client.answer import typed
from holdfast.client.session import Session
from holdfast.errors import HoldfastError
from holdfast.wire.processes import DenialsParams, DenialsResult, DeniedCall
from holdfast.wire.rpc import JsonValue


class Denials:
    """Iterate over it for what is seen from now on, `known` included, until the process has ended."""

    def __init__(self, session: Session, process_id: str) -> None:
        self._session = session
        self._process_id = process_id
        self._entries: dict[tuple[str, str, str, str], DeniedCall] = {}
        self._last = 0
        self._asking = 0
        self._closed = False
        self._changed = asyncio.Event()
        self._forget = session.on("process/denied", self._heard)

    @property
    def known(self) -> list[DeniedCall]:
        """Each kind once, the one that was seen last at the end."""
        return list(self._entries.values())

    async def __aiter__(self) -> AsyncIterator[DeniedCall]:
        last = 0
        while True:
            news = [entry for entry in self._entries.values() if entry.number > last]
            for entry in news:
                last = max(last, entry.number)
                yield entry
            if news:
                continue
            if self._closed and not self._asking:
                return
            await self._changed.wait()

    # --- the process's side

    def catch_up(self) -> None:
        """The link was lost: ask for what was missed."""
        self._asking += 1
        self._session.spawn(self._ask())

    def close(self) -> None:
        """Nothing follows, but what was asked for."""
        if not self._closed:
            self._closed = True
            self._forget()
            self._wake()

    async def _ask(self) -> None:
        try:
            params = DenialsParams(self._process_id, self._last)
            answer = await self._session.call_again("process/denials", params)
            for entry in typed(answer, DenialsResult).denials:
                self._take(entry)
        except HoldfastError:
            return  # the process is forgotten there, or the session is over
        finally:
            self._asking -= 1
            self._wake()

    def _heard(self, params: JsonValue) -> None:
        entry = typed(params, DeniedCall)
        if entry.process_id == self._process_id:
            self._take(entry)
            self._wake()

    def _take(self, entry: DeniedCall) -> None:
        key = (entry.syscall, entry.access, entry.errno, entry.path)
        if key in self._entries and self._entries[key].number >= entry.number:
            return
        self._entries.pop(key, None)
        self._entries[key] = entry
        self._last = max(self._last, entry.number)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
