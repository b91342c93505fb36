"""A policy under a ceiling: what both allow, and nothing else. Pure module.

Access is decided by the nearest rule above a path, so it can change only where one of the two policies has a
rule. The result has a rule at each of those paths, with the weaker of the two accesses. So at every path it
gives what the stricter policy gives there.

Both policies are queried with real paths (`planner.settle`): otherwise a name that leads elsewhere would be
compared by its name.
"""

from typing import Final

from holdfast.light import replace
from holdfast.sandbox.policy.hostwish import HostWish
from holdfast.sandbox.policy.policy import Access, At, BoundPolicy, BoundRule, Network, PolicyKind, Rule

_KINDS: Final = (PolicyKind.DISABLED, PolicyKind.EXTERNAL, PolicyKind.MANAGED)  # from nothing to all enforced
_URL: Final = "://"  # in a rule about requests
_STRENGTH: Final = {Access.DENY: 0, Access.READ: 1, Access.WRITE: 2}


def narrow(asked: BoundPolicy, ceiling: BoundPolicy) -> BoundPolicy:
    """What both policies allow; symbolic places and patterns are those of `asked`."""
    network = Network.ON if asked.network is ceiling.network is Network.ON else Network.OFF
    hosts = _common_hosts(asked, ceiling)
    sockets = _common_sockets(asked, ceiling)
    if not ceiling.restricted or not asked.restricted:
        files = ceiling if ceiling.restricted else asked
        kind = max(asked.kind, ceiling.kind, key=_KINDS.index)
        return replace(files, network=network, kind=kind, sockets=sockets, hosts=hosts, cwd=asked.cwd)
    paths = dict.fromkeys(rule.path for rule in (*asked.rules, *ceiling.rules))
    depths = (asked.glob_depth, ceiling.glob_depth)
    return replace(
        asked,
        rules=tuple(_rule_at(path, asked, ceiling) for path in paths),
        globs=tuple(dict.fromkeys((*asked.globs, *ceiling.globs))),
        network=network,
        minimal=asked.minimal or ceiling.minimal,
        glob_depth=None if None in depths else max(depth for depth in depths if depth is not None),
        sockets=sockets,
        hosts=hosts,
    )


def find_excess(bound: BoundPolicy, ceiling: BoundPolicy) -> str | None:
    """The first thing that the policy allows and the ceiling does not; None if there is none."""
    if bound.network is Network.ON and ceiling.network is Network.OFF:
        return "the network"
    if bound.by_name and ceiling.network is Network.OFF and _narrow_hosts(bound, ceiling) != bound.hosts:
        return "a host"
    if ceiling.kind is not PolicyKind.DISABLED:
        if bound.kind is PolicyKind.DISABLED:
            return "every unix socket"
        if more := [path for path in bound.sockets if path not in ceiling.sockets]:
            return more[0]
    if not ceiling.restricted:
        return None
    if not bound.restricted:
        return "/"
    kept = {glob.pattern for glob in bound.globs}
    for glob in ceiling.globs:
        if glob.pattern not in kept:
            return str(glob.pattern)
    for rule in (*bound.rules, *ceiling.rules):
        if _STRENGTH[bound.access_at(rule.path)] > _STRENGTH[ceiling.access_at(rule.path)]:
            return rule.path
    return None


def _common_hosts(asked: BoundPolicy, ceiling: BoundPolicy) -> HostWish:
    """The hosts that both policies allow by name."""
    if asked.network is Network.ON:
        return ceiling.hosts
    return asked.hosts if ceiling.network is Network.ON else _narrow_hosts(asked, ceiling)


def show(bound: BoundPolicy, path: str) -> BoundPolicy:
    """The same policy with this path readable, but not writable; the path must not be a link."""
    if not bound.restricted:
        return bound
    return replace(bound, rules=(*bound.rules, BoundRule(path, Access.READ, Rule(At(path), Access.READ))))


def _narrow_hosts(asked: BoundPolicy, ceiling: BoundPolicy) -> HostWish:
    """The hosts that both allow. Rules are compared as they were written.

    Only the ceiling gives a host's address: a host at another address would be another host.

    A rule about requests takes its host out of what patterns allow. If the two policies differ in such
    rules, no pattern is kept: it would allow that host again as a whole.
    """
    about_requests = [
        {rule for rule in hosts.allow if _URL in rule} for hosts in (asked.hosts, ceiling.hosts)
    ]
    common = (rule for rule in asked.hosts.allow if rule in ceiling.hosts.allow)
    patterns = about_requests[0] == about_requests[1]
    return HostWish(
        tuple(rule for rule in common if patterns or not rule.startswith("*")),
        tuple(dict.fromkeys((*asked.hosts.deny, *ceiling.hosts.deny))),
        asked.hosts.private and ceiling.hosts.private,
        ceiling.hosts.addresses,
        tuple(text for text in asked.hosts.secrets if text in ceiling.hosts.secrets),
        tuple(name for name in asked.hosts.own if name in ceiling.hosts.own),
        limits=tuple(dict.fromkeys((*asked.hosts.limits, *ceiling.hosts.limits))),
        ask_s=min(asked.hosts.ask_s, ceiling.hosts.ask_s),
    )


def _common_sockets(asked: BoundPolicy, ceiling: BoundPolicy) -> tuple[str, ...]:
    """The sockets that both allow; without a sandbox every socket can be reached."""
    if asked.kind is PolicyKind.DISABLED:
        return ceiling.sockets
    if ceiling.kind is PolicyKind.DISABLED:
        return asked.sockets
    return tuple(path for path in asked.sockets if path in ceiling.sockets)


def _rule_at(path: str, asked: BoundPolicy, ceiling: BoundPolicy) -> BoundRule:
    """The rule for a path at which one of the policies has a rule.

    It is as explicit as the two were. It protects metadata if one of them did. It applies to a missing path
    unless all rules with its access skip missing paths.
    """
    access = min(asked.access_at(path), ceiling.access_at(path), key=_STRENGTH.__getitem__)
    named = [rule for rule in (*asked.rules, *ceiling.rules) if rule.path == path]
    protects = next((rule.protects for rule in named if rule.protects is not None), None)
    return BoundRule(
        path,
        access,
        Rule(At(path), access),
        skip_missing=all(rule.skip_missing for rule in named if rule.access is access),
        protects=protects if access is Access.READ else None,
    )
