"""Policies against the obvious model: walk up from the path until somebody has said something."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.sandbox.policy.policy import Access, At, BoundPolicy, Network, Policy, Rule, Where, bind

STRENGTH = {Access.DENY: 0, Access.READ: 1, Access.WRITE: 2}
WHERE = Where("/")
PARTS = st.sampled_from(["a", "b", ".git"])
PATHS = st.lists(PARTS, max_size=4).map(lambda parts: "/" + "/".join(parts))
RULES = st.lists(st.builds(Rule, st.builds(At, PATHS), st.sampled_from(list(Access))), max_size=6)
POLICIES = RULES.map(lambda rules: Policy(tuple(rules), Network.OFF))


def model(rules: list[Rule], path: str) -> Access:
    """The last word about a path without protection: nearest directory first, strictest rule there."""
    said = {
        at: {rule.access for rule in rules if isinstance(rule.target, At) and rule.target.path == at}
        for at in ["/", path, *(path[:end] for end, char in enumerate(path) if char == "/" and end)]
    }
    for at in sorted(said, key=len, reverse=True):
        for access in (Access.DENY, Access.WRITE, Access.READ):
            if access in said[at]:
                return access
    return Access.DENY


def protected(rules: list[Rule], path: str) -> bool:
    """Is the path inside metadata of a writable root, with no rule in between that says otherwise?"""
    parts = path.strip("/").split("/")
    for end in range(len(parts), 0, -1):
        here = "/" + "/".join(parts[:end])
        if any(isinstance(rule.target, At) and rule.target.path == here for rule in rules):
            return False
        root = "/" + "/".join(parts[: end - 1])
        explicit = any(
            isinstance(rule.target, At) and rule.target.path == root and model(rules, root) is Access.WRITE
            for rule in rules
        )
        if parts[end - 1] == ".git" and explicit and not inside_metadata(rules, root):
            return True
    return False


def inside_metadata(rules: list[Rule], path: str) -> bool:
    """Does the path lie at or below the `.git` of a writable root?"""
    parts = path.strip("/").split("/")
    return any(
        parts[end] == ".git"
        and any(
            rule.target == At("/" + "/".join(parts[:end])) and model(rules, rule.target.path) is Access.WRITE
            for rule in rules
            if isinstance(rule.target, At)
        )
        for end in range(len(parts))
    )


def accesses(bound: BoundPolicy, path: str) -> tuple[bool, bool]:
    return (bound.explain(path, Access.READ).allowed, bound.explain(path, Access.WRITE).allowed)


@given(RULES, PATHS)
def test_the_nearest_and_strictest_rule_decides(rules: list[Rule], path: str) -> None:
    bound = bind(Policy(tuple(rules), Network.OFF), WHERE)
    expected = Access.READ if protected(rules, path) else model(rules, path)
    assert accesses(bound, path) == (expected is not Access.DENY, expected is Access.WRITE)


@given(RULES.flatmap(lambda rules: st.tuples(st.just(rules), st.permutations(rules))), PATHS)
def test_the_order_of_rules_means_nothing(orders: tuple[list[Rule], list[Rule]], path: str) -> None:
    one, other = (Policy(tuple(some), Network.OFF) for some in orders)
    assert accesses(bind(one, WHERE), path) == accesses(bind(other, WHERE), path)


@given(POLICIES, PATHS)
def test_a_grant_that_is_offered_is_enough(policy: Policy, path: str) -> None:
    for access, allow in ((Access.READ, policy.allow_read), (Access.WRITE, policy.allow_write)):
        decision = bind(policy, WHERE).explain(path, access)
        if decision.grant is not None:
            assert not decision.allowed
            assert bind(allow(path), WHERE).explain(path, access).allowed
