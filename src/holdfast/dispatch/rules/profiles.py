"""How the workers of a profile are started, as data. Pure module.

A task is assigned to a worker profile: a record of how to start its worker. To add one is to add a table to
HOME/worker-profiles.toml:

    [reviewer]
    agent = "claude"            # built in or of a record, or:  command = ["my-agent", "--prompt", "{prompt}"]
    model = "opus"
    env = ["ANTHROPIC_API_KEY"]
    max_runtime_s = 3600
    limits = { memory = "8G", pids = 500 }
    hosts = { "registry.example.com" = "allow", presets = ["npm"] }  # besides those of its model provider
    ask_network = true          # a connection to another host waits for an answer
    keys_inside = false         # true: keys that its CLI takes by a variable enter its sandbox
    prompt = "You review code.\n\n{brief}"
"""

import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from holdfast import decoding
from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import CATALOG, find_agent
from holdfast.board.rules import budget
from holdfast.board.rules.budget import Budget
from holdfast.board.rules.rows import Run
from holdfast.egress.bounds.allowance import parse_limits
from holdfast.egress.clients.recipes import check_name
from holdfast.egress.hosts import forget_keys, parse_rules
from holdfast.errors import UsageError
from holdfast.sandbox.policy import amounts, profile
from holdfast.sandbox.policy.hostwish import ASK_WORKER_S
from holdfast.wire.permissions import AllowedHosts

DEFAULT_RUNTIME_S: Final = 4 * 3600.0  # a worker that needs longer has a limit in its task or its profile
MAX_ASK_S: Final = 86_400  # the longest wait for an answer about a host; a longer one would be forgotten
BRIEF: Final = "{brief}"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_ENVIRONMENT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROMPT: Final = "{prompt}"
_SHELL: Final = "shell"


class WorkerProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the workers of one profile are started.

    `env` are names of variables that pass through, `variables` are set. `success` says whether an exit code
    alone may complete a task, or only a report may. In `prompt`, `{brief}` is the whole text for a worker,
    `{body}` is the body of its task alone. In `command`, `{prompt}` is the prompt. `session` is a pattern
    that finds the name of the CLI's session in its output, as its first group; `resume` are the arguments
    that continue that session, with `{session}` in them, in place of the record's arguments. A profile of an
    agent with known sessions gets both by default.
    """

    name: str = ""
    agent: str = ""
    command: tuple[str, ...] = ()
    model: str | None = None
    provider: str | None = None  # another provider's address
    key_env: str | None = None  # the variable here that holds its key
    network: bool | None = None  # all of it, or none; None: the hosts of its provider, where they are known
    hosts: dict[
        str, str | bool | list[str] | dict[str, str]
    ] = {}  # besides, as [hosts] in a permission profile
    # A connection to any other host waits for an answer: for ten minutes, or for this many seconds.
    ask_network: bool | float = False
    keys_inside: bool = False  # true: keys that its CLI takes by variables enter the sandbox unchanged
    env: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    writable: tuple[str, ...] = ()  # besides the workspace; `~/` is the home
    relocate: bool = True  # the CLI's state goes into a directory of the run's own
    channel: Literal["auto", "mcp"] = "auto"
    success: Literal["report", "exit"] = "report"
    max_runtime_s: float | None = DEFAULT_RUNTIME_S
    idle_s: float | None = None
    max_tokens: int | None = None  # of one run; a task's own limit covers all its runs together
    max_cost: float | None = None  # likewise, in dollars
    limits: dict[str, str | int | float] = {}  # on what it uses: memory, pids, cpus, disk, open_files
    prompt: str = BRIEF
    session: str = ""
    resume: tuple[str, ...] = ()
    setup: str = ""  # a shell script run in the workspace before the worker starts, confined like the worker
    teardown: str = ""  # likewise after the worker has ended, for whatever reason
    environment: str = ""  # the machine that its workers run on, unless their task names one
    copy: tuple[str, ...] = ()  # files of the repository that git does not keep, for its worktrees: ".env*"

    def __post_init__(self) -> None:
        """Raises UsageError when the fields contradict each other or are invalid."""
        if bool(self.agent) == bool(self.command):
            raise UsageError(f"worker profile {self.name}: give either an agent or a command")
        for variable in (*self.env, *self.variables):
            if not _VARIABLE.fullmatch(variable):
                raise UsageError(f"worker profile {self.name}: `{variable}` is not the name of a variable")
        try:
            groups = re.compile(self.session).groups
        except re.error as exc:
            raise UsageError(f"worker profile {self.name}: session: {exc}") from None
        if bool(self.session) != bool(groups) or bool(self.session) != bool(self.resume):
            raise UsageError(
                f"worker profile {self.name}: session is a pattern with a group, and resume goes with it"
            )
        if self.environment and not _ENVIRONMENT.fullmatch(self.environment):
            raise UsageError(
                f"worker profile {self.name}: `{self.environment}` is not the name of an environment",
                remedy="holdfast environment list",
            )
        if self.environment and (why := self.find_bound_here()) is not None:
            raise UsageError(f"worker profile {self.name}: {why}")
        for pattern in self.copy:
            if any(part in ("", ".", "..", ".git", ".holdfast") for part in pattern.split("/")):
                raise UsageError(
                    f"worker profile {self.name}: `{pattern}` does not name files to copy",
                    remedy="a path in the repository, with * and ?",
                )
        self._check_hosts()
        if "timeout" in self.limits:
            raise UsageError(f"worker profile {self.name}: limits: the time is max_runtime_s")
        try:
            if self.limits:
                amounts.parse(self.limits)
        except UsageError as exc:
            raise UsageError(f"worker profile {self.name}: {exc}", remedy=exc.remedy) from None
        for limit in (self.max_runtime_s, self.idle_s):
            if limit is not None and limit <= 0:
                raise UsageError(f"worker profile {self.name}: a limit is more than 0 seconds")
        if (self.max_tokens is not None and self.max_tokens <= 0) or (
            self.max_cost is not None and not budget.millionths(self.max_cost)
        ):
            raise UsageError(f"worker profile {self.name}: a budget is more than 0 tokens or dollars")

    def find_bound_here(self) -> str | None:
        """Which setting works on this machine only, in words; None if its workers can run elsewhere."""
        if self.channel == "mcp":
            return (
                'channel = "mcp" is not for another machine: a server of this one is not reached from there'
            )
        if self.writable:
            return "writable is not for another machine: paths of this one mean nothing there"
        if self.setup or self.teardown:
            return "setup and teardown are not run on another machine"
        if self.copy:
            return "copy is not for another machine: what git does not keep is not carried there"
        return None

    def _check_hosts(self) -> None:
        source = f"worker profile {self.name}"
        for what in ("hosts", "ask_network"):
            if getattr(self, what) and self.network:
                raise UsageError(f"{source}: {what}: with `network = true` every host is reached")
        if not 0 <= self.ask_network <= MAX_ASK_S:
            raise UsageError(
                f"{source}: ask_network: somebody has at most {MAX_ASK_S} seconds to answer",
                remedy="true, or a number of seconds",
            )
        if not self.hosts:
            return
        wish = profile.hosts_of(self.hosts, source=source)
        parse_rules(wish.allow, wish.deny)
        parse_limits(wish.limits)
        for preset in wish.presets:
            check_name(preset)

    @property
    def allowed_hosts(self) -> AllowedHosts | None:
        """The hosts that it names, and whether to ask about others; None if it does neither."""
        if not self.hosts and not self.ask_network:
            return None
        wish = forget_keys(profile.hosts_of(self.hosts, source=f"worker profile {self.name}"))
        named = list(wish.allow), list(wish.deny), wish.private, dict(wish.addresses)
        ask_s = ASK_WORKER_S if self.ask_network is True else self.ask_network
        asked = max(1, round(ask_s * 1000)) if ask_s else msgspec.UNSET
        return AllowedHosts(*named, limits=list(wish.limits), ask_timeout_ms=asked)

    @property
    def presets(self) -> tuple[str, ...]:
        """The clients with hosts that it allows, as `--allow-net` names them."""
        if not self.hosts:
            return ()
        return profile.hosts_of(self.hosts, source=f"worker profile {self.name}").presets

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys besides those of its CLI that stay outside of the sandbox, in the form of `--secret`."""
        return (
            profile.hosts_of(self.hosts, source=f"worker profile {self.name}").secrets if self.hosts else ()
        )

    @property
    def cli(self) -> str:
        """The agent that runs it; commands are run by the `shell` agent."""
        return self.agent or _SHELL

    def program(self, known: Mapping[str, Agent]) -> str:
        """The program that must be on the PATH.

        Raises:
            UsageError: no such agent is known, or its record is wrong.
        """
        if not self.agent:
            return self.command[0]
        try:
            return find_agent(known, self.agent).binary
        except UsageError as exc:
            raise UsageError(f"worker profile {self.name}: {exc}", remedy=exc.remedy) from None

    @property
    def budget(self) -> Budget:
        """The budget of one run."""
        return Budget(self.max_tokens, None if self.max_cost is None else budget.millionths(self.max_cost))

    @property
    def can_be_asked(self) -> bool:
        """Whether it understands a prompt in words, which a script does not."""
        return self.cli != _SHELL or bool(self.command)

    def resume_arguments(self, session: str) -> list[str] | None:
        """The arguments that continue this session; None if there is no session or no way to resume."""
        if not session or not self.resume:
            return None
        return [part.replace("{session}", session) for part in self.resume]

    def session_in(self, output: str) -> str:
        """The name of the session, from the CLI's output; empty when it is not there."""
        found = re.search(self.session, output) if self.session else None
        return found[1] if found else ""

    def build_prompt(self, prompt: str) -> str:
        """The prompt for the agent; for a command, the line that a shell executes."""
        if not self.command:
            return prompt
        return "exec " + shlex.join(part.replace(_PROMPT, prompt) for part in self.command)


_NAME_OF_SESSION: Final = r"([A-Za-z0-9_-]{1,100})"
_SESSIONS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "codex": (
        f'"thread_id":"{_NAME_OF_SESSION}"',
        ("resume", "--json", "--skip-git-repo-check", "{unattended}", "{model}", "{session}", "-"),
    ),
    "claude": (
        f'"session_id":"{_NAME_OF_SESSION}"',
        (
            *("-p", "--output-format", "stream-json", "--verbose", "{unattended}", "{model}"),
            *("--resume", "{session}"),
        ),
    ),
    "opencode": (
        f'"sessionID":"{_NAME_OF_SESSION}"',
        ("--format", "json", "{unattended}", "{model}", "--session", "{session}"),
    ),
}


def _agent(name: str, keys: tuple[str, ...]) -> WorkerProfile:
    session, resume = _SESSIONS.get(name, ("", ()))
    return WorkerProfile(name=name, agent=name, env=keys, session=session, resume=resume)


BUILTIN: Final[Mapping[str, WorkerProfile]] = {
    **{name: _agent(name, agent.keys) for name, agent in CATALOG.items() if agent.keys},
    "script": WorkerProfile(name="script", agent=_SHELL, network=False, success="exit", prompt="{body}"),
}


def decode(
    text: str, *, source: str = "worker-profiles.toml", known: Mapping[str, Agent] = CATALOG
) -> dict[str, WorkerProfile]:
    """The profiles that a user's file adds or replaces, for agents that are known.

    Raises:
        UsageError: the text names the profile and what is wrong with it.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise UsageError(f"{source}: {exc}") from None
    found = {}
    for name, table in tables.items():
        if not _NAME.fullmatch(name) or not isinstance(table, dict):
            raise UsageError(
                f"{source}: `{name}` is not a worker profile",
                remedy="a table, with a name of a-z, 0-9, - and _",
            )
        session, resume = _SESSIONS.get(str(table.get("agent")), ("", ()))
        unsaid = {} if table.keys() & {"session", "resume"} else {"session": session, "resume": resume}
        try:
            found[name] = decoding.convert({**unsaid, **table, "name": name}, WorkerProfile)
            found[name].program(known)
        except msgspec.ValidationError as exc:
            raise UsageError(f"{source}: [{name}]: {exc}") from None
        except UsageError as exc:
            raise UsageError(f"{source}: {exc}", remedy=exc.remedy) from None
    return found


def combine(
    text: str | None,
    *,
    source: str = "worker-profiles.toml",
    known: Mapping[str, Agent] = CATALOG,
    described: Sequence[str] = (),
) -> dict[str, WorkerProfile]:
    """Built-in profiles, those of the agents in `described`, and the user's, which replace equal names."""
    others = {name: _agent(name, known[name].keys) for name in described}
    return {**others, **BUILTIN, **(decode(text, source=source, known=known) if text else {})}


RESUMES: Final = "resumes"  # in a run's metadata: the run that owns the CLI state it continued in


class AgentSession(NamedTuple):
    name: str
    owner: str  # the run with the state directory that holds it


def session_before(runs: Sequence[Run], run: Run) -> AgentSession | None:
    """The session of an earlier run of the task (`runs`, oldest first) that this run can continue.

    A later run (after a review, an answer, a failure) continues the session of the one before it, if its
    profile and host are the same, because the CLI's state is there. If a resumed run did not even report a
    session name, that session is abandoned, and the next run begins a fresh one.
    """
    own = [
        one
        for one in runs
        if (one.profile, one.host) == (run.profile, run.host) and one.generation < run.generation
    ]
    for earlier in reversed(own):
        named = earlier.metadata.get(RESUMES)
        # A worker can write this metadata too, so it is trusted only for runs of its own task.
        owner = next((one.id for one in own if one.id == named), None)
        if earlier.session:
            return AgentSession(earlier.session, owner or earlier.id)
        if owner is not None:
            return None
    return None
