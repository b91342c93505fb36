"""Codex. Pure module."""

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
    RetrySign,
    StatePath,
    Stdin,
    Transcript,
    Versions,
    WantSign,
)
from holdfast.agents.evidence.evidence import Failure, Want, Wants, Work, Working
from holdfast.agents.evidence.verdict import ExitRules

_BRAILLE = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏⣷⣯⣟⡿⢿⣻⣽⣾"

CODEX = Agent(
    name="codex",
    binary="codex",
    package=Package("npm", "@openai/codex"),
    versions=Versions((0, 148), (0, 200), "0.166.0"),
    subcommand=("exec",),
    headless=("--json", "--skip-git-repo-check", "{unattended}", "{model}", "-"),
    interactive=("{unattended}", "{model}"),
    model_options=("-m", "{model}"),
    unattended=("--dangerously-bypass-approvals-and-sandbox",),
    prompt_by=PromptBy.STDIN,
    on_terminal=("--", "{prompt}"),
    stdin=Stdin.WAITS,
    channel=Channel.JSON,
    parser="codex",
    ready=(re.compile(r"^\s*\u203a\s", re.MULTILINE),),
    wants=(
        WantSign(re.compile(r"Would you like to (?:run|make|grant)"), Want.DECISION),
        WantSign(re.compile(r"Press enter to confirm or esc to cancel"), Want.DECISION),
        WantSign(re.compile(r"Trust this folder\?|Do you trust the contents of this directory"), Want.TRUST),
        WantSign(re.compile(r"Sign in with ChatGPT"), Want.LOGIN),
    ),
    dialogs=(Dialog(re.compile(r"^\u203a 1\. Yes, proceed \(y\)", re.MULTILINE), ("y",), ("escape",)),),
    busy=(
        BusySign(re.compile(r"\besc to interrupt\b", re.IGNORECASE), Work.THINKING),
        BusySign(re.compile(r"^[•◦]\s+Running ", re.MULTILINE), Work.TOOL),
    ),
    titles=(
        ("[ ! ] Action Required", Wants(Want.DECISION)),
        ("[ . ] Action Required", Wants(Want.DECISION)),
        *((spinner, Working(Work.THINKING)) for spinner in _BRAILLE),
    ),
    reports_status=True,
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
        StatePath("{home}/.codex/*.sqlite*", "codex's databases", CANNOT_START, "CODEX_HOME", "*.sqlite*"),
        StatePath("{home}/.codex/sessions", "codex's transcripts", CANNOT_START, "CODEX_HOME", "sessions"),
        StatePath("{home}/.codex/tmp", "codex's helper links", NOT_SAVED, "CODEX_HOME", "tmp"),
        StatePath("{home}/.codex", "codex's home", CANNOT_START, "CODEX_HOME"),
    ),
    relocation={"CODEX_HOME": "{state}"},
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
        arguments=(  # unless it is required, the first turns go without its tools
            "-c",
            "mcp_servers.holdfast={command={command},args={options},required=true,startup_timeout_sec=60,"
            'default_tools_approval_mode="approve"}',
        ),
    ),
)
