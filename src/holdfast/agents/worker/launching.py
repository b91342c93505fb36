"""Turns a request for a worker into what is needed to start it: command, environment, policy, files."""

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from holdfast.agents.catalog.agent import (
    MAX_ARGUMENT,
    Agent,
    launch,
    notes_on,
    provider_secrets,
    state_files,
)
from holdfast.agents.catalog.catalog import CATALOG, find_agent
from holdfast.agents.catalog.hostfiles import Way, read_settings
from holdfast.agents.catalog.keptkeys import decide_keys
from holdfast.agents.worker.acp import AcpRequest
from holdfast.agents.worker.ownfiles import FoundLogin, OwnFiles, read_own_files, read_regular
from holdfast.agents.worker.ownsandbox import OwnSandboxPlaces
from holdfast.agents.worker.reach import WorkerReach, add_presets, decide_reach, find_bases
from holdfast.client.policy import Policy
from holdfast.egress.hosts import narrow_keys
from holdfast.errors import NotFound, UsageError
from holdfast.home import find_homes
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.plan import prerequisites
from holdfast.sandbox.plan.planner import Sight, settle
from holdfast.sandbox.plan.prerequisites import Uncovered, uncover
from holdfast.sandbox.plan.resolve import look, make_granted, trace
from holdfast.sandbox.policy.amounts import parse
from holdfast.sandbox.policy.credentials import is_credential
from holdfast.sandbox.policy.policy import Access, Where, bind, workspace_write
from holdfast.sandbox.policy.secretwish import parse_secret
from holdfast.wire.permissions import AllowedHosts
from holdfast.wire.processes import CommandExecutor, SecretKey

# Default limits of a confined worker; its request may change them ("none" lifts one). They prevent a worker
# that forks or allocates without end from taking down the host or our daemons.
_MEMORY_SHARE: Final = 0.75  # of the machine: the rest suffices for the daemons and a shell
DEFAULT_LIMITS: Final[Mapping[str, str | int | float]] = {
    "memory": int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _MEMORY_SHARE),
    "pids": 2048,  # a parallel build has some hundreds; the kernel has 32768 for all users
}
TERM: Final = "xterm-256color"  # the terminal type that our screen emulates
_SHARED_TMP: Final = "/tmp"  # noqa: S108 - to keep it away
_PROMPT: Final = "<prompt>"  # replaces the prompt in a record
_PACKAGE_DEPTH: Final = 6  # folders between a program and its package.json
_MAX_PACKAGE: Final = 256 << 10  # bytes of one


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """The directory beside its work through which a worker on another machine reports to its dispatcher here.

    `folder` is this directory here. Its content is sent along, and its outbox receives the worker's letters.
    `grant` is the content of run.json there; `variable` gives the worker the path of that file.
    """

    folder: str
    grant: str
    variable: str
    reports: bool = True  # it must report the outcome of its task, and needs Holdfast for that

    def __repr__(self) -> str:
        return f"Handover({self.folder!r})"  # logs and tracebacks must not show the token


class WorkerSpec(msgspec.Struct, kw_only=True):
    """A caller's request. `env` is all that the worker gets of its caller's environment."""

    agent: str
    cwd: str
    env: dict[str, str]
    host: str | None = None  # the environment that it runs on; None: this machine
    handover: Handover | None = None
    alone: bool = False  # with `host`: send only its directory, whatever repository contains it
    id: str | None = None
    prompt: str | None = None  # without one: the interactive program
    model: str | None = None
    tty: bool = False
    acp: bool = False  # driven over the Agent Client Protocol: its questions are structured
    unattended: bool = True
    network: bool | None = None  # None: the hosts of its provider, if its record names them
    hosts: AllowedHosts | None = None  # additional hosts that it reaches by name
    presets: list[str] = []  # clients whose configured hosts it reaches, as in `--allow-net`
    writable: list[str] = []
    readable: list[str] = []  # additional paths, for those below something unreadable
    sockets: list[str] = []  # unix sockets of the host that it may connect to
    needed: list[str] = []  # programs it must run: like `readable`, but only if the policy hides them
    unreadable: list[str] = []
    secret: list[str] = []  # unreadable, too, and nothing below is shown, even if a program there is needed
    private_tmp: bool = False  # the shared /tmp is out of reach; TMPDIR is the worker's own
    unconfined: bool = False
    own_sandbox: bool = True  # a CLI with its own sandbox keeps it, and each command is confined separately
    relocate: bool = True  # the CLI's state goes into a directory of the worker's own
    state: str | None = None  # or into this one, to go on with a session of another worker
    arguments: list[str] | None = None  # templates for a headless run, instead of the record's
    base: str | None = None  # another provider's address, with its key
    key: str | None = None
    keys: list[SecretKey] = []  # keys that stay outside, in addition to those of its record
    keys_inside: bool = False  # keys that its CLI takes from variables enter
    after: str | None = None  # the worker that it replaces
    compared: bool = True  # compare its surroundings with the host; pointless for a script without a CLI
    mcp: list[str] | None = None  # the command of an MCP server on stdio, which the CLI starts
    wall_limit_s: float | None = None
    idle_limit_s: float | None = None
    limits: dict[str, str | int | float] = {}  # resource limits as people write them; override the defaults
    rows: int = 40
    cols: int = 120
    watch: bool = True
    trace: bool = False  # explain mode: every refused call, exact, and slow


@dataclass(frozen=True, slots=True)
class PreparedStart:
    """Everything that a start needs. `shown` is the command in the form that may be logged and stored."""

    agent: Agent = field(repr=False)
    argv: tuple[str, ...]
    shown: tuple[str, ...]
    inherited: dict[str, str] = field(repr=False)  # the environment that it would have without us
    environment: dict[str, str] = field(repr=False)
    policy: Policy
    reach: WorkerReach
    tty: bool
    state: str
    base: str | None
    stdin: bytes | None = field(repr=False)
    files: dict[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    entering: tuple[str, ...] = ()  # keys and logins that enter the sandbox, in words
    links: dict[str, str] = field(default_factory=dict)  # path below the state → the user's file shown there
    login: FoundLogin | None = None  # placed at the start, and kept up to date
    placed: tuple[str, ...] = ()  # places of the user's files below the state
    notes: tuple[str, ...] = ()  # remarks for the user
    given: tuple[str, ...] = ()  # which of the user's files enter, in words
    limits: Limits | None = None
    presets: tuple[str, ...] = ()  # which hosts came from which of the user's settings, in words
    commands: CommandExecutor | None = field(default=None, repr=False)  # runs the commands of the CLI
    request: AcpRequest | None = field(default=None, repr=False)


def prepare(
    wish: WorkerSpec,
    *,
    state: str,
    known: Mapping[str, Agent] = CATALOG,
    own: OwnSandboxPlaces | None = None,
    unnamed: str | None = None,
    unkept: str = "",
) -> PreparedStart:
    """Return what to start; `state` is a directory of the worker's own, unless the request names another.

    `known` are the agents of the home. `unnamed` is the reason if hosts cannot be reached by name where it
    runs, and `unkept` the reason if its server keeps no keys outside.
    With `own` places the CLI keeps its own sandbox, and reaches its provider whatever its commands may reach.

    Raises:
        UsageError: no such agent, an invalid request, or one that hides the program to run.
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
    wish, presets = add_presets(wish, _policy(wish, state))
    wish = allow_key_hosts(wish)
    bases = _find_bases(agent, wish, state)
    reach = decide_reach(wish, agent, bases, own_sandbox=own is not None, unnamed=unnamed)
    words = None if own is None else own.words(wish, reach)
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
    keys = decide_keys(
        agent,
        wish.env,
        given=wish.keys,
        provider=secrets,
        base=wish.base,
        bases=bases,
        logins=files.logins,
        why_not=find_why_not(wish, reach, unkept),
    )
    inherited = wish.env
    environment = keys.hide(wish.env | chosen | secrets)
    wish = msgspec.structs.replace(wish, env=keys.remove(wish.env))
    tty = wish.tty or wish.prompt is None
    if tty:
        environment["TERM"] = TERM
    environment["TMPDIR"] = os.path.join(state, "tmp")
    placed = (*files.texts, *files.links)
    ours = _leftovers(agent, wish, state)
    ours |= state_files(agent, base=wish.base, model=wish.model or "", mcp=server, own_sandbox=words)
    if ours:
        files.add_texts(ours)
    program = _binary(agent, wish)
    _make_granted(wish)
    wish = msgspec.structs.replace(wish, secret=_hide_logins(agent, wish))
    policy = reach.apply(_policy(wish, state)) if not wish.unconfined else Policy.full_access()
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
        inherited=inherited,
        environment=environment,
        policy=policy.keep_keys(keys.kept),
        reach=reach,
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
        secrets=(*secrets.values(), *files.secrets, *keys.values),
        entering=keys.entering,
        limits=limits_of(wish),
        presets=presets,
        commands=None if own is None else own.executor(agent, wish, policy, state, reach),
        request=request,
    )


def allow_key_hosts(wish: WorkerSpec) -> WorkerSpec:
    """Add the hosts of the requested keys to the requested hosts, unless a rule there is narrower.

    Raises:
        UsageError: a key or host is invalid.
    """
    if not wish.keys:
        return wish
    rules = [parse_secret(f"{key.name}@{host}").rule for key in wish.keys for host in key.hosts]
    asked = wish.hosts or AllowedHosts([])
    allow = list(narrow_keys((*asked.allow, *rules), rules))
    return msgspec.structs.replace(wish, hosts=msgspec.structs.replace(asked, allow=allow))


def find_why_not(wish: WorkerSpec, reach: WorkerReach, unkept: str) -> str:
    """Return why the keys of this worker cannot stay outside; empty if they can."""
    if wish.unconfined:
        return "it runs without a sandbox"
    if wish.keys_inside:
        return "as asked"
    if not reach.whole and not reach.hosts.allow:
        return "it reaches no host"  # and keeping a key must not add one
    return unkept or (reach.lost or "it has the whole network" if reach.whole else "")


def _leftovers(agent: Agent, wish: WorkerSpec, state: str) -> dict[str, str]:
    """Return empty replacements for files about the executor of an earlier worker with the same state.

    That executor is gone.
    """
    told = () if agent.own_sandbox is None or not wish.relocate else agent.own_sandbox.files
    return {path: "" for path in told if os.path.lexists(os.path.join(state, path))}


def _find_own(agent: Agent, wish: WorkerSpec) -> OwnFiles:
    """Return the user's files that it gets. A worker that is sent to another provider gets none."""
    if not agent.host_files or not wish.relocate or wish.base is not None:
        return OwnFiles()
    return read_own_files(agent, home=wish.env.get("HOME", "/"), environment=wish.env)


def _find_bases(agent: Agent, wish: WorkerSpec, state: str) -> list[str]:
    """Return the provider addresses in the user's settings; files that the worker may write are ignored."""
    if wish.base is not None or wish.unconfined:
        return []
    places = (wish.cwd, state, *wish.writable)
    return find_bases(agent, wish.env, home=wish.env.get("HOME", "/"), writable=places)


def _hide_logins(agent: Agent, wish: WorkerSpec) -> list[str]:
    """Return the paths that are secret to it.

    With relocated state that includes the user's own login, because the worker has a copy. Otherwise it uses
    the login in place.
    """
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
    """Make these paths readable, but not through a link: another process may have put it there."""
    bound = bind(policy.wish, Where(wish.cwd, (wish.cwd,)))
    for path in paths:
        linked = os.path.islink(path) or os.path.islink(os.path.dirname(path))
        if not linked and not bound.explain(path, Access.READ).allowed:
            policy = policy.allow_read(path)
    return policy


def limits_of(wish: WorkerSpec) -> Limits | None:
    """Return the resource limits of a worker.

    Raises:
        UsageError: a limit is invalid.
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
    """Return the version of a program from its npm package, without running it; None if unknown."""
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
    """Return the program's path inside the sandbox, and the policy with everything readable that it needs.

    That includes our own interpreter, which runs the preflight in the sandbox. If it remains hidden, the
    preflight reports that.
    """
    search = wish.env.get("PATH", os.defpath)
    if uncovering(policy, {program: trace(program)}, wish).refused:
        program = os.path.realpath(program)  # the sandbox hides the link
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
    """Return which needed paths the policy hides, on the present disk, and the grants that show them."""
    bound = bind(policy.wish, Where(wish.cwd, (wish.cwd,)))
    real = settle(bound, look(bound))
    table = {rule.path: real.access_at(rule.path) for rule in real.rules}
    never = {os.path.realpath(path) for path in (*wish.secret, *find_homes())}
    return uncover(needed, table, around=os.path.realpath(wish.cwd), never=never)


def _make_granted(wish: WorkerSpec) -> None:
    for path in wish.writable:
        if not wish.unconfined and not os.path.lexists(path):
            with contextlib.suppress(OSError):  # it stays missing, and the worker gets an error when it tries
                make_granted(path)


def _policy(wish: WorkerSpec, state: str) -> Policy:
    """Return the policy without its network part."""
    if wish.private_tmp:
        policy = Policy(workspace_write(tmpdir=False, slash_tmp=False), wish.cwd)
        unreadable = [_SHARED_TMP, *wish.unreadable, *wish.secret]
    else:
        policy = Policy.workspace_write(wish.cwd)
        unreadable = [*wish.unreadable, *wish.secret]
    for path in (*unreadable, *find_homes()):
        if os.path.lexists(path):  # a rule for a missing path would create something there
            policy = policy.deny(path)
    for path in wish.readable:
        policy = policy.allow_read(path)
    for path in wish.sockets:
        policy = policy.allow_socket(path)
    for path in (state, *wish.writable):
        policy = policy.allow_write(path)
    return policy
