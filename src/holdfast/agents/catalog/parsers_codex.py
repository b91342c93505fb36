"""`codex exec --json` → evidence. Pure module.

An `error` event is no end: attempts have that type. An item of type `error` is a notice. Only
`turn.completed` and `turn.failed` end a turn, and a completed turn may consist of failed commands. A command
that codex's own sandbox refused has no event at all.
"""

from collections.abc import Mapping, Sequence

from holdfast.agents.catalog.failures import of_message
from holdfast.agents.catalog.parsers_json import (
    Handler,
    JsonEvent,
    JsonEvents,
    at_path,
    count_at,
    int_at,
    text_at,
)
from holdfast.agents.evidence.evidence import (
    Claim,
    Progress,
    Ready,
    Result,
    ToolFailed,
    Usage,
    Work,
    Working,
)

_TOOLS = {"command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"}
_PLANS = {"todo_list", "plan"}
_THOUGHTS = {"reasoning", *_PLANS}
_VARY = {"id", "type", "status", "exit_code", "aggregated_output", "result", "error"}  # not what was called


class CodexEvents(JsonEvents):
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
        return [Working(Work.TOOL)] if text_at(event, "item", "type") in _TOOLS else []

    def _item_updated(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        kind = text_at(event, "item", "type")
        if kind in _PLANS:
            self._called(event)
        return [Progress(Work.TOOL if kind in _TOOLS else Work.THINKING)]

    def _item_completed(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        kind = text_at(event, "item", "type")
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
        what = self.say(text_at(event, "item", "command") or text_at(event, "item", "type"))
        if status == "declined":
            self.refused.append(what)
        return [ToolFailed(what, code)] if code or status in ("failed", "declined") else []

    def _error(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        message = text_at(event, "message")
        if (retrying := self.attempts.read(message, at)) is not None:
            return [retrying]
        trouble = of_message(message)
        return [] if trouble is None else [trouble]

    def _completed(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        usage = at_path(event, "usage")
        counted = Usage(
            input_tokens=count_at(usage, "input_tokens"),
            output_tokens=count_at(usage, "output_tokens"),
            cached_tokens=count_at(usage, "cached_input_tokens"),
            turns=1,
        )
        return [Result(ok=True, usage=counted, refused=tuple(self.refused))]
