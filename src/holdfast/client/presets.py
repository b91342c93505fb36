"""Hosts of clients that a policy names, as their settings on this machine have them."""

import os
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.sandbox.policy.paths import within

if TYPE_CHECKING:
    from holdfast.client.policy import Policy


def find_presets(policy: "Policy") -> "Policy":
    """The policy with the hosts of its presets.

    Raises:
        UsageError: there is no such client, or it says nothing.
    """
    if not policy.wish.hosts.presets:
        return policy
    from holdfast.egress.clients.recipes import grant_presets
    from holdfast.egress.clients.surroundings import look_around

    closed = [path for path in (policy.root, os.getcwd(), tempfile.gettempdir()) if path]

    def is_writable(path: str) -> bool:
        return any(within(path, folder) for folder in closed)

    return replace(policy, wish=grant_presets(policy.wish, look_around(os.environ, is_writable)))
