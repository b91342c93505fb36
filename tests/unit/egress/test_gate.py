"""Every attempt is judged, then told of, then made; a name is looked up last."""

from typing import Final

import pytest

from holdfast.egress.dial import Dialer, LookupFailed, Route
from holdfast.egress.gate import Ask, Gate
from holdfast.egress.hosts import parse_host, parse_rules
from holdfast.egress.verdicts import (
    DENIED,
    GRANTED,
    NOT_ALLOWED,
    NOT_PUBLIC,
    Attempt,
    Protocol,
    ProxyPolicy,
    Verdict,
)
from tests.support.egress import PUBLIC, Names, nothing_own
from tests.support.rows import every_row

DENIED_ADDRESS: Final = "93.184.216.35"


class Stage:
    def __init__(self, names: Names, ask: Ask | None = None, *, limited: bool = False) -> None:
        self.told: list[tuple[str, str, bool]] = []
        rules = parse_rules(["a.example", "127.0.0.1"], ["bad.example", DENIED_ADDRESS])
        policy = ProxyPolicy(rules, limited=limited)
        self.gate = Gate(policy, Dialer(names, is_own=nothing_own), tell=self._tell, ask=ask)

    def _tell(self, _attempt: Attempt, verdict: Verdict) -> None:
        self.told.append((verdict.source.value, verdict.reason, verdict.override))

    async def admit(self, host: str, method: str = "GET") -> Route | Verdict:
        return await self.gate.admit(Attempt(Protocol.HTTP, parse_host(host), 80, "c", method))


async def yes(_attempt: Attempt) -> Verdict:
    return GRANTED


async def test_nobody_is_asked_about_a_name_that_is_not_allowed() -> None:
    names = Names([PUBLIC])
    stage = Stage(names)
    assert await stage.admit("b.example") == NOT_ALLOWED
    assert isinstance(await stage.admit("bad.example"), Verdict)
    assert isinstance(await stage.admit("10.0.0.1"), Verdict)
    assert names.asked == []
    assert [reason for _, reason, _ in stage.told] == ["not_allowed", "denied", "not_allowed_local"]


async def test_an_allowed_name_is_looked_up_and_its_addresses_are_the_way() -> None:
    stage = Stage(Names([PUBLIC]))
    found = await stage.admit("a.example")
    assert isinstance(found, Route)
    assert list(map(str, found.addresses)) == [PUBLIC]
    assert stage.told == [("baseline_policy", "allow", False)]


async def test_an_allowed_name_that_is_not_public_is_refused_and_told_once() -> None:
    stage = Stage(Names(["127.0.0.1"]))
    assert await stage.admit("a.example") == NOT_PUBLIC
    assert stage.told == [("baseline_policy", "not_allowed_local", False)]
    assert isinstance(await stage.admit("127.0.0.1"), Route)  # it has a rule of its own


@every_row("address", [DENIED_ADDRESS, "64:ff9b::5db8:d823"], ids=str)
async def test_an_allowed_name_at_a_denied_address_is_refused(address: str) -> None:
    for ask in (None, yes):
        stage = Stage(Names([PUBLIC, address]), ask)
        assert await stage.admit("a.example") == DENIED
        assert stage.told == [("baseline_policy", "denied", False)]


async def test_a_grant_overrides_what_no_rule_mentions_and_nothing_else() -> None:
    stage = Stage(Names([PUBLIC]), yes)
    assert isinstance(await stage.admit("b.example"), Route)
    assert isinstance(await stage.admit("bad.example"), Verdict)
    assert isinstance(await stage.admit("10.0.0.1"), Verdict)
    assert stage.told == [
        ("decider", "not_allowed", True),
        ("baseline_policy", "denied", False),
        ("baseline_policy", "not_allowed_local", False),
    ]


async def test_a_grant_does_not_make_a_private_address_public() -> None:
    stage = Stage(Names(["10.0.0.1"]), yes)
    assert await stage.admit("b.example") == NOT_PUBLIC


async def test_a_name_without_an_address_is_no_denial() -> None:
    stage = Stage(Names([]))
    with pytest.raises(LookupFailed):
        await stage.admit("a.example")
    assert stage.told == [("baseline_policy", "allow", False)]


async def test_in_limited_mode_nothing_is_looked_up_for_what_may_not_be_done() -> None:
    names = Names([PUBLIC])
    stage = Stage(names, limited=True)
    assert isinstance(await stage.admit("a.example", "POST"), Verdict)
    assert names.asked == []
    assert stage.told == [("baseline_policy", "allow", False), ("mode_guard", "method_not_allowed", False)]
