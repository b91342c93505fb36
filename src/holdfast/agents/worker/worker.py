"""Follows one worker for the supervisor: turns its output into evidence, and the evidence into a status.

Evidence is dated with CLOCK_BOOTTIME, which continues while the supervisor is away and never jumps. The
worker's output is written to its log before we draw conclusions from it.
"""

import asyncio
import contextlib
import functools
import logging
import re
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from holdfast.agents.catalog.agent import Agent, StartDialog
from holdfast.agents.catalog.output import ToolCalls
from holdfast.agents.evidence.digest import Digest, Window
from holdfast.agents.evidence.digest import began as seen_to_begin
from holdfast.agents.evidence.evidence import (
    MAX_SEEN,
    Answered,
    AskedHost,
    Denied,
    Evidence,
    Exited,
    Failure,
    JournalEntry,
    Source,
    Unreached,
    Vanished,
    Wants,
    WorkerState,
    WorkerStatus,
    encode_entry,
)
from holdfast.agents.evidence.holdups import open_requests, shows_work, takes_text
from holdfast.agents.evidence.status import WorkerLimits, classify, decide_end
from holdfast.agents.terminal import keys
from holdfast.agents.worker import procwatch
from holdfast.agents.worker.book import (
    MAX_EVIDENCE_BYTES,
    MAX_OUTPUT_BYTES,
    Log,
    NumberFile,
    Record,
    WorkerRecords,
    bound_traffic,
)
from holdfast.agents.worker.explaining import Explaining
from holdfast.agents.worker.refusals import RefusalTally, Whose, make_evidence
from holdfast.client.events.ordering import Exited as ProcessExited
from holdfast.client.events.ordering import Output
from holdfast.client.process import Process
from holdfast.errors import HoldfastError, InvalidRequest, SessionLost
from holdfast.wire.processes import DeniedCall as Refusal
from holdfast.wire.processes import UnconfirmedCall

log = logging.getLogger(__name__)

GRACE_S: Final = 5.0  # between asking a worker to end and killing it
DRAWN_S: Final = 0.3  # a dialog that is still being drawn changes within this time
ANSWER_SHOWN_S: Final = 5.0  # from the keys that answer a dialog until it is gone
MAX_ANSWERS: Final = 8  # automatic answers for one worker: more do not help one that asks repeatedly
INPUT_LINE_S: Final = 20.0  # from a title that says "ready" to the input line, on a busy machine
LOOK_AGAIN_S: Final = 0.5
STILL_S: Final = 10.0  # without output and status changes for so long, we look at it less often …
STILL_LOOK_S: Final = 2.0  # … namely at this interval, until it prints something again
DRAWN_WITHIN_S: Final = 2.0  # longest wait for a screen that never stops changing, such as a clock
SAME_S: Final = 1.0  # a repeated claim within this time is not written again
_SIGNALS: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 24, 25, 31})  # they end a process
_NO_CODE: Final = -1  # the exit code if the launcher of the command died


def _steady(about: str) -> str:
    """Remove passing seconds: "next in 3 s" after "next in 4 s" is not a change."""
    return re.sub(r"\d+ s\b", "", about)


def _tells_reach(item: Evidence) -> bool:
    return isinstance(item.claim, Unreached)


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Taken(NamedTuple):
    """What came of output: evidence, bytes for a terminal, replies; `last`: it gets no more input."""

    evidence: list[Evidence]
    forward: bytes
    replies: bytes = b""
    last: bool = False


class Input(NamedTuple):
    """The state of a terminal that matters for typing right now.

    `digest` changes with the screen, `foot` with its last lines. `unread` is the typed input that no process
    has read; `clicks` says whether the program accepts clicks.
    """

    digest: bytes
    screen: Evidence | None
    bracketed: bool
    canonical: bool
    password: bool
    foot: bytes = b""
    unread: int = 0
    clicks: bool = False


class WorkerChannel(Protocol):
    """Interprets the input and output of one kind of worker."""

    def opening(self) -> bytes:
        """Return what to write to the worker before it prints anything."""

    def feed(self, stream: str, data: bytes, at: float) -> Taken:
        """Process output as it arrives."""

    def look(self, at: float) -> list[Evidence]:
        """Return evidence that must be polled."""

    def input(self, at: float) -> Input | None:
        """Return the state of its terminal; None if nothing can be typed."""

    def shown(self) -> str:
        """Return the present screen as terminal output, for a viewer that attaches."""

    def read_end(self, at: float) -> tuple[list[Evidence], str]:
        """For a worker that ended before it took part: return evidence of the cause, and its last words."""

    def resize(self, rows: int, cols: int) -> None:
        """Note the new size of its terminal."""

    def calls(self) -> ToolCalls | None:
        """Return its tool calls; None if they cannot be observed."""


class FollowedWorker:
    """Follows one process until its end. `changed` is called with every new status."""

    def __init__(
        self,
        record: Record,
        book: WorkerRecords,
        agent: Agent,
        channel: WorkerChannel,
        limits: WorkerLimits,
        changed: Callable[["FollowedWorker"], None],
    ) -> None:
        self.record = record
        self.channel = channel
        self.process: Process | None = None
        self.explaining: Explaining | None = None
        self.leaving: Callable[[], None] = lambda: None  # called before its end is reported
        self.returning: Callable[[], Awaitable[None]] | None = None  # the same, for one on another machine
        self.viewers: set[Callable[[bytes], None]] = set()
        self.hosts_asked: dict[str, asyncio.Future[bool | Literal["pattern"]]] = {}  # open, by request id
        self.hosts_told: dict[str, AskedHost] = {}  # by request id, including answered ones
        self.status = WorkerStatus(WorkerState.STARTING, since=now())
        self.done = asyncio.Event()
        self._book, self._limits = book, limits
        self.agent = agent
        self._changed = changed
        folder = book.folder(record.id)
        known = book.evidence(record.id)
        self._window = Window(entry.item for entry in known)
        self._read = NumberFile(folder / "read")
        self._read_until = max([self._read.value, *(entry.seq for entry in known)])
        self._journal = Log(folder / "evidence.jsonl", MAX_EVIDENCE_BYTES)
        self._output = Log(folder / "output.log", MAX_OUTPUT_BYTES)
        self._started_at = record.began_at or now()
        self._written_at = 0.0
        self._tally = functools.cache(lambda: RefusalTally(entry.item for entry in known))
        self._unsaved = False
        self._news = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._answering: asyncio.Task[None] | None = None
        self._answers = 0
        self._starved = procwatch.OomKills(now())
        self._moved_at = self._looked_at = now()
        self._ending: tuple[Evidence, int] | None = None

    # --- evidence

    def add(self, item: Evidence, seq: int = 0) -> None:
        """Add evidence. The status changes only with the next `judge`."""
        news = self._window.add(item)
        if news or item.at - self._written_at > SAME_S:
            self._journal.append(encode_entry(JournalEntry(item, seq)))
            self._written_at = item.at

    def judge(self) -> WorkerStatus:
        """Compute the present status, and report it if it changed."""
        at = now()
        items = self._window.items
        status = classify(items, at, started_at=self._started_at, limits=self._limits, exits=self.agent.exits)
        before = self.status
        same = (before.state, before.detail, before.failure) == (status.state, status.detail, status.failure)
        self.status = replace(status, since=before.since if same else at)
        self._moved_at = self._moved_at if same else at
        if not same or _steady(before.about) != _steady(status.about) or before.flags != status.flags:
            self._changed(self)
        return self.status

    def evidence(self) -> list[Evidence]:
        return list(self._window.items)

    def asked(self) -> list[Wants]:
        """Return structured requests without an answer, oldest first."""
        if self.done.is_set() or not (self.record.acp or self.record.ask_s):
            return []
        found = open_requests(Digest(self._window.items, now(), self._started_at))
        return [item.claim for item in found if isinstance(item.claim, Wants)]

    # --- life

    async def follow(self, process: Process) -> None:
        """Read a process until it is closed; output that was read before a restart is not counted again.

        Raises:
            SessionLost: it is on another machine, and its session may still exist.
        """
        self.process = process
        if not self._read_until:
            await self._reply(process, 0, self.channel.opening())
        refused = asyncio.get_running_loop().create_task(self._hear_refusals(process))
        if self.record.ended_by:  # a previous supervisor was killed while it ended this worker
            self._end(process, GRACE_S)
        try:
            async for event in process:
                if isinstance(event, Output):
                    await self._take(process, event)
                elif isinstance(event, ProcessExited):
                    self._on_exit(event)
            await refused
            if self.explaining is not None:
                await self.explaining.settled()
        except SessionLost as exc:
            if self.record.host is not None:
                raise
            self.vanished(str(exc))
        except HoldfastError as exc:
            self.vanished(str(exc))
        finally:
            refused.cancel()
            if self.explaining is not None:
                await self.explaining.aclose()
        self._hear_trace()
        if self.returning is not None and not self.done.is_set():
            await self.returning()
        if self._ending is not None:
            self.add(*self._ending)
        self.end()

    def unreached(self, why: str) -> None:
        """Note why its machine is unreachable; "" means that it is reachable again."""
        last = next((item.claim for item in reversed(self._window.items) if _tells_reach(item)), None)
        known = isinstance(last, Unreached) and not last.over
        if self.done.is_set() or known == bool(why):
            return
        self.add(Evidence(Source.CLOCK, now(), Unreached(why, over=not why), why[:MAX_SEEN]))
        self.judge()

    async def _hear_refusals(self, process: Process) -> None:
        if process.denials is None:
            return
        async for refusal in process.denials.follow():
            if isinstance(refusal, UnconfirmedCall):
                if self.explaining is not None:
                    self.explaining.place(refusal)
                continue
            fresh = self._tally().fresh(refusal)
            traced = None if refusal.command else self.explaining  # strace sees only the worker itself
            if fresh and not (traced is not None and traced.sees(refusal)):
                self._add_refusal(msgspec.structs.replace(refusal, count=fresh))
                self.judge()

    def _hear_trace(self) -> None:
        if self.explaining is None:
            return
        for denied in self.explaining.take():
            self._add_refusal(denied)
        if self.record.untraced != self.explaining.off:
            self.record.untraced = self.explaining.off
            self.save()

    def _add_refusal(self, refusal: Refusal | Denied) -> None:
        record, state = self.record, str(self._book.folder(self.record.id) / "state")
        whose = Whose(self.agent, record.home, record.cwd, state, record.relocated)
        self.add(make_evidence(refusal, whose, now()))

    async def _take(self, process: Process, event: Output) -> None:
        taken = self.channel.feed(event.stream, event.data, now())
        if event.seq < self._read_until:
            return  # later output was read before the restart, so this was already answered
        if event.seq > self._read_until:
            self._output.append(event.data)
            for item in taken.evidence:
                self.add(item, event.seq)
            if not self.owes:  # the next supervisor reads output again that is not on disk
                self._read.set(event.seq)
            for view in list(self.viewers):
                view(taken.forward)
        await self._reply(process, event.seq, taken.replies, last=taken.last)
        self._moved_at = now()
        self._news.set()
        self.judge()

    async def _reply(self, process: Process, seq: int, data: bytes, *, last: bool = False) -> None:
        """Answer an output event. Repeating it has no effect, because writes are identified by their id."""
        with contextlib.suppress(HoldfastError):  # it may have ended meanwhile
            if data:
                await process.write(data, write_id=f"reply-{seq}")
            if last:
                await process.close_stdin()

    def _on_exit(self, event: ProcessExited) -> None:
        self.record.traffic = bound_traffic(event.network)
        number = event.code - 128
        killed = number if number in _SIGNALS else None
        cause = Failure(self.record.ended_by) if self.record.ended_by else None
        if event.code == _NO_CODE:
            why = "the process that owned it died"
            if self.returning is None:
                self.vanished(why)
            else:
                self._ending = (Evidence(Source.EXIT, now(), Vanished(why), why), event.seq)
            return
        code = None if killed else event.code
        limit = "" if event.limit is None else event.limit.message
        seen = self.record.ended_why if cause else limit or f"exit code {event.code}"
        if code and cause is None and not seen_to_begin(self._window.items):
            shown, words = self.channel.read_end(now())
            for item in shown:
                self.add(item, event.seq)
            seen = f"{seen}: {words}" if words else seen
        if cause is None and event.limit is not None and event.limit.killed:
            cause = Failure.LIMIT
        here = self.record.host is None
        starved = here and self._starved.since_a_moment_ago()
        out_of_memory = killed == signal.SIGKILL and cause is None and starved
        claim = Exited(code, killed, cause, limit, out_of_memory)
        self._note_end(Evidence(Source.EXIT, now(), claim, seen[:MAX_SEEN]), event.seq)

    def _note_end(self, item: Evidence, seq: int) -> None:
        """Note the end. For a remote worker it is reported only after the result has been brought back."""
        if self.returning is not None:
            self._ending = (item, seq)
        else:
            self.add(item, seq)

    def not_started(self, why: str) -> None:
        """Note that it never ran, unless its end is already known."""
        if self.done.is_set():
            return
        self.add(Evidence(Source.EXIT, now(), Exited(None, None, Failure.LAUNCH), why[:MAX_SEEN]))
        self.end()

    def vanished(self, why: str) -> None:
        """Note that its end will never be known, unless it is already known."""
        if self.done.is_set():
            return
        self.add(Evidence(Source.EXIT, now(), Vanished(why), why))
        self.end()

    def end(self) -> None:
        """Finish: judge a last time, write the record and close the files."""
        if not self.done.is_set():
            self.leaving()
            self.judge()
            self.record.phase = "ended"
            self.save()
            self.closed()

    @property
    def owes(self) -> bool:
        """Whether some of its data is not on disk, for lack of space or of a descriptor."""
        return self._unsaved or self._journal.owes or self._output.owes

    def save(self) -> None:
        """Write its record and all buffered data. Must be called again while it `owes`."""
        self._journal.flush()
        self._output.flush()
        try:
            self._book.write(self.record)
            self._unsaved = False
        except FileNotFoundError:  # its folder was removed: nothing is kept of it
            self._unsaved = False
        except OSError as exc:
            if not self._unsaved:
                log.warning("a worker's record is written later", extra={"reason": exc.strerror})
            self._unsaved = True
        if self.done.is_set() and not self.owes:
            self._close_files()

    def closed(self) -> None:
        """Mark a worker as done that has ended, perhaps long ago."""
        self.status = self.judge()
        self.done.set()
        if not self.owes:
            self._close_files()

    def _close_files(self) -> None:
        self._journal.close()
        self._output.close()
        self._read.close()

    @property
    def is_due(self) -> bool:
        """Whether it is time to look at it; one that has been still for a while is looked at rarely."""
        at = now()
        return at - self._moved_at < STILL_S or at - self._looked_at >= STILL_LOOK_S

    def tick(self) -> None:
        """Poll, judge, and end the worker if the policy says so."""
        if self.done.is_set() or self.process is None:
            return
        self._looked_at = now()
        for item in self.channel.look(now()):
            self.add(item)
        self._hear_trace()
        self._starved.look(now())
        status = self.judge()
        self._answer_by_rule()
        act = decide_end(status, now(), started_at=self._started_at, limits=self._limits)
        if act is not None and self._stopping is None:
            log.info("worker ended by policy", extra={"agent": self.record.agent})
            self.stop(act.failure, act.why)

    def stop(self, cause: Failure = Failure.KILLED, why: str = "", *, grace_s: float = GRACE_S) -> None:
        """Ask it to end, then kill it with its descendants. A worker being started is ended once it runs."""
        if self._stopping is None and not self.done.is_set():
            self.record.ended_by, self.record.ended_why = cause.value, why
            self.save()
            if self.process is not None:
                self._end(self.process, grace_s)

    def _end(self, process: Process, grace_s: float) -> None:
        self._stopping = asyncio.get_running_loop().create_task(self._stop(process, grace_s))

    async def _stop(self, process: Process, grace_s: float) -> None:
        with contextlib.suppress(HoldfastError, TimeoutError):
            if grace_s > 0:
                await process.signal("SIGTERM")
                async with asyncio.timeout(grace_s):
                    await self.done.wait()
                return
        with contextlib.suppress(HoldfastError):
            await process.terminate()

    # --- typing

    def _terminal(self) -> tuple[Process, Input]:
        seen = self.channel.input(now())
        if seen is None or self.process is None:
            raise InvalidRequest(f"{self.record.id} has no terminal", remedy="start it with --tty")
        return self.process, seen

    async def type(self, data: bytes) -> None:
        """Write what a person at its terminal types, unchanged."""
        process, _ = self._terminal()
        await process.write(data)

    async def press(self, name: str) -> None:
        """Press one key, if that is safe.

        Raises:
            InvalidRequest, UsageError: it is not safe, or there is no such key.
        """
        process, seen = self._terminal()
        self.tick()
        keys.refuse_key(name, self.status, screen=seen.screen, password=seen.password)
        if self.status.state is WorkerState.WAITING:
            await self.wait_until_drawn()
            keys.refuse_key(name, self.status, screen=self._terminal()[1].screen, password=seen.password)
        await process.write(keys.KEYS[name])

    async def wait_until_drawn(self) -> None:
        """Wait until the screen is stable. A worker may report a question before it shows it.

        A key pressed too early would be lost, or do harm.
        """
        until, before = now() + DRAWN_WITHIN_S, b""
        while now() < until and before != (digest := self._terminal()[1].digest):
            before = digest
            await asyncio.sleep(DRAWN_S)

    async def send(self, text: str) -> str:
        """Type a text and submit it, if that is safe; return whether the program was seen to take it.

        Raises:
            InvalidRequest, UsageError: it is not safe, or the text cannot be typed.
        """
        process, seen = self._terminal()
        self.tick()
        keys.refuse_text(self.status, screen=seen.screen, password=seen.password)
        seen = await self._wait_for_input_line(seen)
        data = keys.encode_paste(text, bracketed=seen.bracketed, canonical=seen.canonical)
        delivery = keys.Delivery(data, shows_work=bool(self.agent.busy))
        while True:
            _, seen = self._terminal()
            works = self._worked_since(delivery.entered_at, seen.screen)
            match delivery.step(now(), keys.Shown(seen.digest, seen.foot, works, seen.unread)):
                case keys.Write(data):
                    await process.write(data)
                case keys.WaitFor(until):
                    await self._wait_for_news(until)
                case keys.Outcome() as outcome:
                    if outcome is keys.Outcome.SUBMITTED:
                        self._note_answer("a text was submitted")
                    return outcome.value

    async def _wait_for_input_line(self, seen: Input) -> Input:
        """Wait for the input line. A program may report that it is ready before it reads input.

        Text typed too early would be lost.

        Raises:
            InvalidRequest: it shows no input line in time.
        """
        until = now() + INPUT_LINE_S
        while self.agent.ready and not (seen.screen is not None and takes_text(seen.screen)):
            if now() >= until:
                raise InvalidRequest(
                    f"{self.record.id} shows no input line", remedy="attach to its terminal and look"
                )
            await self._wait_for_news(min(until, now() + LOOK_AGAIN_S))
            _, seen = self._terminal()
        self.tick()
        keys.refuse_text(self.status, screen=seen.screen, password=seen.password)
        return seen

    async def _wait_for_news(self, until: float) -> None:
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - now())):
                await self._news.wait()

    def _worked_since(self, entered_at: float | None, screen: Evidence | None) -> bool:
        """Return whether evidence since Enter, other than a changing screen, shows work or a question."""
        if entered_at is None:
            return False
        newer = [item for item in self._window.items if item.at > entered_at]
        return any(shows_work(item) for item in (*newer, *([screen] if screen is not None else [])))

    def _answer_by_rule(self) -> None:
        """Answer a known start dialog that the owner has answered by starting the worker unattended."""
        asks = self.status.state is WorkerState.WAITING and self.record.tty and self.record.unattended
        ready = self._answering is None or self._answering.done()
        if not (asks and ready and self._answers < MAX_ANSWERS):
            return
        shown = self.channel.shown().replace("\r\n", "\n")
        dialog = next((one for one in self.agent.start_dialogs if one.pattern.search(shown)), None)
        if dialog is not None:
            self._answers += 1
            self._answering = asyncio.get_running_loop().create_task(self._press_by_rule(dialog))

    async def _press_by_rule(self, dialog: StartDialog) -> None:
        question = self.status.about
        with contextlib.suppress(HoldfastError):  # the dialog is gone, or a person was quicker
            for key in dialog.keys:
                await self.press(key)
            said = f"answered by rule with {' '.join(dialog.keys)}: {question}"
            await self.settle(said, dialog.pattern, question)

    async def settle(self, said: str, dialog: re.Pattern[str] | None = None, question: str = "") -> None:
        """Wait after the keys that answer a dialog, so that a dialog shown later counts as a new one.

        On a busy machine it takes time until the program has read the key. Until then the dialog is still
        drawn, and it must not be answered twice.
        """
        until = now() + ANSWER_SHOWN_S
        with contextlib.suppress(HoldfastError):  # the answer may have ended it
            while dialog and now() < until and dialog.search(self.channel.shown().replace("\r\n", "\n")):
                await self._wait_for_news(min(until, now() + DRAWN_S))
                self.tick()
                if self.status.about not in ("", question):
                    return  # it asks for something else already
            await self.wait_until_drawn()
        self._note_answer(said)

    def _note_answer(self, said: str) -> None:
        """Add `Answered`, so that what the screen showed before is not reported to clients again."""
        self.add(Evidence(Source.SCREEN, now(), Answered("typed"), said[:MAX_SEEN]))
        self.judge()

    async def resize(self, rows: int, cols: int) -> None:
        """Resize its terminal. Raises HoldfastError if it has none."""
        process, _ = self._terminal()
        await process.resize(rows, cols)
        self.channel.resize(rows, cols)
