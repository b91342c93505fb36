"""The channels that interpret a worker: by the lines of its event stream, over ACP, or by its terminal."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from holdfast.agents.catalog import screens
from holdfast.agents.catalog.agent import TEXT, Agent
from holdfast.agents.catalog.catalog import Parser, log_parser_of, parser_of, text_parser_of
from holdfast.agents.catalog.output import JsonEvents, ToolCalls, find_last_words
from holdfast.agents.evidence import holdups
from holdfast.agents.evidence.evidence import MAX_SEEN, Evidence, Idle, Ready, Source, Want, Wants
from holdfast.agents.terminal import escapes
from holdfast.agents.terminal.keys import FOOT_LINES
from holdfast.agents.terminal.screen import Screen
from holdfast.agents.worker import acp, procwatch
from holdfast.agents.worker.acp import AcpRequest
from holdfast.agents.worker.book import Record
from holdfast.agents.worker.statefiles import LogTail
from holdfast.agents.worker.worker import Input, Taken, WorkerChannel, now
from holdfast.doctor.explain.redaction import redact_line

LAST_LINES: Final = 12  # of each stream that are kept for its end
MAX_LINE: Final = 32 << 20  # bytes of one event: a whole thread in one line has been seen


def channel_of(
    agent: Agent,
    record: Record,
    secrets: tuple[str, ...] = (),
    request: AcpRequest | None = None,
    state: str | None = None,
) -> WorkerChannel:
    """Create the suitable channel; `secrets` never appear in its evidence. `state` is its state directory."""
    about = _About(record, agent, secrets, state)
    if record.acp:
        return AcpChannel(agent, record, secrets, about, request)
    if record.tty:
        return TerminalChannel(agent, record, secrets, about)
    return LineChannel(agent, record, secrets, about)


class _Lines:
    """Feeds complete lines to a parser; a line above MAX_LINE is passed in pieces, which it refuses."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._rest = bytearray()
        self.last: deque[str] = deque(maxlen=LAST_LINES)

    def feed(self, data: bytes, at: float) -> list[Evidence]:
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        if len(rest) > MAX_LINE:
            lines, rest = [*lines, rest], bytearray()
        self._rest = bytearray(rest)
        found: list[Evidence] = []
        for line in lines:
            text = line.decode("utf-8", "replace").rstrip("\r")
            self.last.append(text[:MAX_SEEN])
            found += self._parser.feed(text, at)
        return found


class _About:
    """Evidence from a worker's log and from /proc, including `Idle` for a report that is over."""

    _SOURCES: Final = (Source.SYSCALL, Source.TTY, Source.CHILDREN)

    def __init__(self, record: Record, agent: Agent, secrets: tuple[str, ...], state: str | None) -> None:
        self._record = record
        self._said = set(self._SOURCES)  # an earlier supervisor may have recorded reports of any of them
        self._parser = log_parser_of(agent, secrets)
        self._log = LogTail(state, agent.log.place) if agent.log is not None and state is not None else None
        if self._log is not None and record.phase != "prepared":
            self._log.read()  # skip what an earlier supervisor has read

    def look(self, at: float, *, full_screen: bool) -> list[Evidence]:
        return [*self._read_log(at), *self._ask_kernel(at, full_screen=full_screen)]

    def _read_log(self, at: float) -> list[Evidence]:
        lines = self._log.read() if self._log is not None else ()
        return [item for line in lines for item in self._parser.feed(line, at)]

    def _ask_kernel(self, at: float, *, full_screen: bool) -> list[Evidence]:
        if self._record.pid is None:
            return []
        seen = procwatch.look(self._record.pid)
        if seen.main is None:
            return []
        found = procwatch.evidence(seen, at, full_screen=full_screen)
        says = {item.source for item in found}
        gone = [Evidence(source, at, Idle()) for source in self._SOURCES if source in self._said - says]
        self._said = says
        return [*found, *gone]


class LineChannel:
    """A run without a terminal: events on stdout, text on stderr."""

    def __init__(self, agent: Agent, record: Record, secrets: tuple[str, ...], about: _About) -> None:
        self._about = about
        self._secrets = secrets
        self._parser = parser_of(agent, secrets)
        self._streams = {
            "stdout": _Lines(self._parser),
            "stderr": _Lines(text_parser_of(agent, secrets)),
        }

    def opening(self) -> bytes:
        return b""

    def feed(self, stream: str, data: bytes, at: float) -> Taken:
        return Taken(self._streams[stream].feed(data, at), data)

    def look(self, at: float) -> list[Evidence]:
        return self._about.look(at, full_screen=False)

    def input(self, at: float) -> Input | None:
        return None

    def shown(self) -> str:
        return ""

    def read_end(self, at: float) -> tuple[list[Evidence], str]:
        lines = [line for stream in self._streams.values() for line in stream.last]
        return [], redact_line(find_last_words(lines), self._secrets, limit=MAX_SEEN)

    def resize(self, rows: int, cols: int) -> None:
        pass

    def calls(self) -> ToolCalls | None:
        return _calls(self._parser)


class AcpChannel(LineChannel):
    """A run driven over the Agent Client Protocol: requests both ways on its pipes, text on stderr."""

    def __init__(
        self,
        agent: Agent,
        record: Record,
        secrets: tuple[str, ...],
        about: _About,
        request: AcpRequest | None,
    ) -> None:
        super().__init__(agent, record, secrets, about)
        self._parser = self._events = acp.AcpEvents(request, agent.retries, secrets=secrets)
        self._streams["stdout"] = _Lines(self._events)

    def opening(self) -> bytes:
        return acp.opening()

    def feed(self, stream: str, data: bytes, at: float) -> Taken:
        taken = super().feed(stream, data, at)
        said = self._events.said()
        return taken._replace(replies=said.data, last=said.last)

    def look(self, at: float) -> list[Evidence]:
        found = super().look(at)  # reading stdin is normal for an ACP server
        return [item for item in found if not _wants(item, Want.STDIN_EOF)]


def _calls(parser: Parser | None) -> ToolCalls | None:
    return parser.calls if isinstance(parser, JsonEvents) else None


def _foot(lines: Sequence[str]) -> bytes:
    return "\n".join([line for line in lines if line.strip()][-FOOT_LINES:]).encode("utf-8", "replace")


def _wants(item: Evidence, want: Want) -> bool:
    return isinstance(item.claim, Wants) and item.claim.want is want


class TerminalChannel:
    """A program on a terminal: what it reports, what its screen shows, what it waits for.

    A run of one prompt also writes its events there.
    """

    def __init__(self, agent: Agent, record: Record, secrets: tuple[str, ...], about: _About) -> None:
        self._agent = agent
        self._record = record
        self._about = about
        self._secrets = secrets
        self._reader = escapes.EscapeReader()
        self._titled = False
        self._screen = Screen(record.rows, record.cols)
        self._drawn = False
        events = record.headless and agent.parser != TEXT
        self._parser = parser_of(agent, secrets) if events else None
        self._events = _Lines(self._parser) if self._parser else None
        self._is_silent = record.headless and agent.stderr_is_work  # any output means work

    def opening(self) -> bytes:
        return b""

    def feed(self, stream: str, data: bytes, at: float) -> Taken:
        found: list[Evidence | None] = [*(self._events.feed(data, at) if self._events else ())]
        if self._is_silent and data.strip():
            self._is_silent = False
            found.append(Evidence(Source.TEXT, at, Ready(), "its first output"))
        asked: list[escapes.Query] = []
        self._drawn = True
        self._screen.feed(data)
        seen = self._reader.feed(data)
        for event in seen.events:
            match event:
                case escapes.Query():
                    asked.append(event)
                case escapes.TerminalReport():
                    claim = escapes.claim(event)
                    said = f"{event.phase.value} {event.message}".strip()
                    found.append(Evidence(Source.ESCAPE, at, claim, said[:MAX_SEEN]) if claim else None)
                case escapes.Titled():
                    found.append(self._title(event.title, at))
        replies = escapes.answers(asked, self._view(at)) if asked else b""
        return Taken([item for item in found if item is not None], seen.forward, replies)

    def _title(self, title: str, at: float) -> Evidence | None:
        """Return the evidence in the title; Idle if an earlier title had a meaning and this one has none."""
        said = holdups.read_title(title, self._agent, at)
        if said is None and self._titled:
            said = Evidence(Source.TITLE, at, Idle(), title[:MAX_SEEN])
        self._titled = said is not None and not isinstance(said.claim, Idle)
        return said

    def look(self, at: float) -> list[Evidence]:
        seen = self._screen.look(at)
        # Stability means nothing for a screen that was never drawn on.
        stability = holdups.read_stability(seen.changed_at, at) if self._drawn else None
        found = screens.read_terminal(seen.lines, self._agent, at)
        found += [stability] if stability is not None else []
        # A program with signs for being busy reads the keyboard all the time, on either screen.
        full_screen = self._reader.alternate or bool(self._agent.busy)
        # The screen comes last: it shows what the program waits for on the terminal.
        return [*self._about.look(at, full_screen=full_screen), *found]

    def input(self, at: float) -> Input | None:
        seen = self._screen.look(at)
        terminal = None if self._record.pid is None else procwatch.look(self._record.pid).terminal
        return Input(
            digest=seen.digest + self._reader.title.encode(),
            screen=holdups.read_screen(seen.lines, self._agent, at),
            bracketed=self._reader.bracketed_paste,
            canonical=terminal is not None and terminal.canonical,
            password=terminal is not None and terminal.password,
            foot=_foot(seen.lines),
            unread=0 if terminal is None else terminal.unread,
            clicks=self._reader.takes_clicks,
        )

    def shown(self) -> str:
        seen = self._screen.look(now())
        return "\r\n".join(seen.lines).rstrip() + f"\x1b[{seen.row};{seen.column}H"

    def read_end(self, at: float) -> tuple[list[Evidence], str]:
        lines, words = self._screen.look(at).lines, text_parser_of(self._agent, self._secrets)
        found = [item for line in lines for item in words.feed(line.strip(), at)]
        return found, redact_line(find_last_words(lines), self._secrets, limit=MAX_SEEN)

    def resize(self, rows: int, cols: int) -> None:
        if (rows, cols) != (self._record.rows, self._record.cols):
            self._record.rows, self._record.cols = rows, cols
            self._screen = Screen(rows, cols)  # a full-screen program redraws itself

    def calls(self) -> ToolCalls | None:
        return _calls(self._parser)

    def _view(self, at: float) -> escapes.TerminalView:
        seen = self._screen.look(at)
        modes = frozenset(self._reader.modes)
        return escapes.TerminalView(seen.row, seen.column, self._record.rows, self._record.cols, modes)
