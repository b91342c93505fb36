"""Read the hosts of the clients that a policy names from their settings on this machine."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.sandbox.policy.paths import within
from holdfast.sandbox.policy.policy import Where, bind

if TYPE_CHECKING:
    from holdfast.client.policy import Policy


def find_presets(policy: "Policy", cwd: str, environ: Mapping[str, str] = os.environ) -> "Policy":
    """Return the policy of a command in `cwd`, with the hosts of its presets.

    Whichever machine the command runs on, the settings are those of this machine, where the user asked for
    them. Files that the command may write are not read, since it may run on this machine.

    Raises:
        UsageError: there is no such client, or its settings name no host.
    """
    from holdfast.egress.clients.surroundings import read_presets

    here, home = os.getcwd(), environ.get("HOME") or os.path.expanduser("~")
    place = policy.root or cwd
    where = place if place.startswith("/") else here
    bound = bind(policy.wish, Where(where, (where,), environ.get("TMPDIR")))
    closed = () if within(home, here) else (here,)  # it may be an untrusted checkout
    return replace(policy, wish=read_presets(policy.wish, bound, environ, closed))
