"""Turns a request for a worker on another machine into what is needed to start it there.

Nothing of this machine's disk and none of its user's logins enters. Programs, home and PATH are those of the
other machine. Of the variables only those enter that configure the CLI, those that were named, and a
provider's key. Features of local workers that are impossible remotely are refused, or declared in the notes.
"""

import posixpath
from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.agents.catalog.agent import (
    MAX_ARGUMENT,
    Agent,
    launch,
    notes_on,
    provider_secrets,
    state_files,
)
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.keptkeys import decide_keys
from holdfast.agents.fleet.courier import GRANT, Courier
from holdfast.agents.fleet.there import FarMachine
from holdfast.agents.worker.acp import AcpRequest
from holdfast.agents.worker.launching import (
    TERM,
    PreparedStart,
    WorkerSpec,
    allow_key_hosts,
    find_why_not,
)
from holdfast.agents.worker.reach import WorkerReach, add_presets, decide_reach, find_bases
from holdfast.client.policy import Policy
from holdfast.errors import NotFound, UsageError
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.policy.amounts import parse
from holdfast.sandbox.policy.credentials import CREDENTIALS

# Names below the other machine's home that are hidden from the worker if they exist.
SECRET: Final = (*CREDENTIALS, ".holdfast", ".local/state/holdfast")
_PROMPT: Final = "<prompt>"
# Variables about paths on this machine, or its user.
_OURS: Final = frozenset(
    {"HOME", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
)
_REFUSED: Final[Mapping[str, str]] = {
    "trace": "strace is not run on another machine",
    "mcp": "an MCP server of this machine is not reached from another one",
    "state": "the state of another worker is not on that machine",
    "writable": "paths of this machine mean nothing there: its workspace and its state are writable",
    "readable": "paths of this machine mean nothing there",
    "sockets": "sockets of this machine are not on that one",
}


def check(wish: WorkerSpec) -> None:
    """Raise UsageError if the request asks for something that is impossible on another machine."""
    for name, why in _REFUSED.items():
        if getattr(wish, name):
            raise UsageError(f"not on another machine: {why}", remedy="leave it out, or leave --env out")
    if wish.prompt is not None and len(wish.prompt.encode()) > MAX_ARGUMENT:
        raise UsageError(
            f"the prompt is longer than {MAX_ARGUMENT} bytes", remedy="put it into a file to read"
        )


def prepare(
    wish: WorkerSpec,
    agent: Agent,
    machine: FarMachine,
    *,
    place: str,
    below: str,
    limited: bool,
    unnamed: str | None = None,
    unkept: str = "",
) -> PreparedStart:
    """Return what to start in `place` on the other machine; `limited`: that server enforces limits.

    `unnamed` is the reason if hosts cannot be reached by name there, `unkept` the reason if keys cannot stay
    outside. Provider addresses are known only from the variables that are sent.

    Raises:
        UsageError: the request is invalid.
        NotFound: its program is not installed there.
    """
    if not machine.program:
        raise NotFound(
            f"{agent.binary} is not on the PATH of {machine.name}",
            remedy=agent.package.install if agent.package else None,
        )
    state = f"{place}/state"
    cwd = posixpath.join(place, "work", below) if below else f"{place}/work"
    made = launch(
        agent,
        state=state if wish.relocate else None,
        prompt=wish.prompt,
        model=wish.model,
        unattended=wish.unattended,
        base=wish.base,
        acp=wish.acp,
        tty=wish.tty,
        headless_arguments=wish.arguments,
    )
    request = None
    if wish.acp:
        if agent.acp is None or wish.prompt is None or wish.tty:
            known = ", ".join(sorted(name for name, one in CATALOG.items() if one.acp is not None))
            raise UsageError(f"ACP needs a prompt, no terminal, and one of: {known}")
        request = AcpRequest(cwd, wish.prompt, made.model, wish.unattended)
    secrets = provider_secrets(agent, wish.key) if wish.key else {}
    tty = wish.tty or wish.prompt is None
    kept = {name: value for name, value in wish.env.items() if _travels(name, agent)}
    environment = kept | dict(made.environment) | secrets | {"TMPDIR": posixpath.join(state, "tmp")}
    if wish.handover is not None:
        if wish.handover.reports and not machine.holdfast:
            raise NotFound(
                f"holdfast is not on the PATH of {machine.name}, and its worker reports with it",
                remedy='install it there, or let an exit code speak: success = "exit" in its profile',
            )
        environment[wish.handover.variable] = f"{Courier(wish.handover, cwd).there}/{GRANT}"
    if tty:
        environment["TERM"] = TERM
    bases = [] if wish.base is not None else find_bases(agent, environment, home=None)
    wish, presets = add_presets(wish, Policy.workspace_write(wish.cwd))
    wish = allow_key_hosts(wish)
    reach = decide_reach(wish, agent, bases, unnamed=unnamed)
    keys = decide_keys(
        agent,
        kept,
        given=wish.keys,
        provider=secrets,
        base=wish.base,
        bases=bases,
        why_not=find_why_not(wish, reach, unkept),
    )
    argv = (machine.program, *made.arguments)
    limits, notes = _limit(wish, limited=limited)
    notes += notes_on(
        agent, version=None, unattended=wish.unattended, confined=not wish.unconfined, own_sandbox=False
    )
    return PreparedStart(
        agent=agent,
        argv=argv,
        shown=tuple(_PROMPT if word == wish.prompt else word for word in argv),
        inherited={},
        environment=keys.hide(environment),
        policy=_policy(wish, reach, cwd, state, machine.there).keep_keys(keys.kept),
        reach=reach,
        tty=tty,
        state=state,
        base=wish.base,
        stdin=None if made.stdin is None else made.stdin.encode(),
        files={
            f"{state}/{path}": text
            for path, text in state_files(agent, base=wish.base, model=wish.model or "", mcp=()).items()
        },
        secrets=(*secrets.values(), *keys.values),
        entering=keys.entering,
        notes=tuple(notes),
        limits=limits,
        presets=presets,
        request=request,
    )


def _travels(name: str, agent: Agent) -> bool:
    """Return whether a variable of this machine is meaningful on another one."""
    return name not in _OURS and name not in agent.relocation


def _policy(wish: WorkerSpec, reach: WorkerReach, cwd: str, state: str, hidden: Iterable[str]) -> Policy:
    if wish.unconfined:
        return Policy.full_access()
    policy = reach.apply(Policy.workspace_write(cwd))
    for path in hidden:
        policy = policy.deny(path)
    return policy.allow_write(state)


def _limit(wish: WorkerSpec, *, limited: bool) -> tuple[Limits | None, list[str]]:
    """Return the requested limits. There are no default ones, because that machine's size is unknown."""
    if "timeout" in wish.limits:
        raise UsageError("the time of a worker is not among its limits", remedy="give it a wall limit")
    limits = parse(wish.limits)
    if limits.any:
        return limits, []
    kept = "there is no limit on what it uses" if limited else "its server keeps no limits"
    return None, [f"on another machine: {kept}"]


def describe_unseen(*, watched: bool, why: str | None) -> list[str]:
    """Describe what cannot be observed of a worker on another machine."""
    found = [
        "on another machine: its processes and sockets are not watched there; only its own output shows that"
        " it waits for input or for a provider",
        "on another machine: its state and its provider were not tried before it was started",
    ]
    if not watched:
        found.append(f"on another machine: refused calls are not seen ({why or 'as asked'})")
    return found
