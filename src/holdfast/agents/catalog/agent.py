"""What is known of one agent CLI, as data, and what follows from it for a start. Pure module.

Templates hold words in braces: `{state}` is the worker's private state directory, `{home}` the home, `{work}`
the directory it works in, `{prompt}` and `{model}` what they say, `{base}` and `{key}` a provider's address
and key; `{command}`, `{options}` and `{argv}` are the command of an MCP server, its arguments, and both, as
JSON, which is TOML as well. In an argument list `{model}` and `{unattended}`, alone, stand for the options of
that name, and vanish when there are none.
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

DEFAULT_START_LIMIT_S = 30.0  # until the first sign of life; opencode says more
MAX_ARGUMENT = 100_000  # bytes of one argument: Linux takes 128 KiB for argument and name together

TEXT = "text"  # the parser of a CLI that says nothing but words for people
DESCRIBED = "described"  # the parser of a CLI whose record describes its events
CANNOT_START = "cannot start"
NOT_SAVED = "starts without saving"
RETRIES = "retries for ever"

_WORD: Final = re.compile(
    r"\{(state|home|work|prompt|model|base|key|command|options|argv|network|writable|bridge)\}"
)


class PromptBy(enum.StrEnum):
    STDIN = "stdin"  # written whole, then closed: no limit of length, and no other user can read it
    ARGUMENT = "argument"


@dataclass(frozen=True, slots=True)
class Package:
    registry: str  # npm or pypi
    name: str

    @property
    def install(self) -> str:
        """What to type so that its program is on the PATH."""
        how = "npm install -g" if self.registry == "npm" else "pipx install"
        return f"{how} {self.name}"


@dataclass(frozen=True, slots=True)
class Versions:
    """What the record was made for: `least` up to, without, `below`; `recorded` is what was run."""

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
    """A question on the screen whose keys are known: they answer it just this once.

    With `click` these words are clicked to approve: where the screen does not show which choice is selected
    no key is known to be the right one.
    """

    pattern: re.Pattern[str]
    approve: tuple[str, ...]
    deny: tuple[str, ...]
    click: str = ""


@dataclass(frozen=True, slots=True)
class StartDialog:
    """A question before the first prompt that whoever started it to act unasked has answered with that.

    The pattern holds the choice that is selected: the keys lead from there to the one that goes on.
    """

    pattern: re.Pattern[str]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetrySign:
    """A line that tells of another attempt.

    Named groups, each optional: `attempt`, `of`, `in_s`, `in_ms`, `http`, `cause`.
    """

    pattern: re.Pattern[str]
    failure: Failure | None = None  # when the line itself does not say the cause


@dataclass(frozen=True, slots=True)
class ErrorSign:
    """A line that reports an error in words of the CLI's own; `cause` and `http`, if there, say which."""

    pattern: re.Pattern[str]
    failure: Failure | None = None  # when the line itself does not say the cause


@dataclass(frozen=True, slots=True)
class StatePath:
    """Something it keeps: where, what it is, what happens without it, and the variable that moves it."""

    path: str  # `{home}/…`, `{work}/…` or absolute; components may be patterns
    role: str
    without: str
    variable: str = ""
    below: str = ""  # where it is below the variable's value


@dataclass(frozen=True, slots=True)
class Transcript:
    """Where it writes down what its session has used; that is then also what its events count.

    Components of `place`, below the state directory, may be patterns; `{session}` is the session's name. The
    groups of `tokens` add up to what has been used so far; the last place in the file counts.
    """

    place: str
    tokens: re.Pattern[bytes]


@dataclass(frozen=True, slots=True)
class RunLog:
    """A log in its state directory that tells of attempts which nothing else tells of.

    Components of `place` may be patterns. It is read where that directory is the worker's own. A CLI that
    has to be told where to keep it has a variable for that.
    """

    place: str
    retries: tuple[RetrySign, ...]
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    """How to send it to another provider: templates."""

    wire: str  # responses, chat, anthropic or gemini: the protocol it then speaks
    environment: Mapping[str, str]
    arguments: tuple[str, ...] = ()  # go before all others, after the subcommand
    files: Mapping[str, str] = field(default_factory=dict)  # below the state directory → content
    model: str = "{model}"  # how the model is then called


@dataclass(frozen=True, slots=True)
class Reach:
    """Where its model provider is: the hosts that a worker reaches unless more is asked for.

    `variables` and `settings`, which are dotted names in files of its user's, hold the address of another.
    `spared` it asks for its own sake, and does without: that it is refused them is no news.
    """

    hosts: tuple[str, ...]  # rules, as `--allow-host` has them
    variables: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()  # names; patterns as of files


@dataclass(frozen=True, slots=True)
class Mcp:
    """How to give it an MCP server on stdio, which it then calls `holdfast`: templates.

    The server's tools may be used without asking: whoever gave it decided that.
    """

    arguments: tuple[str, ...] = ()  # go after those of the provider
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # below the state directory → content
    in_state: bool = False  # the CLI finds the files only when its state is relocated


@dataclass(frozen=True, slots=True)
class OwnSandbox:
    """How it keeps a sandbox of its own around each command, which an executor of ours then runs: templates.

    `{network}` and `{writable}` are what commands may have, `{work}` is where they begin, `{bridge}` and
    `{options}` are the program on whose pipes the executor answers.
    """

    least: tuple[int, ...]  # the first version that can
    unattended: tuple[str, ...]  # instead of the record's own
    asking: tuple[str, ...]
    files: Mapping[str, str]  # below the state directory → content
    offline: tuple[
        str, ...
    ] = ()  # besides, where commands have no network: nothing else looks things up either
    mcp_arguments: tuple[str, ...] = ()  # have the executor start the MCP server too; go after those of `Mcp`
    withheld: tuple[str, ...] = ()  # variables that are for the CLI, and not for its commands


@dataclass(frozen=True, slots=True)
class EventRule:
    """What one kind of event means, for a CLI whose events are described by its record.

    A place is a path of keys, numbers of items (-1 is the last) and `*` for any item. `when` are places with
    the values that they may have; a rule without one for a value takes whatever is there.
    """

    when: tuple[tuple[tuple[str, ...], tuple[object, ...]], ...]
    means: str
    tool: tuple[str, ...] = ()
    input: tuple[str, ...] = ()
    message: tuple[tuple[str, ...], ...] = ()  # the first place where something is said
    http: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    attempt: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    in_ms: tuple[str, ...] = ()
    failure: Failure | None = None  # when the event itself does not say the cause
    usage: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    usage_adds: bool = False  # it counts a step, and not the run so far


@dataclass(frozen=True, slots=True)
class Agent:
    """One CLI. Everything it does differently from others is here."""

    name: str
    binary: str
    package: Package | None
    versions: Versions | None
    subcommand: tuple[str, ...] = ()  # what comes before every option
    headless: tuple[str, ...] = ()
    interactive: tuple[str, ...] = ()
    model_options: tuple[str, ...] = ()
    unattended: tuple[str, ...] = ()  # lets it act without asking: the sandbox around it is the boundary
    unattended_environment: Mapping[str, str] = field(default_factory=dict)
    unattended_note: str = ""  # what of its own it then does without, if somebody should know that
    asking: tuple[str, ...] = ()  # stands for {unattended} otherwise: lets it ask where it would not
    asking_environment: Mapping[str, str] = field(default_factory=dict)
    prompt_by: PromptBy = PromptBy.ARGUMENT
    on_terminal: tuple[str, ...] = ()  # how it is given where stdin cannot carry it, instead of a last "-"
    acp: tuple[str, ...] | None = None  # arguments of its ACP server; without {model}, ACP chooses the model
    parser: str = TEXT  # of stdout in a headless run; stderr is always text
    stderr_is_work: bool = False  # a line there means progress, as it does for a compiler
    ready: tuple[re.Pattern[str], ...] = ()  # on the screen: it takes input
    wants: tuple[WantSign, ...] = ()
    busy: tuple[BusySign, ...] = ()
    dialogs: tuple[Dialog, ...] = ()
    start_dialogs: tuple[StartDialog, ...] = ()
    titles: tuple[tuple[str, Claim], ...] = ()  # prefix of the window title, the first that fits
    transcript: Transcript | None = None
    retries: tuple[RetrySign, ...] = ()
    errors: tuple[ErrorSign, ...] = ()  # besides those that begin as most CLIs begin them
    log: RunLog | None = None
    shown_retries: tuple[RetrySign, ...] = ()  # the same on its screen, without what marks the line there
    failures: tuple[re.Pattern[str], ...] = ()  # on its screen: the turn failed; `message` says why …
    said: tuple[re.Pattern[str], ...] = ()  # … unless a line below it is the beginning of something newer
    state: tuple[StatePath, ...] = ()  # the most specific first
    relocation: Mapping[str, str] = field(default_factory=dict)  # variable → template
    relocation_arguments: tuple[str, ...] = ()
    host_files: tuple[HostFile, ...] = ()  # what of its user's it is given when its state is relocated
    keys: tuple[str, ...] = ()  # variables that hold its key or say where its provider is
    key_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of its keys, where each may go
    environment: Mapping[str, str] = field(default_factory=dict)  # keeps it quiet and offline
    exits: ExitRules = field(default_factory=ExitRules)
    provider: Provider | None = None
    reach: Reach | None = None  # None: nobody knows, and a worker has the whole network
    mcp: Mcp | None = None
    own_sandbox: OwnSandbox | None = None
    start_limit_s: float = DEFAULT_START_LIMIT_S
    events: tuple[EventRule, ...] = ()  # of the parser DESCRIBED, the first that fits
    tried: str = ""  # for people: with which version and how
    untried: str = ""  # likewise: what nobody saw


@dataclass(frozen=True, slots=True)
class Launch:
    """A start: arguments without the binary, what to write to stdin before closing it, variables to set.

    `model` is what is left to be chosen over ACP.
    """

    arguments: tuple[str, ...]
    stdin: str | None
    environment: Mapping[str, str]
    model: str | None = None


def fill(template: str, words: Mapping[str, str]) -> str:
    """The template with its words; braces around anything else stay."""
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
    """A headless run of `prompt`, or without one the interactive program; with `acp` the ACP server.

    `state` is the worker's private directory; None leaves its state in the home. `base` is another provider's
    address; its key is not in here, but in what `provider_secrets` returns. `mcp` is the command of an MCP
    server. Files that either needs are what `state_files` returns. `headless_arguments` stand for the
    record's own, to go on with a session for example. On a `tty` the prompt is an argument. With the words of
    its `own_sandbox` it keeps that.
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
    """What says who confines it: the sandbox around it, or one of its own."""
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
    """What about a start somebody should know; `version` is None where nobody knows it."""
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
    """Those with this key: for the worker's environment and for redaction, nowhere else."""
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
    """Files below the state directory that must be there before a start.

    Those of another provider and those of an MCP server; where both have settings in one file, it holds both.
    And those that lead to the executor of its commands.
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
    """Where its state really is, with these variables; the most specific first. A place may be a pattern."""
    places = {"home": home.rstrip("/"), "work": work.rstrip("/")}
    return [(_place(kept, places, environment), kept) for kept in agent.state]


def state_of(
    agent: Agent, path: str, *, home: str, work: str, environment: Mapping[str, str]
) -> StatePath | None:
    """What of the agent's state this path is, or lies in."""
    parts = path.split("/")
    for place, kept in state_paths(agent, home=home, work=work, environment=environment):
        pattern = place.split("/")
        if len(parts) >= len(pattern) and all(map(fnmatch.fnmatchcase, parts, pattern)):
            return kept
    return None


def relocation_of(agent: Agent, kept: StatePath, *, state: str) -> str:
    """NAME=PATH that moves this state into the private directory, or nothing if no variable does."""
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
