"""`opencode run --format json` → evidence. Pure module.

There is no event for the end. A step that finishes with `stop` is the end of a turn, and so is an `error`; a
step that finishes with `tool-calls` goes on, unless a tool was refused: then the program ends there, with 0.
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
    number_at,
    text_at,
)
from holdfast.agents.evidence.evidence import (
    Claim,
    Failure,
    Progress,
    Ready,
    Result,
    Retrying,
    ToolFailed,
    Trouble,
    Usage,
    Used,
    Work,
    Working,
)

_UNFINISHED = {"length": Failure.CONTEXT, "content-filter": Failure.REFUSAL}
_CUT = {"error", "other", "unknown"}  # the provider's stream died; the same step is tried again, for ever


class OpencodeEvents(JsonEvents):
    _usage = Usage(cost_usd=0.0)
    _started = False
    _stopped = ""  # what a tool said that was refused in this step

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "step_start": self._step,
            "text": lambda event, at: [Progress(Work.STREAMING)],
            "reasoning": lambda event, at: [Progress(Work.THINKING)],
            "tool_use": self._tool,
            "step_finish": self._finished,
            "error": self._error,
        }

    def _step(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        first, self._started, self._stopped = not self._started, True, ""
        return [*([Ready()] if first else []), Working(Work.THINKING)]

    def _tool(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        tool, status = text_at(event, "part", "tool"), text_at(event, "part", "state", "status")
        self.called(tool, at_path(event, "part", "state", "input"))
        code = int_at(event, "part", "state", "metadata", "exit")
        error = text_at(event, "part", "state", "error")
        if status != "error" and not code:
            return [Progress(Work.TOOL)]
        trouble = of_message(error)
        if trouble is not None and trouble.failure is Failure.PERMISSION:
            self.refused.append(self.say(tool))
            self._stopped = error
        return [Progress(Work.TOOL), ToolFailed(self.say(f"{tool}: {error}" if error else tool), code)]

    def _finished(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        reason, cached = text_at(event, "part", "reason"), count_at(event, "part", "tokens", "cache", "read")
        step = Usage(
            input_tokens=count_at(event, "part", "tokens", "input")
            + cached
            + count_at(event, "part", "tokens", "cache", "write"),
            output_tokens=count_at(event, "part", "tokens", "output")
            + count_at(event, "part", "tokens", "reasoning"),
            cached_tokens=cached,
            cost_usd=number_at(event, "part", "cost") or 0.0,
            turns=1,
        )
        if not step.tokens:
            return self._stepped(reason)
        self._usage += step
        return [Used(self._usage), *self._stepped(reason)]

    def _stepped(self, reason: str) -> Sequence[Claim]:
        if reason == "stop":
            return [Result(ok=True, usage=self._usage, refused=tuple(self.refused))]
        if reason == "tool-calls" and self._stopped:
            return [self.failed(self._stopped, failure=Failure.PERMISSION)]
        if reason == "tool-calls":
            return [Progress(Work.TOOL), Working(Work.THINKING)]
        if reason in _UNFINISHED:
            return [self.failed(f"the step ended with: {reason}", failure=_UNFINISHED[reason])]
        if reason in _CUT:
            attempt = self.attempts.another()
            return [Trouble(Failure.PROVIDER), Retrying(attempt, None, Failure.PROVIDER)]
        return self.drift(f"step_finish {reason}")

    def _error(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        message = text_at(event, "error", "data", "message") or text_at(event, "error", "name")
        return [self.failed(message, http=int_at(event, "error", "data", "statusCode"))]
