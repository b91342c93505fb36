"""Which parser reads what a CLI says. Pure module."""

from collections.abc import Sequence
from typing import Final, Protocol

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.claude import ClaudeEvents
from holdfast.agents.catalog.codex import CodexEvents
from holdfast.agents.catalog.gemini import GeminiEvents
from holdfast.agents.catalog.jsonevents import JsonEvents
from holdfast.agents.catalog.opencode import OpencodeEvents
from holdfast.agents.catalog.textlines import TextLines
from holdfast.agents.evidence.evidence import Evidence


class Parser(Protocol):
    """Reads one stream of one run; it remembers, so each stream has its own."""

    def feed(self, line: str, at: float) -> list[Evidence]: ...


_EVENTS: Final[dict[str, type[JsonEvents]]] = {
    "codex": CodexEvents,
    "opencode": OpencodeEvents,
    "claude": ClaudeEvents,
    "qwen": ClaudeEvents,
    "gemini": GeminiEvents,
}
NAMES: Final = frozenset({*_EVENTS, "text"})


def parser_of(agent: Agent, secrets: Sequence[str] = ()) -> Parser:
    """For stdout of a headless run. `secrets` never appear in the evidence."""
    events = _EVENTS.get(agent.parser)
    if events is None:
        return TextLines(agent.retries, secrets=secrets)
    return events(agent.retries, secrets=secrets)


def text_parser_of(agent: Agent, secrets: Sequence[str] = ()) -> Parser:
    """For stderr: notices, attempts and errors, and only where the record says so signs of work."""
    return TextLines(agent.retries, secrets=secrets, progress=agent.stderr_is_work)
