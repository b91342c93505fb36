"""Needs and host facts in, enforcement out; a need that nobody meets is never dropped."""

import errno
import itertools

import pytest

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.select import UNCONFINED, WEAKNESSES, Backend, HostFacts, Need, Trial, select

WORKS = Trial()
REFUSED = Trial("userns", errno.EPERM)
ABLE = HostFacts(WORKS)
MET = frozenset({Need.FILE_SYSTEM, Need.NETWORK_OFF})


def combinations(needs: frozenset[Need]) -> list[frozenset[Need]]:
    return [frozenset(c) for n in range(1, len(needs) + 1) for c in itertools.combinations(sorted(needs), n)]


def test_no_need_is_met_by_no_backend_on_any_host() -> None:
    assert select(frozenset(), HostFacts(REFUSED)) == UNCONFINED
    assert UNCONFINED.backend is Backend.NONE


@pytest.mark.parametrize("needs", combinations(MET), ids=lambda needs: "+".join(sorted(needs)))
def test_a_host_with_user_namespaces_meets_every_limit_of_files_and_network(needs: frozenset[Need]) -> None:
    chosen = select(needs, ABLE)
    assert (chosen.backend, chosen.user_namespace, chosen.missing) == (Backend.NAMESPACES, True, ())


def test_root_may_do_without_a_user_namespace() -> None:
    chosen = select(MET, HostFacts(REFUSED, as_root=WORKS))
    assert (chosen.backend, chosen.user_namespace) == (Backend.NAMESPACES, False)


def test_what_came_out_weaker_is_said_in_words() -> None:
    chosen = select(MET, HostFacts(Trial(weakened=("landlock", "something-new"))))
    assert chosen.weakened == (WEAKNESSES["landlock"], "something-new")


@pytest.mark.parametrize(
    "host", [HostFacts(REFUSED), HostFacts(REFUSED, as_root=Trial("mountns", errno.EPERM))]
)
@pytest.mark.parametrize("needs", combinations(MET), ids=lambda needs: "+".join(sorted(needs)))
def test_a_host_that_refuses_runs_nothing_and_says_what_to_change(
    needs: frozenset[Need], host: HostFacts
) -> None:
    with pytest.raises(SandboxUnavailable, match="sandbox intent cannot be enforced") as caught:
        select(needs, host)
    assert "userns" in str(caught.value)
    assert caught.value.remedy


def test_a_stage_without_a_fingerprint_still_names_itself() -> None:
    with pytest.raises(SandboxUnavailable, match="unheard-of") as caught:
        select(MET, HostFacts(Trial("unheard-of", errno.EIO)))
    assert caught.value.remedy is None


def test_a_proxy_is_a_need_that_nobody_meets_yet() -> None:
    with pytest.raises(SandboxUnavailable, match="network-proxy"):
        select(MET | {Need.NETWORK_PROXY}, ABLE)
