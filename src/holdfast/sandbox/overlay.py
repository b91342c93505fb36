"""Policies combined: a grant on top of one, what two have in common, one spelling for equals. Pure module."""

from collections.abc import Iterable

from holdfast.errors import UsageError
from holdfast.sandbox.paths import absolute, depth, within
from holdfast.sandbox.policy import (
    Access,
    At,
    Bound,
    Glob,
    Kind,
    Network,
    Place,
    Policy,
    Rule,
    Special,
    Where,
    bind,
)
from holdfast.values import replace, value

_STRENGTH = {Access.DENY: 0, Access.READ: 1, Access.WRITE: 2}


@value
class Grant:
    """What is allowed on top of a policy, for one command or longer. `network` None: as it was."""

    rules: tuple[Rule, ...] = ()
    network: Network | None = None
    glob_depth: int | None = None


def normalized(grant: Grant) -> Grant:
    """The same grant with folded paths and without repetition.

    Raises:
        UsageError: a path is relative, or a pattern allows something.
    """
    return replace(grant, rules=_tidy(grant.rules))


def merged(one: Grant, other: Grant) -> Grant:
    """Everything that either grants."""
    networks = {one.network, other.network}
    network = Network.ON if Network.ON in networks else Network.OFF if Network.OFF in networks else None
    rules = tuple(dict.fromkeys((*one.rules, *other.rules)))
    return Grant(rules, network, _deeper((one.rules, one.glob_depth), (other.rules, other.glob_depth)))


def extended(policy: Policy, grant: Grant) -> Policy:
    """The policy for a command that was granted more."""
    network = Network.ON if Network.ON in (policy.network, grant.network) else Network.OFF
    if policy.rules is None:
        return replace(policy, network=network)
    depth_limit = _deeper((policy.rules, policy.glob_depth), (grant.rules, grant.glob_depth))
    rules = tuple(dict.fromkeys((*policy.rules, *grant.rules)))
    return replace(policy, rules=rules, network=network, glob_depth=depth_limit)


def common_grant(requested: Grant, granted: Grant, where: Where) -> Grant:
    """What was both asked for and granted, on concrete paths, and every denial that touches it."""
    rules = _weaker(_bound(requested.rules, where), _bound(granted.rules, where))
    # Places without a path cannot be compared; they count only if both name them.
    rules += tuple(rule for rule in granted.rules if _has_no_path(rule, where) and rule in requested.rules)
    if all(rule.access is Access.DENY for rule in rules):
        rules = ()
    both_on = requested.network is granted.network is Network.ON
    limit = _deeper((requested.rules, requested.glob_depth), (granted.rules, granted.glob_depth))
    return Grant(rules, Network.ON if both_on else None, limit)


def common_policy(authority: Policy, requested: Policy, where: Where) -> Policy:
    """What both policies allow.

    Raises:
        UsageError: one of them leaves the files to somebody else, or names a place without a path.
    """
    for policy in (authority, requested):
        unclear = [
            r for r in policy.rules or () if _has_no_path(r, where) and r.target != Special(Place.TMPDIR)
        ]
        if policy.kind is Kind.EXTERNAL or unclear:
            raise UsageError("these permissions cannot be compared with others")
    if canonical(authority) == canonical(requested):
        return requested
    both_on = all(bind(policy, where).network is Network.ON for policy in (authority, requested))
    network = Network.ON if both_on else Network.OFF
    if authority.rules is None or requested.rules is None:
        one = requested if authority.rules is None else authority
        return replace(one, network=network, kind=Kind.MANAGED if not both_on else one.kind)
    return Policy(
        _weaker(bind(authority, where), bind(requested, where)),
        network,
        glob_depth=_deeper((authority.rules, authority.glob_depth), (requested.rules, requested.glob_depth)),
    )


def canonical(policy: Policy) -> Policy:
    """One spelling for policies that differ only in order, repetition or the writing of paths.

    Raises:
        UsageError: a path is relative, or a pattern allows something.
    """
    if policy.kind is Kind.DISABLED:
        return Policy(None, Network.ON, Kind.DISABLED)
    if policy.rules is None or policy.kind is Kind.EXTERNAL:
        return Policy(None, policy.network, policy.kind)
    rules = tuple(sorted(_tidy(policy.rules), key=repr))
    return replace(policy, rules=rules, glob_depth=policy.glob_depth if _patterns(rules) else None)


def _tidy(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    tidy: dict[Rule, None] = {}
    for rule in rules:
        match rule.target:
            case At(path=path):
                tidy[replace(rule, target=At(absolute(path, "")))] = None
            case Glob(pattern=pattern) if rule.access is not Access.DENY:
                raise UsageError(f"the pattern `{pattern}` can only deny")
            case _:
                tidy[rule] = None
    return tuple(tidy)


def _patterns(rules: Iterable[Rule]) -> bool:
    return any(isinstance(rule.target, Glob) for rule in rules)


def _deeper(*sides: tuple[tuple[Rule, ...], int | None]) -> int | None:
    """The depth of scan that serves every side with patterns: none if one of them has none."""
    limits = [limit for rules, limit in sides if _patterns(rules)]
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None


def _bound(rules: tuple[Rule, ...], where: Where) -> Bound:
    concrete = tuple(rule for rule in rules if rule.target != Special(Place.MINIMAL))
    return bind(Policy(concrete, Network.OFF), where)


def _has_no_path(rule: Rule, where: Where) -> bool:
    return not isinstance(rule.target, Glob) and not _bound((replace(rule, access=Access.DENY),), where).rules


def _weaker(one: Bound, other: Bound) -> tuple[Rule, ...]:
    """At each path that either names, the weaker of both; in between neither changes. Denials add up."""
    kept: dict[str, Access] = {}
    for path in sorted({rule.path for rule in (*one.rules, *other.rules)}, key=depth):
        access = min(one.access_at(path), other.access_at(path), key=_STRENGTH.__getitem__)
        if access is not Access.DENY or any(within(path, above) for above in kept):
            kept[path] = access
    patterns = dict.fromkeys(
        Rule(Glob(str(glob.pattern)), Access.DENY) for glob in (*one.globs, *other.globs)
    )
    return (*(Rule(_target(path), access) for path, access in kept.items()), *patterns)


def _target(path: str) -> At | Special:
    return Special(Place.ROOT) if path == "/" else At(path)
