"""The record of one agent CLI, as data, and how to build its command line from it. Pure module.

Templates hold words in braces: `{state}` is the worker's private state directory, `{home}` the home, `{work}`
the working directory, `{prompt}` and `{model}` the prompt and the model, `{base}` and `{key}` a provider's
address and key. `{command}`, `{options}` and `{argv}` are the command of an MCP server, its arguments, and
both, as JSON, which is also valid TOML. An argument that is only `{model}` or `{unattended}` stands for the
options of that name, and disappears if there are none.
"""

import enum
import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.agents.catalog.hostfiles import HostFile
from holdfast.agents.evidence.evidence import Claim, Failure
from holdfast.agents.evidence.holdups import BusySign, WantSign
from holdfast.agents.evidence.verdict import ExitRules

DEFAULT_START_LIMIT_S = 30.0  # until the first sign of life; opencode's record has a longer limit
MAX_ARGUMENT = 100_000  # bytes of one argument: Linux takes 128 KiB for argument and name together

TEXT = "text"  # the parser for a CLI that prints only text for people
DESCRIBED = "described"  # the parser for a CLI with events that its record describes
CANNOT_START = "cannot start"
NOT_SAVED = "starts without saving"
RETRIES = "retries for ever"

_WORD: Final = re.compile(
    r"\{(state|home|work|prompt|model|base|key|command|options|argv|network|writable|bridge)\}"
)


class PromptBy(enum.StrEnum):
    STDIN = "stdin"  # written whole, then closed: no length limit, and other users cannot read it
    ARGUMENT = "argument"


@dataclass(frozen=True, slots=True)
class Package:
    registry: str  # npm or pypi
    name: str

    @property
    def install(self) -> str:
        """The command that installs its program."""
        how = "npm install -g" if self.registry == "npm" else "pipx install"
        return f"{how} {self.name}"


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that the record is for: from `least` up to, excluding, `below`; `recorded` was tested."""

    least: tuple[int, ...]
    below: tuple[int, ...]
    recorded: str

    def __contains__(self, version: str) -> bool:
        found = _numbers(version)
        return found is not None and self.least <= found < self.below


def _numbers(version: str) -> tuple[int, ...] | None:
    found = re.search(r"\d{1,12}(?:\.\d{1,12})+", version)
    return None if found is None else tuple(map(int, found[0].split(".")))


@dataclass(frozen=True, slots=True)
class Dialog:
    """A question on the screen with known keys, which answer it for this one time.

    With `click`, clicking on these words approves. It is for screens that do not show which choice is
    selected, so that no key is known to be right.
    """

    pattern: re.Pattern[str]
    approve: tuple[str, ...]
    deny: tuple[str, ...]
    click: str = ""


@dataclass(frozen=True, slots=True)
class StartDialog:
    """A question before the first prompt. The user answered it by starting the worker unattended.

    The pattern includes the selected choice; the keys lead from there to the choice that continues.
    """

    pattern: re.Pattern[str]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetrySign:
    """A line that reports another attempt.

    Named groups, each optional: `attempt`, `of`, `in_s`, `in_ms`, `http`, `cause`.
    """

    pattern: re.Pattern[str]
    failure: Failure | None = None  # if the line itself does not name the cause


@dataclass(frozen=True, slots=True)
class ErrorSign:
    """A line that reports an error in the CLI's own words; the groups `cause` and `http` are optional."""

    pattern: re.Pattern[str]
    failure: Failure | None = None  # if the line itself does not name the cause


@dataclass(frozen=True, slots=True)
class StatePath:
    """A piece of the CLI's state: its path, its role, what happens without it, the variable that moves it."""

    path: str  # `{home}/…`, `{work}/…` or absolute; components may be patterns
    role: str
    without: str
    variable: str = ""
    below: str = ""  # path below the variable's value


@dataclass(frozen=True, slots=True)
class Transcript:
    """The file in which the CLI records the token usage of its session; its events count the same usage.

    Components of `place`, below the state directory, may be patterns; `{session}` is the session's name. The
    groups of `tokens` add up to the usage so far; the last match in the file counts.
    """

    place: str
    tokens: re.Pattern[bytes]


@dataclass(frozen=True, slots=True)
class RunLog:
    """A log in the state directory that reports attempts which the CLI reports nowhere else.

    Components of `place` may be patterns. The log is read only if that directory belongs to the worker alone.
    `variable` sets the path of the log, for a CLI that needs that.
    """

    place: str
    retries: tuple[RetrySign, ...]
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    """How to point the CLI at another provider: templates."""

    wire: str  # the protocol that it then speaks: responses, chat, anthropic or gemini
    environment: Mapping[str, str]
    arguments: tuple[str, ...] = ()  # go before all others, after the subcommand
    files: Mapping[str, str] = field(default_factory=dict)  # below the state directory → content
    model: str = "{model}"  # the name of the model for that provider


@dataclass(frozen=True, slots=True)
class Reach:
    """The hosts of its model provider, which are all that a worker reaches unless the user asks for more.

    `variables` and `settings` (dotted names in the user's files) may hold the address of another provider.
    """

    hosts: tuple[str, ...]  # rules, as `--allow-host` has them
    variables: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mcp:
    """How to give the CLI an MCP server on stdio, under the name `holdfast`: templates.

    The CLI may use the server's tools without asking: the user who passed the server decided that.
    """

    arguments: tuple[str, ...] = ()  # go after those of the provider
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # below the state directory → content
    in_state: bool = False  # the CLI finds the files only when its state is relocated


@dataclass(frozen=True, slots=True)
class OwnSandbox:
    """How the CLI keeps its own sandbox around each command while our executor runs them: templates.

    `{network}` and `{writable}` are what commands may use, `{work}` is their working directory. `{bridge}`
    and `{options}` are the program that connects the CLI to the executor over pipes.
    """

    least: tuple[int, ...]  # the first version that supports it
    unattended: tuple[str, ...]  # instead of the record's own
    asking: tuple[str, ...]
    files: Mapping[str, str]  # below the state directory → content
    offline: tuple[
        str, ...
    ] = ()  # added if commands have no network, so that the CLI does not look things up either
    mcp_arguments: tuple[str, ...] = ()  # make the executor start the MCP server too; go after those of `Mcp`
    withheld: tuple[str, ...] = ()  # variables that the CLI gets and its commands do not


@dataclass(frozen=True, slots=True)
class EventRule:
    """The meaning of one kind of event, for a CLI with events that its record describes.

    A place is a path of keys, item indexes (-1 is the last) and `*` for any item. `when` maps places to the
    values that they may have. Values that `when` does not name may be anything.
    """

    when: tuple[tuple[tuple[str, ...], tuple[object, ...]], ...]
    means: str
    tool: tuple[str, ...] = ()
    input: tuple[str, ...] = ()
    message: tuple[tuple[str, ...], ...] = ()  # the first place that holds text counts
    http: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    attempt: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    in_ms: tuple[str, ...] = ()
    failure: Failure | None = None  # if the event itself does not name the cause
    usage: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    usage_adds: bool = False  # usage is per step, not for the run so far


@dataclass(frozen=True, slots=True)
class Agent:
    """The record of one CLI: everything it does differently from others."""

    name: str
    binary: str
    package: Package | None
    versions: Versions | None
    subcommand: tuple[str, ...] = ()  # comes before every option
    headless: tuple[str, ...] = ()
    interactive: tuple[str, ...] = ()
    model_options: tuple[str, ...] = ()
    unattended: tuple[str, ...] = ()  # make it act without asking: the sandbox around it is the boundary
    unattended_environment: Mapping[str, str] = field(default_factory=dict)
    unattended_note: str = ""  # what it then does without, if users should know
    asking: tuple[str, ...] = ()  # replace {unattended} otherwise: make it ask where it would not
    asking_environment: Mapping[str, str] = field(default_factory=dict)
    prompt_by: PromptBy = PromptBy.ARGUMENT
    on_terminal: tuple[str, ...] = ()  # how to pass the prompt if stdin cannot carry it; replaces a "-"
    acp: tuple[str, ...] | None = None  # arguments of its ACP server; without {model}, ACP chooses the model
    parser: str = TEXT  # of stdout in a headless run; stderr is always text
    stderr_is_work: bool = False  # a line there means progress, as it does for a compiler
    ready: tuple[re.Pattern[str], ...] = ()  # on the screen: it accepts input
    wants: tuple[WantSign, ...] = ()
    busy: tuple[BusySign, ...] = ()
    dialogs: tuple[Dialog, ...] = ()
    start_dialogs: tuple[StartDialog, ...] = ()
    titles: tuple[tuple[str, Claim], ...] = ()  # window title prefixes; the first match counts
    transcript: Transcript | None = None
    retries: tuple[RetrySign, ...] = ()
    errors: tuple[ErrorSign, ...] = ()  # in addition to those that begin like most CLIs' errors
    log: RunLog | None = None
    shown_retries: tuple[RetrySign, ...] = ()  # the same on its screen, without the bullet of the line
    failures: tuple[re.Pattern[str], ...] = ()  # on its screen: the turn failed; `message` says why …
    said: tuple[re.Pattern[str], ...] = ()  # … unless a line below it begins something newer
    state: tuple[StatePath, ...] = ()  # the most specific first
    relocation: Mapping[str, str] = field(default_factory=dict)  # variable → template
    relocation_arguments: tuple[str, ...] = ()
    host_files: tuple[HostFile, ...] = ()  # user files that it gets when its state is relocated
    keys: tuple[str, ...] = ()  # variables with its key or its provider's address
    key_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # hosts that each key may go to
    environment: Mapping[str, str] = field(default_factory=dict)  # keep it quiet and offline
    exits: ExitRules = field(default_factory=ExitRules)
    provider: Provider | None = None
    reach: Reach | None = None  # None: unknown, so a worker gets the whole network
    mcp: Mcp | None = None
    own_sandbox: OwnSandbox | None = None
    start_limit_s: float = DEFAULT_START_LIMIT_S
    events: tuple[EventRule, ...] = ()  # for the parser DESCRIBED; the first match counts
    tried: str = ""  # for people: with which version and how it was tested
    untried: str = ""  # for people: what was not tested


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start the CLI: arguments without the binary, what to write to stdin, variables to set.

    stdin is closed afterwards. `model` is set if the model remains to be chosen over ACP.
    """

    arguments: tuple[str, ...]
    stdin: str | None
    environment: Mapping[str, str]
    model: str | None = None


def fill(template: str, words: Mapping[str, str]) -> str:
    """Replace the known words in the template; other braces stay."""
    return _WORD.sub(lambda match: words.get(match[1], match[0]), template)


def launch(
    agent: Agent,
    *,
    state: str | None,
    prompt: str | None = None,
    model: str | None = None,
    unattended: bool = False,
    base: str | None = None,
    mcp: Sequence[str] = (),
    acp: bool = False,
    tty: bool = False,
    headless_arguments: Sequence[str] | None = None,
    own_sandbox: Mapping[str, str] | None = None,
) -> Launch:
    """Return how to start a headless run of `prompt`; without one the interactive program; or the ACP server.

    `state` is the worker's private directory; None leaves its state in the home. `base` is another provider's
    address; `provider_secrets` returns its key, which is not in the result. `mcp` is the command of an MCP
    server. `state_files` returns the files that provider and MCP server need. `headless_arguments` replace
    those of the record, for example to resume a session. On a `tty` the prompt is an argument. `own_sandbox`
    holds the template words for the CLI's own sandbox; if given, the CLI keeps that sandbox.
    """
    words = {"state": state or "", "model": model or "", "prompt": prompt or "", "base": base or ""}
    words |= _server_words(mcp)
    given = agent.mcp if mcp else None
    provider = agent.provider if base is not None else None
    called = words | ({"model": fill(provider.model, words)} if provider is not None else {})
    headless = prompt is not None and not acp
    template: Sequence[str] = (agent.acp or ()) if acp else agent.interactive
    if headless:
        template = agent.headless if headless_arguments is None else headless_arguments
    by_stdin = headless and agent.prompt_by is PromptBy.STDIN and not tty
    if headless and agent.prompt_by is PromptBy.STDIN and tty:
        template = (*(item for item in template if item != "-"), *agent.on_terminal)
    arguments = [*agent.subcommand] if headless else []
    arguments += [fill(item, words) for item in (provider.arguments if provider else ())]
    arguments += [fill(item, words) for item in (given.arguments if given else ())]
    if given is not None and agent.own_sandbox is not None and own_sandbox is not None:
        arguments += [fill(item, own_sandbox) for item in agent.own_sandbox.mcp_arguments]
    arguments += [fill(item, words) for item in agent.relocation_arguments if state is not None]
    for item in template:
        if item == "{model}":
            arguments += [fill(part, called) for part in agent.model_options] if model else []
        elif item == "{unattended}":
            arguments += _boundary(agent, own_sandbox, unattended=unattended)
        else:
            arguments.append(fill(item, words))
    environment = dict(agent.environment)
    if state is not None:
        environment |= {k: fill(v, words) for k, v in agent.relocation.items()}
        if agent.log is not None and agent.log.variable:
            environment[agent.log.variable] = f"{state}/{agent.log.place}"
    environment |= agent.unattended_environment if unattended else agent.asking_environment
    if provider is not None:
        environment |= {k: fill(v, words) for k, v in provider.environment.items() if "{key}" not in v}
    if given is not None:
        environment |= {k: fill(v, words) for k, v in given.environment.items()}
    over_acp = called["model"] if acp and model and "{model}" not in template else None
    return Launch(tuple(arguments), prompt if by_stdin else None, environment, over_acp)


def _boundary(agent: Agent, own_sandbox: Mapping[str, str] | None, *, unattended: bool) -> Sequence[str]:
    """Return the options that depend on what confines the CLI: our sandbox around it, or its own."""
    own = agent.own_sandbox
    if own is None or own_sandbox is None:
        return agent.unattended if unattended else agent.asking
    words = (
        *(own.unattended if unattended else own.asking),
        *(own.offline if _is_offline(own_sandbox) else ()),
    )
    return [fill(item, own_sandbox) for item in words]


def _is_offline(own_sandbox: Mapping[str, str]) -> bool:
    return own_sandbox["network"] == "false"


def notes_on(
    agent: Agent, *, version: str | None, unattended: bool, confined: bool, own_sandbox: bool
) -> list[str]:
    """Return notes about a start for the user; `version` is None if it is unknown."""
    without = unattended and not own_sandbox
    notes = [f"{agent.name}: {agent.unattended_note}"] if without and agent.unattended_note else []
    if not confined:
        notes.append("it runs without any sandbox around it")
    numbers = _numbers(version or "")
    if agent.versions is None or agent.package is None or version is None or numbers is None:
        return notes
    if version in agent.versions:
        return notes
    least = ".".join(map(str, agent.versions.least))
    newest = f"the newest that was tried is {agent.versions.recorded}"
    if numbers < agent.versions.least:
        newest = f"the oldest that was tried is {least}; a newer one: {agent.package.install}@latest"
    return [*notes, f"this is {agent.name} {version}, and {newest}"]


def provider_variables(agent: Agent) -> tuple[str, ...]:
    """The variables that carry the key of another provider."""
    templates = {} if agent.provider is None else agent.provider.environment
    return tuple(name for name, template in templates.items() if "{key}" in template)


def provider_secrets(agent: Agent, key: str) -> dict[str, str]:
    """Return those variables with this key: for the worker's environment and for redaction, nowhere else."""
    if agent.provider is None:
        return {}
    templates = agent.provider.environment
    return {name: fill(templates[name], {"key": key}) for name in provider_variables(agent)}


def state_files(
    agent: Agent,
    *,
    base: str | None,
    model: str,
    mcp: Sequence[str],
    own_sandbox: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the files below the state directory that must exist before a start, with their content.

    These are the files for another provider and for an MCP server, merged if both use the same file, and the
    files that connect the CLI to the executor of its commands.
    """
    words = {"base": base or "", "model": model} | _server_words(mcp)
    found: dict[str, str] = {}
    for part in (agent.provider if base is not None else None, agent.mcp if mcp else None):
        for path, template in part.files.items() if part is not None else ():
            text = fill(template, words)
            found[path] = json.dumps(json.loads(found[path]) | json.loads(text)) if path in found else text
    if agent.own_sandbox is not None and own_sandbox is not None:
        found |= {path: fill(text, own_sandbox) for path, text in agent.own_sandbox.files.items()}
    return found


def state_paths(
    agent: Agent, *, home: str, work: str, environment: Mapping[str, str]
) -> list[tuple[str, StatePath]]:
    """Return the actual paths of its state with these variables, most specific first; may be patterns."""
    places = {"home": home.rstrip("/"), "work": work.rstrip("/")}
    return [(_place(kept, places, environment), kept) for kept in agent.state]


def state_of(
    agent: Agent, path: str, *, home: str, work: str, environment: Mapping[str, str]
) -> StatePath | None:
    """Return the piece of the agent's state that this path is or lies in."""
    parts = path.split("/")
    for place, kept in state_paths(agent, home=home, work=work, environment=environment):
        pattern = place.split("/")
        if len(parts) >= len(pattern) and all(map(fnmatch.fnmatchcase, parts, pattern)):
            return kept
    return None


def relocation_of(agent: Agent, kept: StatePath, *, state: str) -> str:
    """Return NAME=PATH that moves this state into the private directory; empty if no variable does."""
    template = agent.relocation.get(kept.variable)
    return "" if template is None else f"{kept.variable}={fill(template, {'state': state})}"


def _server_words(server: Sequence[str]) -> dict[str, str]:
    if not server:
        return {}
    parts = {"command": server[0], "options": list(server[1:]), "argv": list(server)}
    return {name: json.dumps(value, ensure_ascii=False) for name, value in parts.items()}


def _place(kept: StatePath, places: Mapping[str, str], environment: Mapping[str, str]) -> str:
    moved = environment.get(kept.variable) if kept.variable else None
    if moved:
        return f"{moved.rstrip('/')}/{kept.below}".rstrip("/")
    return fill(kept.path, places)
