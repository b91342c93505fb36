"""A worker's tools: each is one verb of the handoff, sent in an envelope.

If a worker repeats a call word for word, because the first answer was lost, it sends the same envelope, and
so gets the first answer. Only calls that may be meant twice (a heartbeat, a comment, a task without a key)
are new each time.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast.board.rules.rows import JsonObject
from holdfast.board.rules.verbs import Verb
from holdfast.errors import ConnectionLost, UsageError
from holdfast.handoff import envelope
from holdfast.handoff.envelope import VERBS, Grant
from holdfast.handoff.sender import Sender
from holdfast.mcp import parameters, toolbox
from holdfast.mcp.toolbox import Parameters, Tool, ToolAnswer, read

INSTRUCTIONS: Final = (
    "You work on the task {task} of the board {board}; kanban_show tells it. End with exactly one of these: "
    "kanban_complete, when it is done, or kanban_block, when a person must act first. Otherwise your work is "
    "not reported. An answer may hold `messages`, from a person who follows your work: do what they say "
    "about this task. kanban_heartbeat between two steps fetches them."
)


@dataclass(frozen=True, slots=True)
class ReportTool:
    """A tool with its verb, and a function that makes the tool's answer from the verb's result."""

    tool: Tool
    verb: Verb
    answer: Callable[[Mapping[str, Any]], JsonObject]


@dataclass(frozen=True, slots=True)
class Letter:
    """A tool's call as it is sent; without an id it gets a new one."""

    verb: str
    args: JsonObject
    id: str | None
    ignored: list[str]


def _tell_detail(result: Mapping[str, Any]) -> JsonObject:
    detail = result["detail"]
    task = detail["task"]
    rest = {name: value for name, value in detail.items() if name != "messages"}  # any answer may have these
    return {**rest, "worker_context": f"{task['title']}\n\n{task['body']}"}


def _tell_status(result: Mapping[str, Any]) -> JsonObject:
    return {"status": result["task"]["status"]}


def _tell_made(result: Mapping[str, Any]) -> JsonObject:
    return {"task_id": result["task"]["id"], "status": result["task"]["status"]}


_ANSWERS: Final[dict[str, Callable[[Mapping[str, Any]], JsonObject]]] = {
    "show": _tell_detail,
    "complete": _tell_status,
    "block": _tell_status,
    "heartbeat": lambda _: {},
    "comment": lambda result: {"comment_id": result["comment"]["number"]},
    "create": _tell_made,
    "link": lambda _: {},
}


def _tool(verb: Verb) -> Tool:
    once = verb.terminal or verb.name == "link"
    return Tool(
        f"kanban_{verb.name}",
        verb.about,
        parameters.build_parameters(verb),
        looks=verb.answers == "detail",
        once=once,
    )


REPORTS: Final = tuple(
    ReportTool(_tool(VERBS[name]), VERBS[name], answer) for name, answer in _ANSWERS.items()
)
_BY_NAME: Final = {report.tool.name: report for report in REPORTS}


def build_letter(name: str, given: Mapping[str, Any], grant: Grant) -> Letter:
    """The letter for a call of this tool.

    Raises:
        UsageError: no such tool, invalid parameters, or parameters about another task than the worker's own.
    """
    if name not in _BY_NAME:
        raise UsageError(f"a worker has no tool {name[:80]}", remedy=f"one of: {', '.join(_BY_NAME)}")
    report = _BY_NAME[name]
    asked, ignored = read(report.tool, given)
    _own(asked, grant)
    args = parameters.read_words(report.verb, asked)
    if not str(args.get("summary", "said")).strip():
        raise UsageError("kanban_complete says what was done", remedy="give it a summary")
    same = args if report.tool.once else getattr(asked, "idempotency_key", "")
    return Letter(report.verb.name, args, _id(name, same) if same else None, ignored)


def build_answer(name: str, result: Mapping[str, Any], grant: Grant) -> JsonObject:
    """The tool's answer, from the board's result, or for an envelope that is still on its way.

    Raises:
        ConnectionLost: a question to the board, and the board has not answered.
    """
    report = _BY_NAME[name]
    about: JsonObject = {"task_id": grant.task, "run_id": grant.run}
    if "accepted" not in result:
        return about | report.answer(result)
    if report.tool.looks:
        raise ConnectionLost(
            "the board did not answer", remedy="work from what you were told; report as usual"
        )
    return about | {"accepted": result["accepted"]}


def _own(asked: Parameters, grant: Grant) -> None:
    for what, given, mine in (
        ("task", getattr(asked, "task_id", ""), grant.task),
        ("board", getattr(asked, "board", ""), grant.board),
    ):
        if given and given != mine:
            raise UsageError(
                f"this worker speaks for the {what} {mine} only; nothing has changed",
                remedy=f"leave the {what} out; kanban_create makes a task for another worker",
            )


def _id(name: str, same: object) -> str:
    parts = msgspec.json.encode([name, same], order="sorted")
    return f"mcp-{hashlib.sha256(parts).hexdigest()[:40]}"


class Reporting:
    """The tools of a worker."""

    tools = tuple(report.tool for report in REPORTS)
    finishes = True  # calls made before its CLI ended are reports, and must not be lost with it

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        grant = sender.grant
        self.instructions = INSTRUCTIONS.format(task=grant.task, board=grant.board)

    def call(self, name: str, given: Mapping[str, Any]) -> ToolAnswer:
        """Send the call as an envelope of the run, and return the board's answer."""
        sent = build_letter(name, given, self._sender.grant)
        said = self._sender.send(sent.verb, sent.args, id=sent.id)
        messages = [f"{message.author}: {message.body}" for message in said.messages]
        if said.error is not None:
            exc = envelope.error_of(said.error)
            for message in messages:
                exc.add_note(message)
            raise exc
        result = build_answer(name, said.result or {}, self._sender.grant)
        return toolbox.as_json(
            toolbox.answer(result | ({"messages": messages} if messages else {}), sent.ignored)
        )
