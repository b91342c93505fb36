"""Every policy that is enforced here hides Holdfast's own directories."""

import os

from holdfast.annotations import Mapping, Sequence
from holdfast.local import homes
from holdfast.sandbox.policy.homes import deny_homes
from holdfast.sandbox.policy.policy import Access, BoundPolicy


def hide_homes(
    bound: BoundPolicy, environ: Mapping[str, str] = os.environ, found: Sequence[str] | None = None
) -> BoundPolicy:
    """The policy without the homes of this user, or those that were `found` already.

    Raises:
        UsageError: it grants one of them, or what is ours in it.
    """
    if not bound.restricted:
        return bound
    hidden = homes.find_homes(environ) if found is None else found
    granted = [rule.path for rule in bound.rules if rule.access is not Access.DENY] if hidden else []
    return deny_homes(bound, hidden, {path: os.path.realpath(path) for path in granted})
