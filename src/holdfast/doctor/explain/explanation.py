"""Find the known causes in any log or error text, in words. Pure module.

A text is read once, in pieces, and may be longer than memory. Conditions of a row on the whole text
(`beside`, `unless`) are decided at the end.

The memory kept between two pieces is bounded for any input. A stream of JSON messages becomes one line per
member, with the text in it as the program wrote it, so that it reads like a terminal's.
"""

import codecs
import errno
import re
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.doctor.explain.causes import CONFIG_ROWS, LAUNCH_ROWS, RUN_ROWS
from holdfast.doctor.explain.everyday import EVERYDAY_ROWS
from holdfast.doctor.explain.redaction import redact
from holdfast.sandbox.host.hostfacts import Fact, HostFacts
from holdfast.sandbox.reasons import fingerprints
from holdfast.sandbox.reasons.fingerprint_table import Layer
from holdfast.sandbox.reasons.fingerprints import Fingerprint

MAX_OPEN_CHARS: Final = 256 * 1024  # a line without end is cut here; a JSON message with a tool's output fits
MAX_LINE_CHARS: Final = 2000  # of one returned line; longer ones come in pieces
MAX_NESTED: Final = 3  # JSON in JSON in JSON: agents quote each other's output so

_ESCAPES: Final = re.compile(r"\x1b\[[\d;?]{0,32}[A-Za-z]|\x1b\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)")
_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\"\\/bfnrt]))")
_PLAIN: Final = {"b": "", "f": "\n", "n": "\n", "r": "\n", "t": "\t"}
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LONGEST_MARK: Final = 3  # bytes of a byte-order mark
SCHEMA_VERSION: Final = 1
MAX_EVIDENCE: Final = 5  # lines shown for one cause; the others are counted
MAX_EVIDENCE_CHARS: Final = 300  # of one shown line: enough to find it again
WINDOW_LINES: Final = 400  # examined together; more would only cost memory

# Messages of agents are more specific than those of the tools below them, so they come first.
TABLE: Final = (
    *map(fingerprints.fingerprint, (*CONFIG_ROWS, *LAUNCH_ROWS, *RUN_ROWS, *EVERYDAY_ROWS)),
    *fingerprints.TABLE,
)
_CONDITIONS: Final = frozenset(pattern for row in TABLE for pattern in (*row.beside, *row.unless))

# A failure further down breaks everything above: the lowest layer with a cause is where to begin.
_DEPTH: Final = {
    **dict.fromkeys(
        (Layer.HOST_KERNEL, Layer.CONTAINER, Layer.APPARMOR, Layer.SANDBOX_SETUP, Layer.WINDOWS), 0
    ),
    Layer.TOOL: 1,
    Layer.CONFIG: 2,
    Layer.POLICY: 3,
    Layer.TRUST: 4,
    **dict.fromkeys(
        (Layer.VCS, Layer.FILESYSTEM, Layer.SYSCALL, Layer.NETWORK, Layer.APP, Layer.PROVIDER), 5
    ),
    Layer.OBSERVABILITY: 6,
}
UNSURE: Final = 0.5  # rows below it are reported last, however deep they are

_HOST: Final = "holdfast doctor"
_IN_FORCE: Final = "holdfast config codex check"
_SIDE_BY_SIDE: Final = "holdfast doctor compare -- COMMAND"
_PROVE: Final = "holdfast doctor assert"
# By layer: the command that checks whether the text is right about this machine.
PROBES: Final = {
    **dict.fromkeys((Layer.HOST_KERNEL, Layer.CONTAINER, Layer.APPARMOR, Layer.SANDBOX_SETUP), _HOST),
    Layer.TOOL: _HOST,
    **dict.fromkeys((Layer.CONFIG, Layer.POLICY, Layer.TRUST), _IN_FORCE),
    **dict.fromkeys((Layer.VCS, Layer.FILESYSTEM, Layer.SYSCALL, Layer.NETWORK, Layer.APP), _SIDE_BY_SIDE),
    Layer.PROVIDER: "codex doctor",
    Layer.WINDOWS: "codex doctor",
    Layer.OBSERVABILITY: _PROVE,
}
NEXT: Final = (
    (_HOST, "tries every stage of a sandbox on this machine"),
    (_IN_FORCE, "compares the agent's configuration with the values really in force"),
    (_PROVE, "runs a command through the agent's own sandbox; for agents that only look idle"),
    (_SIDE_BY_SIDE, "runs the command with and without a sandbox and says what differs"),
    ("holdfast doctor explain FILE", "with more of the log, from the first error on"),
)
# By fingerprint, or by the part before its dot: the facts that it is about.
TRIED: Final = {
    "apparmor": ("uid map", "loopback"),
    "userns": ("user namespace",),
    "uidmap": ("uid map",),
    "mount.eperm": ("mount propagation", "mount calls"),
    "mount.enosys": ("mount calls",),
    "proc": ("fresh proc",),
    "netns": ("net namespace",),
    "lo": ("loopback",),
    "seccomp": ("seccomp",),
    "landlock": ("landlock",),
    "bwrap.missing": ("bwrap",),
    "bwrap.option": ("bwrap",),
    "codex.preflight": ("user namespace", "uid map", "loopback"),
    "codex.landlock-absent": ("landlock",),
    "codex.landlock-userns": ("user namespace",),
}


class LogText:
    """Splits bytes, fed in pieces of any size, into lines."""

    def __init__(self) -> None:
        self._head = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._open = ""

    def feed(self, data: bytes, *, final: bool = False) -> list[str]:
        """The lines that are complete now; with `final` also the last one."""
        text = (self._open + self._decode(data, final)).replace("\r\n", "\n").replace("\r", "\n")
        *whole, self._open = text.split("\n")
        if final or len(self._open) > MAX_OPEN_CHARS:
            whole.append(self._open)
            self._open = ""
        return [piece for line in whole for piece in _pieces(line)]

    def _decode(self, data: bytes, final: bool) -> str:
        if self._decoder is None:
            self._head += data
            if len(self._head) < _LONGEST_MARK and not final:
                return ""
            name = "utf-16" if self._head.startswith(_UTF_16) else "utf-8-sig"
            self._decoder = codecs.getincrementaldecoder(name)("replace")
            data, self._head = self._head, b""
        # UTF-16 without a mark looks like ASCII letters with zeros between.
        return self._decoder.decode(data, final).replace("\0", "")


def _pieces(line: str) -> list[str]:
    if '{"' in line:
        line = _open_json(line)
    line = _ESCAPES.sub("", line)
    return [part[at : at + MAX_LINE_CHARS] for part in line.split("\n") for at in _starts(part)]


def _starts(part: str) -> range:
    return range(0, max(len(part), 1), MAX_LINE_CHARS)


def _open_json(line: str) -> str:
    """One line per member of the object, with the strings unescaped."""
    for _ in range(MAX_NESTED):
        line = line.replace(',"', ',\n"')
        if '\\"' not in line and "\\n" not in line:
            break
        line = _ESCAPED.sub(_unescape, line)
    return line


def _unescape(hit: re.Match[str]) -> str:
    number, letter = hit.groups()
    return chr(int(number, 16)) if number else _PLAIN.get(letter, letter)


@dataclass(frozen=True, slots=True)
class Explanation:
    """One cause, with redacted lines that show it, and the command to check it."""

    id: str
    layer: str
    cause: str
    remedy: str
    confidence: float
    evidence: tuple[str, ...]
    count: int  # all lines that show it, including those not in `evidence`
    probe: str
    here: str | None = None  # what a test on this machine showed


@dataclass(slots=True)
class _Shown:
    fingerprint: Fingerprint
    count: int = 0
    lines: list[str] = field(default_factory=list)


class Reading:
    """A text that arrives in pieces. `feed` all of it, then call `causes`."""

    def __init__(self) -> None:
        self._text = LogText()
        self._waiting: list[str] = []
        self._above: list[str] = []
        self._shown: dict[str, _Shown] = {}
        self._held: set[str] = set()

    def feed(self, data: bytes, *, final: bool = False) -> None:
        self._waiting += self._text.feed(data, final=final)
        while len(self._waiting) >= WINDOW_LINES or (final and self._waiting):
            self._look(self._waiting[:WINDOW_LINES])
            del self._waiting[:WINDOW_LINES]

    def causes(self) -> list[Explanation]:
        """Every known cause that the text shows: the deepest layer first, in each the most certain."""
        self.feed(b"", final=True)
        found = [
            shown
            for shown in self._shown.values()
            if self._held.issuperset(shown.fingerprint.beside)
            and self._held.isdisjoint(shown.fingerprint.unless)
        ]
        return [_make_explanation(shown) for shown in sorted(found, key=_importance)]

    def _look(self, lines: list[str]) -> None:
        window = [*self._above, *lines]
        for number, match in sorted(fingerprints.look(window, TABLE).items()):
            if number >= len(self._above):
                known = match.fingerprint
                shown = self._shown.setdefault(known.id, _Shown(known))
                shown.count += 1
                if len(shown.lines) < MAX_EVIDENCE:
                    shown.lines.append(redact(match.line)[:MAX_EVIDENCE_CHARS])
        text = "\n".join(window)
        lowered = text.lower()
        for pattern in _CONDITIONS - self._held:
            if any(fingerprints.hits(pattern, text, lowered)):
                self._held.add(pattern)
        self._above = window[-fingerprints.CONTEXT :]


def _importance(shown: _Shown) -> tuple[bool, int, float]:
    known = shown.fingerprint
    return known.confidence < UNSURE, _DEPTH[known.layer], -known.confidence


def _make_explanation(shown: _Shown) -> Explanation:
    known = shown.fingerprint
    return Explanation(
        known.id,
        known.layer.value,
        known.cause,
        known.remedy,
        known.confidence,
        tuple(shown.lines),
        shown.count,
        PROBES[known.layer],
    )


def explain(text: str) -> list[Explanation]:
    """Every known cause in a short text."""
    reading = Reading()
    reading.feed(text.encode("utf-8", "surrogatepass"))
    return reading.causes()


def lines(found: list[Explanation]) -> list[str]:
    """The explanations for people."""
    if not found:
        return [
            "nothing in this text is known to us",
            *(f"  try: {command}  ({what})" for command, what in NEXT),
        ]
    told = []
    for one in found:
        told.append(f"{one.id} ({one.layer}, {one.confidence:.0%} sure): {one.cause}")
        more = f" (and {one.count - 1} more)" if one.count > 1 else ""
        told.append(f"  seen: {one.evidence[0]}{more}")
        told.append(f"  try: {one.remedy}")
        told.append(f"  here: {one.here}" if one.here else f"  check: {one.probe}")
    return told


def report(found: list[Explanation]) -> dict[str, object]:
    """The explanations for programs."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "explanations": [
            {
                "fingerprint": one.id,
                "layer": one.layer,
                "cause": one.cause,
                "remedy": one.remedy,
                "confidence": one.confidence,
                "evidence": list(one.evidence),
                "count": one.count,
                "probe": one.probe,
                "here": one.here,
            }
            for one in found
        ],
        "next": [] if found else [command for command, _ in NEXT],
    }


def compare_with_host(found: list[Explanation], host: HostFacts) -> list[Explanation]:
    """The explanations, each with the result of the tests on this machine, if there are any."""
    return [replace(one, here=_here(one.id, host)) for one in found]


def _here(id_: str, host: HostFacts) -> str | None:
    names = TRIED.get(id_) or TRIED.get(id_.partition(".")[0]) or ()
    facts = [fact for name in names if (fact := host.fact(name)) is not None]
    if not facts:
        return None
    refused = next((fact for fact in facts if fact.works is False), None)
    if refused is not None:
        return f"confirmed, {refused.name} is refused here ({_reason(refused)})"
    unknown = next((fact for fact in facts if fact.works is None), None)
    if unknown is not None:
        return f"{unknown.name} could not be tried here ({_reason(unknown)})"
    return f"the text suggests this, but {' and '.join(fact.name for fact in facts)} worked here just now"


def _reason(fact: Fact) -> str:
    return f"{fact.stage}: {errno.errorcode.get(fact.errno, str(fact.errno))}"
