"""Claude Code: its record, and the parser of its stream, which Qwen Code's follows. Pure module.

`subtype` stays "success" when the provider failed, so `is_error` decides. The CLI itself writes the messages
of the model "<synthetic>"; they report errors.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

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
    StartDialog,
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
    list_at,
    number_at,
    text_at,
)
from holdfast.agents.evidence.evidence import (
    AnswerOption,
    Claim,
    Failure,
    Progress,
    Ready,
    Result,
    Retrying,
    TokenUsage,
    ToolFailed,
    Used,
    Want,
    Wants,
    Work,
    Working,
)
from holdfast.agents.evidence.holdups import BusySign, WantSign
from holdfast.agents.evidence.verdict import ExitRules

_QUIET = {  # subtypes of `system` events that are ignored
    "status",
    "compact_boundary",
    "hook_started",
    "hook_progress",
    "hook_response",
    "task_started",
    "task_progress",
    "task_updated",
    "task_notification",
    "files_persisted",
    "post_turn_summary",
    "session_state_changed",
    "thinking_tokens",
}
_REASONS = {
    "prompt_too_long": Failure.CONTEXT,
    "blocking_limit": Failure.CONTEXT,
    "refusal": Failure.REFUSAL,
    "error_max_turns": Failure.TIMEOUT,
    "max_turns": Failure.TIMEOUT,
    "error_max_budget_usd": Failure.QUOTA,
}
_ERRORS = {  # values of `error` in an attempt and of `api_error` in a result
    "authentication_failed": Failure.AUTH,
    "oauth_org_not_allowed": Failure.AUTH,
    "billing_error": Failure.QUOTA,
    "rate_limit": Failure.RATE_LIMIT,
    "server_error": Failure.PROVIDER,
    "overloaded": Failure.PROVIDER,
    "model_not_found": Failure.MODEL,
    "invalid_request": Failure.CONFIGURATION,
    "max_output_tokens": Failure.CONTEXT,
}
_OWN_ERROR = re.compile(r"\[API Error: [^\]]*\]")  # qwen sends it as a message of the model
_ANSWERS = (AnswerOption("allow", "allow_once", "Allow"), AnswerOption("deny", "reject_once", "Deny"))


MAX_LEFT = 8  # commands that are listed


class ClaudeEvents(JsonEvents):
    _answer = ""  # id of the current answer; _counted is its usage, _before the usage of all earlier answers
    _counted = TokenUsage()
    _before = TokenUsage()
    _left: tuple[str, ...] = ()  # background commands that the CLI does not wait for

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "system": self._system,
            "assistant": self._assistant,
            "user": self._user,
            "stream_event": self._partial,
            "control_request": self._request,
            "rate_limit_event": self._rate,
            "result": self._result,
            "control_response": lambda event, at: [],
            "control_cancel_request": lambda event, at: [Working(Work.THINKING)],
            "keep_alive": lambda event, at: [],
            "tool_progress": lambda event, at: [Progress(Work.TOOL)],
            "tool_use_summary": lambda event, at: [],
        }

    def _system(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        match text_at(event, "subtype"):
            case "init":
                return [Ready(), Working(Work.THINKING)]
            case "api_retry" | "retry":
                return [self._retrying(event, at)]
            case "permission_denied":
                self.refused.append(self.say(text_at(event, "tool_name")))
                return []
            case subtype if subtype in _QUIET:
                return []
            case subtype:
                return self.drift(f"system {subtype}")

    def _retrying(self, event: JsonEvent, at: float) -> Retrying:
        """Read an attempt: claude has it in the event; qwen below `data`, with other keys or no number."""
        said = at_path(event, "data") if "data" in event else event
        http = _first(said, "error_status", "errorStatus", "status")
        word = text_at(said, "error")
        message = text_at(said, "error", "message") or text_at(said, "message")
        trouble = of_message(f"{word} {message}", http) if http is not None else of_message(message)
        delay = _first(said, "retry_delay_ms", "delayMs", "delay_ms")
        return Retrying(
            attempt=self.attempts.another(_first(said, "attempt")),
            of=_first(said, "max_retries", "maxRetries"),
            failure=_ERRORS.get(word) or (trouble.failure if trouble else None),
            http=http if http is not None else trouble.http if trouble else None,
            next_at=None if delay is None else at + delay / 1000,
        )

    def _assistant(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        blocks = list_at(event, "message", "content")
        said = " ".join(text_at(block, "text") for block in blocks).strip()
        if text_at(event, "message", "model") == "<synthetic>" or _OWN_ERROR.fullmatch(said):
            trouble = of_message(said)
            return [] if trouble is None else [trouble]
        claims: list[Claim] = self._used(event)
        for block in blocks:
            match text_at(block, "type"):
                case "text":
                    claims.append(Progress(Work.STREAMING))
                case "thinking" | "redacted_thinking":
                    claims.append(Progress(Work.THINKING))
                case "tool_use" | "server_tool_use" | "mcp_tool_use":
                    self.called(text_at(block, "name"), at_path(block, "input"))
                    if at_path(block, "input", "is_background") is True:
                        self._left = (*self._left, self.calls.last)[-MAX_LEFT:]
                    claims += [Progress(Work.STREAMING), Working(Work.TOOL)]
                case kind if kind.endswith("_result"):
                    claims.append(Progress(Work.TOOL))
                case kind:
                    claims += self.drift(f"block {kind}")
        return claims

    def _used(self, event: JsonEvent) -> list[Claim]:
        """Count usage once per answer: the CLI splits an answer into events that all repeat its usage."""
        message = at_path(event, "message")
        name, counted = text_at(message, "id"), replace(_usage(message), turns=1)
        if not counted.tokens:
            return []
        if name != self._answer:
            self._answer, self._before = name, self._before + self._counted
        elif counted == self._counted:
            return []
        self._counted = counted
        return [Used(self._before + counted)]

    def _user(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        claims: list[Claim] = []
        for block in list_at(event, "message", "content"):
            if text_at(block, "type") == "tool_result":
                said = text_at(block, "content") or " ".join(
                    text_at(part, "text") for part in list_at(block, "content")
                )
                failed = at_path(block, "is_error") is True
                claims += [Progress(Work.TOOL), *([ToolFailed(self.say(said))] if failed else [])]
        return [*claims, Working(Work.THINKING)] if claims else []

    def _partial(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        return [] if text_at(event, "event", "type") in ("goal_state", "ping") else [Progress(Work.STREAMING)]

    def _request(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        subtype = text_at(event, "request", "subtype")
        if subtype != "can_use_tool":
            return self.drift(f"control_request {subtype}")
        question = self.say(text_at(event, "request", "tool_name"))
        return [Wants(Want.DECISION, question, _ANSWERS, self.say(text_at(event, "request_id")))]

    def _rate(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        if text_at(event, "rate_limit_info", "status") != "rejected":
            return []
        trouble = of_message("usage limit")
        return [] if trouble is None else [trouble]

    def _result(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        denied = [text_at(item, "tool_name") for item in list_at(event, "permission_denials")]
        self.refused = [self.say(name) for name in denied] or self.refused
        usage = _usage(event)
        subtype, reason = text_at(event, "subtype"), text_at(event, "terminal_reason")
        known = _REASONS.get(reason) or _REASONS.get(subtype) or _ERRORS.get(text_at(event, "api_error"))
        stop = _REASONS.get(text_at(event, "stop_reason"))
        is_error = at_path(event, "is_error")
        if is_error is not True and (is_error is False or subtype == "success") and not (known or stop):
            return [Result(ok=True, usage=usage, refused=tuple(self.refused), unfinished=self._left)]
        errors = " ".join(error for error in list_at(event, "errors") if isinstance(error, str))
        message = (
            text_at(event, "error", "message")
            or text_at(event, "error")
            or text_at(event, "result")
            or errors
        )
        bad = self.failed(message, http=int_at(event, "api_error_status"), failure=known or stop)
        return [Result(False, bad.failure, bad.message, bad.http, usage, bad.refused)]


def _usage(event: object) -> TokenUsage:
    """Return the usage. All input counts as input, cached or not, as other CLIs count it."""
    usage = at_path(event, "usage")
    cached = count_at(usage, "cache_read_input_tokens")
    # qwen's input count includes cached tokens; the presence of its total identifies qwen.
    included = int_at(usage, "total_tokens") is not None
    fresh = count_at(usage, "input_tokens") + count_at(usage, "cache_creation_input_tokens")
    return TokenUsage(
        input_tokens=fresh if included else fresh + cached,
        output_tokens=count_at(usage, "output_tokens"),
        cached_tokens=cached,
        cost_usd=number_at(event, "total_cost_usd"),
        turns=count_at(event, "num_turns"),
    )


def _first(event: object, *names: str) -> int | None:
    return next((value for name in names if (value := int_at(event, name)) is not None), None)


_DIR = "CLAUDE_CONFIG_DIR"
_NEXT = ("down", "enter")  # the dialog opens with its exit choice selected
_LOGIN = Renewal(
    refresh="claudeAiOauth.refreshToken",
    tokens=("claudeAiOauth.accessToken", "claudeAiOauth.refreshToken", "claudeAiOauth.expiresAt"),
    expires="claudeAiOauth.expiresAt",
)
_STARTS_PROGRAMS = (
    *("hooks", "statusLine", "apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "otelHeadersHelper"),
    *("enabledPlugins", "extraKnownMarketplaces", "sandbox"),
)
_KEPT = (  # the rest of that file lists every project the CLI was ever used in
    *("hasCompletedOnboarding", "lastOnboardingVersion", "theme", "userID", "oauthAccount", "primaryApiKey"),
    *("customApiKeyResponses", "bypassPermissionsModeAccepted"),
)


def _own(name: str, way: Way, what: str, drop: tuple[str, ...] = ()) -> HostFile:
    return HostFile(f".claude/{name}", f"config/{name}", way, what, _DIR, name, drop=drop)


CLAUDE = Agent(
    name="claude",
    binary="claude",
    package=Package("npm", "@anthropic-ai/claude-code"),
    versions=Versions((2, 1), (3, 0), "2.1.325"),
    headless=("-p", "--output-format", "stream-json", "--verbose", "{unattended}", "{model}"),
    interactive=("{unattended}", "{model}"),
    model_options=("--model", "{model}"),
    unattended=("--permission-mode", "bypassPermissions"),
    asking=("--permission-mode", "default"),  # without it a classifier decides, and it rarely asks
    unattended_environment={"IS_SANDBOX": "1"},  # without it, root may not use bypassPermissions
    prompt_by=PromptBy.STDIN,
    on_terminal=("--", "{prompt}"),
    parser="claude",
    ready=(re.compile(r"^\s*\u276f", re.MULTILINE),),
    wants=(
        WantSign(re.compile(r"Do you want to (?:proceed|create|make|allow)"), Want.DECISION),
        WantSign(
            re.compile(r"Is this a project you created or one you trust|Do you trust the files"), Want.TRUST
        ),
        WantSign(re.compile(r"you accept all responsibility for actions taken"), Want.TRUST),
        WantSign(re.compile(r"Select login method|Do you want to use this API key"), Want.LOGIN),
        WantSign(re.compile(r"Choose the text style"), Want.QUESTION),
        WantSign(re.compile(r"Enter to select .* Esc to cancel"), Want.QUESTION),
    ),
    dialogs=(
        Dialog(
            re.compile(
                r"Do you want to (?:proceed|create|make|edit)\b[^\n]*\?\n \u276f 1\. Yes *$", re.MULTILINE
            ),
            ("enter",),
            ("escape",),
        ),
    ),
    start_dialogs=(
        StartDialog(re.compile(r"^ *\u276f No, exit\n +Yes, I (?:trust|accept)\b", re.MULTILINE), _NEXT),
        StartDialog(  # the user gave it this key
            re.compile(r"Do you want to use this API key\?\n\s*Yes\n *\u276f No\b"), ("up", "enter")
        ),
    ),
    busy=(BusySign(re.compile(r"\besc to interrupt\b", re.IGNORECASE), Work.THINKING),),
    shown_retries=(
        RetrySign(
            re.compile(r"^(?P<cause>.*?) · Retrying in (?P<in_s>\d+)s · attempt (?P<attempt>\d+)/(?P<of>\d+)")
        ),
    ),
    failures=(
        re.compile(
            r"^[ ●⎿]*(?P<message>(?:API Error: |Please run /login|Failed to authenticate\."
            r"|Request rejected \(|There's an issue with the selected model|Prompt is too long"
            r"|Invalid API key).*)",
            re.MULTILINE,
        ),
    ),
    said=(re.compile(r"^(?:●|\u276f \S)"),),
    titles=(("◐", Working(Work.THINKING)), ("◑", Working(Work.THINKING))),  # "✳" means either idle or waiting
    state=(
        StatePath("{home}/.claude.json*", "claude's settings and its lock", NOT_SAVED, _DIR, ".claude.json*"),
        StatePath("{home}/.claude/projects", "claude's transcripts", NOT_SAVED, _DIR, "projects"),
        StatePath("{home}/.claude/sessions", "claude's session records", NOT_SAVED, _DIR, "sessions"),
        StatePath("{home}/.claude", "claude's home", NOT_SAVED, _DIR),
        StatePath("/tmp/claude-*", "claude's temporary files", CANNOT_START, "CLAUDE_CODE_TMPDIR"),  # noqa: S108
        StatePath("/tmp/cc-socks", "claude's control socket", NOT_SAVED, "CLAUDE_CODE_TMPDIR", "cc-socks"),  # noqa: S108
    ),
    relocation={_DIR: "{state}/config", "CLAUDE_CODE_TMPDIR": "{state}/tmp"},
    host_files=(
        HostFile(
            ".claude/.credentials.json",
            "config/.credentials.json",
            Way.RENEWED,
            "its login",
            _DIR,
            ".credentials.json",
            renewal=_LOGIN,
        ),
        HostFile(
            *(".claude.json", "config/.claude.json", Way.COPIED, "its account", _DIR, ".claude.json"),
            keep=_KEPT,
        ),
        _own("settings.json", Way.COPIED, "its settings", _STARTS_PROGRAMS),
        *(
            _own(name, Way.SHOWN, "its instructions")
            for name in ("CLAUDE.md", "agents", "commands", "skills")
        ),
    ),
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    key_hosts=dict.fromkeys(
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"), ("api.anthropic.com",)
    ),
    environment={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
    reach=Reach(
        ("api.anthropic.com", "console.anthropic.com", "platform.claude.com"),
        variables=("ANTHROPIC_BASE_URL",),
        settings=("env.ANTHROPIC_BASE_URL",),
    ),
    exits=ExitRules(zero_means_success=False),
    provider=Provider(
        wire="anthropic",
        environment={"ANTHROPIC_BASE_URL": "{base}", "ANTHROPIC_API_KEY": "{key}"},
        files={
            "config/.claude.json": '{"hasCompletedOnboarding":true}'
        },  # the first start contacts the vendor's servers
    ),
    mcp=Mcp(
        arguments=(
            "--mcp-config",  # always loaded; otherwise the model must search for its tools first
            '{"mcpServers":{"holdfast":{"command":{command},"args":{options},"alwaysLoad":true}}}',
            *("--allowedTools", "mcp__holdfast"),
        ),
        environment={"MCP_TIMEOUT": "60000"},  # ms for the server to start
    ),
)
