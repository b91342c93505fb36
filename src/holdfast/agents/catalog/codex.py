"""Codex: its record, and the parser of `codex exec --json`. Pure module.

An `error` event does not end the turn: attempts have that type, too. An item of type `error` is a notice.
Only `turn.completed` and `turn.failed` end a turn, and a completed turn may consist of failed commands. codex
emits no event at all for a command that its own sandbox refused.
"""

import re
from collections.abc import Mapping, Sequence

from holdfast.agents.catalog.agent import (
    CANNOT_START,
    NOT_SAVED,
    Agent,
    Dialog,
    ErrorSign,
    Mcp,
    OwnSandbox,
    Package,
    PromptBy,
    Provider,
    Reach,
    RetrySign,
    StartDialog,
    StatePath,
    Transcript,
    Versions,
)
from holdfast.agents.catalog.failures import of_message
from holdfast.agents.catalog.hostfiles import HostFile, Renewal, Way
from holdfast.agents.catalog.output import Handler, JsonEvent, JsonEvents, at_path, count_at, int_at, text_at
from holdfast.agents.evidence.evidence import (
    Claim,
    Failure,
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

_TOOLS = {"command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"}
_PLANS = {"todo_list", "plan"}
_THOUGHTS = {"reasoning", *_PLANS}
_NO_SANDBOX = re.compile(r"bwrap: |(?:error|Error): (?:Landlock|seccomp|sandbox)\b|codex-linux-sandbox: ")
MAX_OPEN = 64  # open commands: the worker chooses the ids, so their number is bounded
_VARY = {"id", "type", "status", "exit_code", "aggregated_output", "result", "error"}  # not part of the call


class CodexEvents(JsonEvents):
    def __init__(
        self,
        retries: Sequence[RetrySign] = (),
        *,
        errors: Sequence[ErrorSign] = (),
        secrets: Sequence[str] = (),
    ) -> None:
        super().__init__(retries, errors=errors, secrets=secrets)
        self._open: dict[str, str] = {}  # started commands that have not ended, by id

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "thread.started": lambda event, at: [Ready()],
            "turn.started": lambda event, at: [Working(Work.THINKING)],
            "item.started": self._item_started,
            "item.updated": self._item_updated,
            "item.completed": self._item_completed,
            "error": self._error,
            "turn.completed": self._completed,
            "turn.failed": lambda event, at: [self.failed(text_at(event, "error", "message"))],
        }

    def _item_started(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        if text_at(event, "item", "type") not in _TOOLS:
            return []
        if len(self._open) < MAX_OPEN:
            self._open[text_at(event, "item", "id")] = _name_tool(event)
        return [Working(Work.TOOL)]

    def _item_updated(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        kind = text_at(event, "item", "type")
        if kind in _PLANS:
            self._called(event)
        return [Progress(Work.TOOL if kind in _TOOLS else Work.THINKING)]

    def _item_completed(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        kind = text_at(event, "item", "type")
        self._open.pop(text_at(event, "item", "id"), None)
        if kind in _TOOLS | _PLANS:
            self._called(event)
        if kind in _TOOLS:
            return [Progress(Work.TOOL), *self._tool(event), Working(Work.THINKING)]
        if kind == "agent_message":
            return [Progress(Work.STREAMING)]
        if kind in _THOUGHTS:
            return [Progress(Work.THINKING)]
        return [] if kind == "error" else self.drift(f"item {kind}")

    def _called(self, event: JsonEvent) -> None:
        item = at_path(event, "item")
        given = (
            {name: value for name, value in item.items() if name not in _VARY}
            if isinstance(item, dict)
            else {}
        )
        self.called(text_at(item, "type"), text_at(item, "command") or given)

    def _tool(self, event: JsonEvent) -> list[Claim]:
        code, status = int_at(event, "item", "exit_code"), text_at(event, "item", "status")
        what = self.say(_name_tool(event))
        if status == "declined":
            self.refused.append(what)
        if not code and status not in ("failed", "declined"):
            return []
        # codex's own sandbox failed to start. No command of this run can work; this one did not really run.
        nested = _NO_SANDBOX.match(text_at(event, "item", "aggregated_output")) is not None
        return [ToolFailed(what, code), *([Trouble(Failure.SANDBOX)] if nested else [])]

    def _error(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        message = text_at(event, "message")
        if (retrying := self.attempts.read(message, at)) is not None:
            return [retrying]
        trouble = of_message(message)
        return [] if trouble is None else [trouble]

    def _completed(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        usage = at_path(event, "usage")
        counted = TokenUsage(
            input_tokens=count_at(usage, "input_tokens"),
            output_tokens=count_at(usage, "output_tokens"),
            cached_tokens=count_at(usage, "cached_input_tokens"),
            turns=1,
        )
        unfinished = tuple(map(self.say, self._open.values()))
        self._open.clear()
        return [Result(ok=True, usage=counted, refused=tuple(self.refused), unfinished=unfinished)]


def _name_tool(event: JsonEvent) -> str:
    return text_at(event, "item", "command") or text_at(event, "item", "type")


_HOME = "CODEX_HOME"
_AUTH_CLAIM = "https://api.openai.com/auth"
_LOGIN = Renewal(  # for ChatGPT logins; an API key has no refresh token
    refresh="tokens.refresh_token",
    tokens=("tokens.id_token", "tokens.access_token", "tokens.refresh_token", "last_refresh"),
    expires="tokens.access_token",
    whose=(("sub",), (_AUTH_CLAIM, "chatgpt_account_id")),
)
_STARTS_PROGRAMS = ("mcp_servers", "notify", "hooks", "plugins", "marketplaces", "model_providers.*.auth")

_BRAILLE = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏⣷⣯⣟⡿⢿⣻⣽⣾"

_OWN = ("-c", 'sandbox_mode="workspace-write"', "-c")  # as settings, because every subcommand accepts those
_ALL = "sandbox_workspace_write={network_access={network},writable_roots={writable}}"
_ASKED_FOR = "sandbox_workspace_write={network_access=false,writable_roots={writable}}"

CODEX = Agent(
    name="codex",
    binary="codex",
    package=Package("npm", "@openai/codex"),
    versions=Versions((0, 121), (0, 200), "0.166.0"),
    subcommand=("exec",),
    headless=("--json", "--skip-git-repo-check", "{unattended}", "{model}", "-"),
    interactive=("{unattended}", "{model}"),
    model_options=("-m", "{model}"),
    unattended=("--dangerously-bypass-approvals-and-sandbox",),
    unattended_note="its own sandbox is off (danger-full-access), since it cannot be put into another one",
    prompt_by=PromptBy.STDIN,
    on_terminal=("--", "{prompt}"),
    parser="codex",
    ready=(re.compile(r"^\s*\u203a\s", re.MULTILINE),),
    wants=(
        WantSign(
            re.compile(r"Would you like to (?:run|make|grant|send)|Do you want to approve network access"),
            Want.DECISION,
        ),
        WantSign(re.compile(r"Press enter to confirm or esc to cancel"), Want.DECISION),
        WantSign(re.compile(r"Trust this folder\?|Do you trust the contents of this directory"), Want.TRUST),
        WantSign(re.compile(r"Sign in with ChatGPT"), Want.LOGIN),
    ),
    start_dialogs=(StartDialog(re.compile(r"^\u203a 1\. Trust and continue", re.MULTILINE), ("enter",)),),
    dialogs=(Dialog(re.compile(r"^\u203a 1\. Yes, proceed \(y\)", re.MULTILINE), ("y",), ("escape",)),),
    busy=(
        BusySign(
            re.compile(
                r"^[•◦]\s+Running |\besc to interrupt\) · \d+ background terminals? running", re.MULTILINE
            ),
            Work.TOOL,
        ),
        BusySign(re.compile(r"\besc to interrupt\b", re.IGNORECASE), Work.THINKING),
    ),
    shown_retries=(
        RetrySign(re.compile(r"^Reconnecting\.\.\. waiting for network\b"), Failure.NETWORK),
        RetrySign(re.compile(r"^Reconnecting\.\.\. (?P<attempt>\d+)/(?P<of>\d+)")),
    ),
    failures=(re.compile(r"^■ (?P<message>.+)", re.MULTILINE),),
    said=(re.compile(r"^[•✔✗] "),),
    titles=(
        ("[ ! ] Action Required", Wants(Want.DECISION)),
        ("[ . ] Action Required", Wants(Want.DECISION)),
        *((spinner, Working(Work.THINKING)) for spinner in _BRAILLE),
    ),
    transcript=Transcript(
        "sessions/*/*/*/rollout-*-{session}.jsonl",
        re.compile(rb'"total_token_usage":\{"input_tokens":(\d{1,15}),[^{}]*"output_tokens":(\d{1,15})[,}]'),
    ),
    retries=(
        RetrySign(
            re.compile(r"^Reconnecting\.\.\. waiting for network\b(?: \((?P<cause>.*)\))?"), Failure.NETWORK
        ),
        RetrySign(re.compile(r"^Reconnecting\.\.\. (?P<attempt>\d+)/(?P<of>\d+)(?: \((?P<cause>.*)\))?")),
    ),
    state=(
        StatePath("{home}/.codex/*.sqlite*", "codex's databases", CANNOT_START, _HOME, "*.sqlite*"),
        StatePath("{home}/.codex/sessions", "codex's transcripts", CANNOT_START, _HOME, "sessions"),
        StatePath("{home}/.codex/tmp", "codex's helper links", NOT_SAVED, _HOME, "tmp"),
        StatePath("{home}/.codex", "codex's home", CANNOT_START, _HOME),
    ),
    relocation={_HOME: "{state}"},
    host_files=(
        HostFile(
            ".codex/auth.json", "auth.json", Way.RENEWED, "its login", _HOME, "auth.json", renewal=_LOGIN
        ),
        HostFile(
            *(".codex/config.toml", "config.toml", Way.COPIED, "its settings", _HOME, "config.toml"),
            drop=(*_STARTS_PROGRAMS, "projects"),
        ),
        HostFile(".codex/AGENTS.md", "AGENTS.md", Way.SHOWN, "its instructions", _HOME, "AGENTS.md"),
        HostFile(".codex/prompts", "prompts", Way.SHOWN, "its prompts", _HOME, "prompts"),
    ),
    keys=("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY"),
    key_hosts=dict.fromkeys(("OPENAI_API_KEY", "CODEX_API_KEY"), ("api.openai.com",)),
    reach=Reach(
        ("api.openai.com", "chatgpt.com", "auth.openai.com"),
        variables=("OPENAI_BASE_URL", "CODEX_REFRESH_TOKEN_URL_OVERRIDE"),
        settings=("openai_base_url", "chatgpt_base_url", "model_providers.*.base_url"),
    ),
    exits=ExitRules(zero_means_success=False),
    provider=Provider(
        wire="responses",
        environment={"HOLDFAST_PROVIDER_KEY": "{key}"},
        arguments=(
            "-c",
            'model_provider="other"',
            "-c",
            'model_providers.other={name="other",base_url="{base}/v1",wire_api="responses",'
            'env_key="HOLDFAST_PROVIDER_KEY"}',
        ),
    ),
    mcp=Mcp(
        arguments=(  # unless the server is required, the first turns run without its tools
            "-c",
            "mcp_servers.holdfast={command={command},args={options},required=true,startup_timeout_sec=60,"
            'default_tools_approval_mode="approve"}',
        ),
    ),
    own_sandbox=OwnSandbox(
        least=(0, 166),  # the oldest version it was tried with
        unattended=(*_OWN, _ALL, "-c", 'approval_policy="never"'),
        # With approvals, network access needs one. An approved command gets what the run allows.
        asking=(*_OWN, _ASKED_FOR, "-c", 'approval_policy="on-request"'),
        files={
            "environments.toml": 'default = "holdfast"\ninclude_local = false\n\n[[environments]]\n'
            'id = "holdfast"\nprogram = {bridge}\nargs = {options}\n',
        },
        offline=("-c", 'web_search="disabled"'),
        mcp_arguments=(
            "-c",
            'mcp_servers.holdfast.environment_id="holdfast"',
            "-c",
            "mcp_servers.holdfast.cwd={work}",
        ),
        withheld=("OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "HOLDFAST_PROVIDER_KEY"),
    ),
)
