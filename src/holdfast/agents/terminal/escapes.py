"""Escape sequences from a program to its terminal: status, titles, modes, queries. Pure module.

The stream of terminal bytes is split into text and control sequences, independently of where the reads end.
From these an `EscapeReader` extracts what the supervisor needs, and the bytes to forward to a person's
terminal: everything but the queries. We answer those ourselves, and otherwise the person's terminal would
answer them a second time.

Several agent CLIs wait for these answers when they start. An answer contains only what is needed to go on,
and nothing that the worker chose, except a mode number, because an answer is typed into the program that
reads next. We do not answer queries for features that we do not have (kitty's keyboard and pictures: silence
means no) or for data that the worker must not get (the clipboard, the title).

All input comes from the worker or from anything it prints: it is evidence, never a permission. Strings are
bounded and cleaned of control characters, and a state is taken only from fields made for it.
"""

import binascii
import enum
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from holdfast.agents.evidence.evidence import MAX_SEEN, Claim, Idle, Want, Wants, Work, Working

MAX_ANSWERS: Final = 4096  # bytes typed in reply to one read: a terminal's input buffer holds no more

_FOREGROUND: Final = "d0d0/d0d0/d0d0"
_BACKGROUND: Final = "0000/0000/0000"  # dark, so that programs choose colours for a dark screen
_KNOWN_MODES: Final = frozenset((1, 25, 47, 1000, 1002, 1003, 1004, 1006, 1047, 1049, 2004))
_CSI_QUERIES: Final = (
    (re.compile(rb"0?c"), "attributes"),
    (re.compile(rb">[0-9;]*c"), "secondary-attributes"),
    (re.compile(rb"=[0-9;]*c"), "unit"),
    (re.compile(rb"5n"), "condition"),
    (re.compile(rb"6n"), "cursor"),
    (re.compile(rb"\?6n"), "extended-cursor"),
    (re.compile(rb"\?996n"), "colour-scheme"),
    (re.compile(rb"\??[0-9;]*n"), "other-status"),
    (re.compile(rb">[0-9]*q"), "version"),
    (re.compile(rb"\?([0-9]{1,5})\$p"), "private-mode"),
    (re.compile(rb"([0-9]{1,5})\$p"), "mode"),
    (re.compile(rb"\?u"), "keyboard"),
    (re.compile(rb"18t"), "size"),
    (re.compile(rb"(?:1[1-9]|2[01])(?:;[0-9;]*)?t"), "window"),
    (re.compile(rb"\?[0-9]*S|\?[0-9]+;[0-9;]*S"), "graphics"),
    (re.compile(rb"[01]?x"), "parameters"),
    (re.compile(rb"\?4m|\?[0-9]+m"), "key-modifiers"),
    (re.compile(rb"[0-9;]*\*y|[0-9;]*\$u|[0-9;]*\$w"), "other-report"),
)
_ASKABLE: Final = frozenset(b"4 5 10 11 12 13 14 17 19 21 22 52 60 61".split())  # colours, and the clipboard
_FIXED_ANSWERS: Final = {
    "attributes": "\x1b[?62;22c",  # a VT220 with colours
    "secondary-attributes": "\x1b[>1;10;0c",
    "unit": "\x1bP!|00000000\x1b\\",
    "condition": "\x1b[0n",
    "colour-scheme": "\x1b[?997;1n",
    "version": "\x1bP>|holdfast\x1b\\",
    "capability": "\x1bP0+r\x1b\\",
    "setting": "\x1bP0$r\x1b\\",
}
_COLOURS: Final = {b"10": _FOREGROUND, b"11": _BACKGROUND, b"12": _FOREGROUND}
MAX_STRING: Final = 64 * 1024  # bytes of an OSC or DCS string: enough for copied text, bounded for memory
MAX_PARAMETERS: Final = 256  # bytes between CSI and its last byte; the longest in use have about 60

_CSI: Final = re.compile(rb"\x1b\[([0-?]{0,%d}+)([ -/]{0,8}+)([@-~])" % MAX_PARAMETERS)
_CSI_SO_FAR: Final = re.compile(rb"\x1b(?:\[[0-?]{0,%d}+[ -/]{0,8}+)?+" % MAX_PARAMETERS)
_ESCAPE: Final = re.compile(rb"\x1b[ -/]{0,8}+[0-~]")
_ESCAPE_SO_FAR: Final = re.compile(rb"\x1b[ -/]{0,8}+")
_STRING_END: Final = re.compile(rb"[\x07\x18\x1a\x1b]")
_TEXT: Final = re.compile(rb"[^\x1b]++")
# Text with the cursor moves and colours in it, which make up most of a full-screen program's output.
SKIM: Final = re.compile(rb"(?:[^\x1b]++|\x1b\[[0-9;:]{0,%d}+[@-HJ-MPXdfm])++" % MAX_PARAMETERS)


@dataclass(frozen=True, slots=True)
class Query:
    """One query. `argument` is digits only."""

    name: str
    argument: str = ""
    terminator: bytes = b"\x1b\\"


@dataclass(frozen=True, slots=True)
class TerminalView:
    """What the answers depend on: cursor position (from 1), screen size, and the modes that are on."""

    row: int = 1
    column: int = 1
    rows: int = 40
    columns: int = 120
    modes: frozenset[int] = frozenset()


def csi_query(body: bytes) -> Query | None:
    """Return the query in the body of a CSI sequence, if it is one."""
    if body[-1:] not in b"cnpqutSxmyw":
        return None
    for pattern, name in _CSI_QUERIES:
        found = pattern.fullmatch(body)
        if found is not None:
            return Query(name, found[1].decode("ascii") if found.re.groups else "")
    return None


def dcs_query(body: bytes) -> Query | None:
    """Return the query in a device control string: for a capability or a setting."""
    if body.startswith(b"+q"):
        return Query("capability")
    return Query("setting") if body.startswith(b"$q") else None


def escape_query(body: bytes) -> Query | None:
    return Query("attributes") if body == b"Z" else None


def osc_query(code: bytes, rest: bytes, *, terminator: bytes) -> Query | None:
    """Return the query in an operating system command."""
    if code == b"7501" and rest.startswith(b"?"):
        return Query("program-status", terminator=terminator)
    if code == b"99" and re.search(rb"(?:^|:)p=\?", rest.partition(b";")[0]):
        return Query("notifications")
    if rest != b"?" and not rest.endswith(b";?") and not rest.startswith(b"?"):
        return None
    if code in _COLOURS and rest == b"?":
        return Query("colour", code.decode("ascii"), terminator)
    return Query("other-setting") if code in _ASKABLE else None


def answer(query: Query, view: TerminalView) -> bytes:
    """Return our terminal's reply; empty for an unsupported query."""
    match query.name:
        case "cursor":
            text = f"\x1b[{view.row};{view.column}R"
        case "extended-cursor":
            text = f"\x1b[?{view.row};{view.column}R"
        case "private-mode":
            mode = int(query.argument)
            known = 1 if mode in view.modes else 2
            text = f"\x1b[?{mode};{known if mode in _KNOWN_MODES else 0}$y"
        case "mode":
            text = f"\x1b[{int(query.argument)};0$y"
        case "size":
            text = f"\x1b[8;{view.rows};{view.columns}t"
        case "colour":
            colour = _COLOURS[query.argument.encode("ascii")]
            return f"\x1b]{query.argument};rgb:{colour}".encode("ascii") + query.terminator
        case "program-status":
            return b"\x1b]7501;?" + query.terminator
        case name:
            text = _FIXED_ANSWERS.get(name, "")
    return text.encode("ascii")


def answers(queries: Iterable[Query], view: TerminalView) -> bytes:
    """Return the replies to one read, in order, up to MAX_ANSWERS bytes."""
    replies = b""
    for query in queries:
        reply = answer(query, view)
        if len(replies) + len(reply) > MAX_ANSWERS:
            break
        replies += reply
    return replies


class SequenceKind(enum.Enum):
    TEXT = enum.auto()  # also single control characters
    ESCAPE = enum.auto()  # body: what follows ESC
    CSI = enum.auto()  # body: parameters, intermediates and the last byte
    OSC = enum.auto()  # body: without introducer and terminator
    DCS = enum.auto()
    STRING = enum.auto()  # APC, PM, SOS


_STRINGS: Final = {
    b"]": SequenceKind.OSC,
    b"P": SequenceKind.DCS,
    b"_": SequenceKind.STRING,
    b"^": SequenceKind.STRING,
    b"X": SequenceKind.STRING,
}


class Piece(NamedTuple):
    kind: SequenceKind
    raw: bytes
    body: bytes


class Splitter:
    """Splits a stream into pieces. Incomplete sequences wait for more data; invalid ones are dropped."""

    def __init__(self, text: "re.Pattern[bytes]" = _TEXT) -> None:
        self._text = text
        self._rest = b""
        self._searched = 0  # bytes of a string in `_rest` already searched for its end
        self._discarding = False  # inside a string that is too long

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Yield the complete pieces. Must be exhausted before the next call."""
        data = self._rest + data
        self._rest = b""
        at = 0
        while at < len(data):
            if self._discarding:
                ended = _STRING_END.search(data, at)
                if ended is None:
                    return
                self._discarding = False
                at = ended.start() + (data[ended.start()] != 0x1B)
                continue
            found = self._text.match(data, at)
            if found is not None:
                yield Piece(SequenceKind.TEXT, found[0], found[0])
                at = found.end()
                continue
            kind = _STRINGS.get(data[at + 1 : at + 2])
            piece, after = _sequence(data, at) if kind is None else self._string(kind, data, at)
            if after is None:
                self._rest = data[at:]
                return
            if piece is not None:
                yield piece
            at = after

    def _string(self, kind: SequenceKind, data: bytes, at: int) -> tuple[Piece | None, int | None]:
        start, limit = at + 2, at + 2 + MAX_STRING
        look = start + self._searched
        self._searched = 0
        while (ended := _STRING_END.search(data, look, limit)) is not None:
            end, byte = ended.start(), data[ended.start()]
            if byte == 0x07 and kind is not SequenceKind.OSC:
                look = end + 1
                continue
            if byte == 0x07:
                return Piece(kind, data[at : end + 1], data[start:end]), end + 1
            if byte != 0x1B:
                return None, end + 1
            if end + 1 == len(data):
                self._searched = end - start
                return None, None
            if data[end + 1] == 0x5C:
                return Piece(kind, data[at : end + 2], data[start:end]), end + 2
            return None, end  # another sequence begins: the string is unterminated
        if len(data) >= limit:
            self._discarding = True
            return None, limit
        self._searched = len(data) - start
        return None, None


def _sequence(data: bytes, at: int) -> tuple[Piece | None, int | None]:
    """Return the sequence at `at` and where it ends; None as the end if more bytes are needed."""
    is_csi = data[at + 1 : at + 2] == b"["
    found = (_CSI if is_csi else _ESCAPE).match(data, at)
    if found is not None:
        kind, introducer = (SequenceKind.CSI, 2) if is_csi else (SequenceKind.ESCAPE, 1)
        return Piece(kind, found[0], found[0][introducer:]), found.end()
    so_far = (_CSI_SO_FAR if is_csi else _ESCAPE_SO_FAR).match(data, at)
    if so_far is None:
        raise AssertionError("it begins with ESC")
    return None, None if so_far.end() == len(data) else so_far.end()


class Phase(enum.StrEnum):
    """The states of a program status."""

    IDLE = "idle"
    WORKING = "working"
    BLOCKED = "blocked"
    DONE = "done"
    CLEAR = "clear"


@dataclass(frozen=True, slots=True)
class TerminalReport:
    """A program status (OSC 7501, or its rival OSC 26); `task` is set if it is about a part of the work."""

    phase: Phase
    kind: str = ""
    task: str = ""
    title: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Titled:
    title: str


Event: TypeAlias = TerminalReport | Titled | Query


class ReadEscapes(NamedTuple):
    events: list[Event]
    forward: bytes  # for a person's terminal


_ALTERNATE: Final = frozenset((47, 1047, 1049))
_BRACKETED_PASTE: Final = 2004
_CLICKS: Final = 1000
_SGR_PLACES: Final = 1006
_TRACKED: Final = _ALTERNATE | {_BRACKETED_PASTE, 1, 25, 1000, 1002, 1003, 1004, 1006, 2026}


class EscapeReader:
    """The terminal bytes of one worker, in order. Never raises, whatever they are."""

    def __init__(self) -> None:
        self._splitter = Splitter(SKIM)
        self.modes: set[int] = {25}  # tracked private modes that are on
        self.title = ""

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program uses the alternate screen."""
        return bool(self.modes & _ALTERNATE)

    @property
    def bracketed_paste(self) -> bool:
        """Whether the program distinguishes pasted text from typed keys."""
        return _BRACKETED_PASTE in self.modes

    @property
    def takes_clicks(self) -> bool:
        """Whether the program receives clicks in the SGR form, which has no limit at column 223."""
        return _CLICKS in self.modes and _SGR_PLACES in self.modes

    def feed(self, data: bytes) -> ReadEscapes:
        events: list[Event] = []
        forward = []
        for piece in self._splitter.feed(data):
            event = self._read(piece)
            if event is not None:
                events.append(event)
            if not isinstance(event, Query):
                forward.append(piece.raw)
        return ReadEscapes(events, b"".join(forward))

    def _read(self, piece: Piece) -> Event | None:
        match piece.kind:
            case SequenceKind.OSC:
                return self._osc(piece)
            case SequenceKind.DCS:
                return dcs_query(piece.body)
            case SequenceKind.CSI:
                return self._csi(piece.body)
            case SequenceKind.ESCAPE:
                if piece.body == b"c":
                    self._reset()
                return escape_query(piece.body)
            case SequenceKind.STRING:
                # Pictures are forwarded; a query for picture support is not: a real terminal would answer it.
                if re.match(rb"G(?:[^;]*,)?a=q[,;]", piece.body):
                    return Query("graphics")
        return None

    def _csi(self, body: bytes) -> Query | None:
        if body[:1] == b"?" and body[-1:] in b"hl":
            for number in body[1:-1].split(b";"):
                mode = int(number) if number.isdigit() and len(number) < 6 else 0
                if mode in _TRACKED:
                    (self.modes.add if body[-1:] == b"h" else self.modes.discard)(mode)
        elif body == b"!p":
            self._reset()
        return csi_query(body)

    def _reset(self) -> None:
        self.modes = {25}

    def _osc(self, piece: Piece) -> Event | None:
        code, _, rest = piece.body.partition(b";")
        query = osc_query(code, rest, terminator=b"\x07" if piece.raw.endswith(b"\x07") else b"\x1b\\")
        if query is not None:
            return query
        match code:
            case b"0" | b"2":
                self.title = clean(rest)
                return Titled(self.title)
            case b"7501":
                return _program_status(rest)
            case b"26":
                return _rival_status(rest)
        return None


def clean(data: bytes) -> str:
    """Return text for people, bounded and without control characters."""
    text = data[: 4 * MAX_SEEN].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text)[:MAX_SEEN].strip()


def _program_status(data: bytes) -> TerminalReport | None:
    fields = {}
    for part in data.split(b":")[:16]:
        key, _, value = part.partition(b"=")
        fields[key] = value
    try:
        phase = Phase(fields.get(b"state", b"").decode("ascii", "replace"))
    except ValueError:
        return None
    return TerminalReport(
        phase,
        kind=clean(fields.get(b"kind", b"")),
        task=clean(fields.get(b"id", b"")),
        title=_decode(fields.get(b"title", b"")),
        message=_decode(fields.get(b"msg", b"")),
    )


def _decode(value: bytes) -> str:
    try:
        return clean(binascii.a2b_base64(value))
    except binascii.Error:
        return ""


_RIVAL: Final = {
    b"awaiting-approval": TerminalReport(Phase.BLOCKED, "permission"),
    b"awaiting-input": TerminalReport(Phase.BLOCKED, "question"),
    b"working": TerminalReport(Phase.WORKING),
    b"idle": TerminalReport(Phase.IDLE),
    b"finished": TerminalReport(Phase.DONE),
    b"error": TerminalReport(Phase.DONE, "error"),
}


def _rival_status(data: bytes) -> TerminalReport | None:
    found = re.search(rb"(?:^|[;:])status=([a-z-]+)(?:$|[;:])", data[:MAX_SEEN].lower())
    return None if found is None else _RIVAL.get(found[1])


_WANTS: Final = {
    "question": Want.QUESTION,
    "input": Want.QUESTION,
    "login": Want.LOGIN,
    "auth": Want.LOGIN,
    "trust": Want.TRUST,
}


def claim(report: TerminalReport) -> Claim | None:
    """Return what a program status claims about the worker; None if it claims nothing about the whole.

    A blocked part blocks the worker. A part that works or has ended says nothing about the whole, and `clear`
    only retracts an earlier status.
    """
    match report.phase:
        case Phase.BLOCKED:
            return Wants(_WANTS.get(report.kind, Want.DECISION), question=report.message or report.title)
        case Phase.WORKING if not report.task:
            return Working(Work.THINKING)
        case Phase.IDLE | Phase.DONE if not report.task:
            return Idle()
        case _:
            return None
