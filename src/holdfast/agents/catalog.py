"""Every agent CLI that we know, and what to hide from a worker about the agent that starts it. Pure module.

To add one: a record, and recorded evidence of it, in tests/unit/agents/recorded (`tools/record_agent.py`).
"""

from collections.abc import Mapping
from typing import Final

from holdfast.agents.agent import Agent
from holdfast.agents.records_claude import CLAUDE
from holdfast.agents.records_codex import CODEX
from holdfast.agents.records_gemini import GEMINI, QWEN
from holdfast.agents.records_opencode import OPENCODE
from holdfast.agents.records_text import AIDER, HERMES, SHELL

CATALOG: Final[Mapping[str, Agent]] = {
    agent.name: agent for agent in (CODEX, OPENCODE, CLAUDE, GEMINI, QWEN, AIDER, HERMES, SHELL)
}
