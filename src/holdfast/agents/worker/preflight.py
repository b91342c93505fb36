"""Before the first prompt: can the CLI keep its state and reach its provider, in the sandbox it will run in?

A small program is run there, with the worker's own environment and policy. Where a state path does not exist
yet, the nearest directory above it that does is tried. Nothing is left behind.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from holdfast.agents.catalog.agent import RETRIES, Agent, StatePath, relocation_of, state_paths
from holdfast.agents.evidence.evidence import Denied, Failure, Trouble
from holdfast.agents.evidence.holdups import DENIALS
from holdfast.client.environment import Environment
from holdfast.client.policy import Policy
from holdfast.errors import HoldfastError
from holdfast.sandbox.plan import prerequisites
from holdfast.sandbox.policy.policy import Access, BoundPolicy, Network, Where, bind

LIMIT_S: Final = 10.0  # for all of it; a name server that does not answer takes the most
_CONNECT_S: Final = 3.0

# Runs inside, with nothing but the standard library.
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
    """Something that will go wrong, what comes of it, and what would help."""

    what: str
    errno: str
    consequence: str
    remedy: str
    claim: Denied | Trouble | None = None  # what a classifier can use of it

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
    """What will go wrong. That nothing could be tried is trouble as well."""
    home = variables.get("HOME", "/")
    kept = _distinct(state_paths(agent, home=home, work=cwd, environment=variables))
    provider = _provider(base)
    if not kept and provider is None:
        return []
    bound = bind(policy.wish, Where(cwd, (cwd,), variables.get("TMPDIR")))
    if (hidden := _hidden(bound)) is not None:
        return [hidden]
    asked = {"paths": [path for path, _ in kept], "provider": provider, "connect_s": _CONNECT_S}
    try:
        result = await environment.run(
            [sys.executable, "-I", "-S", "-c", _PROBE, json.dumps(asked)],
            cwd=cwd,
            env=dict(variables),
            policy=policy,
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
    if provider is not None and (told := answer["provider"]) is not None:
        found.append(_of_provider(provider, told, bound))
    return found


def _hidden(bound: BoundPolicy) -> PreflightProblem | None:
    """What of our own interpreter cannot be read there: it could not say so itself."""
    for path in map(os.path.realpath, prerequisites.of_ourselves()):
        decision = bound.explain(path, Access.READ)
        if not decision.allowed:
            what = f"nothing could be tried in the sandbox, since {path} cannot be read there"
            return PreflightProblem(
                what, decision.why, "nobody knows what it will meet", decision.grant or ""
            )
    return None


def _distinct(kept: list[tuple[str, StatePath]]) -> list[tuple[str, StatePath]]:
    """One path for each directory that would be tried; what comes first matters most."""
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
    remedy = f"set {moved}" if moved else decision.grant or f"--allow-write {told['at']}"
    what = f"{kept.role} ({path}): cannot {told['step']} in {told['at']}"
    denied = Denied(
        access="create" if told["step"] == "create" else "write",
        path=path,
        errno=told["errno"],
        syscall="",
        predicted=True,
        rule=decision.why,
        grant=decision.grant or "",
        relocation=moved,
        role=kept.role,
        count=DENIALS if kept.without == RETRIES else 1,  # it will try again and again, without a word
    )
    return PreflightProblem(what, told["errno"], kept.without, remedy, None if decision.allowed else denied)


def _of_provider(provider: tuple[str, int], told: Mapping[str, str], bound: BoundPolicy) -> PreflightProblem:
    host, port = provider
    name = told["step"] == "name"
    what = (
        f"its provider's name {host} is not found"
        if name
        else f"its provider at {host}:{port} is not reached"
    )
    consequence = "it will retry, some CLIs for minutes and without a word"
    if bound.network is Network.ON:
        remedy = "is the address wrong, or this machine's network?"
        return PreflightProblem(what, told["errno"], consequence, remedy, Trouble(Failure.NETWORK))
    grant = "--network on"
    denied = Denied("connect", f"{host}:{port}", told["errno"], "", True, "the network is off", grant)
    return PreflightProblem(what, told["errno"], consequence, grant, denied)


def _provider(base: str | None) -> tuple[str, int] | None:
    if base is None:
        return None
    parts = urlsplit(base)
    if parts.hostname is None:
        return None
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
