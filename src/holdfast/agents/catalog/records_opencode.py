"""OpenCode. Pure module."""

import re

from holdfast.agents.catalog.agent import (
    CANNOT_START,
    NOT_SAVED,
    Agent,
    BusySign,
    Channel,
    Mcp,
    Package,
    PromptBy,
    Provider,
    StatePath,
    Stdin,
    Versions,
    WantSign,
)
from holdfast.agents.evidence.evidence import Want, Work
from holdfast.agents.evidence.verdict import ExitRules

_DATA, _STATE, _CONFIG, _CACHE = "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"

OPENCODE = Agent(
    name="opencode",
    binary="opencode",
    package=Package("npm", "opencode-ai"),
    versions=Versions((1, 0), (2, 0), "1.18.33"),
    subcommand=("run",),
    headless=("--format", "json", "{unattended}", "{model}"),
    interactive=("{model}",),
    model_options=("-m", "{model}"),
    unattended=("--auto",),
    asking_environment={"OPENCODE_PERMISSION": '{"*":"ask"}'},
    prompt_by=PromptBy.STDIN,
    on_terminal=("--", "{prompt}"),
    stdin=Stdin.WAITS,
    channel=Channel.JSON,
    acp=("acp",),
    parser="opencode",
    ready=(re.compile(r"Ask anything|\bctrl\+p commands\b"),),
    wants=(
        WantSign(re.compile(r"△ Permission required"), Want.DECISION),
        WantSign(re.compile(r"Allow once\s+Allow always\s+Reject"), Want.DECISION),
    ),
    busy=(BusySign(re.compile(r"\besc\s+(?:to )?interrupt\b"), Work.THINKING),),
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
    environment={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    },
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
        environment={"OPENCODE_CONFIG": "{state}/mcp.json"},  # besides the user's own, not instead
        files={"mcp.json": '{"mcp":{"holdfast":{"type":"local","command":{argv},"timeout":60000}}}'},
    ),
    start_limit_s=90.0,  # 9 to 70 s were seen on a cold, busy host
)
