"""Decode a server's events about a process, and put them in their original order, each once. Pure module.

A process numbers its events from 1 without gaps: output, then one exit, perhaps more output, then one close.
Notifications may come early, late, twice, or not at all. Events that come early wait in a bounded buffer; a
`process/read` answer fills in what was missed. That answer does not contain the exit and close events, only
the facts that they happened. The close has the last number of the page, and the exit has the one number that
no other event has.

There is no timer here: a gap is filled by a notification or by a page, or the page proves that the event is
lost. The caller requests a page after a link was lost, when `missing` stays the same for too long, and when
nothing has come for `next_look_s`, because a missing last event leaves no gap that could be seen.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
import pybase64

from holdfast import decoding
from holdfast.errors import InvalidRequest, RemoteProtocolError
from holdfast.wire.processes import (
    DenialReport,
    EnforcementReport,
    LimitReport,
    NetworkReport,
    ProcessUsage,
    WatchReport,
)
from holdfast.wire.rpc import JsonValue

MAX_WAITING_EVENTS: Final = 256  # early events of one process; with more, the missing one will never come
MAX_WAITING_BYTES: Final = 1024 * 1024  # early output: what a server keeps, so a page would do as well
FIRST_LOOK_S: Final = 4.0  # until a process without output is read: longer than a busy server takes
LAST_LOOK_S: Final = 16.0  # plus one first look it is below the 30 s for which a server keeps what has closed

Stream: TypeAlias = Literal["stdout", "stderr", "pty"]


class Output(msgspec.Struct, frozen=True):
    """Bytes of one stream: "stdout", "stderr" or "pty"."""

    seq: int
    stream: Stream
    data: bytes = msgspec.field(name="chunk")


@dataclass(frozen=True, slots=True)
class Exited:
    """The process ended; output may still follow. None: the server did not report it."""

    seq: int
    code: int
    sandbox_denied: bool | None
    usage: ProcessUsage | None = None
    denial: DenialReport | None = None
    limit: LimitReport | None = None  # the limit that it reached
    network: NetworkReport | None = None  # traffic by host name


@dataclass(frozen=True, slots=True)
class Closed:
    """The last event of a process; no other follows."""

    seq: int


Event: TypeAlias = Output | Exited | Closed


class ReadPage(msgspec.Struct, frozen=True, rename="camel"):
    """A whole `process/read` answer, requested without a byte budget."""

    outputs: tuple[Output, ...] = msgspec.field(name="chunks")
    next_seq: int
    exited: bool = False
    exit_code: int | None = None
    closed: bool = False
    failure: str | None = None
    sandbox_denied: bool = False
    usage: ProcessUsage | None = None
    limit: LimitReport | None = None


class Lost(Exception):
    """The stream cannot be continued; the text says why: a gap, too much out of order, or a contradiction."""


class Ordering:
    """Takes events as they arrive, returns those now in order: one exit, one close, the close last.

    `Lost` is raised once. After it, and after the close, everything is ignored.
    """

    def __init__(
        self,
        *,
        last_published: int = 0,
        max_events: int = MAX_WAITING_EVENTS,
        max_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self.last_published = last_published
        self.closed = False
        self._exited = False
        self._lost = False
        self._waiting: dict[int, Event] = {}
        self._waiting_bytes = 0

    @property
    def missing(self) -> int | None:
        """The number of the event that later events wait for."""
        return self.last_published + 1 if self._waiting else None

    def push(self, event: Event) -> list[Event]:
        """Take a notification. Raises: Lost."""
        seq = event.seq
        if self.closed or self._lost or seq <= self.last_published or seq in self._waiting:
            return []
        if seq > self.last_published + 1:
            self._keep(event)
            return []
        return self._publish([event, *self._drain(seq + 1)])

    def catch_up(self, page: ReadPage) -> list[Event]:
        """Take the answer to a read after `last_published`. Raises: Lost."""
        end = page.next_seq - 1
        if self.closed or self._lost:
            return []
        if page.failure is not None:
            raise self._fail(f"the server gave the process up: {page.failure}")
        if end <= self.last_published:
            return []
        found = self._complete(page, end)
        self._drop_until(end)
        return self._publish([*(found[seq] for seq in sorted(found)), *self._drain(end + 1)])

    def _complete(self, page: ReadPage, end: int) -> dict[int, Event]:
        """Every event after the last published one up to `end`."""
        found = {seq: _complete_exit(event, page) for seq, event in self._waiting.items() if seq <= end}
        for event in _events(page, end):
            if event.seq > end:
                raise self._fail(f"event {event.seq} is beyond the end {end} of its own page")
            if event.seq <= self.last_published:
                continue
            if type(found.setdefault(event.seq, event)) is not type(event):
                raise self._fail(f"event {event.seq} is two things at once")
        missing = end - self.last_published - len(found)  # counted, not listed: `end` may be huge
        if missing == 1 and page.exited and not self._knows_exit():
            if page.exit_code is None:
                raise self._fail("the process exited without an exit code")
            hole = next(seq for seq in range(self.last_published + 1, end + 1) if seq not in found)
            found[hole] = Exited(hole, page.exit_code, page.sandbox_denied, page.usage, limit=page.limit)
        elif missing:
            raise self._fail(f"events after {self.last_published} are no longer retained by the server")
        return found

    def _knows_exit(self) -> bool:
        return self._exited or any(isinstance(event, Exited) for event in self._waiting.values())

    def _keep(self, event: Event) -> None:
        size = _size(event)
        if len(self._waiting) == self._max_events or self._waiting_bytes + size > self._max_bytes:
            raise self._fail(f"too much arrived while event {self.last_published + 1} is missing")
        self._waiting[event.seq] = event
        self._waiting_bytes += size

    def _drop_until(self, end: int) -> None:
        self._waiting = {seq: event for seq, event in self._waiting.items() if seq > end}
        self._waiting_bytes = sum(map(_size, self._waiting.values()))

    def _drain(self, seq: int) -> Iterator[Event]:
        while (event := self._waiting.pop(seq, None)) is not None:
            self._waiting_bytes -= _size(event)
            yield event
            seq += 1

    def _publish(self, ready: list[Event]) -> list[Event]:
        for count, event in enumerate(ready, 1):
            if isinstance(event, Exited):
                if self._exited:
                    raise self._fail("the process exited twice")
                self._exited = True
            elif isinstance(event, Closed):
                if not self._exited:
                    raise self._fail("the process closed without an exit")
                self.closed = True
                self._waiting.clear()
                del ready[count:]
        self.last_published = ready[-1].seq
        return ready

    def _fail(self, reason: str) -> Lost:
        self._lost = True
        self._waiting.clear()
        return Lost(reason)


def next_look_s(quiet_s: float | None = None) -> float:
    """Return how long to wait before the next look, after one that found nothing for `quiet_s`."""
    return FIRST_LOOK_S if quiet_s is None else min(2 * quiet_s, LAST_LOOK_S)


def last_before(page: ReadPage) -> int:
    """The number before the oldest event that a page still has; an exit before it is the next one."""
    end = page.next_seq - 1
    oldest = page.outputs[0].seq if page.outputs else end if page.closed else page.next_seq
    unexplained = end - oldest + 1 - len(page.outputs) - page.closed
    return oldest - 1 - (page.exited and not unexplained)


def _events(page: ReadPage, end: int) -> Iterator[Event]:
    yield from page.outputs
    if page.closed:
        yield Closed(end)


def _complete_exit(event: Event, page: ReadPage) -> Event:
    """Complete a waiting exit with what only the page contains."""
    if not isinstance(event, Exited):
        return event
    denied = bool(event.sandbox_denied) or page.sandbox_denied
    usage, limit = event.usage or page.usage, event.limit or page.limit
    return replace(event, sandbox_denied=denied, usage=usage, limit=limit)


def _size(event: Event) -> int:
    return len(event.data) if isinstance(event, Output) else 0


# Servers differ: unknown members are ignored and newer ones may be absent. Output is the bulk of all traffic,
# so the spelling that every known server uses is cut out of the bytes directly. The base64 decoder refuses
# everything that is not base64, and then the ordinary parser decides.

T = TypeVar("T")


def convert(value: JsonValue, kind: type[T]) -> T:
    """Convert the value to `kind`.

    Raises:
        RemoteProtocolError: it does not fit; the text says which member and why.
    """
    try:
        return decoding.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise RemoteProtocolError(f"the server's answer does not fit the protocol: {exc}") from None


_SHORTCUT: Final = re.compile(
    rb'\{"method":"process/output","params":'
    rb'\{"processId":"([A-Za-z0-9_.-]{1,256})","seq":([0-9]{1,18}),"stream":"(stdout|stderr|pty)","chunk":"'
)
_TAIL: Final = b'"}}'
_KNOWN: Final = re.compile(rb'\{"method":"process/(?:output|exited|closed)"')


class Pushed(NamedTuple):
    """One event and the process it belongs to."""

    process_id: str
    event: Event


class StartAnswer(msgspec.Struct, rename="camel"):
    """The answer to process/start."""

    process_id: str
    sandbox_type: str | None = None
    enforcement: EnforcementReport | None = None
    pid: int | None = None
    watch: WatchReport | None = None


class _Written(msgspec.Struct):
    status: str


class _Output(msgspec.Struct, rename="camel"):
    process_id: str
    seq: int
    stream: Stream
    chunk: bytes


class _Exited(msgspec.Struct, rename="camel"):
    process_id: str
    seq: int
    exit_code: int
    sandbox_denied: bool | None = None
    usage: ProcessUsage | None = None
    denial: DenialReport | None = None
    limit: LimitReport | None = None
    network: NetworkReport | None = None


class _Closed(msgspec.Struct, rename="camel"):
    process_id: str
    seq: int


class _OutputNote(msgspec.Struct, tag_field="method", tag="process/output"):
    params: _Output


class _ExitedNote(msgspec.Struct, tag_field="method", tag="process/exited"):
    params: _Exited


class _ClosedNote(msgspec.Struct, tag_field="method", tag="process/closed"):
    params: _Closed


_Note: TypeAlias = _OutputNote | _ExitedNote | _ClosedNote
_NAMES: Final = ("process/output", "process/exited", "process/closed")

_notes = decoding.decoder(_Note)


def decode_pushed(message: bytes | memoryview) -> Pushed | None:
    """Decode the event in a whole message; None if it is another message, or is spelled unusually.

    Raises:
        RemoteProtocolError: it is a malformed event.
    """
    found = _SHORTCUT.match(message)
    if found is not None and message[-3:] == _TAIL:
        try:
            data = pybase64.b64decode(memoryview(message)[found.end() : -3], validate=True)
        except ValueError:
            pass  # an escape within the string, or not base64: the parser below decides
        else:
            process_id, seq, stream = found.groups()
            return Pushed(
                bytes(process_id).decode(), Output(int(seq), cast(Stream, bytes(stream).decode()), data)
            )
    if _KNOWN.match(message) is None:
        return None
    try:
        note = _notes.decode(message)
    except msgspec.DecodeError as exc:
        raise RemoteProtocolError(f"a process notification is broken: {exc}") from None
    return _to_pushed(note)


def convert_pushed(method: str, params: JsonValue) -> Pushed | None:
    """Convert the event in a parsed message; None if the method is not a process event.

    Raises:
        RemoteProtocolError: it is a malformed event.
    """
    if method not in _NAMES:
        return None
    try:
        return _to_pushed(decoding.convert({"method": method, "params": params}, _Note))
    except msgspec.ValidationError as exc:
        raise RemoteProtocolError(f"a process notification is broken: {exc}") from None


def _to_pushed(note: _Note) -> Pushed:
    match note:
        case _OutputNote(_Output(process_id, seq, stream, chunk)):
            return Pushed(process_id, Output(seq, stream, chunk))
        case _ExitedNote(_Exited(process_id, seq, code, denied, usage, denial, limit, network)):
            return Pushed(process_id, Exited(seq, code, denied, usage, denial, limit, network))
        case _ClosedNote(_Closed(process_id, seq)):
            return Pushed(process_id, Closed(seq))


def decode_page(result: JsonValue) -> ReadPage:
    """Decode a `process/read` answer.

    Raises:
        RemoteProtocolError: it is not one.
    """
    return convert(result, ReadPage)


def check_written(answer: JsonValue) -> None:
    """Check the answer to a call that feeds or closes standard input.

    Raises:
        InvalidRequest: the server did not take the input.
    """
    status = convert(answer, _Written).status
    if status == "stdinClosed":
        raise InvalidRequest(
            "the process has no standard input, or not any more", remedy="start it with stdin=True"
        )
    if status != "accepted":
        raise InvalidRequest(f"the server does not take input for this process: {status}")
