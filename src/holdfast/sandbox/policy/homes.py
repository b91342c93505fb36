"""Holdfast's own directories in a policy: denied, whatever it allows around them. Pure module.

They hold keys, sockets and the store, with which a command could ask a daemon for more than its policy gives.
What a run needs lies below one, in a directory of its own, and may be granted there.
"""

from holdfast.annotations import Final, Mapping, Sequence
from holdfast.errors import UsageError
from holdfast.sandbox.policy.paths import within
from holdfast.sandbox.policy.policy import Access, At, BoundPolicy, BoundRule, Rule
from holdfast.sandbox.values import replace

SHARED: Final = ("board", "workers", "runs")  # of many tasks or runs: one entry may be granted, never all
OURS: Final = ("daemons", "homes")
_ENDINGS: Final = (".key", ".sock", ".lock", ".log", ".json", ".db", ".db-wal", ".db-shm", ".db-journal")


def deny_homes(bound: BoundPolicy, homes: Sequence[str], real: Mapping[str, str]) -> BoundPolicy:
    """The policy without these directories; `real` has where each path of its grants leads.

    Raises:
        UsageError: it grants one of them, or what is ours in it.
    """
    if not bound.restricted or not homes:
        return bound
    for rule in bound.rules:
        if rule.access is not Access.DENY and rule.protects is None:
            _refuse_ours(rule.path, real.get(rule.path, rule.path), homes)
    named = {rule.path for rule in bound.rules if rule.access is Access.DENY}
    denied = (_deny(home) for home in homes if home not in named)
    return replace(bound, rules=(*bound.rules, *denied))


def _deny(home: str) -> BoundRule:
    return BoundRule(home, Access.DENY, Rule(At(home), Access.DENY, skip_missing=True), skip_missing=True)


def _refuse_ours(path: str, real: str, homes: Sequence[str]) -> None:
    for home in homes:
        if within(real, home) and _is_ours(real[len(home) :].strip("/")):
            raise UsageError(
                f"{path} is Holdfast's own, with the keys of its daemons: no confined command ever sees it",
                remedy="work in another directory, or allow only what is needed below it",
            )


def _is_ours(below: str) -> bool:
    """Is this path below a home one that no command may have?"""
    first, _, rest = below.partition("/")
    if first in SHARED:
        return not rest
    return first in ("", *OURS) or first.endswith(_ENDINGS)
