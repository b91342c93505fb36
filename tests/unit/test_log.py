"""What a log line looks like, and what can get into it."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from holdfast.log import FIELDS, JsonFormatter, TextFormatter, set_up


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger("holdfast")
    before = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.level, root.propagate = before


def record(**extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "holdfast.x", "levelno": 20, "levelname": "INFO", **extra})
    made.msg, made.created, made.msecs = "session detached", 1_800_000_000.0, 7.4
    return made


def failed() -> logging.LogRecord:
    try:
        raise ValueError("boom")
    except ValueError:
        return record(exc_info=sys.exc_info())


def test_a_json_line_is_one_object() -> None:
    assert json.loads(JsonFormatter().format(record(session_id="s1", pid=7))) == {
        "ts": "2027-01-15T08:00:00.007Z",
        "level": "info",
        "logger": "holdfast.x",
        "message": "session detached",
        "session_id": "s1",
        "pid": 7,
    }


def test_a_text_line_is_time_level_sentence_and_fields() -> None:
    line = TextFormatter().format(record(session_id="s1", pid=7))
    assert re.fullmatch(r"\d\d:\d\d:\d\d info    session detached session_id=s1 pid=7", line)


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_every_declared_field_is_shown_and_no_other(formatter: logging.Formatter) -> None:
    shown = formatter.format(record(token="hunter2", secretly={"A": "B"}, **dict.fromkeys(FIELDS, "here")))
    assert shown.count("here") == len(FIELDS)
    assert "hunter2" not in shown
    assert "secretly" not in shown


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_an_exception_is_told_with_its_traceback(formatter: logging.Formatter) -> None:
    shown = formatter.format(failed())
    assert "Traceback" in shown
    assert "ValueError: boom" in shown


def test_a_value_that_json_does_not_know_becomes_text() -> None:
    assert json.loads(JsonFormatter().format(record(missing=b"x")))["missing"] == "b'x'"


@pytest.mark.parametrize(("style", "formatter"), [("json", JsonFormatter), ("text", TextFormatter)])
def test_the_log_goes_to_standard_error_once(
    style: str, formatter: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    for _ in range(2):
        set_up(style="json" if style == "json" else "text", level="warning")
    logging.getLogger("holdfast.server").warning("said once")
    logging.getLogger("holdfast.server").info("not said")
    root = logging.getLogger("holdfast")
    assert [type(handler.formatter) for handler in root.handlers] == [formatter]
    assert not root.propagate
    assert stream.getvalue().count("said once") == 1
    assert "not said" not in stream.getvalue()
