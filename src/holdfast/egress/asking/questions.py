"""Hosts that no rule decides about, and the answers: questions, grants, refusals. Pure module.

A question is about one host at one port, and all connections to it share the question. An answer settles it
once: an answer to a question that is settled, or that was never asked, changes nothing. What an answer allows
is computed here, from the question; the answerer says yes or no and names no host. A host that a rule denies
is never asked about, and a grant never beats a denial. A grant is about names: the addresses that a granted
host may have follow the same rules as for all hosts (`dial.py`).
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from holdfast.egress.hosts import Decision, Extent, Host, HostRule, HostRules, Reason, decide

MAX_OPEN: Final = 16  # open questions: more than a person can answer before the first expires
MAX_PUT: Final = 128  # questions of one run: a command that asks on and on gets no more
MAX_WAITING: Final = 128  # connections that wait for an answer; half of all that one command may have
ASKED_PORTS: Final = frozenset({22, 80, 443})  # listened on from the beginning for an undecided host
_LEAST_LABELS: Final = 2  # in the base of a pattern: `*.com` is not offered


class Answer(enum.Enum):
    """The result of a question. The first two allow the host."""

    HOST = "host"
    PATTERN = "pattern"
    NO = "no"
    NOBODY = "nobody"  # no answerer is available
    LATE = "late"  # no answer came in time


@dataclass(frozen=True, slots=True)
class HostQuestion:
    """May the command reach this host at this port? `pattern` is a wider grant that an answer may choose."""

    id: int
    host: str
    port: int
    pattern: str | None
    limit_s: float
    program: str | None = None  # the program that connects first, if known


class NotAllowed(Exception):
    """A connection is refused; the text gives the reason."""


class StaleAnswer(Exception):
    """This question is not open: settled, too old, or never asked."""


class QuestionBook:
    """The rules of one command, and the questions and answers while it runs."""

    def __init__(self, rules: HostRules, limit_s: float = 0.0) -> None:
        """With a time limit of 0 no questions are asked."""
        self._rules, self._limit_s = rules, limit_s
        self._open: dict[int, HostQuestion] = {}
        self._denied: set[tuple[str, int]] = set()
        self._put = 0

    @property
    def rules(self) -> HostRules:
        """The rules of the command, with the grants since."""
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
        """The question to wait for; None if the host is allowed.

        Raises:
            NotAllowed: it is not allowed, and no question may be asked.
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
        """Record an answer; return the questions that it settles, several if it grants a pattern.

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
    """The rule for all hosts with the same parent, at this port; None if that would be too wide."""
    parent = host.name.partition(".")[2]
    if host.address is not None or parent.count(".") + 1 < _LEAST_LABELS:
        return None
    return HostRule(Extent.BELOW, parent, frozenset({port}))


def explain_rule(denied: HostRule | None) -> str:
    """Why the rules refuse a host; without a rule: no rule mentions it."""
    return "no rule allows it" if denied is None else f"--deny-host {denied} denies it"


def explain(answer: Answer, limit_s: float) -> str:
    """Why a host is refused after a question about it."""
    return {
        Answer.NO: "no rule allows it, and the answer was no",
        Answer.NOBODY: "no rule allows it, and nobody could be asked",
        Answer.LATE: f"no rule allows it, and nobody answered within {limit_s:g} s",
    }[answer]
