"""Decides which hosts a worker reaches: those of its own model provider, and those that were requested.

The address of the provider comes from the CLI's record and from the user: by `--provider`, by a variable that
the CLI reads, or in the CLI's settings in the user's home. Files that the worker may write are ignored: its
workspace, its state, and the paths that it was granted.
"""

import asyncio
import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import structs

from holdfast import light
from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.hostfiles import Way, find_values, is_settings, read_settings
from holdfast.agents.catalog.providerhosts import find_provider
from holdfast.agents.worker.ownfiles import read_regular
from holdfast.client.policy import Policy
from holdfast.client.presets import find_presets
from holdfast.egress.bounds.allowance import parse_limits
from holdfast.egress.dial import LookupFailed, NotPublic
from holdfast.egress.hosts import BadHost, decide, may_be_private, parse_host, parse_rules
from holdfast.errors import HoldfastError, SandboxUnavailable, UsageError
from holdfast.sandbox.policy.hostwish import NO_HOSTS, HostWish
from holdfast.sandbox.policy.paths import within
from holdfast.sandbox.policy.policy import Network
from holdfast.wire.permissions import AllowedHosts

if TYPE_CHECKING:
    from holdfast.agents.worker.book import Record
    from holdfast.agents.worker.launching import WorkerSpec
    from holdfast.client.environment import Environment

MAX_BASES: Final = 32  # addresses of providers in one user's settings
UNNAMED: Final = "its record names none"  # about the hosts of its provider
PROBED: Final = "holdfast.invalid"  # does not exist, and is never looked up
CONNECT_S: Final = 3.0  # until a provider counts as unreachable
_VARIABLE: Final = re.compile(r"^\s*(?:export\s+)?([A-Z][A-Z0-9_]*)\s*=\s*[\"']?([^\"'\s#]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class WorkerReach:
    """What a worker reaches of the network: all of it (`whole`), or `hosts` by name.

    `commands` are the hosts of its commands, if each has its own sandbox; `whole_commands` means that they
    reach everything. `lost` says why it has the whole network although that was not requested.
    """

    whole: bool = False
    hosts: HostWish = NO_HOSTS
    commands: HostWish = NO_HOSTS
    whole_commands: bool = False
    lost: str = ""

    def apply(self, policy: Policy) -> Policy:
        """Return the policy with this network access."""
        return _apply(policy, self.hosts, whole=self.whole)

    def apply_to_commands(self, policy: Policy) -> Policy:
        """Return the policy with the network access of commands that have their own sandbox."""
        return _apply(policy, self.commands, whole=self.whole_commands)

    @property
    def commands_any(self) -> bool:
        return self.whole_commands or self.commands.reaches_any


def _apply(policy: Policy, hosts: HostWish, *, whole: bool) -> Policy:
    network = Network.ON if whole else Network.OFF
    return Policy(light.replace(policy.wish, network=network, hosts=hosts), policy.root, policy.limits)


def decide_reach(
    wish: "WorkerSpec",
    agent: Agent,
    bases: Iterable[str] = (),
    *,
    own_sandbox: bool = False,
    unnamed: str | None = None,
) -> WorkerReach:
    """Decide what a worker of this request reaches. `unnamed`: why names cannot be enforced there.

    Without an explicit request the worker may get more than its provider's hosts; then `lost` says so.

    Raises:
        UsageError: hosts are requested that are impossible or meaningless.
        SandboxUnavailable: hosts are requested, and names cannot be enforced there.
    """
    asked = _read_asked(wish.hosts)
    named = bool(asked.reaches_any or asked.deny or wish.presets)
    if named and (wish.unconfined or wish.network):
        what = "without a sandbox" if wish.unconfined else "with the whole network"
        raise UsageError(f"hosts are asked for, and {what} every host is reached", remedy="leave one out")
    if wish.unconfined or wish.network:
        return WorkerReach(whole=True, whole_commands=True)
    if named and unnamed is not None:
        raise SandboxUnavailable(
            f"hosts cannot be reached by name: {unnamed}", remedy="leave --allow-host out"
        )
    alone = agent.reach is None or (wish.network is False and not own_sandbox)
    if alone and asked.deny and not asked.reaches_any:
        raise UsageError(
            "--deny-host is about hosts that are allowed, and none is", remedy="--allow-host HOST"
        )
    if agent.reach is None:
        whole = not asked.reaches_any and (wish.network is None or own_sandbox)
        lost = UNNAMED if whole and agent.keys else ""  # a CLI with keys has a provider
        return WorkerReach(whole, asked, asked, whole and not own_sandbox, lost)
    if wish.network is False and not own_sandbox:
        return WorkerReach(hosts=asked, commands=asked)
    found = find_provider(agent, wish.base, bases)
    if found.literal and named:
        raise UsageError(
            f"its provider is at {found.literal}, an address, and with hosts by name only names are reached",
            remedy="--network on, or a name for it",
        )
    if found.literal or unnamed is not None:
        why = unnamed or f"its provider is at {found.literal}, an address and no name"
        return WorkerReach(whole=True, commands=asked, lost=why)
    hosts = light.replace(
        asked, allow=tuple(dict.fromkeys((*found.rules, *asked.allow))), own=(*asked.own, *found.own)
    )
    return WorkerReach(hosts=hosts, commands=asked)


def add_presets(wish: "WorkerSpec", policy: Policy) -> "tuple[WorkerSpec, tuple[str, ...]]":
    """Return the request with the hosts of its presets added, and where in this machine's settings they are.

    `policy` says what the worker may write; those files are not read.

    Raises:
        UsageError: there is no such client, or its settings name no hosts.
    """
    if not wish.presets or wish.unconfined or wish.network:
        return wish, ()
    named = Policy(light.replace(policy.wish, hosts=HostWish(presets=tuple(wish.presets))), policy.root)
    found = find_presets(named, wish.cwd, wish.env).wish.hosts
    asked = wish.hosts or AllowedHosts([])
    allow = list(dict.fromkeys((*asked.allow, *found.allow)))
    hosts = structs.replace(asked, allow=allow)
    return structs.replace(wish, hosts=hosts, presets=[]), found.origins


def _read_asked(asked: AllowedHosts | None) -> HostWish:
    """Convert the requested hosts. Raises UsageError if a rule is invalid."""
    if asked is None:
        return NO_HOSTS
    parse_rules(asked.allow, asked.deny, own=asked.own)
    given = tuple((name.lower().removesuffix("."), at) for name, at in asked.addresses.items())
    parse_limits(asked.limits)
    rules = (tuple(asked.allow), tuple(asked.deny), asked.private, given)
    own, limits, ask_s = tuple(asked.own), tuple(asked.limits), (asked.ask_timeout_ms or 0) / 1000
    return HostWish(*rules, own=own, limits=limits, ask_s=ask_s)


def find_bases(
    agent: Agent, environment: Mapping[str, str], *, home: str | None, writable: Iterable[str] = ()
) -> list[str]:
    """Return the provider addresses in the user's variables, and in settings below this home.

    A file that the worker could write, below one of the `writable` places, is ignored.
    """
    if agent.reach is None:
        return []
    found = [environment[name] for name in agent.reach.variables if environment.get(name)]
    if home is not None:
        found += _read_bases(agent, home, environment, [os.path.realpath(path) for path in writable])
    return list(dict.fromkeys(found))[:MAX_BASES]


def _read_bases(
    agent: Agent, home: str, environment: Mapping[str, str], writable: list[str]
) -> Iterator[str]:
    reach = agent.reach
    for file in agent.host_files if reach is not None else ():
        path = file.find(home, environment)
        if file.way is not Way.COPIED or any(within(os.path.realpath(path), one) for one in writable):
            continue
        with contextlib.suppress(OSError, ValueError):
            text = read_regular(path, file.limit).decode("utf-8")
            if is_settings(path):
                document = read_settings(path, text)
                for dotted in reach.settings if reach is not None else ():
                    yield from (one for one in find_values(document, dotted) if isinstance(one, str))
            else:
                said = dict(_VARIABLE.findall(text))
                yield from (said[name] for name in (reach.variables if reach else ()) if name in said)


def may_need_names(wish: "WorkerSpec", agent: Agent) -> bool:
    """Return whether a worker of this request would reach hosts by name, if that is possible."""
    return (
        not wish.unconfined
        and not wish.network
        and bool(wish.hosts is not None or wish.presets or agent.reach is not None)
    )


def describe_network(record: "Record") -> list[str]:
    """Describe the network access of a worker, and its traffic once it has ended; for people."""
    if not record.confined:
        return []
    if record.network:
        return ["it has the whole network"]
    asked = ", ".join(record.hosts) or "nothing"
    lines = [f"of the network it reaches {asked}" + (", and nothing else" if record.hosts else "")]
    if record.denied_hosts:
        lines.append(f"denied among those: {', '.join(record.denied_hosts)}")
    if record.command_hosts is not None:
        lines.append(f"its commands reach {', '.join(record.command_hosts) or 'nothing'}")
    if record.hosts and not record.by_name and record.phase != "prepared":
        lines.append("its server does not say that it reaches those by name")
    for row in record.traffic.sent if record.traffic is not None else ():
        bytes_, seconds = (
            f"{row.bytes_sent} bytes sent, {row.bytes_received} received",
            row.last_ms - row.first_ms,
        )
        lines.append(
            f"{row.host}:{row.port}: {row.connections} connections, {bytes_}, {seconds / 1000:.1f} s"
        )
    return lines


async def find_unnamed(environment: "Environment") -> str | None:
    """Try whether hosts can be reached by name in this environment; return None, or why not."""
    try:
        process = await environment.start(["true"], cwd="/", policy=Policy.read_only().allow_host(PROBED))
        await process.wait()
    except HoldfastError as exc:
        return str(exc)
    if process.enforcement is None or not process.enforcement.network:
        return "the server there does not say that it does so"
    return None


async def try_host(hosts: HostWish, name: str, port: int) -> dict[str, str] | None:
    """Try a connection as the worker's broker makes it; return None if it succeeds, else step and error."""
    from holdfast.confine.names import make_dialer, read_rules  # imported late: it needs Linux

    rules, dialer = read_rules(hosts), make_dialer(hosts)
    try:
        host = parse_host(name)
        decision = decide(rules, host, port)
        if not decision.allowed:
            return {"step": "rule", "errno": "not allowed"}
        async with asyncio.timeout(CONNECT_S):
            (await dialer.dial(host, port, private=may_be_private(rules, host, decision))).close()
    except LookupFailed as exc:
        return {"step": "name", "errno": exc.strerror or "no address"}
    except TimeoutError:
        return {"step": "connect", "errno": "ETIMEDOUT"}
    except NotPublic as exc:
        return {"step": "connect", "errno": f"it is at {exc.address}, which is not public"}
    except (OSError, BadHost) as exc:
        code = exc.errno if isinstance(exc, OSError) else None
        return {"step": "connect", "errno": errno.errorcode.get(code or 0, str(exc))}
    return None
