"""One JSON event a line → evidence: what all such streams share. Pure module.

A line that is not an event never stops the reading: what is unknown is counted, and its first sample kept,
because a new release of a CLI that says new things must be noticed before it is misread.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from holdfast.agents.catalog.agent import RetrySign
from holdfast.agents.catalog.failures import of_message
from holdfast.agents.catalog.textlines import Attempts, TextLines, dated
from holdfast.agents.evidence.evidence import (
    Claim,
    Drift,
    Evidence,
    Failure,
    Progress,
    Result,
    Source,
    Work,
)
from holdfast.agents.evidence.redaction import shown

MAX_LINE = 32 * 1024 * 1024  # characters: one event may hold a whole thread; 10 MiB were too few
MAX_KINDS = 64  # of unknown events told apart: names are the worker's word
MAX_NAME = 60  # characters of such a name
OTHER = "others"

JsonEvent: TypeAlias = Mapping[str, object]
Handler: TypeAlias = Callable[[JsonEvent, float], Sequence[Claim]]
WINDOW: Final = 30  # of the newest calls: more than one round of edit, build and test
MAX_WHAT: Final = 160  # characters of a call that is shown


class JsonEvents:
    """Feeds each event to the handler of its kind. A subclass gives `handlers`."""

    def __init__(self, retries: Sequence[RetrySign] = (), *, secrets: Sequence[str] = ()) -> None:
        self.unknown: Counter[str] = Counter()
        self.attempts = Attempts(retries)
        self.calls = Calls()
        self.refused: list[str] = []
        self.secrets = tuple(secrets)
        self._text = TextLines(retries, secrets=secrets, progress=False)

    def handlers(self) -> Mapping[str, Handler]:
        raise NotImplementedError

    def kind(self, event: JsonEvent) -> str:
        """By which its handler is found."""
        return text_at(event, "type")

    def feed(self, line: str, at: float) -> list[Evidence]:
        """The evidence in one line; never raises, whatever the line is."""
        if len(line) > MAX_LINE:
            return self._drifted("line too long", line, at)
        if not line.strip():
            return []
        try:
            event = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return [*self._text.feed(line, at), *self._drifted("not JSON", line, at)]
        if not isinstance(event, dict):
            return self._drifted("not JSON", line, at)
        kind = self.kind(event)
        handler = self.handlers().get(kind)
        if handler is None:
            return self._drifted(f"event {kind or 'without a type'}", line, at)
        claims = handler(event, at)
        # Text alone may be the same half answer again; a tool is called after a whole one.
        if Progress(Work.TOOL) in claims:
            self.attempts.progress()
        return [self._evidence(claim, line, at) for claim in claims]

    def say(self, text: str) -> str:
        """A text of the worker, fit for a claim."""
        return shown(text, self.secrets)

    def called(self, tool: str, given: object = None) -> None:
        """For a handler that meets the call of a tool, with its arguments, or another step of a plan."""
        more = given if isinstance(given, str) else _json(given) if given else ""
        whole = f"{tool} {more}".strip()
        self.calls.add(whole, shown(whole, self.secrets, limit=MAX_WHAT))

    def drift(self, what: str) -> list[Claim]:
        """For a handler that meets something unknown inside a known event."""
        what = what[:MAX_NAME] if what in self.unknown or len(self.unknown) < MAX_KINDS else OTHER
        self.unknown[what] += 1
        count = self.unknown[what]
        # 1, 10, 100 …: once is news, and a flood of the same is not.
        return [Drift(what, count)] if str(count).strip("0") == "1" else []

    def failed(self, message: str, *, http: int | None = None, failure: Failure | None = None) -> Result:
        """A result without success. A failure that the caller knows outranks what the text says."""
        trouble = of_message(message, http)
        if failure is None and trouble is not None:
            failure = trouble.failure
        http = http if http is not None else trouble.http if trouble is not None else None
        return Result(
            ok=False, failure=failure, message=self.say(message), http=http, refused=tuple(self.refused)
        )

    def _drifted(self, what: str, line: str, at: float) -> list[Evidence]:
        return [self._evidence(claim, line, at) for claim in self.drift(self.say(what))]

    def _evidence(self, claim: Claim, line: str, at: float) -> Evidence:
        return Evidence(Source.PROTOCOL, at, dated(claim, line), self.say(line))


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def at_path(value: object, *keys: str) -> object:
    """What lies below these keys, or None where one of them is not there."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def text_at(value: object, *keys: str) -> str:
    found = at_path(value, *keys)
    return found if isinstance(found, str) else ""


def int_at(value: object, *keys: str) -> int | None:
    """A whole number; what counts tokens may be a float, or nonsense."""
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


class Calls:
    """Counted as they come; `fresh` are those that were not among the newest when they were made."""

    def __init__(self) -> None:
        self.count = 0
        self.fresh = 0
        self.in_a_row = 0  # the same as the last one, with that
        self.last = ""
        self._newest: deque[bytes] = deque(maxlen=WINDOW)

    def add(self, whole: str, what: str) -> None:
        """A call: `whole` is what makes it another one, `what` is shown of it."""
        key = hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=8).digest()
        self.count += 1
        self.fresh += key not in self._newest
        self.in_a_row = self.in_a_row + 1 if self._newest and self._newest[-1] == key else 1
        self.last = what
        self._newest.append(key)

    @property
    def recent(self) -> int:
        """How many of the newest are looked at."""
        return len(self._newest)

    @property
    def different(self) -> int:
        """How many of them are not the same."""
        return len(set(self._newest))
