"""Schemas, and what is read from whatever a model passes."""

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, field

from holdfast.errors import NotFound, OperationFailed, UsageError
from holdfast.mcp import toolbox
from holdfast.mcp.reports import REPORTS
from holdfast.mcp.supervising import BOARD_TOOLS
from holdfast.mcp.toolbox import MAX_ANSWER, Parameters, Tool
from holdfast.mcp.workertools import WORKER_TOOLS
from tests.support.rows import every_row

ALL = [*(report.tool for report in REPORTS), *(tool for tool, _ in (*BOARD_TOOLS, *WORKER_TOOLS))]


class Takes(Parameters, kw_only=True):
    """Said to nobody."""

    title: Annotated[str, Meta(min_length=1, max_length=5, description="One line.")]
    names: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    most: int = 3
    loud: bool = False


TOOL = Tool("t", "A tool.", Takes)


@every_row("tool", ALL, ids=lambda tool: f"{tool.takes.__name__}-{tool.name}")
def test_every_tool_has_a_plain_object_schema_and_words(tool: Tool) -> None:
    schema = toolbox.schema(tool.takes)
    assert schema["type"] == "object"
    assert b"$ref" not in msgspec.json.encode(schema)
    assert b"anyOf" not in msgspec.json.encode(schema)  # not every agent CLI passes that on
    assert tool.about.endswith(".")
    assert tool.name.startswith(("kanban_", "worker_"))


def test_a_schema_says_what_is_needed_and_how_long_it_may_be() -> None:
    schema = toolbox.schema(Takes)
    assert schema["required"] == ["title"]
    assert schema["properties"]["title"] == {
        "type": "string",
        "minLength": 1,
        "maxLength": 5,
        "description": "One line.",
    }
    assert "description" not in schema


def test_what_a_model_passes_is_read_generously() -> None:
    given = {"title": "x", "names": "a", "facts": '{"n":1}', "most": "7", "loud": "true"}
    taken, ignored = toolbox.read(TOOL, given)
    assert taken == Takes(title="x", names=("a",), facts={"n": 1}, most=7, loud=True)
    assert ignored == []


def test_a_null_is_nothing() -> None:
    taken, ignored = toolbox.read(TOOL, {"title": "x", "names": None, "most": None, "tenant": None})
    assert (taken, ignored) == (Takes(title="x"), [])


def test_what_is_not_known_is_told_and_not_refused() -> None:
    _, ignored = toolbox.read(TOOL, {"title": "x", "tenant": "t", "skills": ["s"]})
    assert ignored == ["skills", "tenant"]
    assert toolbox.answer({"a": 1}, ignored) == {"ok": True, "a": 1, "ignored": ["skills", "tenant"]}
    assert toolbox.answer({"a": 1}, []) == {"ok": True, "a": 1}


@every_row(
    "given",
    [
        {},
        {"title": ""},
        {"title": "too long"},
        {"title": 1},
        {"title": "x", "names": [1]},
        {"title": "x", "facts": "{"},
        {"title": "x", "facts": [1]},
        {"title": "x", "most": "many"},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_with_the_parameters(given: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        toolbox.read(TOOL, given)
    assert caught.value.remedy is not None
    assert "title, names, facts, most, loud" in caught.value.remedy


def test_an_error_carries_its_remedy() -> None:
    assert toolbox.problem(NotFound("no", remedy="look")) == {"error": "no", "remedy": "look"}
    assert toolbox.problem(NotFound("no")) == {"error": "no"}
    told = NotFound("no")
    told.add_note("ann: look elsewhere")
    assert toolbox.problem(told) == {"error": "no", "messages": ["ann: look elsewhere"]}


def test_an_answer_that_fits_is_not_touched() -> None:
    value = {"text": "x" * (MAX_ANSWER - 20)}
    assert msgspec.json.decode(toolbox.encode(value)) == value


def test_long_texts_are_cut_as_little_as_it_takes_and_say_so() -> None:
    once = msgspec.json.decode(toolbox.encode({"body": "é" * MAX_ANSWER, "title": "kept"}))
    assert once["title"] == "kept"
    assert once["body"] == "é" * 8192 + f"… ({MAX_ANSWER - 8192} more characters)"
    many = toolbox.encode({"comments": [{"body": "x" * 10_000}] * 100})
    assert len(many) <= MAX_ANSWER
    assert msgspec.json.decode(many)["comments"][99]["body"].startswith("x" * 512 + "…")


def test_an_answer_of_too_many_parts_is_an_error() -> None:
    with pytest.raises(OperationFailed):
        toolbox.encode({"numbers": list(range(MAX_ANSWER))})
