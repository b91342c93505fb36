"""Parses a TOML record of an agent CLI into an Agent. Pure module.

The parser validates a record before it is used: every key must be known, every template word must be allowed
where it stands, and every example of an event must match the rule that it belongs to. A record describes a
program that runs inside the sandbox and grants nothing. It can name no path to show or write except the state
of its own program, no variable that we or the dynamic loader react to, and no place where other programs keep
credentials. A record that we ship is trusted about its program's own login. So is a user's record of the same
name.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.agents.catalog.agent import (
    CANNOT_START,
    DEFAULT_START_LIMIT_S,
    DESCRIBED,
    NOT_SAVED,
    RETRIES,
    TEXT,
    Agent,
    Dialog,
    ErrorSign,
    EventRule,
    Mcp,
    Package,
    PromptBy,
    Provider,
    Reach,
    RetrySign,
    RunLog,
    StatePath,
    Versions,
    state_files,
)
from holdfast.agents.catalog.eventrules import ANY, COUNTS, MEANINGS, find, first_that_fits, fits
from holdfast.agents.catalog.recordlogins import NOBODY, Vouched, read_host_file, read_keys
from holdfast.agents.catalog.recordreader import (
    ARGUMENT_WORDS,
    MCP_WORDS,
    PROVIDER_WORDS,
    RecordReader,
    is_unsafe,
)
from holdfast.agents.evidence.evidence import Failure, Want, Work
from holdfast.agents.evidence.holdups import BusySign, WantSign
from holdfast.agents.evidence.verdict import ExitRules
from holdfast.egress.hosts import parse_rule
from holdfast.errors import UsageError

MAX_BYTES: Final = 256 * 1024  # of one file
MAX_RECORDS: Final = 100
WIRES: Final = ("responses", "chat", "anthropic", "gemini")
REUSED: Final = ("claude", "codex", "gemini", "opencode", "qwen", TEXT)  # parsers that a record may name

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_PROGRAM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_VERSION: Final = re.compile(r"\d{1,12}(?:\.\d{1,12}){0,4}")
_KEY: Final = re.compile(r"[a-z]|enter|escape|up|down|left|right|tab|space|[0-9]")
_PACKAGE: Final = re.compile(r"(npm|pypi):([@A-Za-z0-9][A-Za-z0-9@/._-]{0,200})")
KEY_VARIABLE: Final = "HOLDFAST_PROVIDER_KEY"  # our only variable that a provider's settings may use
_GAPS: Final[Mapping[str, str]] = {
    "attempt": r"(?P<attempt>\d{1,6})",
    "of": r"(?P<of>\d{1,6})",
    "in_s": r"(?P<in_s>\d{1,9}(?:\.\d{1,6})?)",
    "in_ms": r"(?P<in_ms>\d{1,9}(?:\.\d{1,6})?)",
    "http": r"(?P<http>[1-5]\d\d)",
    "cause": r"(?P<cause>[^\n]{1,300})",
}

Table = dict[str, Any]


class Records(NamedTuple):
    """The contents of a file: usable records by name, and for each other record why it is invalid."""

    agents: dict[str, Agent]
    invalid: dict[str, str]


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    binary: str
    headless: list[str]
    package: str = ""
    versions: Table = {}
    tried: str = ""
    untried: str = ""
    subcommand: list[str] = []
    interactive: list[str] = []
    model: list[str] = []
    unattended: list[str] = []
    asking: list[str] = []
    prompt: str = "argument"
    on_terminal: list[str] = []
    acp: list[str] | None = None
    start_limit_s: float = DEFAULT_START_LIMIT_S
    hosts: list[str] = []
    environment: dict[str, str] = {}
    unattended_environment: dict[str, str] = {}
    asking_environment: dict[str, str] = {}
    relocation: dict[str, str] = {}
    relocation_arguments: list[str] = []
    state: list[Table] = []
    host_files: list[Table] = []
    keys: list[str] = []
    parser: str = ""
    events: list[Table] = []
    retries: list[Table] = []
    errors: list[Table] = []
    log: Table | None = None
    screen: list[Table] = []
    exits: Table = {}
    provider: Table | None = None
    mcp: Table | None = None


class _Versions(msgspec.Struct, forbid_unknown_fields=True):
    least: str
    below: str
    recorded: str


class _State(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    role: str
    without: str = CANNOT_START
    variable: str = ""
    below: str = ""


class _Words(msgspec.Struct, forbid_unknown_fields=True):
    words: str
    failure: str = ""
    example: str = ""


class _Log(msgspec.Struct, forbid_unknown_fields=True):
    place: str
    retries: list[Table]


class _Sign(msgspec.Struct, forbid_unknown_fields=True):
    shows: str
    means: str
    approve: list[str] = []
    deny: list[str] = []
    example: str = ""


class _Exits(msgspec.Struct, forbid_unknown_fields=True):
    zero: str = "success"
    codes: dict[str, str] = {}
    http_modulo: bool = False


class _Provider(msgspec.Struct, forbid_unknown_fields=True):
    wire: str
    environment: dict[str, str] = {}
    arguments: list[str] = []
    files: dict[str, str] = {}
    model: str = "{model}"


class _Mcp(msgspec.Struct, forbid_unknown_fields=True):
    environment: dict[str, str] = {}
    arguments: list[str] = []
    files: dict[str, str] = {}
    in_state: bool = False


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    means: str
    example: str | list[str]
    when: Table = {}
    tool: str = ""
    input: str = ""
    message: str | list[str] = ""
    http: str = ""
    code: str = ""
    attempt: str = ""
    of: str = ""
    in_ms: str = ""
    failure: str = ""
    usage: Table = {}


def parse_file(
    text: str,
    source: str,
    taken: Collection[str] = (),
    *,
    shipped: Mapping[str, Agent] | None = None,
    trusted: bool = False,
) -> Records:
    """Parse all records of a file, each independently; `taken` are names that they cannot use.

    A record with the name of a `shipped` record describes the same CLI. `trusted`: we ship this file.

    Raises:
        UsageError: the file is not TOML, or has too many records.
    """
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise UsageError(f"{source}: {exc}") from None
    if len(tree) > MAX_RECORDS:
        raise UsageError(f"{source}: more than {MAX_RECORDS} records")
    found = Records({}, {})
    for name, record in tree.items():
        try:
            found.agents[name] = parse(
                name, record, source, taken, vouched=Vouched(trusted, (shipped or {}).get(name))
            )
        except UsageError as exc:
            found.invalid[name] = f"{exc}" + (f" ({exc.remedy})" if exc.remedy else "")
        except (RecursionError, ValueError) as exc:
            found.invalid[name] = f"{source}: [{name}]: {exc}"
    return found


def parse(
    name: str, tree: object, source: str, taken: Collection[str] = (), *, vouched: Vouched = NOBODY
) -> Agent:
    """Parse the record of this name.

    Raises:
        UsageError: the record is invalid; names the file, the key, what is wrong, and what is allowed.
    """
    reader = RecordReader(f"{source}: [{name}]")
    if not _NAME.fullmatch(name):
        raise reader.wrong("", "is not the name of an agent", "a-z, 0-9 and -, at most 32 of them")
    if name in taken:
        raise reader.wrong("", "is the name of an agent that Holdfast knows by itself", "choose another name")
    record = reader.convert(tree, _Record, "")
    return _Builder(reader, name, record, vouched).build()


class _Builder:
    def __init__(self, reader: RecordReader, name: str, record: _Record, vouched: Vouched) -> None:
        self._reader = reader
        self._name = name
        self._record = record
        self._vouched = vouched

    def build(self) -> Agent:
        reader, record = self._reader, self._record
        if not _PROGRAM.fullmatch(record.binary):
            raise reader.wrong("binary", f"`{record.binary}` is not the name of a program", "a name on PATH")
        prompt_by = PromptBy(reader.choose("prompt", record.prompt, [one.value for one in PromptBy]))
        if not 1 <= record.start_limit_s <= 3600:
            raise reader.wrong("start_limit_s", "is not between 1 and 3600")
        relocation = reader.variables("relocation", record.relocation, ("state",))
        for variable, value in relocation.items():
            below = value.removeprefix("{state}")
            if (
                not value.startswith("{state}")
                or (below and is_unsafe(below.removeprefix("/")))
                or (below and not below.startswith("/"))
            ):
                raise reader.wrong(f"relocation.{variable}", "is not below {state}", "{state}/NAME")
        agent = Agent(
            name=self._name,
            binary=record.binary,
            package=self._package(),
            versions=self._versions(),
            subcommand=reader.templates("subcommand", record.subcommand, ()),
            headless=reader.templates("headless", record.headless, ARGUMENT_WORDS),
            interactive=reader.templates("interactive", record.interactive, ARGUMENT_WORDS[1:]),
            model_options=reader.templates("model", record.model, ("model",)),
            unattended=reader.templates("unattended", record.unattended, ()),
            unattended_environment=reader.variables("unattended_environment", record.unattended_environment),
            asking=reader.templates("asking", record.asking, ()),
            asking_environment=reader.variables("asking_environment", record.asking_environment),
            prompt_by=prompt_by,
            on_terminal=reader.templates("on_terminal", record.on_terminal, ("prompt",)),
            acp=None if record.acp is None else reader.templates("acp", record.acp, ARGUMENT_WORDS[1:]),
            state=tuple(self._state(number, row) for number, row in enumerate(record.state)),
            relocation=relocation,
            relocation_arguments=reader.templates(
                "relocation_arguments", record.relocation_arguments, ("state",)
            ),
            environment=reader.variables("environment", record.environment),
            keys=read_keys(reader, record.keys, self._vouched),
            retries=self._retries("retries", record.retries),
            errors=tuple(self._error(number, row) for number, row in enumerate(record.errors)),
            log=self._log(),
            exits=self._exits(),
            provider=self._provider(),
            reach=self._reach(),
            mcp=self._mcp(),
            start_limit_s=record.start_limit_s,
            tried=record.tried,
            untried=record.untried,
        )
        agent = replace(
            agent,
            host_files=tuple(
                read_host_file(reader, f"host_files[{number}]", row, agent)
                for number, row in enumerate(record.host_files)
            ),
        )
        self._check_prompt(agent)
        self._check_files(agent)
        return self._with_events(self._with_screen(agent))

    def _check_prompt(self, agent: Agent) -> None:
        by_argument = sum(item.count("{prompt}") for item in agent.headless)
        on_terminal = sum(item.count("{prompt}") for item in agent.on_terminal)
        if agent.prompt_by is PromptBy.ARGUMENT and by_argument != 1:
            raise self._reader.wrong("headless", "must say {prompt} once", 'or prompt = "stdin"')
        if agent.prompt_by is PromptBy.STDIN and (by_argument or on_terminal != 1):
            raise self._reader.wrong(
                "on_terminal",
                "must say {prompt} once where the prompt is read from stdin, and headless never",
            )
        if agent.model_options and "{model}" not in agent.headless:
            raise self._reader.wrong("headless", "must say {model} where `model` has options")

    def _check_files(self, agent: Agent) -> None:
        """Check that files with settings of both provider and MCP are JSON, which is how they are merged."""
        try:
            state_files(agent, base="http://h", model="m", mcp=("c", "o"))
        except (ValueError, TypeError):
            raise self._reader.wrong(
                "mcp.files", "holds a file of the provider, and one is not JSON"
            ) from None

    def _package(self) -> Package | None:
        if not self._record.package:
            return None
        found = _PACKAGE.fullmatch(self._record.package)
        if found is None:
            raise self._reader.wrong("package", "is not a package", "npm:NAME or pypi:NAME")
        return Package(found[1], found[2])

    def _versions(self) -> Versions | None:
        if not self._record.versions:
            return None
        table = self._reader.convert(self._record.versions, _Versions, "versions")
        for name in ("least", "below", "recorded"):
            if not _VERSION.fullmatch(getattr(table, name)):
                raise self._reader.wrong(f"versions.{name}", "is not a version", "numbers with dots")
        return Versions(_numbers(table.least), _numbers(table.below), table.recorded)

    def _state(self, number: int, row: Table) -> StatePath:
        key = f"state[{number}]"
        table = self._reader.convert(row, _State, key)
        self._reader.choose(f"{key}.without", table.without, (CANNOT_START, NOT_SAVED, RETRIES))
        root, _, rest = table.path.partition("/")
        if root not in ("{home}", "{work}") or is_unsafe(rest):
            raise self._reader.wrong(f"{key}.path", "is not below a home", "{home}/NAME or {work}/NAME")
        first = rest.split("/", 1)[0]
        if any(sign in first for sign in "*?["):
            raise self._reader.wrong(
                f"{key}.path", "is a pattern from its first name on", "name the directory"
            )
        kept = self._vouched.find_foreign(rest) if root == "{home}" else None
        if kept is not None:
            raise self._reader.wrong(f"{key}.path", f"credentials are kept in ~/{kept}")
        if table.variable and table.variable not in self._record.relocation:
            raise self._reader.wrong(f"{key}.variable", "is not among `relocation`", self._record.relocation)
        if table.below and (is_unsafe(table.below) or not f"/{rest}".endswith(f"/{table.below}")):
            raise self._reader.wrong(f"{key}.below", "is not the end of `path`")
        if not table.role:
            raise self._reader.wrong(f"{key}.role", "is empty", "what it is, for people")
        return StatePath(table.path, table.role, table.without, table.variable, table.below)

    def _log(self) -> RunLog | None:
        if self._record.log is None:
            return None
        table = self._reader.convert(self._record.log, _Log, "log")
        if is_unsafe(table.place):
            raise self._reader.wrong("log.place", "is not a path below the state directory")
        return RunLog(table.place, self._retries("log.retries", table.retries))

    def _retries(self, key: str, rows: list[Table]) -> tuple[RetrySign, ...]:
        return tuple(self._retry(f"{key}[{number}]", row) for number, row in enumerate(rows))

    def _retry(self, key: str, row: Table) -> RetrySign:
        return RetrySign(*self._words(key, row))

    def _error(self, number: int, row: Table) -> ErrorSign:
        return ErrorSign(*self._words(f"errors[{number}]", row, gaps=("http", "cause")))

    def _words(
        self, key: str, row: Table, gaps: Collection[str] = tuple(_GAPS)
    ) -> tuple[re.Pattern[str], Failure | None]:
        table = self._reader.convert(row, _Words, key)
        known = {name: _GAPS[name] for name in gaps}
        pattern = self._reader.pattern(f"{key}.words", table.words, known)
        if table.example and pattern.search(table.example) is None:
            raise self._reader.wrong(f"{key}.example", "does not have these words")
        return pattern, self._reader.failure(f"{key}.failure", table.failure)

    def _exits(self) -> ExitRules:
        table = self._reader.convert(self._record.exits, _Exits, "exits")
        self._reader.choose("exits.zero", table.zero, ("success", "unknown"))
        codes: dict[int, Failure] = {}
        for code, meaning in table.codes.items():
            if not code.isdigit() or not 1 <= int(code) <= 255:
                raise self._reader.wrong(f"exits.codes.{code}", "is not an exit code", "1 to 255")
            failure = self._reader.failure(f"exits.codes.{code}", meaning or "?")
            codes |= {int(code): failure} if failure is not None else {}
        return ExitRules(table.zero == "success", codes, table.http_modulo)

    def _provider(self) -> Provider | None:
        if self._record.provider is None:
            return None
        table = self._reader.convert(self._record.provider, _Provider, "provider")
        rest = tuple(word for word in PROVIDER_WORDS if word != "key")
        return Provider(
            wire=self._reader.choose("provider.wire", table.wire, WIRES),
            environment=self._reader.variables(
                "provider.environment", table.environment, PROVIDER_WORDS, but=KEY_VARIABLE
            ),
            arguments=self._reader.templates("provider.arguments", table.arguments, rest),
            files=self._reader.files("provider.files", table.files, ("base", "model")),
            model=self._reader.templates("provider.model", [table.model], ("model",))[0],
        )

    def _reach(self) -> Reach | None:
        """Return the provider's hosts. None if the record names none: its workers get the whole network."""
        for number, rule in enumerate(self._record.hosts):
            try:
                parse_rule(rule)
            except UsageError as exc:
                raise self._reader.wrong(f"hosts[{number}]", str(exc).partition(" is ")[2]) from None
        return Reach(tuple(self._record.hosts)) if self._record.hosts else None

    def _mcp(self) -> Mcp | None:
        if self._record.mcp is None:
            return None
        table = self._reader.convert(self._record.mcp, _Mcp, "mcp")
        return Mcp(
            arguments=self._reader.templates("mcp.arguments", table.arguments, MCP_WORDS),
            environment=self._reader.variables("mcp.environment", table.environment, MCP_WORDS),
            files=self._reader.files("mcp.files", table.files, MCP_WORDS[:3]),
            in_state=table.in_state,
        )

    def _with_screen(self, agent: Agent) -> Agent:
        reader = self._reader
        wants, busy, dialogs, ready = (
            list[WantSign](),
            list[BusySign](),
            list[Dialog](),
            list[re.Pattern[str]](),
        )
        asked = {want.value: want for want in Want}
        works = {work.value: work for work in Work}
        for number, row in enumerate(self._record.screen):
            key = f"screen[{number}]"
            table = reader.convert(row, _Sign, key)
            pattern = reader.pattern(f"{key}.shows", table.shows)
            if table.example and pattern.search(table.example) is None:
                raise reader.wrong(f"{key}.example", "does not show this")
            reader.choose(f"{key}.means", table.means, (*asked, *works))
            for pressed in (*table.approve, *table.deny):
                if not _KEY.fullmatch(pressed):
                    raise reader.wrong(key, f"`{pressed}` is not a key", "a letter, a digit, enter, escape …")
            if bool(table.approve) != bool(table.deny):
                raise reader.wrong(key, "has keys for one answer only", "approve and deny")
            if table.approve and table.means != Want.DECISION:
                raise reader.wrong(key, "has keys, and is not a decision", 'means = "decision"')
            if table.approve:
                dialogs.append(Dialog(pattern, tuple(table.approve), tuple(table.deny)))
            if table.means in works:
                busy.append(BusySign(pattern, works[table.means]))
            elif table.means == Want.PROMPT:
                ready.append(pattern)
            else:
                wants.append(WantSign(pattern, asked[table.means]))
        return replace(
            agent, wants=tuple(wants), busy=tuple(busy), dialogs=tuple(dialogs), ready=tuple(ready)
        )

    def _with_events(self, agent: Agent) -> Agent:
        record, reader = self._record, self._reader
        if not record.events:
            return replace(agent, parser=reader.choose("parser", record.parser or TEXT, REUSED))
        if record.parser:
            raise reader.wrong("parser", "is named, and `events` describe another", "one of the two")
        rows = [reader.convert(row, _Event, f"events[{number}]") for number, row in enumerate(record.events)]
        examples = [self._examples(number, row) for number, row in enumerate(rows)]
        rules = [self._rule(number, row, examples[number]) for number, row in enumerate(rows)]
        for number in range(len(rules)):
            self._check(number, rules, examples[number])
        return replace(agent, parser=DESCRIBED, events=tuple(rules))

    def _examples(self, number: int, row: _Event) -> list[Table]:
        key = f"events[{number}].example"
        texts = [row.example] if isinstance(row.example, str) else row.example
        if not texts:
            raise self._reader.wrong(key, "is missing", "a line of its output")
        found = []
        for text in texts:
            try:
                event = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError, UnicodeError) as exc:
                raise self._reader.wrong(key, f"is not a line of JSON: {exc}") from None
            if not isinstance(event, dict):
                raise self._reader.wrong(key, "is not a JSON object")
            found.append(event)
        return found

    def _rule(self, number: int, row: _Event, examples: list[Table]) -> EventRule:
        key = f"events[{number}]"
        self._reader.choose(f"{key}.means", row.means, MEANINGS)
        when = row.when or {"type": examples[0].get("type")}
        wanted = []
        for place, value in when.items():
            values = value if isinstance(value, list) else [value]
            if not values or not all(isinstance(one, str | int | float | bool) for one in values):
                raise self._reader.wrong(
                    f"{key}.when.{place}", "is not a value", f'a text, a number, true, false, "{ANY}", a list'
                )
            wanted.append((_place(place), tuple(values)))
        usage = dict(row.usage)
        adds = usage.pop("per", "run")
        self._reader.choose(f"{key}.usage.per", str(adds), ("run", "step"))
        for name, place in usage.items():
            self._reader.choose(f"{key}.usage", name, (*COUNTS, "per"))
            if not isinstance(place, str):
                raise self._reader.wrong(f"{key}.usage.{name}", "is not a place in the event")
        messages = [row.message] if isinstance(row.message, str) else row.message
        return EventRule(
            when=tuple(wanted),
            means=row.means,
            tool=_place(row.tool),
            input=_place(row.input),
            message=tuple(_place(one) for one in messages if one),
            http=_place(row.http),
            code=_place(row.code),
            attempt=_place(row.attempt),
            of=_place(row.of),
            in_ms=_place(row.in_ms),
            failure=self._reader.failure(f"{key}.failure", row.failure),
            usage={name: _place(place) for name, place in usage.items()},
            usage_adds=adds == "step",
        )

    def _check(self, number: int, rules: list[EventRule], examples: list[Table]) -> None:
        """Check that each example matches its own rule first, and that the examples have all its places."""
        key, rule = f"events[{number}]", rules[number]
        for event in examples:
            if not fits(rule, event):
                raise self._reader.wrong(f"{key}.example", "does not fit its own `when`")
            first = first_that_fits(rules, event)
            if first != number:
                raise self._reader.wrong(
                    f"{key}.example",
                    f"is taken by events[{first}], which stands before it",
                    "change the order",
                )
        named = {
            name: getattr(rule, name) for name in ("tool", "input", "http", "code", "attempt", "of", "in_ms")
        }
        named |= {f"usage.{name}": place for name, place in rule.usage.items()}
        named |= {f"message {'.'.join(place)}": place for place in rule.message}
        for name, place in named.items():
            if place and not any(find(event, place) for event in examples):
                raise self._reader.wrong(f"{key}.{name}", f"`{'.'.join(place)}` is in no example")


def _place(text: str) -> tuple[str, ...]:
    return tuple(text.split(".")) if text else ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
