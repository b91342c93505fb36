"""OpenCode: its record, and the parser of `opencode run --format json`. Pure module.

There is no event for the end. A step that finishes with `stop` ends the turn, and so does an `error`. After a
step that finishes with `tool-calls` the turn goes on, unless a tool was refused: then opencode exits with 0.
"""

import re
from collections.abc import Mapping, Sequence

from holdfast.agents.catalog.agent import (
    CANNOT_START,
    NOT_SAVED,
    Agent,
    Dialog,
    Mcp,
    Package,
    PromptBy,
    Provider,
    Reach,
    RetrySign,
    StatePath,
    Versions,
)
from holdfast.agents.catalog.failures import of_message
from holdfast.agents.catalog.hostfiles import HostFile, Renewal, Way
from holdfast.agents.catalog.output import (
    Handler,
    JsonEvent,
    JsonEvents,
    at_path,
    count_at,
    int_at,
    number_at,
    text_at,
)
from holdfast.agents.evidence.evidence import (
    Claim,
    Failure,
    Progress,
    Ready,
    Result,
    Retrying,
    TokenUsage,
    ToolFailed,
    Trouble,
    Used,
    Want,
    Work,
    Working,
)
from holdfast.agents.evidence.holdups import BusySign, WantSign
from holdfast.agents.evidence.verdict import ExitRules

_UNFINISHED = {"length": Failure.CONTEXT, "content-filter": Failure.REFUSAL}
_CUT = {"error", "other", "unknown"}  # the provider's stream broke; opencode retries the same step for ever


class OpencodeEvents(JsonEvents):
    _usage = TokenUsage(cost_usd=0.0)
    _started = False
    _stopped = ""  # the error of a tool that was refused in this step

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "step_start": self._step,
            "text": lambda event, at: [Progress(Work.STREAMING)],
            "reasoning": lambda event, at: [Progress(Work.THINKING)],
            "tool_use": self._tool,
            "step_finish": self._finished,
            "error": self._error,
        }

    def _step(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        first, self._started, self._stopped = not self._started, True, ""
        return [*([Ready()] if first else []), Working(Work.THINKING)]

    def _tool(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        tool, status = text_at(event, "part", "tool"), text_at(event, "part", "state", "status")
        self.called(tool, at_path(event, "part", "state", "input"))
        code = int_at(event, "part", "state", "metadata", "exit")
        error = text_at(event, "part", "state", "error")
        if status != "error" and not code:
            return [Progress(Work.TOOL)]
        trouble = of_message(error)
        if trouble is not None and trouble.failure is Failure.PERMISSION:
            self.refused.append(self.say(tool))
            self._stopped = error
        return [Progress(Work.TOOL), ToolFailed(self.say(f"{tool}: {error}" if error else tool), code)]

    def _finished(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        reason, cached = text_at(event, "part", "reason"), count_at(event, "part", "tokens", "cache", "read")
        step = TokenUsage(
            input_tokens=count_at(event, "part", "tokens", "input")
            + cached
            + count_at(event, "part", "tokens", "cache", "write"),
            output_tokens=count_at(event, "part", "tokens", "output")
            + count_at(event, "part", "tokens", "reasoning"),
            cached_tokens=cached,
            cost_usd=number_at(event, "part", "cost") or 0.0,
            turns=1,
        )
        if not step.tokens:
            return self._stepped(reason)
        self._usage += step
        return [Used(self._usage), *self._stepped(reason)]

    def _stepped(self, reason: str) -> Sequence[Claim]:
        if reason == "stop":
            return [Result(ok=True, usage=self._usage, refused=tuple(self.refused))]
        if reason == "tool-calls" and self._stopped:
            return [self.failed(self._stopped, failure=Failure.PERMISSION)]
        if reason == "tool-calls":  # the tools' own events reported their outcome
            return [Working(Work.THINKING)]
        if reason in _UNFINISHED:
            return [self.failed(f"the step ended with: {reason}", failure=_UNFINISHED[reason])]
        if reason in _CUT:
            attempt = self.attempts.another()
            return [Trouble(Failure.PROVIDER), Retrying(attempt, None, Failure.PROVIDER)]
        return self.drift(f"step_finish {reason}")

    def _error(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        message = text_at(event, "error", "data", "message") or text_at(event, "error", "name")
        return [self.failed(message, http=int_at(event, "error", "data", "statusCode"))]


_DATA, _STATE, _CONFIG, _CACHE = "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"

_LOGIN = Renewal(
    at="*",  # one login per provider; an API key has no refresh token
    refresh="refresh",
    tokens=("access", "refresh", "expires"),
    expires="expires",
    unset=("OPENCODE_DISABLE_DEFAULT_PLUGINS",),  # these plug-ins use and renew such a login
)
_STARTS_PROGRAMS = ("mcp", "plugin", "lsp", "formatter")
_SETTINGS = ("opencode.json", "opencode.jsonc", "config.json")
_TEXTS = (
    "AGENTS.md",
    "agent",
    "agents",
    "command",
    "commands",
    "mode",
    "modes",
    "skill",
    "skills",
    "prompts",
)


def _own(name: str, way: Way, what: str, drop: tuple[str, ...] = ()) -> HostFile:
    return HostFile(
        f".config/opencode/{name}",
        f"config/opencode/{name}",
        way,
        what,
        _CONFIG,
        f"opencode/{name}",
        drop=drop,
    )


_BLOCK = r"^ *┃ *\n(?: *┃ +\S.*\n)+ *┃ *\n"

_PERMISSION = re.compile(r"Allow once\s+Allow always\s+Reject")

OPENCODE = Agent(
    name="opencode",
    binary="opencode",
    package=Package("npm", "opencode-ai"),
    versions=Versions((1, 0), (2, 0), "1.18.33"),
    subcommand=("run",),
    # Without its log it retries for a minute without output. At this level the log on stderr has only errors.
    headless=("--print-logs", "--log-level", "ERROR", "--format", "json", "{unattended}", "{model}"),
    interactive=("{model}",),
    model_options=("-m", "{model}"),
    unattended=("--auto",),
    asking_environment={"OPENCODE_PERMISSION": '{"*":"ask"}'},
    prompt_by=PromptBy.STDIN,
    on_terminal=("--", "{prompt}"),
    acp=("acp", "--print-logs", "--log-level", "ERROR"),
    parser="opencode",
    ready=(re.compile(r"Ask anything|\bctrl\+p commands\b"),),
    wants=(
        WantSign(re.compile(r"△ Permission required"), Want.DECISION),
        WantSign(_PERMISSION, Want.DECISION),
    ),
    dialogs=(Dialog(_PERMISSION, (), ("escape",), click="Allow once"),),  # only colours show what is selected
    busy=(BusySign(re.compile(r"\besc\s+(?:to )?interrupt\b"), Work.THINKING),),
    shown_retries=(
        # The screen cuts off the end of a long line.
        RetrySign(
            re.compile(r"^(?P<cause>.*?) \[retrying in (?P<in_s>\d+)s attempt #(?P<attempt>\d+)(?:\]|$)")
        ),
    ),
    failures=(  # in a block like the prompt before it, followed by the line that closes an answer
        re.compile(rf"{_BLOCK} *\n^ *┃ *\n(?P<message>(?: *┃ +\S.*\n)+) *┃ *\n *\n *▣", re.MULTILINE),
    ),
    said=(re.compile("▣"),),
    retries=(
        RetrySign(
            re.compile(
                r'message="stream error" [^\n]*\bsmall=false [^\n]*\berror\.error="(?P<cause>[^"\n]*)'
            ),
        ),
    ),
    state=(
        StatePath(
            "{home}/.local/share/opencode/opencode.db*",
            "opencode's database",
            CANNOT_START,
            _DATA,
            "opencode/opencode.db*",
        ),
        StatePath("{home}/.local/share/opencode/log", "opencode's log", CANNOT_START, _DATA, "opencode/log"),
        StatePath("{home}/.local/share/opencode", "opencode's data", CANNOT_START, _DATA, "opencode"),
        StatePath("{home}/.local/state/opencode", "opencode's locks", CANNOT_START, _STATE, "opencode"),
        StatePath("{home}/.config/opencode", "opencode's configuration", CANNOT_START, _CONFIG, "opencode"),
        StatePath("{home}/.cache/opencode", "opencode's cache", CANNOT_START, _CACHE, "opencode"),
        StatePath("{home}/.local", "the place of opencode's data", CANNOT_START, _DATA),
        StatePath("{home}/.npm", "the cache of opencode's plug-ins", NOT_SAVED, "npm_config_cache"),
        StatePath("/tmp/opencode", "opencode's temporary files", CANNOT_START),  # noqa: S108 - its own place
    ),
    relocation={
        _DATA: "{state}/data",
        _STATE: "{state}/state",
        _CONFIG: "{state}/config",
        _CACHE: "{state}/cache",
        "npm_config_cache": "{state}/npm",
    },
    host_files=(
        HostFile(
            ".local/share/opencode/auth.json",
            "data/opencode/auth.json",
            Way.RENEWED,
            "its logins",
            _DATA,
            "opencode/auth.json",
            renewal=_LOGIN,
        ),
        *(_own(name, Way.COPIED, "its settings", _STARTS_PROGRAMS) for name in _SETTINGS),
        *(_own(name, Way.SHOWN, "its instructions") for name in _TEXTS),
    ),
    keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"),
    key_hosts={
        "ANTHROPIC_API_KEY": ("api.anthropic.com",),
        "OPENAI_API_KEY": ("api.openai.com",),
        "OPENROUTER_API_KEY": ("openrouter.ai",),
    },
    environment={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    },
    reach=Reach(
        (
            *("api.anthropic.com", "console.anthropic.com", "api.openai.com", "auth.openai.com"),
            *("chatgpt.com", "openrouter.ai", "opencode.ai"),
        ),
        settings=("provider.*.options.baseURL", "provider.*.api"),
    ),
    exits=ExitRules(zero_means_success=False),
    provider=Provider(
        wire="chat",
        environment={
            "HOLDFAST_PROVIDER_KEY": "{key}",
            "OPENCODE_CONFIG_CONTENT": '{"provider":{"other":{"npm":"@ai-sdk/openai-compatible","options":'
            '{"baseURL":"{base}/v1","apiKey":"{env:HOLDFAST_PROVIDER_KEY}"},"models":{"{model}":{}}}}}',
        },
        model="other/{model}",
    ),
    mcp=Mcp(
        environment={"OPENCODE_CONFIG": "{state}/mcp.json"},  # in addition to the user's own
        files={"mcp.json": '{"mcp":{"holdfast":{"type":"local","command":{argv},"timeout":60000}}}'},
    ),
    start_limit_s=90.0,  # 9 to 70 s were measured on a cold, busy host
)
