"""A policy under a ceiling allows nothing that either of them denies, and all that both allow."""

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.sandbox.policy.narrowing import find_excess, narrow
from holdfast.sandbox.policy.policy import (
    Access,
    At,
    BoundPolicy,
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

PARTS = st.sampled_from(["a", "b", ".git", "c.env"])
PATHS = st.lists(PARTS, max_size=4).map(lambda parts: "/" + "/".join(parts))
TARGETS = st.one_of(
    st.builds(At, PATHS),
    st.builds(At, PATHS),
    st.builds(Special, st.sampled_from(list(Place)), st.sampled_from([None, ".git", "a"])),
)
GLOBS = st.sampled_from(["**/*.env", "/a/*/b", "b/**"]).map(lambda text: Rule(Glob(text), Access.DENY))
RULES = st.lists(
    st.one_of(st.builds(Rule, TARGETS, st.sampled_from(list(Access)), st.booleans()), GLOBS),
    min_size=2,
    max_size=8,
)
WHERES = st.builds(Where, PATHS, st.lists(PATHS, max_size=2).map(tuple), st.one_of(st.none(), PATHS))
NETWORKS = st.sampled_from(list(Network))
SOCKETS = st.lists(st.sampled_from(["/run/x", "/run/y"]), unique=True).map(tuple)
DEPTHS = st.one_of(st.none(), st.integers(1, 9))
RESTRICTED = st.builds(
    lambda rules, network, depth, sockets: Policy(tuple(rules), network, PolicyKind.MANAGED, depth, sockets),
    RULES,
    NETWORKS,
    DEPTHS,
    SOCKETS,
)
OPEN = st.builds(Policy, st.none(), NETWORKS, st.sampled_from(list(PolicyKind)), st.none(), SOCKETS)
POLICIES = st.one_of(RESTRICTED, RESTRICTED, RESTRICTED, OPEN)
MANY = settings(max_examples=150)  # two policies that have to do with each other are rare
BOUND = st.builds(bind, POLICIES, WHERES)


def allows(bound: BoundPolicy, path: str) -> tuple[bool, bool]:
    return (bound.explain(path, Access.READ).allowed, bound.explain(path, Access.WRITE).allowed)


def reaches(bound: BoundPolicy) -> set[str]:
    return {"/run/x", "/run/y"} if bound.kind is PolicyKind.DISABLED else set(bound.sockets)


@MANY
@given(BOUND, BOUND, PATHS)
def test_it_allows_what_both_allow_and_nothing_else(
    asked: BoundPolicy, ceiling: BoundPolicy, path: str
) -> None:
    narrowed = narrow(asked, ceiling)
    one, other = allows(asked, path), allows(ceiling, path)
    assert allows(narrowed, path) == (one[0] and other[0], one[1] and other[1])
    assert (narrowed.network is Network.ON) == (asked.network is ceiling.network is Network.ON)
    assert reaches(narrowed) == reaches(asked) & reaches(ceiling)


@MANY
@given(BOUND, BOUND)
def test_nothing_is_in_excess_of_the_ceiling_nor_of_what_was_asked(
    asked: BoundPolicy, ceiling: BoundPolicy
) -> None:
    narrowed = narrow(asked, ceiling)
    assert find_excess(narrowed, ceiling) is None
    assert find_excess(narrowed, asked) is None


@MANY
@given(BOUND, BOUND, st.lists(PATHS, min_size=1))
def test_an_excess_is_found_whenever_there_is_one(
    bound: BoundPolicy, ceiling: BoundPolicy, paths: list[str]
) -> None:
    more = any(
        mine and not theirs
        for path in paths
        for mine, theirs in zip(allows(bound, path), allows(ceiling, path), strict=True)
    )
    if more or reaches(bound) - reaches(ceiling):
        assert find_excess(bound, ceiling) is not None


@MANY
@given(BOUND, BOUND)
def test_a_scan_for_denied_patterns_goes_as_deep_as_either_wants(
    asked: BoundPolicy, ceiling: BoundPolicy
) -> None:
    narrowed = narrow(asked, ceiling)
    if asked.restricted and ceiling.restricted:
        depths = (asked.glob_depth, ceiling.glob_depth)
        assert narrowed.glob_depth == (None if None in depths else max(depth for depth in depths if depth))
