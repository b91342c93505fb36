"""Every known agent CLI, and the parser for its output. Pure module.

The records in this module are of CLIs that print only text: aider, Hermes, and any other program. To add one,
add a record, and recorded evidence of it in tests/unit/agents/recorded (`tools/record_agent.py`).
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from holdfast.agents.catalog.agent import (
    CANNOT_START,
    DESCRIBED,
    NOT_SAVED,
    TEXT,
    Agent,
    ErrorSign,
    Package,
    Provider,
    RetrySign,
    StatePath,
    Versions,
)
from holdfast.agents.catalog.claude import CLAUDE, ClaudeEvents
from holdfast.agents.catalog.codex import CODEX, CodexEvents
from holdfast.agents.catalog.eventrules import DescribedEvents
from holdfast.agents.catalog.gemini import GEMINI, QWEN, GeminiEvents
from holdfast.agents.catalog.opencode import OPENCODE, OpencodeEvents
from holdfast.agents.catalog.output import JsonEvents, LogLines, TextLines
from holdfast.agents.evidence.evidence import Evidence, Failure, Want
from holdfast.agents.evidence.holdups import WantSign
from holdfast.agents.evidence.verdict import ExitRules
from holdfast.errors import UsageError

# Without these it edits .gitignore, and prints many notices before it begins.
_AIDER_QUIET = ("--no-gitignore", "--no-check-update", "--no-show-model-warnings", "--no-show-release-notes")

AIDER = Agent(
    name="aider",
    binary="aider",
    package=Package("pypi", "aider-chat"),
    versions=Versions((0, 80), (1, 0), "0.86.2"),
    headless=("{model}", "{unattended}", "--no-pretty", *_AIDER_QUIET, "--message", "{prompt}"),
    interactive=("{model}", *_AIDER_QUIET),
    model_options=("--model", "{model}"),
    unattended=("--yes-always",),
    ready=(re.compile(r"^(?:\w+ )?> ?$", re.MULTILINE),),
    wants=(WantSign(re.compile(r"\(Y\)es/\(N\)o"), Want.DECISION),),
    retries=(RetrySign(re.compile(r"^Retrying in (?P<in_s>[\d.]+) seconds")),),
    errors=(  # it then waits for a browser
        ErrorSign(re.compile(r"^No LLM model was specified and no API keys were provided"), Failure.AUTH),
        ErrorSign(re.compile(r"^Waiting up to 5 minutes for you to finish in the browser"), Failure.AUTH),
    ),
    state=(
        StatePath("{home}/.aider", "aider's home", NOT_SAVED),
        StatePath("{work}/.aider.tags.cache.v4", "aider's cache of names", NOT_SAVED),
        StatePath("{work}/.git/config*", "the repository's settings, which aider edits", CANNOT_START),
    ),
    environment={"AIDER_ANALYTICS": "false", "NO_COLOR": "1"},
    keys=("OPENAI_API_KEY", "OPENAI_API_BASE", "ANTHROPIC_API_KEY"),
    exits=ExitRules(zero_means_success=False),
    provider=Provider(
        wire="chat",
        environment={"OPENAI_API_BASE": "{base}/v1", "OPENAI_API_KEY": "{key}"},
        model="openai/{model}",
    ),
)

HERMES = Agent(
    name="hermes",
    binary="hermes",
    package=Package("pypi", "hermes-agent"),
    versions=Versions((0, 18), (1, 0), "0.19.0"),
    subcommand=("chat",),
    headless=("-Q", "{unattended}", "{model}", "-q", "{prompt}"),
    interactive=("chat", "{model}"),
    model_options=("-m", "{model}"),
    unattended=("--yolo",),
    acp=("acp",),
    retries=(
        RetrySign(
            re.compile(r"API call failed \(attempt (?P<attempt>\d+)/(?P<of>\d+)\)(?:: (?P<cause>.*))?"),
        ),
    ),
    state=(
        StatePath("{home}/.hermes/state.db*", "hermes' database", CANNOT_START, "HERMES_HOME", "state.db*"),
        StatePath("{home}/.hermes", "hermes' home", CANNOT_START, "HERMES_HOME"),
        StatePath("{home}/.cache", "the cache of the packages it fetches", NOT_SAVED, "XDG_CACHE_HOME"),
    ),
    relocation={"HERMES_HOME": "{state}/home", "XDG_CACHE_HOME": "{state}/cache"},
    keys=("OPENROUTER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"),
    exits=ExitRules(zero_means_success=False),
    provider=Provider(
        wire="chat",
        environment={"OPENAI_API_KEY": "{key}"},
        files={
            "home/config.yaml": 'model:\n  provider: custom\n  base_url: "{base}/v1"\n  default: "{model}"\n'
        },
    ),
)

SHELL = Agent(
    name="shell",
    binary="sh",
    package=None,
    versions=None,
    headless=("-c", "{prompt}"),
    stderr_is_work=True,
    exits=ExitRules(zero_means_success=True, codes={126: Failure.LAUNCH, 127: Failure.LAUNCH}),
)


CATALOG: Final[Mapping[str, Agent]] = {
    agent.name: agent for agent in (CODEX, OPENCODE, CLAUDE, GEMINI, QWEN, AIDER, HERMES, SHELL)
}

_EVENTS: Final[dict[str, type[JsonEvents]]] = {
    "codex": CodexEvents,
    "opencode": OpencodeEvents,
    "claude": ClaudeEvents,
    "qwen": ClaudeEvents,
    "gemini": GeminiEvents,
}
PARSERS: Final = frozenset({*_EVENTS, TEXT, DESCRIBED})


class Parser(Protocol):
    """Reads one stream of one run. It keeps state, so each stream needs its own."""

    def feed(self, line: str, at: float) -> list[Evidence]: ...


def parser_of(agent: Agent, secrets: Sequence[str] = ()) -> Parser:
    """Create the parser for stdout of a headless run. `secrets` never appear in the evidence."""
    if agent.parser == DESCRIBED:
        return DescribedEvents(agent.events, agent.retries, errors=agent.errors, secrets=secrets)
    events = _EVENTS.get(agent.parser)
    if events is None:
        return TextLines(agent.retries, errors=agent.errors, secrets=secrets)
    return events(agent.retries, errors=agent.errors, secrets=secrets)


def text_parser_of(agent: Agent, secrets: Sequence[str] = ()) -> Parser:
    """Create the parser for stderr: notices, attempts and errors; work only if the record says so."""
    return TextLines(agent.retries, errors=agent.errors, secrets=secrets, progress=agent.stderr_is_work)


def log_parser_of(agent: Agent, secrets: Sequence[str] = ()) -> Parser:
    """Create the parser for the CLI's log, which reads only attempts."""
    return LogLines(agent.log.retries if agent.log is not None else (), secrets=secrets)


# --- by name: built-in agents, shipped records, and the user's own records

FILE: Final = "agents.toml"
BUILT_IN: Final = "built in"
SHIPPED: Final = "shipped record"


class ShippedAgents(Mapping[str, Agent]):
    """The shipped records, by name, as texts. Each is parsed on first access."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._read: dict[str, Agent] = {}

    def __getitem__(self, name: str) -> Agent:
        if name not in self._read:
            from holdfast.agents.catalog.userrecords import parse_file  # late: most homes need none

            found = parse_file(self._texts[name], f"{name}.toml", taken=CATALOG, trusted=True)
            self._read[name] = found.agents[name]
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def find_program(self, name: str) -> str:
        """Return the program that must be on the PATH for it, without validating the rest of the record."""
        return str(tomllib.loads(self._texts[name])[name]["binary"])


class KnownAgents(Mapping[str, Agent]):
    """All usable agents by name. `invalid` maps other names to the reason why they cannot be used.

    `source` returns where an agent is described.
    """

    def __init__(
        self, shipped: ShippedAgents, own: Mapping[str, Agent], invalid: Mapping[str, str], file: str
    ) -> None:
        self._own, self._shipped, self._file = own, shipped, file
        self.invalid = invalid
        # An invalid user's record hides the shipped one of its name: the user meant another program.
        others = [name for name in shipped if name not in invalid]
        self._names = dict.fromkeys((*others, *own, *CATALOG))

    def __getitem__(self, name: str) -> Agent:
        if name not in self._names:
            raise KeyError(name)
        return CATALOG.get(name) or self._own.get(name) or self._shipped[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def find_programs(self) -> dict[str, str]:
        """Return the program that must be on the PATH for each agent of a shipped or user's record."""
        described = [name for name in self if name not in CATALOG]
        return {
            name: self._own[name].binary if name in self._own else self._shipped.find_program(name)
            for name in described
        }

    def is_record(self, name: str) -> bool:
        """Return whether a record describes it, a shipped one or a user's."""
        return name in self and self.source(name) != BUILT_IN

    def source(self, name: str) -> str:
        if name in self._own:
            return self._file
        return SHIPPED if name in self._shipped else BUILT_IN


def find_agent(known: Mapping[str, Agent], name: str) -> Agent:
    """Return the agent of this name.

    Raises:
        UsageError: there is none, or its record is invalid.
    """
    agent = known.get(name)
    if agent is not None:
        return agent
    invalid = known.invalid if isinstance(known, KnownAgents) else {}
    if name in invalid:
        raise UsageError(
            f"the record of `{name}` is invalid: {invalid[name]}", remedy="holdfast worker agents"
        )
    remedy = f"one of: {', '.join(sorted(known))}"
    if FILE in invalid:
        remedy += f"; nothing of {invalid[FILE]}"
    raise UsageError(f"no agent `{name}` is known", remedy=remedy)


def describe_unknown(name: str) -> Agent:
    """Return an agent for a worker whose record is gone: its output is plain text for people.

    Its exit code means little.
    """
    return Agent(name=name, binary=name, package=None, versions=None)
