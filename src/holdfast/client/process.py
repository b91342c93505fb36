"""A process on the other machine: its events, its input, its end.

Handles stay valid while the session recovers: iterators and waits continue where they were, and a write is
repeated under the same id. An event that a live link does not deliver is read from what the server keeps: at
once when a later event shows the gap, otherwise when the process has been silent for a while. Events are
buffered here, within a bound, until they are read. When the bound is reached the link is not read until there
is room. So a process whose output is not read stops everything else on its session. Read what you start,
`wait()` for it, or terminate it.
"""

import asyncio
import contextlib
import copy
import itertools
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Final

from holdfast.client.events.backlog import Backlog, Reader
from holdfast.client.events.ordering import (
    Closed,
    Event,
    Exited,
    Lost,
    Ordering,
    Output,
    Pushed,
    ReadPage,
    StartAnswer,
    check_written,
    convert,
    decode_page,
    last_before,
    next_look_s,
)
from holdfast.client.events.result import MAX_OUTPUT_BYTES, Collector, Result
from holdfast.client.session import ClientSession
from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    InvalidRequest,
    OutputLost,
    UsageError,
)
from holdfast.wire.processes import (
    DenialsParams,
    DenialsResult,
    DeniedCall,
    EnforcementReport,
    ProcessParams,
    ReadParams,
    ResizeParams,
    SignalParams,
    UnconfirmedCall,
    WatchedCall,
    WatchReport,
    WriteParams,
    sort_out,
)
from holdfast.wire.rpc import JsonValue

OVERTAKING_S: Final = 0.25  # an overtaken event arrives soon: servers send from several tasks
WRITE_BYTES: Final = 256 * 1024  # of one process/write, so that no request is large, however much is written

_CONTROL_D: Final = b"\x04"
_INTERRUPT: Final = "interrupt"


class Process:
    """A process on the other machine, created by `Environment.start`.

    Iterate over it for events, over `stdout` and `stderr` for bytes.
    """

    def __init__(self, session: ClientSession, process_id: str, *, tty: bool, watch: bool = False) -> None:
        self.process_id = process_id
        self.watch: WatchReport | None = WatchReport(False, "this server cannot watch") if watch else None
        self.denials: Denials | None = Denials(session, process_id) if watch else None
        self.recoverable = False
        self.sandbox_type: str | None = None
        self.enforcement: EnforcementReport | None = None
        self.pid: int | None = None  # on the other machine, if the server reports it
        self._session = session
        self._tty = tty
        self._ordering = Ordering()
        self._backlog = Backlog()
        self._full = False
        self._filling = False
        self._look: asyncio.TimerHandle | None = None
        self._look_s = 0.0
        self._seen_at_look = 0
        self._closed = False
        self._failure: HoldfastError | None = None
        self._withheld: list[Event] | None = None
        self._collectors: list[Collector] = []
        self._waiters: list[asyncio.Future[None]] = []
        own = secrets.token_hex(4)  # a client that adopts the process later counts from the start
        self._write_ids = (f"{own}-{number}" for number in itertools.count(1))
        self._writing = asyncio.Lock()

    # --- reading

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over all events in order, from the oldest that is kept: all unless much was read before."""
        return self._events(self._backlog.reader())

    @property
    def stdout(self) -> AsyncIterator[bytes]:
        """The output to standard output, or to its terminal; each use creates a separate reader."""
        return self._chunks("pty" if self._tty else "stdout")

    @property
    def stderr(self) -> AsyncIterator[bytes]:
        """The output to standard error; empty with a terminal."""
        return self._chunks("stderr")

    async def wait(self, *, max_output_bytes: int = MAX_OUTPUT_BYTES) -> Result:
        """Wait for the end. The result has head and tail of each stream within `max_output_bytes`.

        Raises:
            OutputLost: events are permanently missing.
            SessionLost: the session ended first.
        """
        collector = Collector(max_output_bytes)
        events, collector.missed_bytes = self._backlog.read_all()
        for event in events:
            collector.take(event)
        self._relieve()
        self._collectors.append(collector)
        try:
            while not self._closed:
                await self._wait_for_news()
        finally:
            self._collectors.remove(collector)
        return collector.result(self.enforcement)

    async def _events(self, reader: Reader) -> AsyncIterator[Event]:
        while True:
            event = reader.next()
            if event is None:
                if self._closed:
                    return
                await self._wait_for_news()
                continue
            if self._full:
                self._relieve()
            yield event

    def _chunks(self, stream: str) -> AsyncIterator[bytes]:
        reader = self._backlog.reader(stream)  # now, not at the first step, so that output until then is kept

        async def chunks() -> AsyncIterator[bytes]:
            async for event in self._events(reader):
                if isinstance(event, Output):
                    yield event.data

        return chunks()

    async def _wait_for_news(self) -> None:
        """Wait until something was published. Raises the error that ended the stream."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    # --- writing and ending

    async def write(self, data: bytes, *, write_id: str | None = None) -> None:
        """Feed standard input, in the order of the calls and each byte once, even if the link is lost.

        A `write_id` chosen by the caller makes the write happen once even if several owners of the process
        repeat it: the server remembers the last 4096 ids.

        Raises:
            InvalidRequest: it has no standard input, or that is closed.
        """
        async with self._writing:
            for at in range(0, len(data), WRITE_BYTES):
                name = next(self._write_ids) if write_id is None else f"{write_id}+{at}"
                params = WriteParams(self.process_id, data[at : at + WRITE_BYTES], name)
                check_written(await self._session.call_again("process/write", params))

    async def close_stdin(self) -> None:
        """Close its standard input, after everything written before.

        Raises:
            InvalidRequest: the server cannot do this, or there is no standard input.
        """
        if not self._session.info.capabilities.holdfast_close_stdin:
            if self._tty:
                await self.write(_CONTROL_D)
                return
            raise InvalidRequest(
                "this server cannot close a command's standard input",
                remedy="start it with tty=True, or let it read as many bytes as it wants to",
            )
        async with self._writing:
            call = self._session.call if self._tty else self._session.call_again
            check_written(await call("process/closeStdin", ProcessParams(self.process_id)))

    async def signal(self, name: str) -> None:
        """Signal its process group, by a name such as "SIGINT"; not repeated if the link dies meanwhile."""
        wanted = name.upper().removeprefix("SIG")
        if wanted in ("INT", "INTERRUPT"):
            name = _INTERRUPT
        elif not self._session.info.capabilities.holdfast_signals:
            raise InvalidRequest("this server knows only SIGINT", remedy="use terminate() to end it")
        await self._session.call("process/signal", SignalParams(self.process_id, name))

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size of its terminal."""
        if not self._session.info.capabilities.holdfast_resize:
            raise InvalidRequest("this server's terminals have a fixed size of 24 rows and 80 columns")
        if not (0 < rows < 1 << 16 and 0 < cols < 1 << 16):
            raise UsageError("a terminal has between 1 and 65535 rows and columns")
        await self._session.call("process/resize", ResizeParams(self.process_id, rows, cols))

    async def terminate(self) -> None:
        """Kill its process group; its events end as usual. Does nothing if it has ended."""
        if not self._closed and self._failure is None:
            await self._session.call("process/terminate", ProcessParams(self.process_id), cleanup=True)

    def abandon(self) -> None:
        """Kill it in the background, also across a lost link; the handle cannot be used any more."""
        if not self._closed and self._failure is None:
            self._session.abandon(self.process_id)
            self.fail(OutputLost("the process was abandoned here"))

    # --- the session's side

    @property
    def last_published(self) -> int:
        return self._ordering.last_published

    def started(self, answer: JsonValue) -> None:
        """Take the answer to its start."""
        start = convert(answer, StartAnswer)
        self.sandbox_type, self.enforcement, self.pid = start.sandbox_type, start.enforcement, start.pid
        self.watch = start.watch or self.watch
        self.recoverable = not self._closed
        self._fill_gap()
        self._schedule_look(next_look_s())

    def adopted(self, page: ReadPage) -> None:
        """Take the first page of a process that another client started; older events may be gone."""
        try:
            ready = self._ordering.catch_up(page)
        except Lost:
            self._ordering = Ordering(last_published=last_before(page))
            try:
                ready = self._ordering.catch_up(page)
            except Lost as exc:
                raise OutputLost(str(exc)) from None
        self.recoverable = True
        if ready:
            self._publish(ready)
        self._fill_gap()
        self._schedule_look(next_look_s())

    def take(self, pushed: Pushed) -> None:
        try:
            ready = self._ordering.push(pushed.event)
        except Lost as exc:
            self._session.abandon(self.process_id)
            self.fail(OutputLost(f"the process cannot be continued: {exc}"))
            return
        if ready:
            self._publish(ready)
        self._fill_gap()

    def catch_up(self, page: ReadPage) -> None:
        try:
            ready = self._ordering.catch_up(page)
        except Lost as exc:
            raise OutputLost(str(exc)) from None
        if self.denials is not None:
            self.denials.catch_up()
        if ready:
            self._publish(ready)

    def _fill_gap(self) -> None:
        if self._ordering.missing is not None and self.recoverable and not self._filling:
            self._filling = True
            self._session.spawn(self._run_read(self._fill))

    async def _run_read(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await work()
        except ConnectionLost:
            return  # the read is repeated when the session resumes
        except HoldfastError as exc:
            if self._failure is None:
                self._session.abandon(self.process_id)
                self.fail(OutputLost(f"the process cannot be continued: {exc}"))
        finally:
            self._filling = False
        if self._failure is None:
            self._fill_gap()  # a gap that appeared during the read

    async def _fill(self) -> None:
        """Read events that were overtaken and did not come: one read for each event that stays missing."""
        while (missing := self._ordering.missing) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OVERTAKING_S):
                    await self._wait_for_news()
            if self._failure is not None:
                return
            if self._ordering.missing != missing:
                continue
            params = ReadParams(self.process_id, missing - 1, None, 0)
            self.catch_up(decode_page(await self._session.call("process/read", params)))
            if self._ordering.missing == missing:
                raise OutputLost(f"the server sent what follows event {missing} and does not have that")

    def _schedule_look(self, after_s: float) -> None:
        self._stop_looking()
        if self.recoverable and self._failure is None:
            self._look_s, self._seen_at_look = after_s, self.last_published
            self._look = asyncio.get_running_loop().call_later(after_s, self._check_quiet)

    def _check_quiet(self) -> None:
        """Read the process if it was silent: a lost last event leaves no gap that would show.

        A read consumes no events.
        """
        quiet = self.last_published == self._seen_at_look
        if quiet and not self._filling and not self._session.holding:
            self._filling = True
            self._session.spawn(self._run_read(self._read_if_quiet))
        self._schedule_look(next_look_s(self._look_s if quiet else None))

    async def _read_if_quiet(self) -> None:
        params = ReadParams(self.process_id, self.last_published, None, 0)
        page = decode_page(await self._session.call("process/read", params))
        with contextlib.suppress(TimeoutError):  # an event has more than the page: let it come first
            async with asyncio.timeout(OVERTAKING_S):
                while self.last_published < page.next_seq - 1:
                    await self._wait_for_news()
        if self.last_published < page.next_seq - 1:
            self.catch_up(page)

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def fail(self, error: HoldfastError) -> None:
        if not self._closed and self._failure is None:
            self._failure = error
            self._stop_looking()
            self._end_denials()
            self._wake()

    def _publish(self, events: list[Event]) -> None:
        for event in events:
            if self._withheld is not None:
                self._withheld.append(event)
                continue
            if isinstance(event, Exited) and event.sandbox_denied is None:
                self._withheld = []
                self._session.spawn(self._ask_verdict(event))
                continue
            self._show(event)
        if self._backlog.full and not self._full and not self._closed:
            self._full = True
            self._session.mark_full(self.process_id)
        self._wake()

    def _show(self, event: Event) -> None:
        self._backlog.add(event, read=bool(self._collectors))
        for collector in self._collectors:
            collector.take(event)
        if isinstance(event, Closed):
            self._closed = True
            self.recoverable = False
            self._stop_looking()
            self._end_denials()
            self._session.remove_route(self.process_id)

    def _end_denials(self) -> None:
        if self.denials is not None:
            self.denials.close()

    async def _ask_verdict(self, event: Exited) -> None:
        """Ask an older server, which does not report with the exit whether the sandbox was the reason."""
        with contextlib.suppress(HoldfastError):
            params = ReadParams(self.process_id, event.seq, None, 0)
            page = decode_page(await self._session.call_again("process/read", params))
            event = replace(event, sandbox_denied=page.sandbox_denied, usage=event.usage or page.usage)
        withheld, self._withheld = self._withheld or [], None
        self._show(event)
        self._publish(withheld)

    def _relieve(self) -> None:
        if self._full and not self._backlog.full:
            self._full = False
            self._session.make_room(self.process_id)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Denials:
    """The calls that the sandbox refused to a watched process, as reported by its watcher.

    Iterate over it for the calls in `known` and all later ones, until the process has ended. A repeated kind
    of call is reported again with a larger count. A lost link loses nothing: missed reports are requested by
    number on the next one.
    """

    def __init__(self, session: ClientSession, process_id: str) -> None:
        self._session = session
        self._process_id = process_id
        self._entries: dict[tuple[str | bool, ...], DeniedCall | UnconfirmedCall] = {}
        self._last = 0
        self._asking = 0
        self._closed = False
        self._changed = asyncio.Event()
        self._forget = session.on("process/denied", self._on_denied)

    @property
    def known(self) -> list[DeniedCall]:
        """Each kind of call once, the most recent last."""
        return [entry for entry in self._entries.values() if isinstance(entry, DeniedCall)]

    @property
    def unconfirmed(self) -> list[UnconfirmedCall]:
        """Calls that the sandbox may have refused too: the watcher did not see their results."""
        return [entry for entry in self._entries.values() if isinstance(entry, UnconfirmedCall)]

    async def __aiter__(self) -> AsyncIterator[DeniedCall]:
        async for entry in self.follow():
            if isinstance(entry, DeniedCall):
                yield entry

    async def follow(self) -> AsyncIterator[DeniedCall | UnconfirmedCall]:
        """Iterate over the refused calls and those that are not confirmed."""
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
        """Request the reports that were missed after a lost link."""
        self._asking += 1
        self._session.spawn(self._ask())

    def close(self) -> None:
        """End the reports, except those that were requested."""
        if not self._closed:
            self._closed = True
            self._forget()
            self._wake()

    async def _ask(self) -> None:
        try:
            params = DenialsParams(self._process_id, self._last)
            answer = await self._session.call_again("process/denials", params)
            for entry in convert(answer, DenialsResult).denials:
                self._take(sort_out(entry))
        except HoldfastError:
            return  # the server has forgotten the process, or the session is over
        finally:
            self._asking -= 1
            self._wake()

    def _on_denied(self, params: JsonValue) -> None:
        entry = convert(params, WatchedCall)
        if entry.process_id == self._process_id:
            self._take(sort_out(entry))
            self._wake()

    def _take(self, entry: DeniedCall | UnconfirmedCall) -> None:
        key = (entry.syscall, entry.access, entry.errno, entry.path, entry.predicted, entry.command)
        if key in self._entries and self._entries[key].number >= entry.number:
            return
        self._entries.pop(key, None)
        self._entries[key] = entry
        self._last = max(self._last, entry.number)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
