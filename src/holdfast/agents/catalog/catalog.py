"""Every agent CLI that we know, and what a worker must not inherit from an agent above it. Pure module.

To add one: a record, and recorded evidence of it, in tests/unit/agents/recorded (`tools/record_agent.py`).
"""

from collections.abc import Mapping
from typing import Final

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.claude import CLAUDE
from holdfast.agents.catalog.codex import CODEX
from holdfast.agents.catalog.gemini import GEMINI, QWEN
from holdfast.agents.catalog.opencode import OPENCODE
from holdfast.agents.catalog.textclis import AIDER, HERMES, SHELL

CATALOG: Final[Mapping[str, Agent]] = {
    agent.name: agent for agent in (CODEX, OPENCODE, CLAUDE, GEMINI, QWEN, AIDER, HERMES, SHELL)
}

# What the CLIs tell the commands they run about themselves. Names, not prefixes: a vendor's prefix is also
# that of the user's own settings (CODEX_HOME, CLAUDE_CONFIG_DIR, QWEN_HOME), which stay.
MARKERS: Final = frozenset(
    {
        "AGENT",
        "AI_AGENT",
        "CLAUDECODE",
        "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_EXECPATH",
        "CLAUDE_CODE_MESSAGING_SOCKET",
        "CLAUDE_CODE_MESSAGING_TOKEN",
        "CLAUDE_CODE_SESSION_ATTENDED",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_EFFORT",
        "CLAUDE_PID",
        "CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS",
        "CODEX_CI",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_SESSION_ID",
        "CODEX_THREAD_ID",
        "CODEX_TOOL_CALL_ID",
        "CODEX_VERSION",
        "GEMINI_CLI",
        "GEMINI_CLI_NO_RELAUNCH",
        "OPENCODE",
        "OPENCODE_PID",
        "PI_CODING_AGENT",
        "QWEN_CODE",
        "QWEN_CODE_AGENT_ID",
        "QWEN_CODE_CLI",
        "QWEN_CODE_LAUNCHER_PID",
        "QWEN_CODE_MANAGED_NPM_PIN",
        "QWEN_CODE_MANAGED_NPM_ROOT",
        "QWEN_CODE_MODEL",
        "QWEN_CODE_MODEL_IDENTITY",
        "QWEN_CODE_NO_RELAUNCH",
        "QWEN_CODE_PRIVATE_RELAUNCH_ENV_PROVENANCE",
        "QWEN_CODE_PROJECT_DIR",
        "QWEN_CODE_PROMPT_ID",
        "QWEN_CODE_SESSION_ID",
        "QWEN_CODE_STARTUP_VERSION",
    }
)
# What an agent sets for its commands, and a user may set as well: removed only below an agent.
BORROWED: Final = frozenset(
    {
        "CI",
        "DEBIAN_FRONTEND",
        "GCM_INTERACTIVE",
        "GH_PAGER",
        "GH_PROMPT_DISABLED",
        "GIT_ASKPASS",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_EDITOR",
        "GIT_PAGER",
        "GIT_TERMINAL_PROMPT",
        "NONINTERACTIVE",
        "NO_COLOR",
        "NO_TTY",
        "OPENCODE_CONFIG_CONTENT",  # the outer agent's whole configuration, keys included
        "PAGER",
        "SSH_ASKPASS",
    }
)


_NUMBERED: Final = ("GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_")


def without_outer_agent(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment as it would be had no agent started us."""
    if MARKERS.isdisjoint(environment):
        return dict(environment)
    gone = MARKERS | BORROWED
    return {k: v for k, v in environment.items() if k not in gone and not k.startswith(_NUMBERED)}
