"""Hosts of clients that a policy names, as their settings on this machine have them."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.sandbox.policy.paths import within
from holdfast.sandbox.policy.policy import Where, bind

if TYPE_CHECKING:
    from holdfast.client.policy import Policy


def find_presets(policy: "Policy", cwd: str, environ: Mapping[str, str] = os.environ) -> "Policy":
    """The policy of a command in `cwd`, with the hosts of its presets.

    Whichever machine it runs on, the settings are those of this one, where somebody asked for them. What it
    may write there is not read here: that may be the same machine.

    Raises:
        UsageError: there is no such client, or it says nothing.
    """
    from holdfast.egress.clients.surroundings import read_presets

    here, home = os.getcwd(), environ.get("HOME") or os.path.expanduser("~")
    place = policy.root or cwd
    where = place if place.startswith("/") else here
    bound = bind(policy.wish, Where(where, (where,), environ.get("TMPDIR")))
    closed = () if within(home, here) else (here,)  # as a checkout is, from which it was asked for
    return replace(policy, wish=read_presets(policy.wish, bound, environ, closed))
