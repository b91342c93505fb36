"""A wish for a worker as what is needed to start it: command, environment, policy, files."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from holdfast.agents.catalog.agent import MAX_ARGUMENT, Agent, launch, provider_secrets, state_files
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.worker.acp import AcpRequest
from holdfast.client.policy import Policy
from holdfast.errors import NotFound, UsageError
from holdfast.sandbox.plan import prerequisites
from holdfast.sandbox.plan.planner import Sight, settle
from holdfast.sandbox.plan.prerequisites import Uncovered, uncover
from holdfast.sandbox.plan.resolve import look, trace
from holdfast.sandbox.policy.policy import Network, Where, bind, workspace_write

TERM: Final = "xterm-256color"  # what our screen understands
_SHARED_TMP: Final = "/tmp"  # noqa: S108 - to keep it away
_PROMPT: Final = "<prompt>"  # what a record has in its place


class WorkerSpec(msgspec.Struct, kw_only=True):
    """What a caller asks for. `env` is all that the worker gets of its caller's environment."""

    agent: str
    cwd: str
    env: dict[str, str]
    id: str | None = None
    prompt: str | None = None  # without one: the interactive program
    model: str | None = None
    tty: bool = False
    acp: bool = False  # led over the Agent Client Protocol: its questions are structured
    unattended: bool = True
    network: bool = True
    writable: list[str] = []
    readable: list[str] = []  # besides; for what lies below something unreadable
    needed: list[str] = []  # what it must be able to run: as `readable`, but only where something hides it
    unreadable: list[str] = []
    secret: list[str] = []  # unreadable as well, and nothing below is shown, whatever is to be run from there
    private_tmp: bool = False  # /tmp, which everybody shares, is out of reach; TMPDIR is the worker's own
    unconfined: bool = False
    relocate: bool = True  # the CLI's state goes into a directory of the worker's own
    state: str | None = None  # or into this one, to go on with a session of another worker
    arguments: list[str] | None = None  # of a headless run, instead of the record's: templates as there
    base: str | None = None  # another provider's address, with its key
    key: str | None = None
    mcp: list[str] | None = None  # the command of an MCP server on stdio, which the CLI starts
    wall_limit_s: float | None = None
    idle_limit_s: float | None = None
    rows: int = 40
    cols: int = 120
    watch: bool = True
    trace: bool = False  # explain mode: every refused call, exact, and slow


@dataclass(frozen=True, slots=True)
class Ready:
    """All of a start. `shown` is the command as it may be written down."""

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
    request: AcpRequest | None = field(default=None, repr=False)


def prepare(wish: WorkerSpec, *, state: str) -> Ready:
    """What to start; `state` is a directory of the worker's own, unless the wish names another.

    Raises:
        UsageError: no such agent, a wish that cannot be meant, or one that hides what is to be run.
        NotFound: its program is not installed.
    """
    state = wish.state or state
    agent = CATALOG.get(wish.agent)
    if agent is None:
        raise UsageError(f"no agent `{wish.agent}` is known", remedy=f"one of: {', '.join(sorted(CATALOG))}")
    if not os.path.isabs(wish.cwd):
        raise UsageError(f"the working directory `{wish.cwd}` is not an absolute path")
    if wish.prompt is not None and len(wish.prompt.encode()) > MAX_ARGUMENT:
        raise UsageError(
            f"the prompt is longer than {MAX_ARGUMENT} bytes", remedy="put it into a file to read"
        )
    server = _server(agent, wish)
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
    )
    request = None
    if wish.acp:
        request = AcpRequest(wish.cwd, _acp_prompt(agent, wish), made.model, wish.unattended)
    secrets = provider_secrets(agent, wish.key) if wish.key else {}
    moved = () if wish.relocate else agent.relocation
    chosen = {name: value for name, value in made.environment.items() if name not in moved}
    environment = wish.env | chosen | secrets
    tty = wish.tty or wish.prompt is None
    if tty:
        environment["TERM"] = TERM
    environment["TMPDIR"] = os.path.join(state, "tmp")
    files = state_files(agent, base=wish.base, model=wish.model or "", mcp=server)
    program = _binary(agent, wish)
    policy = _policy(wish, state)
    if not wish.unconfined:
        program, policy = _with_programs(wish, program, policy)
    argv = (program, *made.arguments)
    return Ready(
        argv=argv,
        shown=tuple(_PROMPT if word == wish.prompt else word for word in argv),
        inherited=wish.env,
        environment=environment,
        policy=policy,
        tty=tty,
        state=state,
        base=wish.base,
        stdin=None if made.stdin is None else made.stdin.encode(),
        files={f"{state}/{path}": text for path, text in files.items()},
        secrets=tuple(secrets.values()),
        request=request,
    )


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
        remedy = f"{agent.package.registry} install {agent.package.name}" if agent.package else None
        raise NotFound(f"{agent.binary} is not installed, or not on PATH", remedy=remedy)
    return found


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
    never = {os.path.realpath(path) for path in wish.secret}
    return uncover(needed, table, around=os.path.realpath(wish.cwd), never=never)


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
    for path in unreadable:
        if os.path.lexists(path):  # a rule about what is not there would put something in its place
            policy = policy.deny(path)
    for path in wish.readable:
        policy = policy.allow_read(path)
    for path in (state, *wish.writable):
        policy = policy.allow_write(path)
    return policy
