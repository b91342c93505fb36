"""Keys that stay outside of one process: the client's keys, checked, and the placeholders for the process."""

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
        """Return the environment of the process: placeholders, and nothing else of a key."""
        return {name: text for name, text in env.items() if name not in self.withheld} | self.kept.variables

    def declare(self, sandbox: Sandbox) -> Sandbox:
        """Return the same sandbox, whose report names the withheld variables."""
        if not self.withheld:
            return sandbox
        told = f"{KEYS} {', '.join(self.withheld)} would have held a key that stays outside, and is not set"
        held = sandbox.enforcement
        return replace(sandbox, enforcement=replace(held, network=(*held.network, told)))

    def are_for(self, sandbox: Sandbox) -> bool:
        """Whether the keys apply to the process in this sandbox: it has a key, or inspected hosts."""
        hosts = None if sandbox.bound is None or not sandbox.bound.by_name else sandbox.bound.hosts
        return bool(self.kept.keys) or (hosts is not None and any(map(is_inspected, hosts.allow)))

    async def open(self, sandbox: Sandbox) -> KeysProcess:
        """Start the service that resolves names for the process in this sandbox, and holds the keys.

        Raises:
            UsageError: nothing would keep the process from the keys.
            SandboxUnavailable, OSError: the service does not start.
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
    """Check the keys that a client sent for a process, and create a directory for its certificates.

    With `inspects` requests to some of its hosts are inspected, with or without a key.

    Raises:
        UsageError: a key cannot be kept outside, or the command line contains it.
        OSError: the directory cannot be created.
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
    """Find the keys of a process by their well-known variables, for its proxy; None: it has none.

    `described` are further keys, described by the client.

    Raises:
        UsageError: a description is invalid.
        OSError: the directory for its certificates cannot be created.
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
        # The command line contains these keys; that is no reason to give the process the others.
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
