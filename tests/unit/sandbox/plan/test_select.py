"""Needs and host facts in, enforcement out; a need that nobody meets is never dropped."""

import errno
import itertools

import pytest

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.plan.select import (
    ANY,
    BACKENDS,
    UNCONFINED,
    WEAKNESSES,
    Backend,
    Choice,
    Enforcement,
    Losses,
    Trial,
    Way,
    declare,
    select,
)
from holdfast.sandbox.policy.policy import Need
from tests.support.rows import every_row

WORKS = Trial()
REFUSED = Trial("userns", errno.EPERM)
ABLE = {Way.USER_NAMESPACE: WORKS}
UNABLE = {Way.USER_NAMESPACE: REFUSED}
MET = frozenset({Need.FILE_SYSTEM, Need.NETWORK_OFF})


def combinations(needs: frozenset[Need]) -> list[frozenset[Need]]:
    return [frozenset(c) for n in range(1, len(needs) + 1) for c in itertools.combinations(sorted(needs), n)]


def test_no_need_is_met_by_no_backend_on_any_host() -> None:
    assert select(frozenset(), UNABLE) == UNCONFINED
    assert UNCONFINED.backend is Backend.NONE


@pytest.mark.parametrize("needs", combinations(MET), ids=lambda needs: "+".join(sorted(needs)))
def test_a_host_with_user_namespaces_meets_every_limit_of_files_and_network(needs: frozenset[Need]) -> None:
    chosen = select(needs, ABLE)
    assert (chosen.backend, chosen.way, chosen.missing) == (Backend.NAMESPACES, Way.USER_NAMESPACE, ())


@pytest.mark.parametrize("last", range(len(Way)))
def test_the_strongest_way_that_works_is_taken(last: int) -> None:
    ways = list(Way)
    trials = dict.fromkeys(ways[:last], REFUSED) | dict.fromkeys(ways[last:], WORKS)
    assert select(MET, trials).way is ways[last]


@pytest.mark.parametrize("way", list(Way)[1:])
def test_why_it_is_not_the_strongest_way_is_said_with_a_remedy_where_less_holds(way: Way) -> None:
    held = select(MET, UNABLE | {way: WORKS})
    assert held.fingerprint == "userns.eperm"
    assert bool(held.remedies) is (held.backend is not Backend.NAMESPACES)


def test_a_weakness_has_a_cause_and_a_remedy_too() -> None:
    held = select(MET, {Way.USER_NAMESPACE: Trial(weakened=("loopback", "proc", "landlock"))})
    assert held.fingerprint == "proc.masked"
    assert len(held.remedies) == 2
    assert select(MET, ABLE).fingerprint is None


def test_who_is_not_root_does_not_try_roots_way() -> None:
    assert ANY.ways(root=True) == tuple(Way)
    assert Way.AS_ROOT not in ANY.ways(root=False)


@pytest.mark.parametrize("backend", sorted(set(Backend) - {Backend.NONE}))
def test_a_backend_asked_for_by_name_is_the_only_one_tried(backend: Backend) -> None:
    ways = Choice(backend).ways(root=True)
    assert ways
    assert {select(MET, {way: WORKS}).backend for way in ways} == {backend}


def test_what_is_missing_must_be_allowed_and_is_declared() -> None:
    held = Enforcement(Backend.LANDLOCK, weakened=("a",))
    losses = Losses(missing=("b",), weakened=("c",), remedies=("d",))
    with pytest.raises(SandboxUnavailable, match="b") as caught:
        declare(held, losses, degraded=False)
    assert "d" in (caught.value.remedy or "")
    assert "--degraded" in (caught.value.remedy or "")
    told = declare(held, losses, degraded=True)
    assert (told.missing, told.weakened, told.remedies) == (("b",), ("a", "c"), ("d",))


def test_what_is_only_weaker_needs_no_permission() -> None:
    told = declare(Enforcement(Backend.LANDLOCK), Losses(weakened=("c",)), degraded=False)
    assert told.weakened == ("c",)


def test_what_came_out_weaker_is_said_in_words() -> None:
    chosen = select(MET, {Way.BWRAP: Trial(weakened=("landlock", "something-new"))})
    assert chosen.weakened == (WEAKNESSES["landlock"], "something-new")


@every_row("trials", [UNABLE, UNABLE | {Way.AS_ROOT: Trial("mountns", errno.EPERM)}], ids=["user", "root"])
@every_row("needs", combinations(MET), ids=lambda needs: "+".join(sorted(needs)))
def test_a_host_that_refuses_runs_nothing_and_says_what_to_change(
    needs: frozenset[Need], trials: dict[Way, Trial]
) -> None:
    with pytest.raises(SandboxUnavailable, match="sandbox intent cannot be enforced") as caught:
        select(needs, trials)
    assert "[userns.eperm]" in str(caught.value)
    assert caught.value.fingerprint == "userns.eperm"
    assert caught.value.remedy


def test_a_stage_without_a_fingerprint_still_names_itself() -> None:
    with pytest.raises(SandboxUnavailable, match="unheard-of") as caught:
        select(MET, {Way.BWRAP: Trial("unheard-of", errno.EIO)})
    assert caught.value.remedy is None


def test_ports_are_let_through_only_into_a_network_namespace() -> None:
    needs = MET | {Need.LOOPBACK_PORTS}
    for way in Way:
        trials = {way: WORKS}
        if BACKENDS[way] is not Backend.LANDLOCK:
            assert select(needs, trials).way is way
        else:
            with pytest.raises(SandboxUnavailable, match=f"{way} cannot do loopback-ports"):
                select(needs, trials)


def test_a_need_that_a_weaker_backend_lacks_does_not_hide_why_the_stronger_one_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match=r"userns.*landlock cannot do loopback-ports") as caught:
        select(MET | {Need.LOOPBACK_PORTS}, UNABLE | {Way.LANDLOCK: WORKS})
    assert caught.value.remedy
