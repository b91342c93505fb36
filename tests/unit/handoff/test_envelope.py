import msgspec
import pytest

from holdfast.board.rules.rows import MAX_TEXT, MAX_TITLE, NewTask
from holdfast.board.rules.verbs import MAX_DATA, MAX_OPTIONS, AttachFromRun
from holdfast.errors import (
    FACES,
    HoldfastError,
    MethodNotFound,
    RemoteProtocolError,
    StaleRun,
    UsageError,
    face,
)
from holdfast.handoff import envelope
from holdfast.handoff.envelope import MAX_ENVELOPE, VERBS, Envelope, Grant, Problem
from tests.support.rows import every_row

KEY = b"k" * 32
TOKEN = envelope.mint(KEY, "b", "t_1", "r_1", 3)


def grant(**changes: object) -> Grant:
    made = Grant(
        board="b",
        task="t_1",
        run="r_1",
        generation=3,
        token=TOKEN,
        socket="/s",
        outbox="/o",
        command=["holdfast"],
    )
    return msgspec.structs.replace(made, **changes)


def sealed() -> Envelope:
    return envelope.seal(grant(), "complete", {"summary": "done"}, id="e-1")


def test_a_token_is_of_one_run_of_one_task_of_one_board_under_one_key() -> None:
    others = [
        envelope.mint(b"l" * 32, "b", "t_1", "r_1", 3),
        envelope.mint(KEY, "c", "t_1", "r_1", 3),
        envelope.mint(KEY, "b", "t_2", "r_1", 3),
        envelope.mint(KEY, "b", "t_1", "r_2", 3),
        envelope.mint(KEY, "b", "t_1", "r_1", 4),
    ]
    assert len({TOKEN, *others}) == 6
    assert envelope.mint(KEY, "b", "t_1", "r_1", 3) == TOKEN


def test_names_that_run_into_each_other_do_not_make_the_same_token() -> None:
    assert envelope.mint(KEY, "a", "bc", "r", 1) != envelope.mint(KEY, "ab", "c", "r", 1)


def test_a_sealed_envelope_is_known_by_its_token_also_after_the_journey() -> None:
    letter = sealed()
    assert envelope.check(letter, TOKEN)
    arrived = envelope.decode(envelope.encode(letter))
    assert arrived == letter
    assert envelope.check(arrived, TOKEN)
    assert not envelope.check(letter, envelope.mint(KEY, "b", "t_1", "r_1", 4))


@every_row(
    "change",
    [
        {"id": "e-2"},
        {"run": "r_2"},
        {"generation": 4},
        {"verb": "block"},
        {"args": msgspec.Raw(b'{"summary":"other"}')},
        {"args": msgspec.Raw(b'{"summary": "done"}')},
        {"mac": "0" * 64},
        {"mac": ""},
        {"mac": "\u00e9"},
        {"v": 2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_is_changed_breaks_the_seal(change: dict[str, object]) -> None:
    assert not envelope.check(msgspec.structs.replace(sealed(), **change), TOKEN)


def test_the_token_is_in_no_envelope_and_in_no_description_of_a_grant() -> None:
    assert TOKEN.encode() not in envelope.encode(sealed())
    assert TOKEN not in repr(grant())
    assert TOKEN not in str(grant())


@every_row("id", ["", "a/b", "..", "x" * 65, "a.json", "a\n"])
def test_an_id_is_the_name_of_a_file_and_nothing_else(id: str) -> None:
    with pytest.raises(UsageError):
        envelope.seal(grant(), "show", {}, id=id)
    with pytest.raises(RemoteProtocolError):
        envelope.decode(msgspec.json.encode(msgspec.structs.replace(sealed(), id=id)))


@pytest.mark.parametrize("args", [{"summary": object()}, {"summary": "\ud800"}])
def test_arguments_that_are_no_json_are_not_sealed(args: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        envelope.seal(grant(), "complete", args, id="e")


def test_an_envelope_too_large_is_neither_sent_nor_read() -> None:
    letter = envelope.seal(grant(), "complete", {"summary": "x" * MAX_ENVELOPE}, id="e")
    with pytest.raises(UsageError):
        envelope.encode(letter)
    with pytest.raises(RemoteProtocolError):
        envelope.decode(msgspec.json.encode(letter))


@every_row(
    "data",
    [b"", b"{}", b"[]", b"null", b"\xff", b"[" * 10_000, b'{"v":1,"id":"e","run":"r"}'],
    ids=["empty", "no members", "array", "null", "no text", "deep", "half"],
)
def test_bytes_that_are_no_envelope_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        envelope.decode(data)


def test_an_envelope_of_another_version_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        envelope.decode(msgspec.json.encode(msgspec.structs.replace(sealed(), v=2)))


@every_row("cls", FACES, ids=lambda cls: cls.__name__)
def test_every_error_comes_back_as_what_it_was(cls: type[HoldfastError]) -> None:
    answer = envelope.refusal("e", cls("no", remedy="yes"))
    assert answer.error is not None
    assert answer.error.code == face(cls("no")).rpc
    back = envelope.error_of(answer.error)
    assert (type(back), str(back), back.remedy) == (cls, "no", "yes")


def test_an_error_of_a_newer_version_is_still_an_error() -> None:
    unknown = Problem(code=1, kind="Novelty", message="no")
    assert isinstance(envelope.error_of(unknown), HoldfastError)
    assert envelope.refusal("e", StaleRun("gone")).result is None


def test_the_name_of_a_run_is_bounded_before_anybody_looks_for_it() -> None:
    for run in ("", "r\0", "x" * 65):
        with pytest.raises(RemoteProtocolError):
            envelope.decode(msgspec.json.encode(msgspec.structs.replace(sealed(), run=run)))


def test_the_largest_file_fits_into_an_envelope() -> None:
    args: dict[str, object] = {"name": "x" * 200, "data": b"\xff" * MAX_DATA}
    assert envelope.encode(envelope.seal(grant(), "attach", args, id="e" * 64))


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
    args = envelope.read_args(verb, GOOD[verb])
    assert type(args) is VERBS[verb].args
    assert envelope.read_args(verb, msgspec.json.encode(GOOD[verb])) == args


@every_row(("verb", "args"), BAD)
def test_what_is_out_of_bounds_or_misspelled_is_refused(verb: str, args: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        envelope.read_args(verb, args)
    with pytest.raises(UsageError):
        envelope.read_args(verb, msgspec.json.encode(args))


def test_bytes_that_are_no_json_are_refused() -> None:
    for data in (b"", b"{", b'{"summary":"\xff"}', b"[" * 100_000):
        with pytest.raises(UsageError):
            envelope.read_args("complete", data)


def test_a_worker_has_only_the_verbs_of_the_table() -> None:
    for verb in ("claim", "move", "delete", "", "x" * 1000):
        with pytest.raises(MethodNotFound):
            envelope.read_args(verb, {})
        with pytest.raises(MethodNotFound):
            envelope.read_args(verb, b"{}")


def test_three_verbs_end_a_run() -> None:
    assert {verb for verb in VERBS if VERBS[verb].terminal} == {"complete", "block", "request_review"}


def test_a_task_is_asked_for_as_the_store_wants_it() -> None:
    args = envelope.read_args("create", {"title": "next", "body": "do", "parents": ["t_1"], "priority": 5})
    assert args == NewTask(title="next", body="do", parents=("t_1",), priority=5)


def test_a_file_is_read_from_base64() -> None:
    assert envelope.read_args("attach", GOOD["attach"]) == AttachFromRun(name="plot.png", data=b"\0\1\2")
    assert envelope.read_args("attach", {"name": "a", "data": b"raw"}) == AttachFromRun(name="a", data=b"raw")
