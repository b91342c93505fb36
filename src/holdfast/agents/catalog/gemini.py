"""Gemini CLI and its descendant Qwen Code: their records, and the parser of Gemini's events. Pure module.

Headless, Gemini CLI reports attempts only on stderr.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.agents.catalog.agent import (
    CANNOT_START,
    RETRIES,
    Agent,
    Dialog,
    Mcp,
    Package,
    PromptBy,
    Provider,
    Reach,
    RetrySign,
    RunLog,
    StatePath,
    Versions,
)
from holdfast.agents.catalog.failures import of_message
from holdfast.agents.catalog.hostfiles import HostFile, Way
from holdfast.agents.catalog.output import Handler, JsonEvent, JsonEvents, count_at, text_at
from holdfast.agents.evidence.evidence import (
    Claim,
    Failure,
    Idle,
    Progress,
    Ready,
    Result,
    TokenUsage,
    ToolFailed,
    Trouble,
    Want,
    Wants,
    Work,
    Working,
)
from holdfast.agents.evidence.holdups import BusySign, WantSign
from holdfast.agents.evidence.verdict import ExitRules

# The CLI itself cut the turn short: the work is not done, whatever its status says.
_GIVEN_UP = re.compile(
    r"Loop detected|Maximum session turns exceeded|max(?:imum)? (?:session )?turns", re.IGNORECASE
)


MAX_LEFT = 8  # commands that are listed
_LEFT = "Command moved to background "


class GeminiEvents(JsonEvents):
    _cut = ""  # the last error, if nothing followed it: a "success" right after it does not count
    _failure: Failure | None = None  # the failure of _cut, if its words alone do not show it
    _left: tuple[str, ...] = ()  # background commands that the CLI does not wait for

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "init": lambda event, at: [Ready()],
            "message": self._message,
            "tool_use": self._call,
            "tool_result": self._tool,
            "error": self._error,
            "result": self._result,
        }

    def _message(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        if text_at(event, "role") == "user":
            return [Working(Work.THINKING)]
        self._cut = ""
        return [Progress(Work.STREAMING)]

    def _call(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        self._cut = ""
        self.called(text_at(event, "tool_name"), event.get("parameters"))
        return [Progress(Work.STREAMING), Working(Work.TOOL)]

    def _tool(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        claims: list[Claim] = [Progress(Work.TOOL)]
        if text_at(event, "output").startswith(_LEFT):
            self._left = (*self._left, self.calls.last)[-MAX_LEFT:]
        if text_at(event, "status") == "error":
            said = text_at(event, "error", "message") or text_at(event, "output")
            trouble = of_message(said)
            if trouble is not None and trouble.failure is Failure.PERMISSION:
                self.refused.append(self.say(said))
            claims.append(ToolFailed(self.say(said)))
        return [*claims, Working(Work.THINKING)]

    def _error(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        message = text_at(event, "message")
        given_up = _GIVEN_UP.search(message) is not None
        trouble = Trouble(Failure.LIMIT) if given_up else of_message(message)
        if trouble is None:
            return []
        self._cut = message if given_up or text_at(event, "severity") == "error" else ""
        self._failure = trouble.failure if given_up else None
        return [trouble]

    def _result(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        stats = event.get("stats")
        usage = TokenUsage(
            input_tokens=count_at(stats, "input_tokens"),
            output_tokens=count_at(stats, "output_tokens"),
            cached_tokens=count_at(stats, "cached"),
        )
        if text_at(event, "status") == "success" and not self._cut:
            return [Result(ok=True, usage=usage, refused=tuple(self.refused), unfinished=self._left)]
        said = text_at(event, "error", "message")
        bad = self.failed(
            said or self._cut or text_at(event, "error", "type"), failure=None if said else self._failure
        )
        return [Result(False, bad.failure, bad.message, bad.http, usage, bad.refused)]


_LIST = re.compile(r"^[ │]*[●\u203a] 1\. (?:Allow|Yes)", re.MULTILINE)
_ONCE = re.compile(
    r"^[ │]*[●\u203a] 1\. (?:Allow once|Yes, allow once) *(?:│| █|$)", re.MULTILINE
)  # this choice is selected

_STARTS_PROGRAMS = ("mcpServers", "hooks", "hooksConfig", "tools.sandbox", "tools.*Command", "sandbox")
_LOGIN = ("access_token", "refresh_token", "id_token", "token_type", "scope", "expiry_date")


def _gemini(
    name: str, way: Way, what: str, *, keep: tuple[str, ...] = (), drop: tuple[str, ...] = ()
) -> HostFile:
    place = f".gemini/{name}"
    return HostFile(place, place, way, what, "GEMINI_CLI_HOME", place, keep=keep, drop=drop)


def _qwen(name: str, way: Way, what: str, *, drop: tuple[str, ...] = ()) -> HostFile:
    return HostFile(f".qwen/{name}", f"home/{name}", way, what, "QWEN_HOME", name, drop=drop)


_FAILED_TURN = (re.compile(r"^[ │]*✕ +(?P<message>.+)", re.MULTILINE),)
_SAID = (re.compile(r"^ {0,4}[>✦] \S"),)  # a prompt or an answer

_ATTEMPTS = (
    r"Attempt (?P<attempt>\d+) failed\. Retrying with backoff\.+ (?P<cause>.*)",  # the cause comes last
    r"Attempt (?P<attempt>\d+) failed(?: with status (?P<http>\d{3}))?"
    r"(?:: (?P<cause>.*?))?(?:\.* Retrying (?:after (?P<in_ms>[\d.]+)ms|with backoff).*)?$",
)

_SERVERS = '"mcpServers":{"holdfast":{"command":{command},"args":{options},"trust":true}}'

GEMINI = Agent(
    name="gemini",
    binary="gemini",
    package=Package("npm", "@google/gemini-cli"),
    versions=Versions((0, 40), (1, 0), "0.61.0"),
    headless=("-o", "stream-json", "--skip-trust", "{unattended}", "{model}"),
    interactive=("--skip-trust", "{unattended}", "{model}"),  # after the trust dialog it would restart
    model_options=("-m", "{model}"),
    unattended=("--approval-mode", "yolo"),
    asking=("--approval-mode", "default"),
    prompt_by=PromptBy.STDIN,
    on_terminal=("-p", "{prompt}"),
    acp=("--acp", "--skip-trust", "{unattended}", "{model}"),
    parser="gemini",
    ready=(re.compile(r"Type your message or @path"),),
    wants=(
        WantSign(re.compile(r"Allow execution of"), Want.DECISION),
        WantSign(re.compile(r"Apply this change\?"), Want.DECISION),
        WantSign(_LIST, Want.DECISION),
        WantSign(re.compile(r"[●\u203a] 1\. Keep trying"), Want.DECISION),
        WantSign(re.compile(r"Do you trust (?:the files in )?this folder"), Want.TRUST),
        WantSign(re.compile(r"How would you like to authenticate"), Want.LOGIN),
    ),
    dialogs=(Dialog(_ONCE, ("enter",), ("escape",)),),
    busy=(BusySign(re.compile(r"\besc to cancel\b", re.IGNORECASE), Work.THINKING),),
    shown_retries=(
        RetrySign(re.compile(r"Trying to reach .{1,80} \(Attempt (?P<attempt>\d+)/(?P<of>\d+)\)")),
    ),
    failures=(
        *_FAILED_TURN,
        re.compile(  # shown above the question whether to keep trying
            r"^[ │]*(?P<message>(?:Usage limit reached|We are currently experiencing high demand"
            r'|Model ".+" was not found).*?)[ │]*$',
            re.MULTILINE,
        ),
    ),
    said=_SAID,
    titles=(
        ("◇", Idle()),
        ("✦", Working(Work.THINKING)),
        ("✋", Wants(Want.DECISION)),
    ),
    retries=tuple(RetrySign(re.compile(f"^{words}")) for words in _ATTEMPTS),
    # On a terminal and over ACP it reports attempts nowhere else.
    log=RunLog(
        "debug.log",
        tuple(RetrySign(re.compile(rf"^\[\S+\] \[WARN\] {words}")) for words in _ATTEMPTS),
        "GEMINI_DEBUG_LOG_FILE",
    ),
    state=(
        StatePath(
            "{home}/.gemini/projects.json*",
            "gemini's project list and its lock",
            RETRIES,
            "GEMINI_CLI_HOME",
            ".gemini/projects.json*",
        ),
        StatePath("{home}/.gemini", "gemini's home", CANNOT_START, "GEMINI_CLI_HOME", ".gemini"),
    ),
    relocation={"GEMINI_CLI_HOME": "{state}"},
    host_files=(
        # Using the refresh token does not invalidate it: each worker can renew its own copy.
        _gemini("oauth_creds.json", Way.COPIED, "its login", keep=_LOGIN),
        _gemini("google_accounts.json", Way.COPIED, "its account", keep=("active",)),
        _gemini("settings.json", Way.COPIED, "its settings", drop=_STARTS_PROGRAMS),
        _gemini(".env", Way.COPIED, "its variables"),
        _gemini("GEMINI.md", Way.SHOWN, "its instructions"),
        _gemini("commands", Way.SHOWN, "its commands"),
    ),
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    key_hosts={
        "GEMINI_API_KEY": ("generativelanguage.googleapis.com",),
        "GOOGLE_API_KEY": ("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
    },
    reach=Reach(
        (
            *("generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com"),
            *("oauth2.googleapis.com", "aiplatform.googleapis.com"),
        ),
        variables=("GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL"),
    ),
    exits=ExitRules(
        zero_means_success=False,
        codes={
            41: Failure.AUTH,
            42: Failure.CONFIGURATION,
            44: Failure.SANDBOX,
            52: Failure.CONFIGURATION,
            53: Failure.TIMEOUT,
            130: Failure.KILLED,
        },
        http_modulo=True,
    ),
    provider=Provider(
        wire="gemini",
        environment={"GOOGLE_GEMINI_BASE_URL": "{base}", "GEMINI_API_KEY": "{key}"},
        files={".gemini/settings.json": '{"security":{"auth":{"selectedType":"gemini-api-key"}}}'},
    ),
    mcp=Mcp(files={".gemini/settings.json": f"{{{_SERVERS}}}"}, in_state=True),
)

_DASHSCOPE: Final = (
    *("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"),
    *("coding.dashscope.aliyuncs.com", "coding-intl.dashscope.aliyuncs.com"),
)

QWEN = Agent(
    name="qwen",
    binary="qwen",
    package=Package("npm", "@qwen-code/qwen-code"),
    versions=Versions((0, 20), (1, 0), "0.24.4"),
    headless=("-o", "stream-json", "{unattended}", "{model}"),
    interactive=("{unattended}", "{model}"),
    model_options=("-m", "{model}"),
    unattended=("--approval-mode", "yolo"),
    asking=("--approval-mode", "default"),  # without it a classifier decides
    prompt_by=PromptBy.STDIN,
    on_terminal=("-p", "{prompt}"),
    acp=("--acp", "{unattended}", "{model}"),
    parser="qwen",
    ready=(re.compile(r"Type your message or @path"),),
    wants=(
        WantSign(re.compile(r"Waiting for user confirmation"), Want.DECISION),
        WantSign(re.compile(r"Allow execution of"), Want.DECISION),
        WantSign(re.compile(r"Apply this change\?"), Want.DECISION),
        WantSign(_LIST, Want.DECISION),
        WantSign(re.compile(r"How would you like to authenticate|Select Authentication Method"), Want.LOGIN),
    ),
    dialogs=(Dialog(_ONCE, ("enter",), ("escape",)),),
    busy=(BusySign(re.compile(r"\besc to cancel\b", re.IGNORECASE), Work.THINKING),),
    failures=_FAILED_TURN,
    said=_SAID,
    titles=(
        ("◐", Working(Work.THINKING)),
        ("◑", Working(Work.THINKING)),
        ("✳", Wants(Want.DECISION)),
        ("Qwen - ", Idle()),
    ),
    retries=(
        RetrySign(re.compile(r"Retrying in (?P<in_s>\d+)\s*s\w* \(attempt (?P<attempt>\d+)/(?P<of>\d+)\)")),
    ),
    log=RunLog(
        "runtime/debug/*.txt", (RetrySign(re.compile(r"\[OPENAI_ERROR\] OpenAI API Error: (?P<cause>.*)")),)
    ),
    environment={"QWEN_DEBUG_LOG_FILE": "1"},  # without it, its attempts are invisible, for two minutes
    state=(
        StatePath(
            "{home}/.qwen/extension-store",
            "qwen's store of extensions",
            CANNOT_START,
            "QWEN_HOME",
            "extension-store",
        ),
        StatePath(
            "{home}/.qwen/projects", "qwen's transcripts", CANNOT_START, "QWEN_RUNTIME_DIR", "projects"
        ),
        StatePath("{home}/.qwen/tmp", "qwen's temporary files", CANNOT_START, "QWEN_RUNTIME_DIR", "tmp"),
        StatePath("{home}/.qwen", "qwen's home", CANNOT_START, "QWEN_HOME"),
    ),
    relocation={"QWEN_HOME": "{state}/home", "QWEN_RUNTIME_DIR": "{state}/runtime"},
    host_files=(
        _qwen("settings.json", Way.COPIED, "its settings", drop=_STARTS_PROGRAMS),
        _qwen(".env", Way.COPIED, "its variables"),
        _qwen("QWEN.md", Way.SHOWN, "its instructions"),
        _qwen("commands", Way.SHOWN, "its commands"),
        _qwen("agents", Way.SHOWN, "its agents"),
    ),
    keys=("OPENAI_API_KEY", "OPENAI_BASE_URL", "DASHSCOPE_API_KEY"),
    key_hosts={
        "OPENAI_API_KEY": ("api.openai.com", *_DASHSCOPE),
        "DASHSCOPE_API_KEY": _DASHSCOPE,
    },
    reach=Reach(
        (*_DASHSCOPE, "api.openai.com"),
        variables=("OPENAI_BASE_URL",),
        settings=("security.auth.baseUrl", "modelProviders.*.baseUrl"),
    ),
    exits=ExitRules(zero_means_success=False),
    provider=Provider(
        wire="chat",
        environment={
            "OPENAI_BASE_URL": "{base}/v1",
            "OPENAI_API_KEY": "{key}",
            "OPENAI_MODEL": "{model}",
        },
    ),
    mcp=Mcp(  # without a threshold the model must search for its tools first
        environment={
            "QWEN_CODE_SYSTEM_DEFAULTS_PATH": "{state}/mcp.json",
            "QWEN_CODE_LEGACY_MCP_BLOCKING": "1",  # otherwise the first turns run without the tools
        },
        files={"mcp.json": f'{{{_SERVERS},"tools":{{"toolSearch":{{"threshold":50}}}}}}'},
    ),
)
