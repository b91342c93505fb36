"""Parser of a stream of JSON events whose kinds the record describes as data. Pure module.

The first rule that matches an event decides what it means. As in every other parser, an event that no rule
matches is counted as unknown. The first known event means that the CLI has started. A failed turn stays
failed: some CLIs send `complete` right after a failure, and it is ignored until the CLI has worked again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from holdfast.agents.catalog.agent import ErrorSign, EventRule, RetrySign
from holdfast.agents.catalog.failures import of_message
from holdfast.agents.catalog.output import Handler, JsonEvent, JsonEvents
from holdfast.agents.evidence.evidence import (
    Claim,
    Failure,
    Progress,
    Ready,
    Result,
    Retrying,
    TokenUsage,
    ToolFailed,
    Trouble,
    Used,
    Want,
    Wants,
    Work,
    Working,
)

# As a value of `when`: any value. At the end of a text: any text with this prefix. In a place: any list item.
ANY: Final = "*"
MAX_ITEMS: Final = 1000  # items of one list that are examined
COUNTS: Final = ("input", "output", "cached", "cost")

Place = tuple[str, ...]


def find(event: object, place: Place) -> list[object]:
    """Return the values at this place, in order; several if the place contains `*` (any item)."""
    found = [event]
    for key in place:
        below: list[object] = []
        for value in found:
            if isinstance(value, dict):
                below += [value[key]] if key in value else []
            elif isinstance(value, list) and key == ANY:
                below += value[:MAX_ITEMS]
            elif isinstance(value, list) and key.lstrip("-").isdigit() and len(key) < 6:
                below += value[int(key) :][:1] if int(key) < 0 else value[int(key) : int(key) + 1]
        found = below[:MAX_ITEMS]
    return [value for value in found if value is not None]


def fits(rule: EventRule, event: object) -> bool:
    """Return whether the event matches the `when` of this rule."""
    for place, allowed in rule.when:
        found = find(event, place)
        if not found or not (
            ANY in allowed or any(_is_same(value, one) for value in found for one in allowed)
        ):
            return False
    return True


def first_that_fits(rules: Sequence[EventRule], event: object) -> int:
    """Return the index of the first rule that matches the event, or -1."""
    return next((number for number, rule in enumerate(rules) if fits(rule, event)), -1)


def _is_same(value: object, other: object) -> bool:
    """Compare as JSON does: true is not 1. A value that ends with `*` matches any text with that prefix."""
    if isinstance(other, str) and other.endswith(ANY):
        return isinstance(value, str) and value.startswith(other.removesuffix(ANY))
    return isinstance(value, bool) == isinstance(other, bool) and value == other


class DescribedEvents(JsonEvents):
    """Parses events by the rules of a record."""

    def __init__(
        self,
        rules: Sequence[EventRule],
        retries: Sequence[RetrySign] = (),
        *,
        errors: Sequence[ErrorSign] = (),
        secrets: Sequence[str] = (),
    ) -> None:
        super().__init__(retries, errors=errors, secrets=secrets)
        self._rules = rules
        self._handlers = {str(number): self._handler(rule) for number, rule in enumerate(rules)}
        self._usage: TokenUsage | None = None
        self._tool = ""  # the tool called last
        self._began = False
        self._failure: Result | None = None  # of the turn, unless the CLI has worked since

    def kind(self, event: JsonEvent) -> str:
        number = first_that_fits(self._rules, event)
        if number >= 0:
            return str(number)
        named = event.get("type", event.get("event", ""))
        return named if isinstance(named, str) and not named.isdigit() else ""

    def handlers(self) -> Mapping[str, Handler]:
        return self._handlers

    def _handler(self, rule: EventRule) -> Handler:
        def handle(event: JsonEvent, at: float) -> Sequence[Claim]:
            first, self._began = not self._began, True
            used = self._count(rule, event)
            claims = MEANINGS[rule.means](self, rule, event, at)
            if any(isinstance(claim, Progress | Working) for claim in claims):
                self._failure = None
            return [*([Ready()] if first else []), *used, *claims]

        return handle

    # --- what an event holds

    def _words(self, event: JsonEvent, *places: Place) -> str:
        for place in places:
            for value in find(event, place) if place else ():
                words = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                if words.strip():
                    return words
        return ""

    def _number(self, event: JsonEvent, place: Place) -> int | None:
        for value in find(event, place) if place else ():
            if isinstance(value, str) and value.isdigit() and len(value) < 16:
                return int(value)
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
                return int(value)
        return None

    def _count(self, rule: EventRule, event: JsonEvent) -> list[Claim]:
        if not rule.usage:
            return []
        cost = next(iter(find(event, rule.usage.get("cost", ()))), None) if "cost" in rule.usage else None
        counted = {name: self._number(event, rule.usage.get(name, ())) or 0 for name in COUNTS[:3]}
        said = TokenUsage(
            input_tokens=counted["input"],
            output_tokens=counted["output"],
            cached_tokens=counted["cached"],
            cost_usd=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
        )
        if not said.tokens and not said.cost_usd:
            return []
        before = self._usage if rule.usage_adds else None
        self._usage = said if before is None else before + said
        return [Used(self._usage)]

    # --- what it means

    def _call(self, rule: EventRule, event: JsonEvent, at: float) -> Sequence[Claim]:
        self._tool = self._words(event, rule.tool)
        given = find(event, rule.input) if rule.input else []
        self.called(self._tool, given[0] if given else None)
        return [Progress(Work.STREAMING), Working(Work.TOOL)]

    def _tool_ended(self, rule: EventRule, event: JsonEvent, at: float) -> Sequence[Claim]:
        code = self._number(event, rule.code)
        failed = [self._failed_tool(rule, event, code)] if code else []
        return [Progress(Work.TOOL), *failed, Working(Work.THINKING)]

    def _tool_failed(self, rule: EventRule, event: JsonEvent, at: float) -> Sequence[Claim]:
        failed = self._failed_tool(rule, event, self._number(event, rule.code))
        return [Progress(Work.TOOL), failed, Working(Work.THINKING)]

    def _failed_tool(self, rule: EventRule, event: JsonEvent, code: int | None) -> ToolFailed:
        tool, message = self._words(event, rule.tool) or self._tool, self._words(event, *rule.message)
        trouble = of_message(message)
        refused = rule.failure is Failure.PERMISSION or (
            trouble is not None and trouble.failure is Failure.PERMISSION
        )
        if refused:
            self.refused.append(self.say(tool or message))
        return ToolFailed(self.say(": ".join(part for part in (tool, message) if part)), code)

    def _retry(self, rule: EventRule, event: JsonEvent, at: float) -> Sequence[Claim]:
        message, http = self._words(event, *rule.message), self._number(event, rule.http)
        trouble = of_message(message, http)
        wait_ms = self._number(event, rule.in_ms)
        return [
            Retrying(
                attempt=self.attempts.another(self._number(event, rule.attempt)),
                of=self._number(event, rule.of),
                failure=trouble.failure if trouble is not None else rule.failure,
                http=http if http is not None else trouble.http if trouble is not None else None,
                next_at=None if wait_ms is None else at + wait_ms / 1000,
            )
        ]

    def _error(self, rule: EventRule, event: JsonEvent, at: float) -> Sequence[Claim]:
        message, http = self._words(event, *rule.message), self._number(event, rule.http)
        retrying = self.attempts.read(message, at)
        if retrying is not None:
            return [retrying]
        trouble = of_message(message, http)
        if rule.failure is not None:
            return [Trouble(rule.failure, http if trouble is None else trouble.http)]
        return [] if trouble is None else [trouble]

    def _done(self, rule: EventRule, event: JsonEvent, at: float) -> Sequence[Claim]:
        if self._failure is not None:
            return [replace(self._failure, usage=self._usage)]
        return [Result(ok=True, usage=self._usage, refused=tuple(self.refused))]

    def _failed(self, rule: EventRule, event: JsonEvent, at: float) -> Sequence[Claim]:
        message, http = self._words(event, *rule.message), self._number(event, rule.http)
        self._failure = replace(self.failed(message, http=http, failure=rule.failure), usage=self._usage)
        return [self._failure]

    def _asks(self, rule: EventRule, event: JsonEvent, at: float) -> Sequence[Claim]:
        return [Wants(Want.DECISION, self.say(self._words(event, *rule.message)))]


Meaning = Callable[[DescribedEvents, EventRule, JsonEvent, float], Sequence[Claim]]
# The values that `means` of a rule may have in a record.
MEANINGS: Final[Mapping[str, Meaning]] = {
    "start": lambda *_: [],  # every first event already yields Ready
    "turn": lambda *_: [Working(Work.THINKING)],
    "thinking": lambda *_: [Progress(Work.THINKING)],
    "text": lambda *_: [Progress(Work.STREAMING)],
    "tool-call": DescribedEvents._call,
    "tool-ended": DescribedEvents._tool_ended,
    "tool-failed": DescribedEvents._tool_failed,
    "asks": DescribedEvents._asks,
    "retry": DescribedEvents._retry,
    "error": DescribedEvents._error,
    "done": DescribedEvents._done,
    "failed": DescribedEvents._failed,
    "nothing": lambda *_: [],
}
