"""Grants on top of policies, what two have in common, and one spelling for equals."""

import pytest

from holdfast.errors import UsageError
from holdfast.sandbox.policy.overlay import (
    Grant,
    canonical,
    common_grant,
    common_policy,
    extended,
    merged,
    normalized,
)
from holdfast.sandbox.policy.policy import (
    Access,
    At,
    Bound,
    Glob,
    Network,
    Place,
    Policy,
    PolicyKind,
    Rule,
    Special,
    Where,
    bind,
)
from holdfast.sandbox.policy.presets import full_access, read_only, workspace_write
from tests.support.rows import every_row

READ, WRITE, DENY = Access.READ, Access.WRITE, Access.DENY
WHERE = Where("/w", ("/w",))
MINIMAL = Rule(Special(Place.MINIMAL), READ)
GLOB = Rule(Glob("/w/*.env"), DENY)


def rules(*pairs: tuple[str, Access]) -> tuple[Rule, ...]:
    return tuple(Rule(At(path), access) for path, access in pairs)


def bound(some: tuple[Rule, ...] | None) -> Bound:
    return bind(Policy(some, Network.OFF), WHERE)


def test_a_grant_is_folded_and_freed_of_repetition() -> None:
    grant = Grant((*rules(("/a/../b", READ), ("/b", READ)), GLOB, MINIMAL, GLOB), Network.ON, 3)
    assert normalized(grant) == Grant((*rules(("/b", READ)), GLOB, MINIMAL), Network.ON, 3)


@pytest.mark.parametrize("rule", [Rule(At("a"), READ), Rule(Glob("/w/*"), WRITE)])
def test_a_grant_that_makes_no_sense_is_refused(rule: Rule) -> None:
    with pytest.raises(UsageError):
        normalized(Grant((rule,)))


@pytest.mark.parametrize(
    ("one", "other", "either"),
    [
        (None, None, None),
        (None, Network.OFF, Network.OFF),
        (Network.ON, Network.OFF, Network.ON),
        (None, Network.ON, Network.ON),
    ],
)
def test_merging_gives_what_either_grants(
    one: Network | None, other: Network | None, either: Network | None
) -> None:
    first, second = rules(("/a", READ), ("/b", READ)), rules(("/b", READ), ("/c", WRITE))
    together = merged(Grant(first, one), Grant(second, other))
    assert together == Grant(rules(("/a", READ), ("/b", READ), ("/c", WRITE)), either)


@pytest.mark.parametrize(
    ("one", "other", "depth"),
    [(2, 5, 5), (2, None, None), (None, None, None)],
)
def test_the_deeper_scan_serves_both(one: int | None, other: int | None, depth: int | None) -> None:
    assert merged(Grant((GLOB,), None, one), Grant((GLOB,), None, other)).glob_depth == depth


def test_a_side_without_patterns_has_no_say_in_the_depth() -> None:
    assert extended(Policy((GLOB,), Network.OFF, glob_depth=2), Grant(rules(("/a", READ)))).glob_depth == 2


def test_a_grant_widens_a_policy() -> None:
    wider = extended(read_only(), Grant(rules(("/a", WRITE)), Network.ON))
    assert wider == read_only(Network.ON).allow_write("/a")


@pytest.mark.parametrize("network", [None, Network.OFF])
def test_a_grant_without_network_leaves_it_off(network: Network | None) -> None:
    assert extended(read_only(), Grant((), network)).network is Network.OFF


def test_an_unrestricted_policy_takes_only_the_network_of_a_grant() -> None:
    free = Policy(None, Network.OFF, PolicyKind.EXTERNAL)
    assert extended(free, Grant(rules(("/a", DENY)), Network.ON)) == Policy(
        None, Network.ON, PolicyKind.EXTERNAL
    )


@pytest.mark.parametrize(
    ("requested", "granted", "access"),
    [(WRITE, WRITE, WRITE), (WRITE, READ, READ), (READ, WRITE, READ), (READ, READ, READ)],
)
def test_no_more_is_granted_than_was_asked_for(requested: Access, granted: Access, access: Access) -> None:
    common = common_grant(Grant(rules(("/a", requested))), Grant(rules(("/a", granted))), WHERE)
    assert bound(common.rules).access_at("/a") is access


def test_what_was_not_asked_for_is_not_granted() -> None:
    assert common_grant(Grant(rules(("/a", READ))), Grant(rules(("/b", READ))), WHERE) == Grant()


def test_denials_of_both_sides_touching_a_grant_are_kept() -> None:
    requested = Grant((*rules(("/w", WRITE), ("/w/x", DENY)), GLOB))
    granted = Grant(rules(("/w", WRITE), ("/w/y", DENY), ("/z", DENY)))
    common = common_grant(requested, granted, WHERE)
    asked = bound(common.rules)
    assert [asked.access_at(path) for path in ("/w/a", "/w/x", "/w/y")] == [WRITE, DENY, DENY]
    assert GLOB in common.rules
    assert not [rule for rule in common.rules if rule.target == At("/z")]


def test_workspace_places_become_paths() -> None:
    place = Grant((Rule(Special(Place.PROJECT_ROOTS, "a"), READ),))
    assert common_grant(place, place, WHERE) == Grant(rules(("/w/a", READ)))


def test_a_place_without_a_path_must_be_named_by_both() -> None:
    assert common_grant(Grant((MINIMAL,)), Grant((MINIMAL,)), WHERE) == Grant((MINIMAL,))
    assert common_grant(Grant(), Grant((MINIMAL,)), WHERE) == Grant()


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [(Network.ON, Network.ON, Network.ON), (Network.ON, None, None), (None, None, None)],
)
def test_the_network_is_granted_if_both_say_so(
    one: Network | None, other: Network | None, both: Network | None
) -> None:
    assert common_grant(Grant((), one), Grant((), other), WHERE).network is both


@pytest.mark.parametrize(
    "policy",
    [
        Policy(None, Network.ON, PolicyKind.EXTERNAL),
        Policy((MINIMAL,), Network.OFF),
        Policy((Rule(Special(Place.UNKNOWN), READ),), Network.OFF),
    ],
)
def test_what_cannot_be_compared_is_refused(policy: Policy) -> None:
    for pair in ((policy, read_only()), (read_only(), policy)):
        with pytest.raises(UsageError):
            common_policy(*pair, WHERE)


def test_equal_policies_have_everything_in_common() -> None:
    shuffled = Policy(tuple(reversed(workspace_write().rules or ())), Network.OFF)
    assert common_policy(shuffled, workspace_write(), WHERE) == workspace_write()


@pytest.mark.parametrize("pair", [(full_access(), read_only()), (read_only(), full_access())])
def test_an_unrestricted_policy_takes_nothing_away_but_adds_nothing(pair: tuple[Policy, Policy]) -> None:
    assert common_policy(*pair, WHERE) == read_only()


def test_two_unrestricted_policies_share_the_network_only_if_both_have_it() -> None:
    unrestricted = Policy(None, Network.OFF)
    assert common_policy(full_access(), unrestricted, WHERE) == unrestricted
    assert common_policy(unrestricted, full_access(), WHERE) == unrestricted


def test_two_policies_share_the_weaker_access_at_each_path() -> None:
    one = read_only(Network.ON).allow_write("/w").deny("/w/x").deny_glob("/w/*.env")
    other = read_only().allow_write("/w").allow_write("/v").allow_read("/w/y")
    common = common_policy(one, other, WHERE)
    shared = bind(common, WHERE)
    paths = ("/etc", "/v", "/w", "/w/x", "/w/y", "/w/.git")
    assert [shared.access_at(path) for path in paths] == [READ, READ, WRITE, DENY, READ, READ]
    assert not shared.explain("/w/a.env", READ).allowed
    assert common.network is Network.OFF


def test_a_temporary_directory_that_is_not_set_does_not_prevent_comparing() -> None:
    assert common_policy(workspace_write(), read_only(), WHERE).rules


@every_row(
    ("policy", "spelling"),
    [
        (Policy(rules(("/a", READ)), Network.OFF, PolicyKind.DISABLED, 3), full_access()),
        (Policy((), Network.ON, PolicyKind.EXTERNAL), Policy(None, Network.ON, PolicyKind.EXTERNAL)),
        (Policy(None, Network.OFF, glob_depth=3), Policy(None, Network.OFF)),
        (
            Policy(rules(("/b/", READ), ("/a", READ), ("/b", READ)), Network.OFF, glob_depth=3),
            Policy(rules(("/a", READ), ("/b", READ)), Network.OFF),
        ),
        (Policy((GLOB,), Network.OFF, glob_depth=3), Policy((GLOB,), Network.OFF, glob_depth=3)),
    ],
)
def test_equal_policies_have_one_spelling(policy: Policy, spelling: Policy) -> None:
    assert canonical(policy) == spelling == canonical(spelling)
