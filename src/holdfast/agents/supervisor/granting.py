"""Restarts a worker with an additional grant: its original request, with the grant added."""

from typing import Final

import msgspec

from holdfast.agents.supervisor.messages import GrantParams
from holdfast.agents.worker.book import KeptWish
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.errors import UsageError
from holdfast.sandbox.policy.paths import within
from holdfast.wire.permissions import AllowedHosts
from holdfast.wire.processes import SecretKey

RUN_VARIABLE: Final = "HOLDFAST_RUN"  # set for a worker that reports on a task to its dispatcher


def regrant(kept: KeptWish, asked: GrantParams) -> WorkerSpec:
    """Return the request for the worker that replaces it.

    Raises:
        UsageError: nothing is granted, or only what it has already; or a dispatcher owns its run; or a key is
            missing; or the whole network and hosts are both asked for.
    """
    wish = kept.wish
    if RUN_VARIABLE in kept.variables:
        raise UsageError(
            f"{asked.worker} works on a task of a board",
            remedy="grant it in its worker profile; then retry the task",
        )
    network = asked.network and not wish.network
    named = asked.hosts or asked.presets
    more_hosts = named and not wish.network
    if wish.unconfined or not (asked.writable or asked.readable or network or more_hosts):
        known = wish.unconfined or asked.network or named
        raise UsageError(
            f"{asked.worker} has that already" if known else "nothing is granted",
            remedy="--allow-write PATH, --allow-read PATH, --allow-host HOST, --allow-net NAME, --network on",
        )
    if network and named:
        raise UsageError(
            "with the whole network every host is reached", remedy="leave --allow-host and --allow-net out"
        )
    if kept.keyed and asked.key is None:
        raise UsageError(
            "it was given a key of its provider, which is kept nowhere",
            remedy="name its variable: --key-env NAME",
        )
    for key in wish.keys:
        if not asked.environ.get(key.name):
            raise UsageError(
                f"the key in ${key.name} stayed outside of it, and is kept nowhere",
                remedy=f"set {key.name}, or start it again with --secret",
            )
    home = asked.environ.get("HOME", "/")
    # A grant of the whole home, or of a directory above it, uncovers no secrets.
    shown = [path for path in (*asked.writable, *asked.readable) if not within(home, path)]
    return msgspec.structs.replace(
        wish,
        id=asked.id or next_id(asked.worker),
        after=asked.worker,
        env={name: value for name, value in asked.environ.items() if name in kept.variables},
        key=asked.key,
        keys=[SecretKey(key.name, asked.environ[key.name], key.hosts) for key in wish.keys],
        network=True if network else wish.network,
        presets=[] if network else list(dict.fromkeys((*wish.presets, *asked.presets))),
        hosts=None if network else _add_hosts(wish.hosts, asked) if more_hosts else wish.hosts,
        writable=[*wish.writable, *asked.writable],
        readable=[*wish.readable, *asked.readable],
        secret=[path for path in wish.secret if not any(within(path, one) for one in shown)],
    )


def _add_hosts(had: AllowedHosts | None, asked: GrantParams) -> AllowedHosts:
    known = had or AllowedHosts([])
    allow = list(dict.fromkeys((*known.allow, *asked.hosts)))
    return msgspec.structs.replace(known, allow=allow, private=known.private or asked.private)


def next_id(worker: str) -> str:
    """`codex-1f2e3d` is followed by `codex-1f2e3d-r2`, and that by `codex-1f2e3d-r3`."""
    stem, mark, number = worker.rpartition("-r")
    if mark and number.isdecimal():
        return f"{stem}-r{int(number) + 1}"
    return f"{worker}-r2"
