"""Who decides for which process, what is believed, and that everything else is no."""

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.client.networkfilter import ALLOWED, DENIED, Deciders, NetworkFilter, is_credible, is_host
from holdfast.errors import UsageError
from holdfast.wire.network import MAX_QUESTIONS, PolicyDecision, PolicyQuestion, PolicyReply
from tests.support.patience import patient
from tests.support.rows import every_row

RECORD: dict[str, Any] = {
    "processId": "p",
    "timestamp": "2026-11-15T20:59:50.929Z",
    "scope": "domain",
    "decision": "deny",
    "source": "decider",
    "reason": "nope",
    "protocol": "http",
    "host": "a.example",
    "port": 80,
    "method": "GET",
    "client": "127.0.0.1:5",
    "policyOverride": False,
}


def question(process: str = "p", host: str = "a.example") -> dict[str, Any]:
    return {"processId": process, "request": {"protocol": "http", "host": host, "port": 80}}


class Stage:
    """A session's deciders, and what they answered in which order."""

    def __init__(self) -> None:
        self.answers: list[PolicyReply | None] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.deciders = Deciders(lambda work: self.tasks.add(asyncio.ensure_future(work)))

    def ask(self, params: object) -> None:
        self.deciders.ask(params, self.answers.append)

    async def settled(self) -> list[PolicyReply | None]:
        async with asyncio.timeout(patient(10)):
            await asyncio.gather(*self.tasks)
        return self.answers


async def yes(_question: PolicyQuestion) -> bool:
    return True


async def for_ever(_question: PolicyQuestion) -> bool:
    await asyncio.Event().wait()
    return True


async def test_each_process_has_its_own_decider() -> None:
    seen: list[PolicyQuestion] = []

    async def no(asked: PolicyQuestion) -> bool:
        seen.append(asked)
        return False

    stage = Stage()
    stage.deciders.add("p", NetworkFilter(decide=yes))
    stage.deciders.add("q", NetworkFilter(decide=no))
    stage.ask(question("p"))
    stage.ask(question("q", "b.example"))
    assert await stage.settled() == [ALLOWED, DENIED]
    assert seen == [PolicyQuestion("http", "b.example", 80)]


async def test_nobody_decides_for_a_stranger_nor_about_a_host_that_is_none() -> None:
    stage = Stage()
    stage.deciders.add("p", NetworkFilter(decide=yes))
    stage.deciders.add("silent", NetworkFilter())
    for params in (
        question("x"),
        question("silent"),
        question(host="a b"),
        question(host="a\n"),
        question(host=""),
    ):
        stage.ask(params)
    stage.ask({"processId": "p"})
    stage.ask(None)
    assert stage.answers == [DENIED] * 5 + [None, None]
    assert not stage.tasks


@every_row("answer", [None, 1, "allow", "True"])
def test_only_a_plain_yes_is_one(answer: Any) -> None:
    async def odd(_question: PolicyQuestion) -> bool:
        return answer  # type: ignore[no-any-return]

    async def try_it() -> None:
        stage = Stage()
        stage.deciders.add("p", NetworkFilter(decide=odd))
        stage.ask(question())
        assert await stage.settled() == [DENIED]

    asyncio.run(try_it())


async def test_a_decider_that_fails_or_takes_too_long_has_said_no() -> None:
    async def broken(_question: PolicyQuestion) -> bool:
        raise RuntimeError("what?")

    stage = Stage()
    stage.deciders.add("p", NetworkFilter(decide=broken))
    stage.deciders.add("q", NetworkFilter(decide=for_ever, decide_s=0.01))
    stage.ask(question("p"))
    stage.ask(question("q"))
    assert await stage.settled() == [DENIED, DENIED]


async def test_what_is_asked_about_a_process_ends_with_it() -> None:
    stage = Stage()
    stage.deciders.add("p", NetworkFilter(decide=for_ever))
    stage.deciders.add("q", NetworkFilter(decide=for_ever))
    stage.ask(question("p"))
    stage.ask(question("q"))
    await asyncio.sleep(0)
    stage.deciders.remove("p")
    stage.deciders.clear()
    assert await stage.settled() == [DENIED, DENIED]
    stage.ask(question("p"))
    assert stage.answers[-1] is DENIED


async def test_only_so_many_are_decided_at_once() -> None:
    stage = Stage()
    stage.deciders.add("p", NetworkFilter(decide=for_ever))
    for _ in range(MAX_QUESTIONS):
        stage.ask(question())
    await asyncio.sleep(0)
    stage.ask(question())
    assert stage.answers == [DENIED]
    stage.deciders.clear()
    assert len(await stage.settled()) == MAX_QUESTIONS + 1


def test_records_are_heard_of_processes_of_ours_and_only_if_they_make_sense() -> None:
    heard: list[PolicyDecision] = []

    def fail(_told: PolicyDecision) -> None:
        raise RuntimeError("what?")

    deciders = Deciders(lambda work: work.close())
    deciders.add("p", NetworkFilter(on_decision=heard.append))
    deciders.add("deaf", NetworkFilter())
    deciders.add("broken", NetworkFilter(on_decision=fail))
    deciders.hear(RECORD)
    [told] = heard
    assert (told.host, told.reason, told.method) == ("a.example", "nope", "GET")
    for other in (
        {"processId": "x"},
        {"processId": "deaf"},
        {"processId": "broken"},
        {"port": 70000},
        {"host": "a b"},
    ):
        deciders.hear(RECORD | other)
    deciders.hear("nonsense")
    deciders.remove("p")
    deciders.hear(RECORD)
    assert len(heard) == 1


@every_row(
    ("more", "credible"),
    [
        ({}, True),
        ({"timestamp": "yesterday"}, False),
        ({"timestamp": "2026-11-15T20:59:50"}, False),
        ({"host": "a" * 254}, False),
        ({"host": "a\x1b[0m"}, False),
        ({"reason": "x" * 1025}, False),
        ({"reason": "a\nb"}, False),
        ({"method": "X" * 33}, False),
        ({"client": "x" * 257}, False),
    ],
)
def test_a_record_keeps_to_what_records_may_say(more: dict[str, Any], credible: bool) -> None:
    assert is_credible(msgspec.convert(RECORD | more, PolicyDecision)) == credible


def test_a_host_can_be_shown_to_a_person_or_not() -> None:
    assert is_host("xn--bcher-kva.example")
    assert not any(map(is_host, ("", "a b", "a\tb", "a\0", "\u2028", "a" * 254)))


def test_a_filter_says_what_the_server_is_asked_for() -> None:
    made = NetworkFilter(
        ["a.example"], ["b.example"], ["a.example"], decide=yes, decide_s=0.0001, limited=True
    )
    asked = made.settings()
    assert asked.proxy.domains == {"a.example": "allow", "b.example": "deny"}
    assert (asked.proxy.review_domains, asked.proxy.mode) == (["a.example"], "limited")
    assert asked.policy_decision_timeout_ms == 1
    assert NetworkFilter().settings().policy_decision_timeout_ms is None
    with pytest.raises(UsageError, match="list of hosts"):
        NetworkFilter("a.example")
    with pytest.raises(UsageError, match="time"):
        NetworkFilter(decide_s=0)
