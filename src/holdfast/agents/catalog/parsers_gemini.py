"""`gemini -o stream-json` → evidence. Pure module. Attempts are told on stderr only."""

from collections.abc import Mapping, Sequence

from holdfast.agents.catalog.failures import of_message
from holdfast.agents.catalog.parsers_json import Handler, JsonEvent, JsonEvents, count_at, text_at
from holdfast.agents.evidence.evidence import (
    Claim,
    Failure,
    Progress,
    Ready,
    Result,
    ToolFailed,
    Usage,
    Work,
    Working,
)


class GeminiEvents(JsonEvents):
    _cut = ""  # the last error, if nothing followed it: a "success" after it is none

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
        if text_at(event, "status") == "error":
            said = text_at(event, "error", "message") or text_at(event, "output")
            trouble = of_message(said)
            if trouble is not None and trouble.failure is Failure.PERMISSION:
                self.refused.append(self.say(said))
            claims.append(ToolFailed(self.say(said)))
        return [*claims, Working(Work.THINKING)]

    def _error(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        message = text_at(event, "message")
        trouble = of_message(message)
        if trouble is None:
            return []
        self._cut = message if text_at(event, "severity") == "error" else ""
        return [trouble]

    def _result(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        stats = event.get("stats")
        usage = Usage(
            input_tokens=count_at(stats, "input_tokens"),
            output_tokens=count_at(stats, "output_tokens"),
            cached_tokens=count_at(stats, "cached"),
        )
        if text_at(event, "status") == "success" and not self._cut:
            return [Result(ok=True, usage=usage, refused=tuple(self.refused))]
        bad = self.failed(text_at(event, "error", "message") or self._cut or text_at(event, "error", "type"))
        return [Result(False, bad.failure, bad.message, bad.http, usage, bad.refused)]
