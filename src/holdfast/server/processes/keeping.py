"""Keys that stay outside of one process: what the client sent, checked, and what the process gets instead."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.confine.keys import KeptKeys, keep_keys
from holdfast.confine.keysprocess import KeysProcess
from holdfast.confine.starts import Sandbox
from holdfast.egress.keys.wellknown import find_known_keys
from holdfast.errors import UsageError
from holdfast.sandbox.policy.secretwish import KEYS, SecretWish, parse_secret
from holdfast.sandbox.values import replace
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

    async def open(self, sandbox: Sandbox) -> KeysProcess:
        """Who serves the names of the process in this sandbox, and has the keys.

        Raises:
            UsageError: there is nothing that would keep the process from them.
            SandboxUnavailable, OSError: it does not come up.
        """
        if sandbox.bound is None or sandbox.confinement is None or not sandbox.bound.restricted:
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


def keep_given(given: Sequence[SecretKey], argv: Sequence[str], env: Mapping[str, str]) -> ProcessKeys:
    """The keys that a client sent for a process; a directory for its certificates is made.

    Raises:
        UsageError: one cannot be kept outside, or the command would have it all the same.
        OSError: the directory cannot be made.
    """
    names = [key.name for key in given]
    if len(set(names)) < len(names):
        raise UsageError("secrets: two keys for one variable")
    kept = keep_keys([(_parse(key), key.value) for key in given], env)
    if (held := next(filter(None, map(kept.find_in, argv)), None)) is not None:
        raise UsageError(f"the command itself has the key of ${held}")
    withheld = sorted(name for name, text in env.items() if name not in names and kept.find_in(text))
    kept.make_folder()
    return ProcessKeys(kept, tuple(withheld))


def keep_known(argv: Sequence[str], env: Mapping[str, str]) -> ProcessKeys | None:
    """The keys of a process that can be told by their variables, for its proxy; None: it has none.

    Raises:
        OSError: the directory for its certificates cannot be made.
    """
    found = find_known_keys(env)
    if not found:
        return None
    kept = replace(keep_keys(found, env), by_name=False)
    names = {key.name for key in kept.keys}
    if any(map(kept.find_in, argv)):
        return None  # it has them anyway
    withheld = sorted(name for name, text in env.items() if name not in names and kept.find_in(text))
    kept.make_folder()
    return ProcessKeys(kept, tuple(withheld))


def _parse(key: SecretKey) -> list[SecretWish]:
    if not key.hosts:
        raise UsageError(f"secrets: ${key.name} is for no host")
    return [parse_secret(f"{key.name}@{host}") for host in key.hosts]
