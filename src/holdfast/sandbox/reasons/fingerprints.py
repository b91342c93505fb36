"""From error text, or stage and errno, to the layer that refused, the cause, and the remedy. Pure module.

There is one table for the server, the doctor and the supervisor. A text is read line by line. The first row
of the table that fits a line owns it, so a sentence about a uid map is never taken for a file's permissions.
An errno counts only where a message would have it (after a colon, in brackets, at the start), never in the
middle of a path that happens to have this name.

A pattern is tried only on a line that contains one of its words (`find_needles`): the search for a word is a
hundred times cheaper, and hardly any line of a log contains the words of an error. `find_needles`
understands only the syntax that our tables use; for other patterns it makes no promise.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.sandbox.reasons.denial_table import COMMAND_ROWS, HINTS, WORDINGS
from holdfast.sandbox.reasons.fingerprint_table import BY_ERRNO, SETUP_ROWS, FingerprintRow, Layer

NOTHING: Final[frozenset[str]] = frozenset()
_LOOKAROUND: Final = ("(?=", "(?!", "(?<=", "(?<!")


def find_needles(pattern: str) -> frozenset[str]:
    """Words in lower case, one of which is in every lower-cased matching text; empty if uncertain."""
    return _alternatives(pattern, 0)[0]


def _alternatives(pattern: str, at: int) -> tuple[frozenset[str], int]:
    branches = []
    while True:
        best, at = _sequence(pattern, at)
        branches.append(best)
        if at == len(pattern) or pattern[at] == ")":
            return frozenset().union(*branches) if all(branches) else NOTHING, at
        at += 1


def _sequence(pattern: str, at: int) -> tuple[frozenset[str], int]:
    best, run = NOTHING, ""
    while at < len(pattern) and pattern[at] not in "|)":
        char, inner, at = _atom(pattern, at)
        least, at = _quantifier(pattern, at)
        if char and least is None:
            run += char
            continue
        best = _surer(best, run + char if least else run)
        run = ""
        if least != 0 and inner:
            best = max(best, inner, key=_length)
    return _surer(best, run), at


def _surer(best: frozenset[str], run: str) -> frozenset[str]:
    return max(best, frozenset([run.lower()]), key=_length) if run else best


def _length(words: frozenset[str]) -> int:
    return min(map(len, words), default=0)


def _atom(pattern: str, at: int) -> tuple[str, frozenset[str], int]:
    """The character that an atom stands for, or the words a group needs; neither for a class or an anchor."""
    char = pattern[at]
    if char == "(":
        start = at + 1
        if pattern.startswith("(?P<", at):
            start = pattern.index(">", at) + 1
        elif pattern.startswith("(?", at):
            start = at + (4 if pattern.startswith("(?<", at) else 3)
        inner, end = _alternatives(pattern, start)
        return "", NOTHING if pattern.startswith(_LOOKAROUND, at) else inner, end + 1
    if char == "[":
        at += 2 if pattern.startswith("[^", at) else 1
        first = at
        while at == first or pattern[at] != "]":
            at += 2 if pattern[at] == "\\" else 1
        return "", NOTHING, at + 1
    if char == "\\":
        escaped = pattern[at + 1]
        return "" if escaped.isalnum() else escaped, NOTHING, at + {"u": 6, "x": 4}.get(escaped, 2)
    return "" if char in ".^$" else char, NOTHING, at + 1


def _quantifier(pattern: str, at: int) -> tuple[int | None, int]:
    """The minimum number of repetitions of the atom before `at`; None for exactly once."""
    char = pattern[at : at + 1]
    if char == "{":
        end = pattern.index("}", at)
        least, at = int(pattern[at + 1 : end].split(",")[0]), end + 1
    elif char in ("?", "*", "+"):
        least, at = int(char == "+"), at + 1
    else:
        return None, at
    return least, at + pattern.startswith("?", at)


MAX_TEXT = 64 * 1024  # characters read, from the end: failures are reported last; bounds the cost
MAX_LINE = 2000  # characters of one line; a longer one is a dump, and its quotes have no meaning
MAX_MATCHES = 64  # lines reported, the last ones: a recursive delete reports each file
MAX_LINES = 256  # lines matched with the table, the last ones
CONTEXT = 6  # lines above that a message may need: a traceback, a chain of causes

_BEFORE: Final = r"(?:^[ \t]*|(?:[:,\]]| -)[ \t][\"']?|\()"
_AFTER: Final = r"(?=[ \t]*$|[ \t]?[.,:;)\"'\]>]|[ \t]+[(\[@-]|[ \t](?:at|in)[ \t])"
# ssh's message when a server refuses a key or a password, in the same words.
_NOT_OURS: Final = r"(?![ \t]\((?:publickey|password|keyboard|gssapi|hostbased|none)|, please try again)"

_ESCAPES: Final = re.compile(r"\x1b\[[\d;?]{0,32}[A-Za-z]|\r")
_QUOTED: Final = re.compile(
    r"(?<!\w)b?'([^'\n]{1,400})'(?!\w)"
    r'|(?<!\w)"([^"\n]{1,400})"'
    r"|`([^`'\n]{1,400})[`']"
    r"|\u2018([^\u2018\u2019\n]{1,400})\u2019"
    r"|„([^„“”\n]{1,400})[“”]"
    r"|“([^“”\n]{1,400})”"
    r"|«[ \u00a0\u202f]?([^«»\n]{1,400}?)[ \u00a0\u202f]?»"
    r"|»([^«»\n]{1,400})«"
)
_TWO_NAMES: Final = re.compile(r"[ \t]*(?:->|=>|→|to|nach|vers|a)[ \t]*")
_LINKED: Final = re.compile(r"[ \t]*(?:=>|→)[ \t]*")
_AFTER_PATH: Final = re.compile(r"(?::| -| @ \w{1,40} -| \[)[ \t]?((?:/|\.{1,2}/)[^\n'\"]{1,400})")
_TAIL: Final = re.compile(r"\]$| \(Errno::\w+\)$| at \S+ line \d+\.?$")
_CALLS: Final = re.compile(
    r"(?:open|mkdir|rename|remove|unlinkat|unlink|rmdir|stat|lstat|chmod|chown|link|symlink|readdirent|truncate"
    r"|fork/exec|cannot (?:create|open|mkdir|stat)) "
)
# Programs that name just the file, without a slash: `tee: out: Permission denied`.
_PLAIN_SPEAKERS: Final = re.compile(
    "ar|bash|cat|cp|dash|diff|du|grep|gzip|head|ksh|ld|less|ls|mkdir|mv|rm|sed|sh|sort|stat|tail|tar|tee|touch|wc|zsh"
)
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[\w-]{0,62}\.){1,8}[A-Za-z0-9-]{1,63}|localhost")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """One kind of failure. `confidence` is the probability of this cause, given the text alone."""

    id: str
    layer: Layer
    patterns: tuple[str, ...]  # regular expressions, compiled when first needed: all at once took 50 ms
    cause: str
    remedy: str
    confidence: float
    path: str | None = None  # the refused path, when the text cannot name it
    beside: tuple[str, ...] = ()  # patterns that the whole text must contain too
    unless: tuple[str, ...] = ()  # patterns that rule this one out, anywhere in the text


@dataclass(frozen=True, slots=True)
class Match:
    """A line that a fingerprint owns, and the names in it."""

    fingerprint: Fingerprint
    line: str
    paths: tuple[str, ...] = ()  # as the program wrote them; two for a rename
    host: str | None = None


def fingerprint(row: FingerprintRow) -> Fingerprint:
    """A row as a fingerprint, with its errnos expanded to patterns."""
    patterns = list(row.patterns)
    for name in row.errnos:
        number, texts = WORDINGS[name]
        patterns += [
            f"{_BEFORE}(?:{'|'.join(texts)}){_NOT_OURS}{_AFTER}",
            rf"(?<![\w/.'\"-]){name}(?=[:,\s]|$)|\[Errno {number}\]|\(os error {number}\)",
        ]
    return Fingerprint(
        row.id, row.layer, tuple(patterns), row.cause, row.remedy, row.confidence,
        row.path, row.beside, row.unless,
    )  # fmt: skip


TABLE: Final = tuple(map(fingerprint, (*SETUP_ROWS, *COMMAND_ROWS)))
_BY_ID: Final = {known.id: known for known in TABLE}
_needles: Final = functools.cache(find_needles)


def by_errno(stage: str, errno: int) -> Fingerprint | None:
    """The fingerprint for a failure of our own launcher at `stage`; None if the stage is unknown.

    `stage` may be the id of a fingerprint. What bubblewrap reported is an id after `bwrap:`.
    """
    known = BY_ERRNO.get(stage)
    return (
        _BY_ID.get(stage.removeprefix("bwrap:")) if known is None else _BY_ID[known.get(errno, known[None])]
    )


def match(text: str) -> list[Match]:
    """Every line of the last `MAX_TEXT` characters that fits a row, in the order of the text."""
    lines = [line[:MAX_LINE] for line in _ESCAPES.sub("", text[-MAX_TEXT:]).split("\n")]
    lowered = "\n".join(lines).lower()
    hints = [hint for hint in HINTS if hint in lowered]
    hinted = [n for n, line in enumerate(lowered.split("\n")) if any(hint in line for hint in hints)]
    kept = sorted(
        {above for number in hinted[-MAX_LINES:] for above in range(max(number - CONTEXT, 0), number + 1)}
    )
    found = look([lines[number] for number in kept])
    return [found[number] for number in sorted(found)][-MAX_MATCHES:]


def look(lines: Sequence[str], table: Sequence[Fingerprint] = TABLE) -> dict[int, Match]:
    """The lines that a row of `table` owns, by number. The caller limits the lines and removes escapes."""
    text = "\n".join(lines)
    lowered = text.lower()
    found: dict[int, Match] = {}
    for known in table:
        for pattern in known.patterns:
            number, seen = 0, 0
            for hit in hits(pattern, text, lowered):
                number += text.count("\n", seen, hit.end())
                seen = hit.end()
                if number not in found:
                    found[number] = _read(known, hit, number, lines)
    return found


def hits(pattern: str, text: str, lowered: str) -> Iterator[re.Match[str]]:
    """The matches of a pattern of the table; `lowered` is the same text in lower case."""
    words = _needles(pattern)
    if words and not any(word in lowered for word in words):
        return iter(())
    return re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE)


def _read(known: Fingerprint, hit: re.Match[str], number: int, lines: Sequence[str]) -> Match:
    named = hit.groupdict()
    line = lines[number]
    line_start = hit.string.rfind("\n", 0, hit.end()) + 1
    start, end = max(hit.start() - line_start, 0), hit.end() - line_start
    path, host = named.get("path"), named.get("host")
    paths: tuple[str, ...] = ()
    if known.id.startswith("net."):
        host = _clean(host) if host else _host_in(line[:start])
    elif known.layer is Layer.FILESYSTEM and not path:
        paths = paths_in(line, start, end) or _paths_above(lines, number)
    return Match(known, line.strip(), (path,) if path else paths, host)


def _clean(host: str) -> str:
    return host.strip("[]").rstrip(".")


def _host_in(before: str) -> str | None:
    """The last word before the message that can only be a host name with a dot."""
    for word in reversed(before.split()):
        bare = word.strip("'\"\u2018\u2019«»„“():,").split("://")[-1].split("/")[0]
        name, colon, port = bare.partition(":")
        exception = name.lower().endswith(("error", "exception"))
        if _HOST.fullmatch(name) and not exception and (not colon or port.isdigit()):
            return name
    return None


def paths_in(line: str, start: int, end: int) -> tuple[str, ...]:
    """The refused paths that a line names; `start` and `end` are the position of the errno in it."""
    quotes = [(q.start(), q.end(), q.group(q.lastindex or 0)) for q in _QUOTED.finditer(line)]
    after = [q for q in quotes if q[0] >= end]
    before = [q for q in quotes if q[1] <= start + 2]  # the match of an errno begins with its colon
    if after and "/" not in line[end : after[0][0]]:
        return _pair(line, after, 0)
    if (told := _AFTER_PATH.match(line, end)) is not None:
        return (_TAIL.sub("", told.group(1)).rstrip(),)
    if before:
        second = len(before) > 1 and _TWO_NAMES.fullmatch(line[before[-2][1] : before[-1][0]]) is not None
        return _pair(line, before, -2 if second else -1)
    return _read_unquoted(line[:start])


def _pair(line: str, quotes: list[tuple[int, int, str]], first: int) -> tuple[str, ...]:
    one, *rest = quotes[first:]
    if not rest or (between := _TWO_NAMES.fullmatch(line[one[1] : rest[0][0]])) is None:
        return (one[2],)
    # A link is refused at the place where it would be made; its target is only read.
    return (one[2],) if _LINKED.fullmatch(between.group()) else (one[2], rest[0][2])


def _read_unquoted(before: str) -> tuple[str, ...]:
    """Read paths from `program: line 1: PATH`, `open PATH`, `cannot create PATH` and the like."""
    segments = [segment.strip() for segment in re.split(r"[ \u00a0]?:[ \t]", before)]
    for segment in reversed(segments):
        if (call := _CALLS.match(segment)) is not None and re.search(r"/|^\.", segment[call.end() :]):
            return _read_call(call)
        if segment.startswith(("/", "./", "../")):
            return (segment.removesuffix(" ("),)
        words = [word for word in segment.split() if "/" in word and "://" not in word]
        if words:
            return (words[-1].strip("'\"`,;("),)
    for segment in reversed(segments[1:]):
        if re.fullmatch(r"[\w.@+-]{1,255}", segment) and (
            "." in segment or _PLAIN_SPEAKERS.fullmatch(segments[0])
        ):
            return (segment,)
    call = _CALLS.match(segments[-1])
    return () if call is None else _read_call(call)


def _read_call(call: re.Match[str]) -> tuple[str, ...]:
    names = call.string[call.end() :]
    return tuple(names.split(" ", 1)) if call.group() == "rename " else (names,)


def _paths_above(lines: Sequence[str], number: int) -> tuple[str, ...]:
    """Paths from lines above: Rust's chains of errors name the path some lines before the reason."""
    chain = lines[max(number - 6, 0) : number]
    if not any(line.strip() == "Caused by:" for line in chain):
        return ()
    names = [quote.group(3) for line in chain for quote in _QUOTED.finditer(line) if quote.group(3)]
    return tuple(name for name in names if "/" in name)[-1:]
