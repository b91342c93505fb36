"""What a program tells its terminal is read, whatever comes, and wherever the reads end."""

import base64

import pytest

from holdfast.agents.evidence.evidence import MAX_SEEN, Claim, Idle, Want, Wants, Work, Working
from holdfast.agents.terminal import escapes
from holdfast.agents.terminal.escapes import (
    MAX_ANSWERS,
    EscapeReader,
    Event,
    Phase,
    Query,
    TerminalReport,
    TerminalView,
    Titled,
    answers,
    claim,
)
from tests.support.rows import every_row

VIEW = TerminalView(row=3, column=7, rows=40, columns=120, modes=frozenset((25, 2004)))
ST = b"\x1b\\"


def reply(data: bytes) -> bytes:
    events = EscapeReader().feed(data).events
    return answers((event for event in events if isinstance(event, Query)), VIEW)


@every_row(
    ("asked", "answered"),
    [
        (b"\x1b[6n", b"\x1b[3;7R"),
        (b"\x1b[?6n", b"\x1b[?3;7R"),
        (b"\x1b[5n", b"\x1b[0n"),
        (b"\x1b[c", b"\x1b[?62;22c"),
        (b"\x1b[0c", b"\x1b[?62;22c"),
        (b"\x1bZ", b"\x1b[?62;22c"),
        (b"\x1b[>c", b"\x1b[>1;10;0c"),
        (b"\x1b[=c", b"\x1bP!|00000000\x1b\\"),
        (b"\x1b[>q", b"\x1bP>|holdfast\x1b\\"),
        (b"\x1b[>0q", b"\x1bP>|holdfast\x1b\\"),
        (b"\x1b[18t", b"\x1b[8;40;120t"),
        (b"\x1b[?996n", b"\x1b[?997;1n"),
        (b"\x1b[?2004$p", b"\x1b[?2004;1$y"),
        (b"\x1b[?1049$p", b"\x1b[?1049;2$y"),
        (b"\x1b[?2026$p", b"\x1b[?2026;0$y"),
        (b"\x1b[4$p", b"\x1b[4;0$y"),
        (b"\x1b]10;?\x1b\\", b"\x1b]10;rgb:d0d0/d0d0/d0d0\x1b\\"),
        (b"\x1b]11;?\x07", b"\x1b]11;rgb:0000/0000/0000\x07"),
        (b"\x1b]7501;?\x07", b"\x1b]7501;?\x07"),
        (b"\x1bP+q544e\x1b\\", b"\x1bP0+r\x1b\\"),
        (b"\x1bP$qm\x1b\\", b"\x1bP0$r\x1b\\"),
    ],
)
def test_a_question_gets_its_answer(asked: bytes, answered: bytes) -> None:
    assert reply(asked) == answered


@every_row(
    "asked",
    [
        b"\x1b[?u",  # kitty's keyboard: silence means no
        b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\",
        b"\x1b]52;c;?\x07",
        b"\x1b]4;1;?\x07",
        b"\x1b]99;i=1:p=?;\x07",
        b"\x1b[21t",  # the title, which may hold anything
        b"\x1b[16t",
        b"\x1b[?15n",
        b"\x1b[?4m",
    ],
)
def test_a_question_without_an_answer_is_a_question_all_the_same(asked: bytes) -> None:
    seen = EscapeReader().feed(asked)
    assert reply(asked) == b""
    assert seen.forward == b""
    assert [type(event) for event in seen.events] == [Query]


@every_row(
    "told",
    [
        *(
            b"\x1b[u",
            b"\x1b[>1u",
            b"\x1b[<u",
            b"\x1b[8;40;120t",
            b"\x1b[22;0t",
            b"\x1b[0m",
            b"\x1b[>4;1m",
            b"\x1b[4 q",
        ),
        *(b"\x1b[!p", b"\x1b[2S", b"\x1b[>4n", b"\x1b[?2004h", b"\x1b]52;c;eA==\x07", b"\x1b]4;1;red\x07"),
        *(b"\x1b]10;red\x07", b"\x1bPq#0\x1b\\", b"\x1b_Ga=T;AAAA\x1b\\", b"\x1b]8;;http://x?\x07"),
    ],
)
def test_what_is_no_question_goes_on_and_gets_no_answer(told: bytes) -> None:
    assert EscapeReader().feed(told).forward == told
    assert reply(told) == b""


def test_answers_to_one_read_are_bounded_and_whole() -> None:
    replies = reply(b"\x1b[6n" * 10_000)
    assert MAX_ANSWERS - len(b"\x1b[3;7R") < len(replies) <= MAX_ANSWERS
    assert replies == b"\x1b[3;7R" * (len(replies) // len(b"\x1b[3;7R"))


def events(data: bytes) -> list[Event]:
    return EscapeReader().feed(data).events


def encoded(text: str) -> bytes:
    return base64.b64encode(text.encode())


# --- program status


@every_row(
    ("data", "report"),
    [
        (b"state=idle:app=codex", TerminalReport(Phase.IDLE)),
        (b"state=blocked:kind=permission", TerminalReport(Phase.BLOCKED, kind="permission")),
        (b"state=done:id=part-2", TerminalReport(Phase.DONE, task="part-2")),
        (b"state=clear", TerminalReport(Phase.CLEAR)),
        (
            b"state=blocked:msg=" + encoded("run it? é") + b":title=" + encoded("T"),
            TerminalReport(Phase.BLOCKED, title="T", message="run it? é"),
        ),
        (b"state=working:progress=101:msg=%%%", TerminalReport(Phase.WORKING)),
    ],
)
@every_row("end", [ST, b"\x07"], ids=["ST", "BEL"])
def test_a_program_status_is_read(data: bytes, report: TerminalReport, end: bytes) -> None:
    assert events(b"\x1b]7501;" + data + end) == [report]


@every_row("data", [b"", b"state=sleeping", b"state", b"state=Idle", b"\xff=\xff", b"idle"])
def test_a_status_that_is_none_says_nothing(data: bytes) -> None:
    assert events(b"\x1b]7501;" + data + ST) == []


@pytest.mark.parametrize(
    ("data", "phase", "kind"),
    [
        (b"Status=awaiting-approval", Phase.BLOCKED, "permission"),
        (b"App=x;Status=awaiting-input", Phase.BLOCKED, "question"),
        (b"status=finished", Phase.DONE, ""),
        (b"Status=error:x=y", Phase.DONE, "error"),
    ],
)
def test_the_rival_status_is_read_as_well(data: bytes, phase: Phase, kind: str) -> None:
    assert events(b"\x1b]26;" + data + ST) == [TerminalReport(phase, kind)]
    assert events(b"\x1b]26;NotStatus=error" + ST) == []


@every_row(
    ("report", "expected"),
    [
        (TerminalReport(Phase.IDLE), Idle()),
        (TerminalReport(Phase.DONE), Idle()),
        (TerminalReport(Phase.WORKING), Working(Work.THINKING)),
        (
            TerminalReport(Phase.BLOCKED, "permission", message="run x"),
            Wants(Want.DECISION, question="run x"),
        ),
        (TerminalReport(Phase.BLOCKED, "question"), Wants(Want.QUESTION)),
        (TerminalReport(Phase.BLOCKED, "of a new kind"), Wants(Want.DECISION)),
        (TerminalReport(Phase.BLOCKED, task="part"), Wants(Want.DECISION)),
        (TerminalReport(Phase.WORKING, task="part"), None),
        (TerminalReport(Phase.DONE, task="part"), None),
        (TerminalReport(Phase.CLEAR), None),
    ],
)
def test_a_status_means_something_for_the_worker(report: TerminalReport, expected: Claim | None) -> None:
    assert claim(report) == expected


# --- titles


def test_a_title_is_kept_and_cleaned() -> None:
    reader = EscapeReader()
    assert reader.feed(b"\x1b]0;one\x07\x1b]1;icon\x07\x1b]2;t\tw\xc3\xb6\x9b" + ST).events == [
        Titled("one"),
        Titled("t wö\N{REPLACEMENT CHARACTER}"),
    ]
    assert reader.title == "t wö\N{REPLACEMENT CHARACTER}"
    assert events(b"\x1b]2;" + b"x" * 5000 + ST) == [Titled("x" * MAX_SEEN)]


# --- modes


def test_modes_are_followed_until_a_reset() -> None:
    reader = EscapeReader()
    for data, alternate, paste in (
        (b"\x1b[?1049h\x1b[?25;2004h", True, True),
        (b"\x1b[?1049l", False, True),
        (b"\x1bc", False, False),
        (b"\x1b[2004h\x1b[?2004$h\x1b[?99999999h", False, False),
    ):
        reader.feed(data)
        assert (reader.alternate, reader.bracketed_paste) == (alternate, paste)


# --- what goes on to a person's terminal


def test_everything_but_questions_goes_on() -> None:
    shown = (
        b"\x1b[1;31mred\x1b[0m\x1b]0;t\x07\x1b]8;;http://x\x1b\\link\x1bPq#0\x1b\\\x1b_Ga=T;AAAA\x1b\\\x1b7"
    )
    asked = b"\x1b[6n\x1b[c\x1b]11;?\x07\x1b[?2026$p\x1bP+q544e\x1b\\\x1b_Gi=31,a=q;AAAA\x1b\\\x1b]52;c;?\x07"
    seen = EscapeReader().feed(asked + shown + asked)
    assert seen.forward == shown
    assert sum(isinstance(event, Query) for event in seen.events) == 14


# --- cuts and bounds


def test_a_sequence_that_is_cut_waits_for_its_rest() -> None:
    whole = b"x\x1b]7501;state=idle\x1b\\\x1b[?2004h\x1b]2;t\x07\x1b[6n"
    for cut in range(len(whole) + 1):
        reader = EscapeReader()
        found = reader.feed(whole[:cut]).events + reader.feed(whole[cut:]).events
        assert found == [TerminalReport(Phase.IDLE), Titled("t"), Query("cursor")], cut
        assert reader.bracketed_paste


def test_a_string_that_never_ends_is_given_up_and_costs_no_memory() -> None:
    reader = EscapeReader()
    for _ in range(100):
        assert reader.feed(b"\x1b]2;" + b"x" * 10_000).events == []
    long = b"\x1b]2;" + b"y" * escapes.MAX_STRING
    seen = reader.feed(long * 3 + b"yyy\x07text\x1b]2;after\x07")
    assert (seen.events, seen.forward) == ([Titled("after")], b"text\x1b]2;after\x07")


@every_row(
    "broken",
    [
        b"\x1b]2;lost\x18",
        b"\x1b]2;lost\x1b[1m",
        b"\x1b[12\n",
        b"\x1b[" + b"1" * 300,
        b"\x1b\x1b",
        b"\x1b\xff",
    ],
)
def test_what_is_broken_off_does_not_swallow_what_follows(broken: bytes) -> None:
    assert events(broken + b"\x1b]2;after\x07") == [Titled("after")]
