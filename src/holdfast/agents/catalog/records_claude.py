"""Claude Code. Pure module."""

import re

from holdfast.agents.catalog.agent import (
    CANNOT_START,
    NOT_SAVED,
    Agent,
    BusySign,
    Channel,
    Dialog,
    Mcp,
    Package,
    PromptBy,
    Provider,
    StatePath,
    Stdin,
    Versions,
    WantSign,
)
from holdfast.agents.evidence.evidence import Want, Work, Working
from holdfast.agents.evidence.verdict import ExitRules

_DIR = "CLAUDE_CONFIG_DIR"

CLAUDE = Agent(
    name="claude",
    binary="claude",
    package=Package("npm", "@anthropic-ai/claude-code"),
    versions=Versions((2, 1), (3, 0), "2.1.325"),
    headless=("-p", "--output-format", "stream-json", "--verbose", "{unattended}", "{model}"),
    interactive=("{unattended}", "{model}"),
    model_options=("--model", "{model}"),
    unattended=("--permission-mode", "bypassPermissions"),
    asking=("--permission-mode", "default"),  # without it a classifier decides, and most is done unasked
    unattended_environment={"IS_SANDBOX": "1"},  # root may not bypass without it
    prompt_by=PromptBy.STDIN,
    on_terminal=("--", "{prompt}"),
    stdin=Stdin.IGNORES,  # it warns after 3 s and goes on
    channel=Channel.JSON,
    parser="claude",
    ready=(re.compile(r"^\s*\u276f", re.MULTILINE),),
    wants=(
        WantSign(re.compile(r"Do you want to (?:proceed|create|make|allow)"), Want.DECISION),
        WantSign(
            re.compile(r"Is this a project you created or one you trust|Do you trust the files"), Want.TRUST
        ),
        WantSign(re.compile(r"Select login method|Do you want to use this API key"), Want.LOGIN),
        WantSign(re.compile(r"Choose the text style"), Want.QUESTION),
        WantSign(re.compile(r"Enter to select .* Esc to cancel"), Want.QUESTION),
    ),
    dialogs=(
        Dialog(
            re.compile(r"Do you want to proceed\?\n \u276f 1\. Yes *$", re.MULTILINE), ("enter",), ("escape",)
        ),
    ),
    busy=(BusySign(re.compile(r"\besc to interrupt\b", re.IGNORECASE), Work.THINKING),),
    titles=(("◐", Working(Work.THINKING)), ("◑", Working(Work.THINKING))),  # "✳" is idle and waiting alike
    reports_status=True,
    state=(
        StatePath("{home}/.claude.json*", "claude's settings and its lock", NOT_SAVED, _DIR, ".claude.json*"),
        StatePath("{home}/.claude/projects", "claude's transcripts", NOT_SAVED, _DIR, "projects"),
        StatePath("{home}/.claude/sessions", "claude's session records", NOT_SAVED, _DIR, "sessions"),
        StatePath("{home}/.claude", "claude's home", NOT_SAVED, _DIR),
        StatePath("/tmp/claude-*", "claude's temporary files", CANNOT_START, "CLAUDE_CODE_TMPDIR"),  # noqa: S108
        StatePath("/tmp/cc-socks", "claude's control socket", NOT_SAVED, "CLAUDE_CODE_TMPDIR", "cc-socks"),  # noqa: S108
    ),
    relocation={_DIR: "{state}/config", "CLAUDE_CODE_TMPDIR": "{state}/tmp"},
    environment={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
    exits=ExitRules(zero_means_success=False),
    provider=Provider(
        wire="anthropic",
        environment={"ANTHROPIC_BASE_URL": "{base}", "ANTHROPIC_API_KEY": "{key}"},
        files={
            "config/.claude.json": '{"hasCompletedOnboarding":true}'
        },  # the first start asks its maker's servers
    ),
    mcp=Mcp(
        arguments=(
            "--mcp-config",  # loaded always: otherwise the model has to search for its tools first
            '{"mcpServers":{"holdfast":{"command":{command},"args":{options},"alwaysLoad":true}}}',
            *("--allowedTools", "mcp__holdfast"),
        ),
        environment={"MCP_TIMEOUT": "60000"},  # ms until it has started
    ),
)
