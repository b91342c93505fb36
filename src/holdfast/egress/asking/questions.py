"""Hosts that no rule decides about, and what somebody answered: questions, grants, refusals. Pure module.

A question is about one host at one port. There is one for all connections that wait for it. An answer settles
it once: an answer to a question that is settled, or that nobody put, changes nothing. What an answer allows
is worked out here, from the question; whoever answers says yes or no and names no host. What is denied by a
rule is never asked about, and a grant never beats a denial. A grant is about names: at which addresses a
granted host may be is what the rules say of all hosts (`dial.py`).
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from holdfast.egress.hosts import Decision, Extent, Host, HostRule, HostRules, Reason, decide

MAX_OPEN: Final = 16  # questions at a time: more than a person looks through before the first is too old
MAX_PUT: Final = 128  # questions of one run: whoever asks on and on is not asked on
MAX_WAITING: Final = 128  # connections at a time that wait for an answer; half of all that there may be
ASKED_PORTS: Final = frozenset({22, 80, 443})  # where an undecided host is listened for from the beginning
_LEAST_LABELS: Final = 2  # of what a pattern may be below: `*.com` is not offered


class Answer(enum.Enum):
    """What becomes of a question. The first two allow."""

    HOST = "host"
    PATTERN = "pattern"
    NO = "no"
    NOBODY = "nobody"  # there is nobody to ask
    LATE = "late"  # nobody answered in time


@dataclass(frozen=True, slots=True)
class HostQuestion:
    """May the command reach this host at this port? `pattern` is what an answer may allow instead of it."""

    id: int
    host: str
    port: int
    pattern: str | None
    limit_s: float
    program: str | None = None  # that wants to reach it first, if somebody knows


class NotAllowed(Exception):
    """A connection is refused; the text says why."""


class StaleAnswer(Exception):
    """This question is not open: settled, too old, or never put."""


class QuestionBook:
    """The rules of one command, and what is asked and answered while it runs."""

    def __init__(self, rules: HostRules, limit_s: float = 0.0) -> None:
        """Without a time to answer nothing is asked."""
        self._rules, self._limit_s = rules, limit_s
        self._open: dict[int, HostQuestion] = {}
        self._denied: set[tuple[str, int]] = set()
        self._put = 0

    @property
    def rules(self) -> HostRules:
        """Those of the command and what was granted since."""
        return self._rules

    @property
    def asks(self) -> bool:
        return self._limit_s > 0

    @property
    def open(self) -> list[HostQuestion]:
        return list(self._open.values())

    def find_ports(self, host: Host, ports: Iterable[int]) -> list[int]:
        """Those of these ports at which a host is allowed, or may be asked about."""
        return [port for port in ports if self._may_be_had(decide(self._rules, host, port))]

    def _may_be_had(self, decision: Decision) -> bool:
        return decision.allowed or (self.asks and decision.reason is Reason.NOT_ALLOWED)

    def ask(self, host: Host, port: int) -> HostQuestion | None:
        """The question to wait for; None: the host is allowed.

        Raises:
            NotAllowed: it is not, and nobody is asked.
        """
        decision = decide(self._rules, host, port)
        if decision.allowed:
            return None
        if not self._may_be_had(decision):
            raise NotAllowed(explain_rule(decision.rule))
        for question in self._open.values():
            if (question.host, question.port) == (host.name, port):
                return question
        if (host.name, port) in self._denied:
            raise NotAllowed(explain(Answer.NO, self._limit_s))
        if len(self._open) >= MAX_OPEN or self._put >= MAX_PUT:
            raise NotAllowed("no rule allows it, and too much was asked already")
        self._put += 1
        pattern = find_pattern(host, port)
        shown = None if pattern is None else str(pattern)
        question = HostQuestion(self._put, host.name, port, shown, self._limit_s)
        self._open[question.id] = question
        return question

    def settle(self, id_: int, answer: Answer) -> list[HostQuestion]:
        """A question has its answer: those that are settled by it, which are more where a pattern is granted.

        Raises:
            StaleAnswer: it is not open.
        """
        question = self._open.pop(id_, None)
        if question is None:
            raise StaleAnswer
        host = Host(question.host)
        if answer is Answer.NO:
            self._denied.add((question.host, question.port))
        rule = HostRule(Extent.EXACT, question.host, frozenset({question.port}))
        if answer is Answer.PATTERN:
            rule = find_pattern(host, question.port) or rule
        if answer not in (Answer.HOST, Answer.PATTERN):
            return [question]
        self._rules = replace(self._rules, allow=(*self._rules.allow, rule))
        covered = [other for other in self._open.values() if rule.covers(Host(other.host), other.port)]
        for other in covered:
            del self._open[other.id]
        return [question, *covered]


def find_pattern(host: Host, port: int) -> HostRule | None:
    """The rule for everything beside a host, at this port; None: it would be too much."""
    parent = host.name.partition(".")[2]
    if host.address is not None or parent.count(".") + 1 < _LEAST_LABELS:
        return None
    return HostRule(Extent.BELOW, parent, frozenset({port}))


def explain_rule(denied: HostRule | None) -> str:
    """Why the rules refuse a host; without the rule, there is none about it."""
    return "no rule allows it" if denied is None else f"--deny-host {denied} denies it"


def explain(answer: Answer, limit_s: float) -> str:
    """Why a host is refused that somebody was to be asked about."""
    return {
        Answer.NO: "no rule allows it, and the answer was no",
        Answer.NOBODY: "no rule allows it, and nobody could be asked",
        Answer.LATE: f"no rule allows it, and nobody answered within {limit_s:g} s",
    }[answer]
