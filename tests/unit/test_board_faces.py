"""Every field of the board's verbs can be said through every face: commands, dashboard, MCP.

The handoff and the dashboard's requests decode the table's own forms, so that they cannot lack any.
"""

import re

import click

from holdfast.board.rules.verbs import Caller, Verb, form, verbs_of
from holdfast.commands import handoff
from holdfast.commands.task import change
from holdfast.mcp import parameters, reports, toolbox
from holdfast.mcp.supervising import BOARD_TOOLS
from holdfast.web.app import STATIC
from tests.support.rows import every_row

PERSON, AGENT, WORKER = (verbs_of(caller) for caller in (Caller.PERSON, Caller.AGENT, Caller.WORKER))
# Options that are called otherwise than the field, or are several fields.
OPTIONS = {
    "runtime_s": {"max_runtime_s"},
    "runtime": {"max_runtime_s"},
    "place": {"workspace", "workspace_kind"},
    "text": {"body"},
    "profile": {"assignee"},
    "file": {"data"},
}
# What a face says by another name or not at all, on purpose.
IN_QUESTION = {("block", "reason"), ("complete", "reason")}  # the question or the result is the reason


def fields(verb: Verb) -> set[str]:
    return set(form(verb).__struct_fields__)


def options(command: click.Command) -> set[str]:
    names = [param.name or "" for param in command.params]
    return set().union(*(OPTIONS.get(name, {name}) for name in names))


TASK = {command.name: command for command in change.COMMANDS}


@every_row("name", sorted(PERSON.keys() & TASK.keys()))
def test_a_command_has_an_option_for_every_field(name: str) -> None:
    lacking = fields(PERSON[name]) - options(TASK[name])
    assert {(name, field) for field in lacking} <= IN_QUESTION


@every_row("name", WORKER)
def test_a_workers_command_has_an_option_for_every_field(name: str) -> None:
    command = handoff.handoff.commands["review" if name == "request_review" else name]
    assert fields(WORKER[name]) <= options(command)


def shown(tool: toolbox.Tool) -> set[str]:
    return set(toolbox.schema(tool.takes)["properties"])


@every_row("name", AGENT)
def test_a_supervising_agents_tool_has_a_parameter_for_every_field(name: str) -> None:
    tools = {tool.name: tool for tool, _ in BOARD_TOOLS}
    assert {parameters.NAMES.get(field, field) for field in fields(AGENT[name])} <= shown(
        tools[f"kanban_{name}"]
    )


@every_row("report", reports.REPORTS, ids=lambda report: report.verb.name)
def test_a_workers_tool_has_a_parameter_for_every_field(report: reports.ReportTool) -> None:
    assert {parameters.NAMES.get(field, field) for field in fields(report.verb)} <= shown(report.tool)


def test_the_page_asks_for_every_field_of_a_new_task() -> None:
    script = (STATIC / "forms.js").read_text("utf-8")
    create = script[script.index("export function create(") : script.index("export function dialog(")]
    asked = set(re.findall(r'\{ name: "(\w+)"', create))
    assert asked == fields(PERSON["create"]) - {"key"}  # which the page makes up
    assert "{ ...values, key }" in create


def test_the_page_asks_only_for_what_a_move_takes() -> None:
    script = (STATIC / "forms.js").read_text("utf-8")
    moves = script[script.index("const MOVES = {") : script.index("const LABELS = {")]
    parts = re.split(r"^  (\w+): \{", moves, flags=re.MULTILINE)[1:]
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        assert set(re.findall(r'name: "(\w+)"', text)) <= fields(PERSON[name])
    assert set(parts[::2]) == {verb.name for verb in PERSON.values() if verb.method == "move"}
