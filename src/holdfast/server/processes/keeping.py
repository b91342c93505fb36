"""Keys that stay outside of one process: what the client sent, checked, and what the process gets instead."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from holdfast.confine.keys import KeptKeys, keep_keys
from holdfast.confine.keysprocess import KeysProcess
from holdfast.confine.starts import Sandbox
from holdfast.egress.keys.providers import Provider, check_providers, find_described_keys
from holdfast.egress.keys.wellknown import find_known_keys
from holdfast.errors import UsageError
from holdfast.light import replace
from holdfast.sandbox.policy.hostwish import is_inspected
from holdfast.sandbox.policy.secretwish import KEYS, SecretWish, parse_secret
from holdfast.wire.network import CredentialProvider
from holdfast.wire.processes import SecretKey


@dataclass(frozen=True, slots=True)
class ProcessKeys:
    """The keys of a process that is about to start, with the directory of its certificates."""

    kept: KeptKeys
    withheld: tuple[str, ...]  # other variables that hold one of them

    def hide(self, env: Mapping[str, str]) -> dict[str, str]:
        """The environment that the process gets: placeholders, and nothing else of a key."""
        return {name: text for name, text in env.items() if name not in self.withheld} | self.kept.variables

    def declare(self, sandbox: Sandbox) -> Sandbox:
        """The same sandbox, which says what was withheld."""
        if not self.withheld:
            return sandbox
        told = f"{KEYS} {', '.join(self.withheld)} would have held a key that stays outside, and is not set"
        held = sandbox.enforcement
        return replace(sandbox, enforcement=replace(held, network=(*held.network, told)))

    def are_for(self, sandbox: Sandbox) -> bool:
        """Whether they mean anything to the process in this sandbox: it has a key, or hosts that are read."""
        hosts = None if sandbox.bound is None or not sandbox.bound.by_name else sandbox.bound.hosts
        return bool(self.kept.keys) or (hosts is not None and any(map(is_inspected, hosts.allow)))

    async def open(self, sandbox: Sandbox) -> KeysProcess:
        """Who serves the names of the process in this sandbox, and has the keys.

        Raises:
            UsageError: there is nothing that would keep the process from them.
            SandboxUnavailable, OSError: it does not come up.
        """
        restricted = sandbox.bound is not None and sandbox.bound.restricted
        if sandbox.confinement is None or (self.kept.keys and not restricted):
            raise UsageError("keys stay outside of a process whose files are restricted by a sandbox")
        hosts = sandbox.confinement.plan.hosts
        if hosts is None:
            raise UsageError("keys stay outside of a process that reaches hosts by name")
        process = KeysProcess(hosts, self.kept)
        try:
            await process.wait_ready()
        except BaseException:
            await asyncio.shield(process.aclose())
            raise
        return process


def keep_given(
    given: Sequence[SecretKey], argv: Sequence[str], env: Mapping[str, str], *, inspects: bool = False
) -> ProcessKeys:
    """The keys that a client sent for a process; a directory for its certificates is made.

    With `inspects` requests to some of its hosts are read, with a key or without.

    Raises:
        UsageError: one cannot be kept outside, or the command would have it all the same.
        OSError: the directory cannot be made.
    """
    names = [key.name for key in given]
    if len(set(names)) < len(names):
        raise UsageError("secrets: two keys for one variable")
    kept = replace(keep_keys([(_parse(key), key.value) for key in given], env), inspects=inspects)
    if (held := next(filter(None, map(kept.find_in, argv)), None)) is not None:
        raise UsageError(f"the command itself has the key of ${held}")
    withheld = sorted(name for name, text in env.items() if name not in names and kept.find_in(text))
    kept.make_folder()
    return ProcessKeys(kept, tuple(withheld))


def keep_known(
    argv: Sequence[str], env: Mapping[str, str], described: Mapping[str, CredentialProvider] | None = None
) -> ProcessKeys | None:
    """The keys of a process that can be told by their variables, for its proxy; None: it has none.

    `described` are more of them, as the client says.

    Raises:
        UsageError: a description makes no sense.
        OSError: the directory for its certificates cannot be made.
    """
    providers = {name: Provider(**structs.asdict(one)) for name, one in (described or {}).items()}
    check_providers(providers)
    more = {wishes[0].name: (wishes, key, use) for wishes, key, use in find_described_keys(providers, env)}
    known = [one for one in find_known_keys(env) if one[0][0].name not in more]
    found = [*known, *((wishes, key) for wishes, key, _ in more.values())]
    if not found:
        return None
    kept = replace(keep_keys(found, env), by_name=False)
    uses = {name: use for name, (_, _, use) in more.items()}
    kept = replace(kept, keys=tuple(dataclasses.replace(key, use=uses.get(key.name)) for key in kept.keys))
    if held := {name for word in argv for name in kept.find_all(word)}:
        # It has these anyway, which is no reason to give it the others.
        kept = replace(kept, keys=tuple(key for key in kept.keys if key.name not in held))
    if not kept.keys:
        return None
    names = {key.name for key in kept.keys}
    withheld = sorted(name for name, text in env.items() if name not in names and kept.find_in(text))
    kept.make_folder()
    return ProcessKeys(kept, tuple(withheld))


def _parse(key: SecretKey) -> list[SecretWish]:
    if not key.hosts:
        raise UsageError(f"secrets: ${key.name} is for no host")
    return [parse_secret(f"{key.name}@{host}") for host in key.hosts]
