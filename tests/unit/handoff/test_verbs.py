import msgspec
import pytest

from holdfast.board.rules.rows import MAX_TEXT, MAX_TITLE, NewTask
from holdfast.board.rules.verbs import MAX_DATA, MAX_OPTIONS, AttachFromRun
from holdfast.errors import MethodNotFound, UsageError
from holdfast.handoff import verbs
from holdfast.handoff.verbs import VERBS
from tests.support.rows import every_row

GOOD: dict[str, dict[str, object]] = {
    "show": {"task": "t_1"},
    "heartbeat": {"note": "half way"},
    "comment": {"body": "look"},
    "create": {"title": "next", "parents": ["t_1"]},
    "link": {"parent": "t_1", "child": "t_2"},
    "attach": {"name": "plot.png", "data": "AAEC"},
    "complete": {"summary": "done", "metadata": {"files": 3}},
    "block": {"question": "which?", "options": ["a", "b"], "waiting_for": "ann"},
    "request_review": {"summary": "done", "metadata": {}},
}

BAD: list[tuple[str, dict[str, object]]] = [
    ("show", {"task": "\0"}),
    ("show", {"other": "t_1"}),
    ("link", {"parent": "t_1"}),
    ("link", {"parent": "t_1", "child": "x" * (MAX_TITLE + 1)}),
    ("attach", {"name": "../up", "data": ""}),
    ("attach", {"name": "plot.png", "data": "no base64!"}),
    ("attach", {"name": "plot.png", "data": "A" * (MAX_DATA * 4 // 3 + 4)}),
    ("heartbeat", {"note": "x" * (MAX_TEXT + 1)}),
    ("comment", {}),
    ("comment", {"body": "  \n"}),
    ("comment", {"body": "zero \0 byte"}),
    ("create", {"title": ""}),
    ("create", {"title": "two\nlines"}),
    ("create", {"title": "next", "max_attempts": 0}),
    ("create", {"title": "next", "wake_ms": 1}),
    ("create", {"title": "next", "workspace": "/home"}),
    ("create", {"title": "next", "parents": ["\0"]}),
    ("complete", {"summary": "x" * (MAX_TEXT + 1)}),
    ("complete", {"summary": "done", "metadata": {"long": "x" * 70_000}}),
    ("complete", {"summary": "done", "metadata": [1]}),
    ("complete", {"summary": 1}),
    ("complete", {"summery": "done"}),
    ("block", {"question": "which?", "options": ["x"] * (MAX_OPTIONS + 1)}),
    ("block", {"question": "which?", "options": ["x" * (MAX_TITLE + 1)]}),
    ("block", {"question": "which?", "waiting_for": "\0"}),
    ("request_review", {}),
]


def test_every_verb_has_an_example_here() -> None:
    assert GOOD.keys() == VERBS.keys()


@every_row("verb", GOOD)
def test_arguments_are_the_same_from_values_and_from_bytes(verb: str) -> None:
    args = verbs.convert(verb, GOOD[verb])
    assert type(args) is VERBS[verb].args
    assert verbs.decode(verb, msgspec.json.encode(GOOD[verb])) == args


@every_row(("verb", "args"), BAD)
def test_what_is_out_of_bounds_or_misspelled_is_refused(verb: str, args: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        verbs.convert(verb, args)
    with pytest.raises(UsageError):
        verbs.decode(verb, msgspec.json.encode(args))


def test_bytes_that_are_no_json_are_refused() -> None:
    for data in (b"", b"{", b'{"summary":"\xff"}', b"[" * 100_000):
        with pytest.raises(UsageError):
            verbs.decode("complete", data)


def test_a_worker_has_only_the_verbs_of_the_table() -> None:
    for verb in ("claim", "move", "delete", "", "x" * 1000):
        with pytest.raises(MethodNotFound):
            verbs.convert(verb, {})
        with pytest.raises(MethodNotFound):
            verbs.decode(verb, b"{}")


def test_three_verbs_end_a_run() -> None:
    assert {verb for verb in VERBS if VERBS[verb].terminal} == {"complete", "block", "request_review"}


def test_a_task_is_asked_for_as_the_store_wants_it() -> None:
    args = verbs.convert("create", {"title": "next", "body": "do", "parents": ["t_1"], "priority": 5})
    assert args == NewTask(title="next", body="do", parents=("t_1",), priority=5)


def test_a_file_is_read_from_base64() -> None:
    assert verbs.convert("attach", GOOD["attach"]) == AttachFromRun(name="plot.png", data=b"\0\1\2")
    assert verbs.convert("attach", {"name": "a", "data": b"raw"}) == AttachFromRun(name="a", data=b"raw")
