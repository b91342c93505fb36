"""The client's side of the Agent Client Protocol, version 1: lines in, evidence and answers out. Pure module.

A run is one prompt: `initialize`, `session/new`, the model if the agent lets it be chosen over the protocol,
`session/prompt`. After the answer to that we send no more requests. We do not offer files and terminals: the
agent does its work itself, in its sandbox.

Each of our requests has a fixed id and is made once in the life of an agent's process. Reading the agent's
output again yields the same messages at the same places. So a supervisor that takes over knows which messages
belong where, and an open question can be answered from its evidence alone.
"""

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.agents.catalog.agent import RetrySign
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
    Answered,
    AnswerOption,
    Claim,
    Failure,
    Progress,
    Ready,
    Result,
    TokenUsage,
    ToolFailed,
    Want,
    Wants,
    Work,
    Working,
)
from holdfast.doctor.explain.redaction import redact_line
from holdfast.errors import InvalidRequest, UsageError

VERSION: Final = 1
MAX_OPTIONS: Final = 16  # answers that one request offers; agents offer three or four
MAX_ASKED: Final = 256  # open questions tracked; for more we do not notice that they were answered elsewhere
MAX_ID: Final = 200  # characters of an id that must be sent back unchanged
MAX_QUESTION: Final = 2000  # longer than other shown texts, because a person decides by it


class _Step(enum.StrEnum):
    """Our requests; the value is the id."""

    INITIALIZE = "holdfast-initialize"
    SESSION = "holdfast-session"
    MODEL = "holdfast-model"
    PROMPT = "holdfast-prompt"


_ASK: Final = "session/request_permission"
_UPDATE: Final = "session/update"
_NO_METHOD: Final = -32601
_INVALID: Final = -32602
_AUTH_REQUIRED: Final = -32000
_ANY: Final = 500  # the same CLI's default
_HTTP: Final = range(400, 600)  # one CLI puts the provider's HTTP status into the error code

_UNFINISHED: Final[Mapping[str, Failure | None]] = {
    "max_tokens": Failure.CONTEXT,
    "max_turn_requests": Failure.TIMEOUT,
    "refusal": Failure.REFUSAL,
    "cancelled": None,  # other evidence says why: a denial, or a stop
}
_SILENT: Final = frozenset(
    {
        "usermessagechunk",
        "plan",
        "availablecommandsupdate",
        "currentmodeupdate",
        "configoptionupdate",
        "sessioninfoupdate",
    }
)


class AcpRequest(msgspec.Struct, frozen=True):
    """The task of an agent. `model`, if given, is chosen over the protocol."""

    cwd: str
    prompt: str
    model: str | None = None
    unattended: bool = False  # allow_once is granted automatically: the sandbox is the boundary


class Said(NamedTuple):
    """What to write to the agent, and whether it is the last input."""

    data: bytes
    last: bool


class AcpEvents(JsonEvents):
    """Parses the messages of one agent. After each `feed`, `said` returns what to send to it."""

    def __init__(
        self, request: AcpRequest | None, retries: Sequence[RetrySign] = (), *, secrets: Sequence[str] = ()
    ) -> None:
        super().__init__(retries, secrets=secrets)
        self._prompt_request = request
        self._session = ""
        self._asked: dict[str, str] = {}  # id of a tool call → id of the permission request for it
        self._cost: float | None = None
        self._saying = bytearray()
        self._last = False

    def said(self) -> Said:
        """Return the data to send now, and clear it."""
        found = Said(bytes(self._saying), self._last)
        self._saying, self._last = bytearray(), False
        return found

    # --- what comes in

    def kind(self, event: JsonEvent) -> str:
        method = text_at(event, "method")
        if not method:
            return "response" if "id" in event else ""
        return "request" if "id" in event and method != _ASK else method

    def handlers(self) -> Mapping[str, Handler]:
        return {"response": self._response, "request": self._request, _ASK: self._ask, _UPDATE: self._update}

    def _request(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        method = text_at(event, "method")
        self._refuse(event, _NO_METHOD, "this client does not offer it")
        return self.drift(self.say(f"request {method}"))

    def _ask(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        request, options = _id(event), _options(event, self.say)
        if request is None or not options:
            self._refuse(event, _INVALID, "no usable option or id")
            return self.drift("a permission request without options")
        question = self._question(at_path(event, "params", "toolCall"))
        wants = Wants(Want.DECISION, question, options, request)
        once = next((option for option in options if option.kind == "allow_once"), None)
        if self._prompt_request is not None and self._prompt_request.unattended and once is not None:
            self._saying += answer(wants, once)
            return [Working(Work.TOOL)]
        if len(self._asked) < MAX_ASKED:
            self._asked[text_at(event, "params", "toolCall", "toolCallId")] = request
        return [wants]

    def _question(self, call: object) -> str:
        title, command = text_at(call, "title"), text_at(call, "rawInput", "command")
        words = [title, command] if command and command not in title else [title or text_at(call, "kind")]
        return redact_line(": ".join(filter(None, words)), self.secrets, limit=MAX_QUESTION)

    def _update(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        update = at_path(event, "params", "update")
        spelled = text_at(update, "sessionUpdate")
        match re.sub(r"[^a-z]", "", spelled.lower()):  # agents differ in how they spell it
            case "agentmessagechunk":
                said = text_at(update, "content", "text") or text_at(update, "content", "type") not in (
                    "text",
                    "",
                )
                return [Progress(Work.STREAMING)] if said else []
            case "agentthoughtchunk":
                return [Progress(Work.THINKING)]
            case "toolcall":
                self.called(text_at(update, "title"), at_path(update, "rawInput"))
                return self._tool(update)
            case "toolcallupdate":
                return self._tool(update)
            case "plan":
                self.called("plan", at_path(update, "entries"))
                return []
            case "usageupdate":
                if text_at(update, "cost", "currency") == "USD":
                    self._cost = number_at(update, "cost", "amount")
                return []
            case kind if kind in _SILENT:
                return []
            case _:
                return self.drift(self.say(f"update {spelled or 'without a name'}"))

    def _tool(self, update: object) -> Sequence[Claim]:
        what = text_at(update, "title") or text_at(update, "toolCallId")
        match text_at(update, "status"):
            case "pending" | "in_progress":
                return [Working(Work.TOOL)]
            case "completed":
                found = ("rawOutput", "metadata", "exit"), ("rawOutput", "exitCode")
                code = next(filter(None, (int_at(update, *place) for place in found)), None)
                failed = [ToolFailed(self.say(what), code)] if code else []
                return [*self._settle(update), Progress(Work.TOOL), *failed]
            case "failed":
                told = [text_at(part, "content", "text") for part in list_at(update, "content")]
                said = self.say(": ".join(filter(None, [what, *told])))
                return [*self._settle(update), ToolFailed(said)]
            case "":
                return []
            case status:
                return self.drift(self.say(f"tool {status}"))

    def _settle(self, update: object) -> list[Claim]:
        """Settle the question about a tool that has ended: it was answered, by whichever client."""
        request = self._asked.pop(text_at(update, "toolCallId"), None)
        return [] if request is None else [Answered(request)]

    # --- the request

    def _response(self, event: JsonEvent, at: float) -> Sequence[Claim]:
        error, result = event.get("error"), event.get("result")
        step = next((one for one in _Step if one.value == event.get("id")), None)
        if step is None:
            return self.drift("an answer to nothing we asked")
        if isinstance(error, dict):
            words, status = _words(error), _status(error)
            if status == _ANY and self.failed(words).failure is not None:
                status = None  # the text is more precise
            return [self._give_up(words, http=status, failure=_failure(error, step))]
        match step:
            case _Step.INITIALIZE:
                return self._on_initialized(result)
            case _Step.SESSION:
                return self._opened(result)
            case _Step.MODEL:
                return self._prompt()
            case _Step.PROMPT:
                return self._on_prompt_ended(result)

    def _on_initialized(self, result: object) -> Sequence[Claim]:
        version = int_at(result, "protocolVersion")
        if version != VERSION:
            words = f"it speaks version {version} of the Agent Client Protocol, not {VERSION}"
            return [self._give_up(words, failure=Failure.CONFIGURATION)]
        if self._prompt_request is None:
            return [self._give_up("what it was to do is lost", failure=Failure.LAUNCH)]
        self._call(_Step.SESSION, "session/new", {"cwd": self._prompt_request.cwd, "mcpServers": []})
        return [Ready()]

    def _opened(self, result: object) -> Sequence[Claim]:
        self._session = text_at(result, "sessionId")
        model = self._prompt_request.model if self._prompt_request is not None else None
        choice = _choice_of_model(result, model) if model else None
        if model and choice is None:
            return [self._give_up(f"the agent does not offer the model {model}", failure=Failure.MODEL)]
        if choice is None or choice.current:
            return self._prompt()
        self._call(_Step.MODEL, choice.method, {"sessionId": self._session, **choice.params})
        return []

    def _prompt(self) -> Sequence[Claim]:
        if self._prompt_request is None or not self._session:
            return [self._give_up("it never got its instructions", failure=Failure.LAUNCH)]
        words = {"type": "text", "text": self._prompt_request.prompt}
        self._call(_Step.PROMPT, "session/prompt", {"sessionId": self._session, "prompt": [words]})
        return [Working(Work.THINKING)]

    def _on_prompt_ended(self, result: object) -> Sequence[Claim]:
        self._last = True
        reason = text_at(result, "stopReason")
        if reason == "end_turn":
            return [Result(ok=True, usage=self._usage(result))]
        bad = self.failed(f"the turn ended with: {reason}", failure=_UNFINISHED.get(reason))
        more = [] if reason in _UNFINISHED else self.drift(self.say(f"stop reason {reason}"))
        return [*more, bad]

    def _usage(self, result: object) -> TokenUsage:
        meta = at_path(result, "_meta", "quota", "token_count")
        return TokenUsage(
            input_tokens=count_at(result, "usage", "inputTokens") or count_at(meta, "input_tokens"),
            output_tokens=count_at(result, "usage", "outputTokens") or count_at(meta, "output_tokens"),
            cached_tokens=count_at(result, "usage", "cachedReadTokens"),
            cost_usd=self._cost,
        )

    def _give_up(self, words: str, *, http: int | None = None, failure: Failure | None = None) -> Result:
        self._last = True
        return self.failed(words, http=http, failure=failure)

    # --- what goes out

    def _call(self, step: _Step, method: str, params: Mapping[str, object]) -> None:
        self._saying += _message(id=step, method=method, params=params)

    def _refuse(self, event: JsonEvent, code: int, message: str) -> None:
        number = _id(event)
        if number is not None:
            self._saying += _message(
                id=msgspec.Raw(number.encode()), error={"code": code, "message": message}
            )


def opening() -> bytes:
    """Return the first request to an agent."""
    nothing = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    params = {"protocolVersion": VERSION, "clientCapabilities": nothing}
    return _message(id=_Step.INITIALIZE, method="initialize", params=params)


def answer(wants: Wants, option: AnswerOption) -> bytes:
    """Encode the answer to a request: one of the options that it offers."""
    outcome = {"outcome": "selected", "optionId": option.id}
    return _message(id=msgspec.Raw(wants.request.encode()), result={"outcome": outcome})


def choose(wants: Wants, option: str | None, *, deny: bool) -> AnswerOption:
    """Choose the option to answer with. A permanent one is chosen only by its id.

    Raises:
        UsageError: there is no such option, or it does not deny although `deny` is set.
        InvalidRequest: the request offers no option that allows, or denies, just this once.
    """
    offered = f"it offers: {', '.join(f'{one.id} ({one.kind})' for one in wants.options)}"
    if option is not None:
        found = next((one for one in wants.options if one.id == option), None)
        if found is None:
            raise UsageError(f"the worker does not offer the option {option!r}", remedy=offered)
        if deny and not found.kind.startswith("reject"):
            raise UsageError(f"the option {option!r} does not deny", remedy=offered)
        return found
    kind = "reject_once" if deny else "allow_once"
    found = next((one for one in wants.options if one.kind == kind), None)
    if found is None:
        raise InvalidRequest(f"the worker offers no answer of the kind {kind}", remedy=f"name one; {offered}")
    return found


class _Choice(NamedTuple):
    current: bool
    method: str = ""
    params: Mapping[str, object] = {}


def _choice_of_model(session: object, model: str) -> _Choice | None:
    """Return how to set the model of this session: agents support one of two ways. None if not offered."""
    for option in list_at(session, "configOptions"):
        if "model" not in (text_at(option, "id"), text_at(option, "category")):
            continue
        if text_at(option, "currentValue") == model:
            return _Choice(True)
        if model in (text_at(one, "value") for one in list_at(option, "options")):
            chosen = {"configId": text_at(option, "id"), "value": model}
            return _Choice(False, "session/set_config_option", chosen)
    if text_at(session, "models", "currentModelId") == model:
        return _Choice(True)
    if model in (text_at(one, "modelId") for one in list_at(session, "models", "availableModels")):
        return _Choice(False, "session/set_model", {"modelId": model})
    return None


def _options(event: JsonEvent, say: Callable[[str], str]) -> tuple[AnswerOption, ...]:
    found = [
        AnswerOption(text_at(one, "optionId"), say(text_at(one, "kind")), say(text_at(one, "name")))
        for one in list_at(event, "params", "options")
    ]
    return tuple(option for option in found if 0 < len(option.id) <= MAX_ID)[:MAX_OPTIONS]


def _id(event: JsonEvent) -> str | None:
    """Return the id of a request as JSON, to be sent back unchanged; None if it is invalid or too long."""
    found = event.get("id")
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    text = msgspec.json.encode(found).decode()
    return text if len(text) <= MAX_ID else None


def _words(error: Mapping[str, object]) -> str:
    data = error.get("data")
    details = data if isinstance(data, str) else text_at(data, "details") or text_at(data, "message")
    message = text_at(error, "message")
    return f"{message}: {details}" if details and details not in message else message


def _status(error: Mapping[str, object]) -> int | None:
    code = int_at(error, "code")
    return code if code in _HTTP else None


def _failure(error: Mapping[str, object], step: _Step) -> Failure | None:
    if int_at(error, "code") == _AUTH_REQUIRED:
        return Failure.AUTH
    return Failure.MODEL if step == _Step.MODEL else None


def _message(**members: object) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **members}) + b"\n"
