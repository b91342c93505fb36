"""One worker as the supervisor sees it: its output in, evidence out, a status that follows from it.

Evidence carries CLOCK_BOOTTIME, which goes on while the supervisor is away and never jumps. What the
worker says is written to its log before anything is concluded from it.
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

GRACE_S: Final = 5.0  # between asking a worker to end and ending it
DRAWN_S: Final = 0.3  # a dialog that is being drawn changes sooner
ANSWER_SHOWN_S: Final = 5.0  # from the keys that answer a dialog until it is gone
MAX_ANSWERS: Final = 8  # by rule, of one worker: one that asks again and again is not helped by more
INPUT_LINE_S: Final = 20.0  # from a title that says "ready" to the line to type in, on a busy machine
LOOK_AGAIN_S: Final = 0.5
STILL_S: Final = 10.0  # without a word and a change of its status it is looked at less often …
STILL_LOOK_S: Final = 2.0  # … than ever so often; what it prints makes it be looked at as before
DRAWN_WITHIN_S: Final = 2.0  # one that never stands still, such as a clock, is not waited for longer
SAME_S: Final = 1.0  # the same claim again within this time is not written down again
_SIGNALS: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 24, 25, 31})  # that end a process
_NO_CODE: Final = -1  # of a command whose launcher died


def _steady(about: str) -> str:
    """Without the seconds that pass: "next in 3 s" is no news after "next in 4 s"."""
    return re.sub(r"\d+ s\b", "", about)


def _tells_reach(item: Evidence) -> bool:
    return isinstance(item.claim, Unreached)


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Taken(NamedTuple):
    """What came of some output: evidence, what a person's terminal may see of it, what it is answered.

    `last` says that nothing more will ever be said to it.
    """

    evidence: list[Evidence]
    forward: bytes
    replies: bytes = b""
    last: bool = False


class Input(NamedTuple):
    """How a terminal would take something typed right now.

    `digest` changes with what it shows, `foot` with its last lines; `unread` was typed, `clicks` are taken.
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
    """How one kind of worker is understood."""

    def opening(self) -> bytes:
        """What it is told before it says anything."""

    def feed(self, stream: str, data: bytes, at: float) -> Taken:
        """Output, as it comes."""

    def look(self, at: float) -> list[Evidence]:
        """What shows only when looked at."""

    def input(self, at: float) -> Input | None:
        """None where nothing can be typed."""

    def shown(self) -> str:
        """Its screen as a terminal draws it, for somebody who begins to look at it."""

    def read_end(self, at: float) -> tuple[list[Evidence], str]:
        """Of one that ended before it took part: what it shows of why, and its last words."""

    def resize(self, rows: int, cols: int) -> None:
        """Its terminal has another size now."""

    def calls(self) -> ToolCalls | None:
        """Its tool calls; None where they cannot be seen."""


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
        self.leaving: Callable[[], None] = lambda: None  # before anybody hears that it has ended
        self.returning: Callable[[], Awaitable[None]] | None = None  # likewise, of one on another machine
        self.viewers: set[Callable[[bytes], None]] = set()
        self.hosts_asked: dict[str, asyncio.Future[bool | Literal["pattern"]]] = {}  # by their request
        self.hosts_told: dict[str, AskedHost] = {}  # likewise, also those that have their answer
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
        """Take note of something; the status is judged anew when asked for."""
        news = self._window.add(item)
        if news or item.at - self._written_at > SAME_S:
            self._journal.append(encode_entry(JournalEntry(item, seq)))
            self._written_at = item.at

    def judge(self) -> WorkerStatus:
        """The status at this moment."""
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
        """Structured requests without an answer, the oldest first."""
        if self.done.is_set() or not (self.record.acp or self.record.ask_s):
            return []
        found = open_requests(Digest(self._window.items, now(), self._started_at))
        return [item.claim for item in found if isinstance(item.claim, Wants)]

    # --- life

    async def follow(self, process: Process) -> None:
        """Read a process until it is closed; what was read before a restart is not counted again.

        Raises:
            SessionLost: of one on another machine, whose session may still be there.
        """
        self.process = process
        if not self._read_until:
            await self._reply(process, 0, self.channel.opening())
        refused = asyncio.get_running_loop().create_task(self._hear_refusals(process))
        if self.record.ended_by:  # whoever wanted that was killed before it was done
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
        """The machine that it runs on is not reached, or "" for: it is again."""
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
            traced = None if refusal.command else self.explaining  # strace follows the worker itself
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
            return  # what came after it was read, so it was answered
        if event.seq > self._read_until:
            self._output.append(event.data)
            for item in taken.evidence:
                self.add(item, event.seq)
            if not self.owes:  # whoever takes over reads again what is not on disk
                self._read.set(event.seq)
            for view in list(self.viewers):
                view(taken.forward)
        await self._reply(process, event.seq, taken.replies, last=taken.last)
        self._moved_at = now()
        self._news.set()
        self.judge()

    async def _reply(self, process: Process, seq: int, data: bytes, *, last: bool = False) -> None:
        """Answer an output event; doing it again does nothing, since a write is known by its id."""
        with contextlib.suppress(HoldfastError):  # it has ended meanwhile
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
        """Of one on another machine nobody hears of it before what it left has been brought back."""
        if self.returning is not None:
            self._ending = (item, seq)
        else:
            self.add(item, seq)

    def not_started(self, why: str) -> None:
        """It never ran; unless it is known how it ended."""
        if self.done.is_set():
            return
        self.add(Evidence(Source.EXIT, now(), Exited(None, None, Failure.LAUNCH), why[:MAX_SEEN]))
        self.end()

    def vanished(self, why: str) -> None:
        """Nobody will ever say how it ended; unless somebody has."""
        if self.done.is_set():
            return
        self.add(Evidence(Source.EXIT, now(), Vanished(why), why))
        self.end()

    def end(self) -> None:
        """Nothing more will come of it."""
        if not self.done.is_set():
            self.leaving()
            self.judge()
            self.record.phase = "ended"
            self.save()
            self.closed()

    @property
    def owes(self) -> bool:
        """Whether something of it is not on disk, for want of room or of a descriptor."""
        return self._unsaved or self._journal.owes or self._output.owes

    def save(self) -> None:
        """Its record and all that is owed; to be called again for as long as it `owes`."""
        self._journal.flush()
        self._output.flush()
        try:
            self._book.write(self.record)
            self._unsaved = False
        except FileNotFoundError:  # somebody removed its folder: nothing is kept of it
            self._unsaved = False
        except OSError as exc:
            if not self._unsaved:
                log.warning("a worker's record is written later", extra={"reason": exc.strerror})
            self._unsaved = True
        if self.done.is_set() and not self.owes:
            self._close_files()

    def closed(self) -> None:
        """Of a worker that ended, perhaps long ago."""
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
        """Whether it is time to look at it: of one that has been still for a while that is rare."""
        at = now()
        return at - self._moved_at < STILL_S or at - self._looked_at >= STILL_LOOK_S

    def tick(self) -> None:
        """Look, judge, and do what the policy says."""
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
        """Ask it to end, then end it and everything below it; once it is there, if it is being started."""
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
        """What a person types who looks at its terminal, unchanged."""
        process, _ = self._terminal()
        await process.write(data)

    async def press(self, name: str) -> None:
        """One key, where it is safe.

        Raises:
            InvalidRequest, UsageError: it is not, or there is no such key.
        """
        process, seen = self._terminal()
        self.tick()
        keys.refuse_key(name, self.status, screen=seen.screen, password=seen.password)
        if self.status.state is WorkerState.WAITING:
            await self.wait_until_drawn()
            keys.refuse_key(name, self.status, screen=self._terminal()[1].screen, password=seen.password)
        await process.write(keys.KEYS[name])

    async def wait_until_drawn(self) -> None:
        """A worker may say that it asks before it shows what: a key pressed until then is lost, or worse."""
        until, before = now() + DRAWN_WITHIN_S, b""
        while now() < until and before != (digest := self._terminal()[1].digest):
            before = digest
            await asyncio.sleep(DRAWN_S)

    async def send(self, text: str) -> str:
        """Type a text and submit it, where it is safe; whether it was seen to be taken.

        Raises:
            InvalidRequest, UsageError: it is not, or the text cannot be typed.
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
        """A program may say that it is ready before it shows where to type: what comes until then is lost.

        Raises:
            InvalidRequest: it does not show that.
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
        """Has anything but a changing screen said since Enter that it is at work, or asks for something?"""
        if entered_at is None:
            return False
        newer = [item for item in self._window.items if item.at > entered_at]
        return any(shows_work(item) for item in (*newer, *([screen] if screen is not None else [])))

    def _answer_by_rule(self) -> None:
        """A dialog of its start that its owner has answered by starting it so, where its keys are known."""
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
        with contextlib.suppress(HoldfastError):  # it is gone, or a person was quicker
            for key in dialog.keys:
                await self.press(key)
            said = f"answered by rule with {' '.join(dialog.keys)}: {question}"
            await self.settle(said, dialog.pattern, question)

    async def settle(self, said: str, dialog: re.Pattern[str] | None = None, question: str = "") -> None:
        """After the keys that answer a dialog: what its screen shows of that from now on is another one.

        A busy machine takes its time until the program has read a key: the dialog is still drawn then, and
        nobody is to answer it twice.
        """
        until = now() + ANSWER_SHOWN_S
        with contextlib.suppress(HoldfastError):  # it has ended by that
            while dialog and now() < until and dialog.search(self.channel.shown().replace("\r\n", "\n")):
                await self._wait_for_news(min(until, now() + DRAWN_S))
                self.tick()
                if self.status.about not in ("", question):
                    return  # it asks for something else already
            await self.wait_until_drawn()
        self._note_answer(said)

    def _note_answer(self, said: str) -> None:
        """What its screen showed until now was before this: whoever waits is not told of it again."""
        self.add(Evidence(Source.SCREEN, now(), Answered("typed"), said[:MAX_SEEN]))
        self.judge()

    async def resize(self, rows: int, cols: int) -> None:
        """Raises HoldfastError when it has no terminal."""
        process, _ = self._terminal()
        await process.resize(rows, cols)
        self.channel.resize(rows, cols)
