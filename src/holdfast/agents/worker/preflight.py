"""Checks before a worker's first prompt whether it can keep its state and reach its provider."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from holdfast.agents.catalog.agent import Agent, StatePath, relocation_of, state_paths
from holdfast.agents.evidence.evidence import Failure, Foreseen, Trouble
from holdfast.agents.worker.reach import CONNECT_S, try_host
from holdfast.client.environment import Environment
from holdfast.client.policy import Policy
from holdfast.errors import HoldfastError
from holdfast.sandbox.plan import prerequisites
from holdfast.sandbox.policy.paths import grantable
from holdfast.sandbox.policy.policy import Access, BoundPolicy, Network, Where, bind

LIMIT_S: Final = 10.0  # for all checks; a name server that does not answer takes longest

# Runs inside the sandbox, with the standard library only.
_PROBE: Final = r"""
import errno, fcntl, json, mmap, os, socket, sys, tempfile

asked = json.loads(sys.argv[1])


def tried(path):
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    step, name = "create", None
    try:
        fd, name = tempfile.mkstemp(dir=path, prefix=".holdfast-")
        step = "write"
        os.write(fd, b"x" * 4096)
        os.fsync(fd)
        step = "lock"
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        step = "map"
        mmap.mmap(fd, 4096).close()
        os.close(fd)
        step = "rename"
        os.rename(name, name + ".moved")
        name += ".moved"
        step = "remove"
        os.unlink(name)
    except OSError as exc:
        if name is not None:
            try:
                os.unlink(name)
            except OSError:
                pass
        return {"step": step, "errno": errno.errorcode.get(exc.errno, str(exc.errno)), "at": path}
    return None


def reached(host, port):
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as exc:
        return {"step": "name", "errno": exc.args[1] if len(exc.args) > 1 else str(exc)}
    failure = None
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as sock:
                sock.settimeout(asked["connect_s"])
                sock.connect(address)
                return None
        except TimeoutError:
            failure = {"step": "connect", "errno": "ETIMEDOUT"}
        except OSError as exc:
            failure = {"step": "connect", "errno": errno.errorcode.get(exc.errno, str(exc.errno))}
    return failure


answer = {"paths": [tried(path) for path in asked["paths"]]}
if asked["provider"]:
    answer["provider"] = reached(*asked["provider"])
print(json.dumps(answer))
"""


@dataclass(frozen=True, slots=True)
class PreflightProblem:
    """A problem that the worker will have, its consequence, and a remedy."""

    what: str
    errno: str
    consequence: str
    remedy: str
    claim: Foreseen | Trouble | None = None  # the evidence for the classifier

    def words(self) -> str:
        return f"{self.what}: {self.errno}; {self.consequence}" + (f"; {self.remedy}" if self.remedy else "")


async def preflight(
    environment: Environment,
    agent: Agent,
    *,
    cwd: str,
    variables: Mapping[str, str],
    policy: Policy,
    state: str,
    base: str | None,
) -> list[PreflightProblem]:
    """Return the problems that the CLI will have with keeping its state and reaching its provider.

    A small program runs in the same sandbox, with the worker's environment and policy. If a state path does
    not exist yet, the nearest existing directory above it is tried. Nothing is left behind. If nothing could
    be tried, that is a problem as well.
    """
    home = variables.get("HOME", "/")
    kept = _distinct(state_paths(agent, home=home, work=cwd, environment=variables))
    bound = bind(policy.wish, Where(cwd, (cwd,), variables.get("TMPDIR")))
    provider = _provider(base)
    if not kept and provider is None:
        return []
    if (hidden := _find_hidden(bound)) is not None:
        return [hidden]
    # With hosts by name, our broker answers every connection inside, so the provider is dialled from here.
    inside = None if bound.by_name else provider
    asked = {"paths": [path for path, _ in kept], "provider": inside, "connect_s": CONNECT_S}
    try:
        result = await environment.run(
            [sys.executable, "-I", "-S", "-c", _PROBE, json.dumps(asked)],
            cwd=cwd,
            env=dict(variables),
            policy=policy.without_keys(),
            timeout_s=LIMIT_S,
        )
        answer = json.loads(result.stdout)
    except (HoldfastError, TimeoutError, ValueError) as exc:
        return [
            PreflightProblem(
                "nothing could be tried in the sandbox", str(exc) or "no answer", "nobody knows", ""
            )
        ]
    found = [
        _of_path(agent, path, one, told, state, bound)
        for (path, one), told in zip(kept, answer["paths"], strict=True)
        if told is not None
    ]
    if provider is not None:
        told = answer["provider"] if inside is not None else await try_host(bound.hosts, *provider)
        if told is not None:
            found.append(_of_provider(provider, told, bound))
    return found


def _find_hidden(bound: BoundPolicy) -> PreflightProblem | None:
    """Return a problem if the sandbox hides our own interpreter, which then could not report that itself."""
    for path in map(os.path.realpath, prerequisites.of_ourselves()):
        decision = bound.explain(path, Access.READ)
        if not decision.allowed:
            what = f"nothing could be tried in the sandbox, since {path} cannot be read there"
            return PreflightProblem(
                what, decision.why, "what it will meet is not known", decision.grant or ""
            )
    return None


def _distinct(kept: list[tuple[str, StatePath]]) -> list[tuple[str, StatePath]]:
    """Return one path for each directory that would be tried; the first ones matter most."""
    found: dict[str, tuple[str, StatePath]] = {}
    for path, one in kept:
        plain = path.split("*", 1)[0].rstrip("/")
        found.setdefault(os.path.dirname(plain), (plain, one))
    return list(found.values())


def _of_path(
    agent: Agent, path: str, kept: StatePath, told: Mapping[str, str], state: str, bound: BoundPolicy
) -> PreflightProblem:
    moved = relocation_of(agent, kept, state=state)
    decision = bound.explain(told["at"], Access.WRITE)
    home = os.path.expanduser("~")
    needed = grantable(path, os.path.lexists, home=home) if told["step"] == "create" else told["at"]
    grant = bound.explain(needed, Access.WRITE).grant
    remedy = f"set {moved}" if moved else grant or f"--allow-write {told['at']}"
    what = f"{kept.role} ({path}): cannot {told['step']} in {told['at']}"
    foreseen = Foreseen(
        access="create" if told["step"] == "create" else "write",
        path=path,
        errno=told["errno"],
        rule=decision.why,
        grant=grant or "",
        relocation=moved,
        role=kept.role,
    )
    return PreflightProblem(what, told["errno"], kept.without, remedy, None if decision.allowed else foreseen)


def _of_provider(provider: tuple[str, int], told: Mapping[str, str], bound: BoundPolicy) -> PreflightProblem:
    host, port = provider
    name = told["step"] == "name"
    what = (
        f"its provider's name {host} is not found"
        if name
        else f"its provider at {host}:{port} is not reached"
    )
    consequence = "it will retry, some CLIs for minutes and without a word"
    if bound.network is Network.ON or (bound.by_name and told["step"] != "rule"):
        remedy = "is the address wrong, or this machine's network?"
        return PreflightProblem(what, told["errno"], consequence, remedy, Trouble(Failure.NETWORK))
    grant = f"--allow-host {host}:{port}" if bound.by_name else "--network on"
    rule = "no rule allows it" if bound.by_name else "the network is off"
    foreseen = Foreseen("connect", f"{host}:{port}", told["errno"], rule, grant)
    return PreflightProblem(what, told["errno"], consequence, grant, foreseen)


def _provider(base: str | None) -> tuple[str, int] | None:
    if base is None:
        return None
    parts = urlsplit(base)
    if parts.hostname is None:
        return None
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
