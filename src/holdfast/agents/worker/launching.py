"""A wish for a worker as what is needed to start it: command, environment, policy, files."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import msgspec

from holdfast.agents.catalog.agent import (
    MAX_ARGUMENT,
    Agent,
    StatePath,
    launch,
    notes_on,
    provider_secrets,
    relocation_of,
    state_files,
    state_paths,
)
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.catalog.hostfiles import Way, read_settings
from holdfast.agents.catalog.known import find_agent
from holdfast.agents.evidence.evidence import Failure, Foreseen, Trouble
from holdfast.agents.worker.acp import AcpRequest
from holdfast.agents.worker.handover import Handover
from holdfast.agents.worker.ownfiles import FoundLogin, OwnFiles, read_own_files, read_regular
from holdfast.agents.worker.ownsandbox import OwnSandboxPlaces
from holdfast.client.environment import Environment
from holdfast.client.policy import Policy
from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.local.homes import find_homes
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.plan import prerequisites
from holdfast.sandbox.plan.planner import Sight, settle
from holdfast.sandbox.plan.prerequisites import Uncovered, uncover
from holdfast.sandbox.plan.resolve import look, make_granted, trace
from holdfast.sandbox.policy.amounts import parse
from holdfast.sandbox.policy.credentials import is_credential
from holdfast.sandbox.policy.paths import grantable
from holdfast.sandbox.policy.policy import Access, BoundPolicy, Network, Where, bind, workspace_write
from holdfast.wire.processes import CommandExecutor

# What a confined worker may use unless its wish says otherwise ("none" lifts one), so that one that forks or
# allocates without end takes neither the host nor our daemons along.
_MEMORY_SHARE: Final = 0.75  # of the machine: what is left carries the daemons, and a shell to look with
DEFAULT_LIMITS: Final[Mapping[str, str | int | float]] = {
    "memory": int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _MEMORY_SHARE),
    "pids": 2048,  # a parallel build has some hundreds; the kernel has 32768 for everybody
}
TERM: Final = "xterm-256color"  # what our screen understands
_SHARED_TMP: Final = "/tmp"  # noqa: S108 - to keep it away
_PROMPT: Final = "<prompt>"  # what a record has in its place
LIMIT_S: Final = 10.0  # for all of it; a name server that does not answer takes the most
_CONNECT_S: Final = 3.0
_PACKAGE_DEPTH: Final = 6  # folders between a program and its package.json
_MAX_PACKAGE: Final = 256 << 10  # bytes of one

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


class WorkerSpec(msgspec.Struct, kw_only=True):
    """What a caller asks for. `env` is all that the worker gets of its caller's environment."""

    agent: str
    cwd: str
    env: dict[str, str]
    host: str | None = None  # the environment that it runs on; without one this machine
    handover: Handover | None = None
    alone: bool = False  # likewise: its directory is carried by itself, whatever repository it lies in
    id: str | None = None
    prompt: str | None = None  # without one: the interactive program
    model: str | None = None
    tty: bool = False
    acp: bool = False  # led over the Agent Client Protocol: its questions are structured
    unattended: bool = True
    network: bool = True
    writable: list[str] = []
    readable: list[str] = []  # besides; for what lies below something unreadable
    sockets: list[str] = []  # unix sockets of the host that it may connect to
    needed: list[str] = []  # what it must be able to run: as `readable`, but only where something hides it
    unreadable: list[str] = []
    secret: list[str] = []  # unreadable as well, and nothing below is shown, whatever is to be run from there
    private_tmp: bool = False  # /tmp, which everybody shares, is out of reach; TMPDIR is the worker's own
    unconfined: bool = False
    own_sandbox: bool = True  # where the CLI has one: it keeps that, and each command is confined by itself
    relocate: bool = True  # the CLI's state goes into a directory of the worker's own
    state: str | None = None  # or into this one, to go on with a session of another worker
    arguments: list[str] | None = None  # of a headless run, instead of the record's: templates as there
    base: str | None = None  # another provider's address, with its key
    key: str | None = None
    after: str | None = None  # the worker in whose place it is started
    mcp: list[str] | None = None  # the command of an MCP server on stdio, which the CLI starts
    wall_limit_s: float | None = None
    idle_limit_s: float | None = None
    limits: dict[str, str | int | float] = {}  # on what it uses, as people write them, over the default ones
    rows: int = 40
    cols: int = 120
    watch: bool = True
    trace: bool = False  # explain mode: every refused call, exact, and slow


@dataclass(frozen=True, slots=True)
class PreparedStart:
    """All of a start. `shown` is the command as it may be written down."""

    agent: Agent = field(repr=False)
    argv: tuple[str, ...]
    shown: tuple[str, ...]
    inherited: dict[str, str] = field(repr=False)  # what it would have had without us
    environment: dict[str, str] = field(repr=False)
    policy: Policy
    tty: bool
    state: str
    base: str | None
    stdin: bytes | None = field(repr=False)
    files: dict[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    links: dict[str, str] = field(default_factory=dict)  # below the state → what of the user's is shown
    login: FoundLogin | None = None  # that is placed when it starts, and kept up to date
    placed: tuple[str, ...] = ()  # places of its user's files below the state
    notes: tuple[str, ...] = ()  # what about it somebody should know
    given: tuple[str, ...] = ()  # what of its user's enters, in words
    limits: Limits | None = None
    commands: CommandExecutor | None = field(default=None, repr=False)  # who runs what the CLI wants run
    request: AcpRequest | None = field(default=None, repr=False)


def prepare(
    wish: WorkerSpec,
    *,
    state: str,
    known: Mapping[str, Agent] = CATALOG,
    own: OwnSandboxPlaces | None = None,
) -> PreparedStart:
    """What to start; `state` is a directory of the worker's own, unless the wish names another.

    `known` are the agents of the home.
    With `own` places the CLI keeps a sandbox of its own, and reaches its provider whatever its commands may.

    Raises:
        UsageError: no such agent, a wish that cannot be meant, or one that hides what is to be run.
        NotFound: its program is not installed.
    """
    state = wish.state or state
    agent = find_agent(known, wish.agent)
    if not os.path.isabs(wish.cwd):
        raise UsageError(f"the working directory `{wish.cwd}` is not an absolute path")
    if wish.prompt is not None and len(wish.prompt.encode()) > MAX_ARGUMENT:
        raise UsageError(
            f"the prompt is longer than {MAX_ARGUMENT} bytes", remedy="put it into a file to read"
        )
    server = _server(agent, wish)
    words = None if own is None else own.words(wish)
    made = launch(
        agent,
        state=state,
        prompt=wish.prompt,
        model=wish.model,
        unattended=wish.unattended,
        base=wish.base,
        mcp=server,
        acp=wish.acp,
        tty=wish.tty,
        headless_arguments=wish.arguments,
        own_sandbox=words,
    )
    request = None
    if wish.acp:
        request = AcpRequest(wish.cwd, _acp_prompt(agent, wish), made.model, wish.unattended)
    secrets = provider_secrets(agent, wish.key) if wish.key else {}
    moved = () if wish.relocate else agent.relocation
    chosen = {name: value for name, value in made.environment.items() if name not in moved}
    files = _find_own(agent, wish)
    if files.login is not None and files.login.file.renewal is not None:
        unset = files.login.file.renewal.unset
        chosen = {name: value for name, value in chosen.items() if name not in unset}
    environment = wish.env | chosen | secrets
    tty = wish.tty or wish.prompt is None
    if tty:
        environment["TERM"] = TERM
    environment["TMPDIR"] = os.path.join(state, "tmp")
    placed = (*files.texts, *files.links)
    files.add_texts(
        _leftovers(agent, wish, state)
        | state_files(agent, base=wish.base, model=wish.model or "", mcp=server, own_sandbox=words)
    )
    program = _binary(agent, wish)
    _make_granted(wish)
    wish = msgspec.structs.replace(wish, secret=_hide_logins(agent, wish))
    policy = _policy(wish, state)
    if own is not None:
        policy = own.policy(policy)
    if not wish.unconfined:
        policy = _show(policy, wish, files.links.values())
        program, policy = _with_programs(wish, program, policy)
    argv = (program, *made.arguments)
    return PreparedStart(
        agent=agent,
        argv=argv,
        shown=tuple(_PROMPT if word == wish.prompt else word for word in argv),
        inherited=wish.env,
        environment=environment,
        policy=policy,
        tty=tty,
        state=state,
        base=wish.base,
        stdin=None if made.stdin is None else made.stdin.encode(),
        files={f"{state}/{path}": text for path, text in files.texts.items()},
        links={f"{state}/{path}": target for path, target in files.links.items()},
        login=files.login,
        placed=placed,
        given=tuple(files.words),
        notes=tuple(
            notes_on(
                agent,
                version=find_version(agent, argv[0]),
                unattended=wish.unattended and own is None,
                confined=not wish.unconfined,
                own_sandbox=own is not None,
            )
        ),
        secrets=(*secrets.values(), *files.secrets),
        limits=limits_of(wish),
        commands=None if own is None else own.executor(agent, wish, policy, state),
        request=request,
    )


def _leftovers(agent: Agent, wish: WorkerSpec, state: str) -> dict[str, str]:
    """What another worker, in whose state this one goes on, was told about its executor: that is gone."""
    told = () if agent.own_sandbox is None or not wish.relocate else agent.own_sandbox.files
    return {path: "" for path in told if os.path.lexists(os.path.join(state, path))}


def _find_own(agent: Agent, wish: WorkerSpec) -> OwnFiles:
    """What of its user's it is given. One that is sent to another provider begins with nothing."""
    if not wish.relocate or wish.base is not None:
        return OwnFiles()
    return read_own_files(agent, home=wish.env.get("HOME", "/"), environment=wish.env)


def _hide_logins(agent: Agent, wish: WorkerSpec) -> list[str]:
    """What is secret to it: its own login too, but where it uses it there. A relocated one has a copy."""
    home = wish.env.get("HOME", "/")
    places = {file.find(home, wish.env): file for file in agent.host_files}
    if not wish.relocate:
        return [path for path in wish.secret if path not in places or os.path.islink(path)]
    granted = (*wish.readable, *wish.writable)
    hidden = (
        place
        for place, file in places.items()
        if (file.renewal is not None or (file.way is not Way.SHOWN and is_credential(place)))
        and place not in granted
    )
    return list(dict.fromkeys((*wish.secret, *hidden)))


def _show(policy: Policy, wish: WorkerSpec, paths: Iterable[str]) -> Policy:
    """The policy with these in sight; not where a link leads: somebody else may have put it there."""
    bound = bind(policy.wish, Where(wish.cwd, (wish.cwd,)))
    for path in paths:
        linked = os.path.islink(path) or os.path.islink(os.path.dirname(path))
        if not linked and not bound.explain(path, Access.READ).allowed:
            policy = policy.allow_read(path)
    return policy


def limits_of(wish: WorkerSpec) -> Limits | None:
    """What it may use.

    Raises:
        UsageError: one cannot be meant.
    """
    if "timeout" in wish.limits:
        raise UsageError("the time of a worker is not among its limits", remedy="give it a wall limit")
    limits = parse({**({} if wish.unconfined else DEFAULT_LIMITS), **wish.limits})
    return limits if limits.any else None


def _acp_prompt(agent: Agent, wish: WorkerSpec) -> str:
    if agent.acp is None:
        known = ", ".join(sorted(name for name, one in CATALOG.items() if one.acp is not None))
        raise UsageError(f"{agent.name} does not speak ACP", remedy=f"one of: {known}; or leave --acp out")
    if wish.tty or wish.prompt is None:
        raise UsageError("a worker that is led over ACP has a prompt, and no terminal")
    return wish.prompt


def _server(agent: Agent, wish: WorkerSpec) -> list[str]:
    if not wish.mcp:
        return []
    if agent.mcp is None:
        known = ", ".join(sorted(name for name, one in CATALOG.items() if one.mcp is not None))
        raise UsageError(
            f"nobody knows how to give {agent.name} an MCP server", remedy=f"one of: {known}; or leave it out"
        )
    if agent.mcp.in_state and not wish.relocate:
        raise UsageError(
            f"{agent.name} is given an MCP server in its state, which is not to be relocated",
            remedy="let it be relocated, or put the server into its settings",
        )
    return wish.mcp


def _binary(agent: Agent, wish: WorkerSpec) -> str:
    found = shutil.which(agent.binary, path=wish.env.get("PATH", os.defpath))
    if found is None:
        remedy = agent.package.install if agent.package else None
        raise NotFound(f"{agent.binary} is not installed, or not on PATH", remedy=remedy)
    return found


def find_version(agent: Agent, program: str) -> str | None:
    """Of a program that came as an npm package, what the package says; it is not run for that."""
    if agent.package is None:
        return None
    place = os.path.realpath(program)
    for _ in range(_PACKAGE_DEPTH):
        place = os.path.dirname(place)
        with contextlib.suppress(OSError, ValueError):
            text = read_regular(os.path.join(place, "package.json"), _MAX_PACKAGE).decode("utf-8")
            said = read_settings("package.json", text)
            name, version = str(said.get("name")), said.get("version")
            if isinstance(version, str) and (f"{name}-").startswith(f"{agent.package.name}-"):
                return version
    return None


def _with_programs(wish: WorkerSpec, program: str, policy: Policy) -> tuple[str, Policy]:
    """The program by a name that it has in the sandbox, and the policy with what it needs in sight.

    Our own interpreter is among that: it tries the sandbox first. Where it stays hidden, that says so itself.
    """
    search = wish.env.get("PATH", os.defpath)
    if uncovering(policy, {program: trace(program)}, wish).refused:
        program = os.path.realpath(program)  # by a link that nobody sees there
    needed = {*prerequisites.of_program(program, search), *wish.needed}
    if wish.mcp:
        needed |= {*prerequisites.of_program(shutil.which(wish.mcp[0], path=search) or wish.mcp[0], search)}
    found = uncovering(policy, {path: trace(path) for path in sorted(needed)}, wish)
    if found.refused:
        raise UsageError(
            f"{wish.agent} cannot be run in its sandbox: {'; '.join(one.words() for one in found.refused)}",
            remedy=f"install it outside of {found.refused[0].hidden}",
        )
    ours = {path: trace(path) for path in prerequisites.of_ourselves()}
    for path in (*found.grants, *uncovering(policy, ours, wish).grants):
        policy = policy.allow_read(path)
    return program, policy


def uncovering(policy: Policy, needed: Mapping[str, Sight], wish: WorkerSpec) -> Uncovered:
    """What the policy hides of what is needed, on the disk as it is."""
    bound = bind(policy.wish, Where(wish.cwd, (wish.cwd,)))
    real = settle(bound, look(bound))
    table = {rule.path: real.access_at(rule.path) for rule in real.rules}
    never = {os.path.realpath(path) for path in (*wish.secret, *find_homes())}
    return uncover(needed, table, around=os.path.realpath(wish.cwd), never=never)


def _make_granted(wish: WorkerSpec) -> None:
    for path in wish.writable:
        if not wish.unconfined and not os.path.lexists(path):
            with contextlib.suppress(OSError):  # it stays missing, and the worker is told so when it tries
                make_granted(path)


def _policy(wish: WorkerSpec, state: str) -> Policy:
    if wish.unconfined:
        return Policy.full_access()
    if wish.private_tmp:
        network = Network.ON if wish.network else Network.OFF
        policy = Policy(workspace_write(network=network, tmpdir=False, slash_tmp=False), wish.cwd)
        unreadable = [_SHARED_TMP, *wish.unreadable, *wish.secret]
    else:
        policy = Policy.workspace_write(wish.cwd, network=wish.network)
        unreadable = [*wish.unreadable, *wish.secret]
    for path in (*unreadable, *find_homes()):
        if os.path.lexists(path):  # a rule about what is not there would put something in its place
            policy = policy.deny(path)
    for path in wish.readable:
        policy = policy.allow_read(path)
    for path in wish.sockets:
        policy = policy.allow_socket(path)
    for path in (state, *wish.writable):
        policy = policy.allow_write(path)
    return policy


@dataclass(frozen=True, slots=True)
class PreflightProblem:
    """Something that will go wrong, what comes of it, and what would help."""

    what: str
    errno: str
    consequence: str
    remedy: str
    claim: Foreseen | Trouble | None = None  # what a classifier can use of it

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
    """Can the CLI keep its state and reach its provider? What will go wrong, before the first prompt.

    A small program is run in the sandbox it will run in, with its environment and policy. Where a state
    path does not exist yet, the nearest directory above it that does is tried. Nothing is left behind.
    That nothing could be tried is trouble as well.
    """
    home = variables.get("HOME", "/")
    kept = _distinct(state_paths(agent, home=home, work=cwd, environment=variables))
    provider = _provider(base)
    if not kept and provider is None:
        return []
    bound = bind(policy.wish, Where(cwd, (cwd,), variables.get("TMPDIR")))
    if (hidden := _find_hidden(bound)) is not None:
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


def _find_hidden(bound: BoundPolicy) -> PreflightProblem | None:
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
    if bound.network is Network.ON:
        remedy = "is the address wrong, or this machine's network?"
        return PreflightProblem(what, told["errno"], consequence, remedy, Trouble(Failure.NETWORK))
    grant = "--network on"
    foreseen = Foreseen("connect", f"{host}:{port}", told["errno"], "the network is off", grant)
    return PreflightProblem(what, told["errno"], consequence, grant, foreseen)


def _provider(base: str | None) -> tuple[str, int] | None:
    if base is None:
        return None
    parts = urlsplit(base)
    if parts.hostname is None:
        return None
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
