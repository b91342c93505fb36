"""Turns lines of a CLI's output into evidence: plain text, and the base of all JSON parsers. Pure module.

A line that is not an event never stops the parser. Unknown events are counted and the first sample of each is
kept, so that we notice when a new release of a CLI emits new events before we misread them.

`find_announcement` finds the words in an error that say when a provider's limit ends. `resolve_announcement`
turns them into a point in time. They are separate because evidence is dated by a clock without a time of day.
"""

import hashlib
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, TypeAlias

import msgspec

from holdfast.agents.catalog.agent import ErrorSign, RetrySign
from holdfast.agents.catalog.failures import MAX_MESSAGE, begins_as_error, of_line, of_message, of_status
from holdfast.agents.evidence.evidence import (
    MAX_SEEN,
    Claim,
    Drift,
    Evidence,
    Failure,
    Progress,
    Ready,
    Result,
    Retrying,
    Source,
    Trouble,
    Work,
)
from holdfast.doctor.explain.redaction import redact_line

LIMITS = (Failure.QUOTA, Failure.RATE_LIMIT)
MAX_CONTINUED = 8  # lines after an error that still belong to it, up to an empty line: errors wrap
MAX_LOOKED: Final = 64 * 1024  # searched characters of a line: an error is shorter, its quotes may not be
MAX_WORDS: Final = 120  # characters of an announcement
MAX_AHEAD: Final = timedelta(days=8)  # the longest limit is a week; a later date is not an announcement
_MINUTE: Final = timedelta(minutes=1)  # a time of day without seconds has passed only when its minute has

Zones: TypeAlias = Callable[[str], tzinfo | None]
Found: TypeAlias = "re.Match[str]"

_UNITS: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_UNIT: Final = r"(?:ms|milliseconds?|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)"
_PART: Final = rf"\d{{1,9}}(?:\.\d{{1,9}})?\s?{_UNIT}(?![a-z])"
_SPAN: Final = rf"{_PART}(?:,?\s?(?:and\s)?{_PART}){{0,4}}"
_AGAIN: Final = r"\b(?:try again|retry|resets?|available again)"
_COLON: Final = r'\\{0,3}"?\s{0,3}[:=]\s{0,3}\\{0,3}"?'  # in JSON, in JSON inside JSON, or as a header
MAX_LINE = 32 * 1024 * 1024  # characters: one event may hold a whole thread; 10 MiB were too few
MAX_KINDS = 64  # kinds of unknown events counted separately: the worker chooses their names
MAX_NAME = 60  # characters of such a name
OTHER = "others"

JsonEvent: TypeAlias = Mapping[str, object]
Handler: TypeAlias = Callable[[JsonEvent, float], Sequence[Claim]]
WINDOW: Final = 30  # newest calls that are compared: more than one round of edit, build and test
MAX_WHAT: Final = 160  # characters of a call that are shown


class Attempts:
    """Recognises attempts, and counts them for a CLI that does not number them, until its work goes on."""

    def __init__(self, signs: Sequence[RetrySign]) -> None:
        self._signs = signs
        self._made = 0

    def progress(self) -> None:
        self._made = 0

    def another(self, number: int | None = None) -> int:
        """Return the number of the attempt that begins: the CLI's own number, or the last plus one."""
        self._made = self._made + 1 if number is None else number
        return self._made

    def read(self, text: str, at: float) -> Retrying | None:
        """Return the attempt that a line or message reports, or None."""
        for sign in self._signs:
            found = sign.pattern.search(text[:MAX_MESSAGE])
            if found is None:
                continue
            said = {name: value for name, value in found.groupdict().items() if value is not None}
            http = int(said["http"]) if "http" in said else None
            trouble = of_message(said.get("cause", ""))
            failure = (
                of_status(http, text) if http is not None else trouble.failure if trouble else sign.failure
            )
            return Retrying(
                attempt=self.another(int(said["attempt"]) if "attempt" in said else None),
                of=int(said["of"]) if "of" in said else None,
                failure=failure,
                http=http if http is not None else trouble.http if trouble else None,
                next_at=_next(said, at),
            )
        return None


def add_announcement(claim: Claim, line: str) -> Claim:
    """Add to the claim the words of the line that say when a limit ends, if there are any."""
    if isinstance(claim, Trouble | Result) and claim.failure in LIMITS and (words := find_announcement(line)):
        return replace(claim, announced=words)
    return claim


def find_last_words(lines: Sequence[str]) -> str:
    """Return the last line that begins like an error, else the last line: why an ended program ended."""
    said = [text for line in lines if (text := line.strip())]
    return ([text for text in said if begins_as_error(text)] or said or [""])[-1]


class TextLines:
    """Parses plain output. With `progress` a line means work (stdout); without, it is a notice (stderr)."""

    def __init__(
        self,
        retries: Sequence[RetrySign] = (),
        *,
        errors: Sequence[ErrorSign] = (),
        secrets: Sequence[str] = (),
        progress: bool = True,
    ) -> None:
        self._attempts = Attempts(retries)
        self._errors = errors
        self._secrets = tuple(secrets)
        self._progress = progress
        self._ready = not progress
        self._continued = 0
        self._last: Trouble | None = None

    def feed(self, line: str, at: float) -> list[Evidence]:
        seen = redact_line(line, self._secrets, limit=MAX_SEEN)
        if not seen:
            self._continued = 0
            return []
        claims: list[Claim] = []
        if not self._ready:
            self._ready = True
            claims.append(Ready())
        if (retrying := self._attempts.read(line, at)) is not None:
            if retrying.failure is None and self._continued and self._last is not None:
                retrying = replace(retrying, failure=self._last.failure, http=self._last.http)
            self._continued = MAX_CONTINUED
            claims.append(retrying)
        elif (trouble := _find_trouble(line, self._errors)) is not None:
            self._continued, self._last = MAX_CONTINUED, trouble
            claims.append(trouble)
        elif self._continued:
            self._continued -= 1
        elif self._progress:
            self._attempts.progress()
            claims.append(Progress(Work.STREAMING))
        return [Evidence(Source.TEXT, at, add_announcement(claim, line), seen) for claim in claims]


def _find_trouble(line: str, errors: Sequence[ErrorSign]) -> Trouble | None:
    """Return the error that a line reports, by the CLI's own signs or by those common to all CLIs."""
    for sign in errors:
        found = sign.pattern.search(line[:MAX_MESSAGE])
        if found is None:
            continue
        said = {name: value for name, value in found.groupdict().items() if value is not None}
        http = int(said["http"]) if "http" in said else None
        trouble = of_message(said.get("cause", ""), http)
        if trouble is not None:
            return trouble
        if sign.failure is not None:
            return Trouble(sign.failure, http)
    return of_line(line)


class LogLines:
    """Parses a log for attempts only. The rest is ignored: a log contains errors that mean nothing to us."""

    def __init__(self, retries: Sequence[RetrySign], *, secrets: Sequence[str] = ()) -> None:
        self._attempts = Attempts(retries)
        self._secrets = tuple(secrets)

    def feed(self, line: str, at: float) -> list[Evidence]:
        claim = self._attempts.read(line, at)
        seen = redact_line(line, self._secrets, limit=MAX_SEEN)
        return [] if claim is None else [Evidence(Source.FILE, at, claim, seen)]


def _next(said: dict[str, str], at: float) -> float | None:
    if "in_ms" in said:
        return at + float(said["in_ms"]) / 1000
    return at + float(said["in_s"]) if "in_s" in said else None


def _epoch(found: Found, said: datetime, zones: Zones) -> datetime:
    """Seconds or milliseconds since 1970."""
    number = int(found["number"])
    return datetime.fromtimestamp(number / 1000 if number > 10**11 else number, UTC)


def _seconds(found: Found, said: datetime, zones: Zones) -> datetime:
    return said + timedelta(seconds=float(found["number"]))


def _milliseconds(found: Found, said: datetime, zones: Zones) -> datetime:
    return said + timedelta(milliseconds=float(found["number"]))


def _span(found: Found, said: datetime, zones: Zones) -> datetime:
    """2h13m5s, 17.5s, 3 days 4 hours."""
    seconds = 0.0
    for number, unit in re.findall(r"(\d+(?:\.\d+)?)\s?(ms|mil|[smhd])", found["span"].lower()):
        seconds += float(number) * _UNITS["ms" if unit == "mil" else unit]
    return said + timedelta(seconds=seconds)


def _iso(found: Found, said: datetime, zones: Zones) -> datetime:
    moment = datetime.fromisoformat(found["iso"].replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _http(found: Found, said: datetime, zones: Zones) -> datetime:
    """Wed, 21 Oct 2026 07:28:00 GMT, whatever the locale."""
    day, month, year, clock = found["date"].split()[1:5]
    hour, minute, second = map(int, clock.split(":"))
    return datetime(int(year), _month(month), int(day), hour, minute, second, tzinfo=UTC)


def _clock(found: Found, said: datetime, zones: Zones) -> datetime | None:
    """3:45 PM, Nov 18th, 2026 6:52 PM, 3pm (Europe/Berlin): the next occurrence of that time."""
    zone = zones(found["zone"] or "")
    if zone is None:
        return None
    there = said.astimezone(zone)
    half = (found["half"] or "").lower()
    hour = int(found["hour"]) % 12 + (12 if half == "pm" else 0) if half else int(found["hour"])
    day = there.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
    if found["month"]:
        year = int(found["year"] or there.year)
        day = day.replace(year=year, month=_month(found["month"]), day=int(found["day"]))
        past = not found["year"] and day + _MINUTE < there
        return (day.replace(year=year + 1) if past else day) + _MINUTE
    return day + _MINUTE + timedelta(days=int(day + _MINUTE < there))


def _month(name: str) -> int:
    return _MONTHS.index(name[:3].lower()) + 1


_DATE: Final = (
    r"(?P<month>(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6})\.? "
    r"(?P<day>\d{1,2})(?:st|[nr]d|th)?(?:,? (?P<year>\d{4}))?,? (?:at )?"
)
# In order: machine-readable forms first, human-readable ones last.
_ROWS: Final[tuple[tuple[str, Callable[[Found, datetime, Zones], datetime | None]], ...]] = (
    (rf"\bresets_?at{_COLON}(?P<number>\d{{13}}|\d{{10}})\b", _epoch),
    (r"\blimit reached\|(?P<number>\d{10})\b", _epoch),
    (rf"\bresets_in_seconds{_COLON}(?P<number>\d{{1,9}}(?:\.\d{{1,9}})?)\b", _seconds),
    (rf"\bretry-after-ms{_COLON}(?P<number>\d{{1,12}}(?:\.\d{{1,9}})?)\b", _milliseconds),
    (rf"\bretry-after{_COLON}(?P<number>\d{{1,9}}(?:\.\d{{1,9}})?)\b", _seconds),
    (rf"\bretry-after{_COLON}(?P<date>[A-Z][a-z]{{2}}, \d\d [A-Z][a-z]{{2}} \d{{4}} [\d:]{{8}} GMT)", _http),
    (rf"{_AGAIN} (?:in|after) (?P<span>{_SPAN})", _span),
    (
        rf"{_AGAIN} (?:at |on |after )?(?P<iso>\d{{4}}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)?)",
        _iso,
    ),
    (
        rf"{_AGAIN} (?:at |on )?(?:{_DATE})?(?P<hour>\d{{1,2}})(?::(?P<minute>\d\d))?\s?"
        r"(?:(?P<half>[ap]m)\b|(?<=:\d\d))(?: \((?P<zone>[A-Za-z_]{1,30}(?:/[A-Za-z_]{1,30}){0,2})\))?",
        _clock,
    ),
)
_TABLE: Final = tuple((re.compile(pattern, re.IGNORECASE), read) for pattern, read in _ROWS)


def find_announcement(line: str) -> str:
    """Return the words of a line that say when a limit ends; empty if there are none."""
    for pattern, _ in _TABLE:
        found = pattern.search(line[:MAX_LOOKED])
        if found is not None and len(found[0]) <= MAX_WORDS:
            return found[0]
    return ""


def resolve_announcement(words: str, *, said: datetime, zones: Zones) -> datetime | None:
    """Return the point in time that the words mean, given when they were printed (`said`).

    None for an implausible time. `zones` looks up a time zone by name; the empty name is the zone of the
    machine that printed the words.
    """
    for pattern, read in _TABLE:
        found = pattern.fullmatch(words)
        if found is None:
            continue
        try:
            moment = read(found, said, zones)
        except (ValueError, OverflowError):
            return None
        return moment if moment is not None and said - _MINUTE <= moment <= said + MAX_AHEAD else None
    return None


class JsonEvents:
    """Feeds each event to the handler of its kind. A subclass implements `handlers`."""

    def __init__(
        self,
        retries: Sequence[RetrySign] = (),
        *,
        errors: Sequence[ErrorSign] = (),
        secrets: Sequence[str] = (),
    ) -> None:
        self.unknown: Counter[str] = Counter()
        self.attempts = Attempts(retries)
        self.calls = ToolCalls()
        self.refused: list[str] = []
        self.secrets = tuple(secrets)
        self._errors = errors
        self._text = TextLines(retries, errors=errors, secrets=secrets, progress=False)

    def handlers(self) -> Mapping[str, Handler]:
        raise NotImplementedError

    def kind(self, event: JsonEvent) -> str:
        """Return the key of the event's handler."""
        return text_at(event, "type")

    def feed(self, line: str, at: float) -> list[Evidence]:
        """Return the evidence in one line. Never raises, whatever the line contains."""
        if len(line) > MAX_LINE:
            return self._note_drift("line too long", line, at)
        if not line.strip():
            return []
        try:
            event = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            known = any(sign.pattern.search(line[:MAX_MESSAGE]) for sign in self._errors)
            return [*self._text.feed(line, at), *([] if known else self._note_drift("not JSON", line, at))]
        if not isinstance(event, dict):
            return self._note_drift("not JSON", line, at)
        kind = self.kind(event)
        handler = self.handlers().get(kind)
        if handler is None:
            return self._note_drift(f"event {kind or 'without a type'}", line, at)
        claims = handler(event, at)
        # Text alone may repeat the same partial answer; a tool is called only after a complete one.
        if Progress(Work.TOOL) in claims:
            self.attempts.progress()
        return [self._evidence(claim, line, at) for claim in claims]

    def say(self, text: str) -> str:
        """Redact and shorten a text of the worker for use in a claim."""
        return redact_line(text, self.secrets, limit=MAX_SEEN)

    def called(self, tool: str, given: object = None) -> None:
        """Record a tool call with its arguments, or another step of a plan. Called by handlers."""
        more = given if isinstance(given, str) else _json(given) if given else ""
        whole = f"{tool} {more}".strip()
        self.calls.add(whole, redact_line(whole, self.secrets, limit=MAX_WHAT))

    def drift(self, what: str) -> list[Claim]:
        """Count something unknown, such as a part of a known event. Called by handlers."""
        what = what[:MAX_NAME] if what in self.unknown or len(self.unknown) < MAX_KINDS else OTHER
        self.unknown[what] += 1
        count = self.unknown[what]
        # Report occurrences 1, 10, 100 … only, so that a flood of the same kind is not reported each time.
        return [Drift(what, count)] if str(count).strip("0") == "1" else []

    def failed(self, message: str, *, http: int | None = None, failure: Failure | None = None) -> Result:
        """Return a failed result. A failure that the caller passes outranks what the text suggests."""
        trouble = of_message(message, http)
        if failure is None and trouble is not None:
            failure = trouble.failure
        http = http if http is not None else trouble.http if trouble is not None else None
        return Result(
            ok=False, failure=failure, message=self.say(message), http=http, refused=tuple(self.refused)
        )

    def _note_drift(self, what: str, line: str, at: float) -> list[Evidence]:
        return [self._evidence(claim, line, at) for claim in self.drift(self.say(what))]

    def _evidence(self, claim: Claim, line: str, at: float) -> Evidence:
        return Evidence(Source.PROTOCOL, at, add_announcement(claim, line), self.say(line))


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def at_path(value: object, *keys: str) -> object:
    """Return the value below these keys, or None if one of them is missing."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def text_at(value: object, *keys: str) -> str:
    found = at_path(value, *keys)
    return found if isinstance(found, str) else ""


def int_at(value: object, *keys: str) -> int | None:
    """Return a whole number. Token counts may be floats, or nonsense: then None."""
    found = at_path(value, *keys)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return int(found) if abs(found) < 1e15 else None


def count_at(value: object, *keys: str) -> int:
    return int_at(value, *keys) or 0


def number_at(value: object, *keys: str) -> float | None:
    found = at_path(value, *keys)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def list_at(value: object, *keys: str) -> list[object]:
    found = at_path(value, *keys)
    return found if isinstance(found, list) else []


class ToolCalls:
    """Counts tool calls. `fresh` counts the calls that did not repeat one of the newest calls."""

    def __init__(self) -> None:
        self.count = 0
        self.fresh = 0
        self.in_a_row = 0  # consecutive calls equal to the last one, including it
        self.last = ""
        self._newest: deque[bytes] = deque(maxlen=WINDOW)

    def add(self, whole: str, what: str) -> None:
        """Count a call. Two calls are equal if `whole` is equal; `what` is what people are shown."""
        key = hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=8).digest()
        self.count += 1
        self.fresh += key not in self._newest
        self.in_a_row = self.in_a_row + 1 if self._newest and self._newest[-1] == key else 1
        self.last = what
        self._newest.append(key)

    @property
    def recent(self) -> int:
        """The number of newest calls that are compared."""
        return len(self._newest)

    @property
    def different(self) -> int:
        """The number of distinct calls among them."""
        return len(set(self._newest))
