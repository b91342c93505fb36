"""Decides which keys of a worker stay outside its sandbox and which enter. Pure module.

A key that the CLI takes from a variable stays outside if its hosts are known: from the CLI's record, or from
the provider that the user configured. The worker gets a placeholder, and the key is inserted into requests to
those hosts on their way. A login is a file that the CLI reads and writes, so it enters.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.agents.catalog.agent import Agent, provider_variables
from holdfast.agents.catalog.providerhosts import find_target
from holdfast.egress.keys.placeholders import BadKey, make_placeholder
from holdfast.errors import UsageError
from holdfast.sandbox.policy.secretwish import parse_secret
from holdfast.wire.processes import SecretKey

KEPT: Final = "kept-outside"  # stands for the placeholder in our own copies of an environment


@dataclass(frozen=True, slots=True)
class WorkerKeys:
    """The keys that stay outside, and descriptions of what enters."""

    kept: tuple[SecretKey, ...] = ()
    entering: tuple[str, ...] = ()
    _names: frozenset[str] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", frozenset(key.name for key in self.kept))

    def hide(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment with the keys masked; the exec server inserts the placeholders."""
        return {name: KEPT if name in self._names else value for name, value in environment.items()}

    def remove(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment without the variables of the keys, for commands that get no key."""
        return {name: value for name, value in environment.items() if name not in self._names}

    @property
    def values(self) -> tuple[str, ...]:
        """The secrets, which must never be shown."""
        return tuple(key.value for key in self.kept)


def decide_keys(
    agent: Agent,
    environment: Mapping[str, str],
    *,
    given: Sequence[SecretKey] = (),
    provider: Mapping[str, str] | None = None,
    base: str | None = None,
    bases: Iterable[str] = (),
    logins: Iterable[str] = (),
    why_not: str = "",
) -> WorkerKeys:
    """Decide about the keys of a worker with this environment.

    `given` are the keys that the user asked to keep outside. `provider` are the variables with the key of
    another provider, which is at `base`. `bases` are the provider addresses in the user's settings. `logins`
    are files that enter. `why_not` is the reason if no key can stay outside.

    Raises:
        UsageError: the user asked to keep keys outside, and none can stay outside.
    """
    if given and why_not:
        raise UsageError(f"keys cannot stay outside of this worker: {why_not}")
    kept = {key.name: key for key in given}
    entering = []
    told = bases if base is None else (base,)
    own = tuple(target for target in map(find_target, told) if target is not None)
    other = provider_variables(agent) if base is not None else ()
    candidates = dict.fromkeys((*agent.key_hosts, *other, *(provider or {})))
    for name in candidates:
        value = (provider or {}).get(name) or environment.get(name)
        if not value or name in kept:
            continue
        known = agent.key_hosts.get(name, ()) if base is None else ()
        hosts = tuple(dict.fromkeys((*known, *own)))
        why = why_not or find_obstacle(name, value, hosts)
        if why:
            entering.append(f"the key in ${name} enters its sandbox: {why}")
        else:
            kept[name] = SecretKey(name, value, list(hosts))
    entering += [f"its login in {path} enters its sandbox, as it is" for path in logins]
    return WorkerKeys(tuple(kept.values()), tuple(entering))


def find_obstacle(name: str, value: str, hosts: Sequence[str]) -> str:
    """Return why this key cannot stay outside; empty if it can."""
    if not hosts:
        return "its host is not known"
    try:
        make_placeholder(value, lambda letters: letters[0])
        for host in hosts:
            parse_secret(f"{name}@{host}")
    except BadKey as exc:
        return str(exc)
    except UsageError:
        return "it is for an address, and keys are put into requests to names"
    return ""
