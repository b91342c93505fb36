from holdfast.agents.terminal.escapes import EscapeReader
from holdfast.agents.terminal.queries import MAX_ANSWERS, Query, TerminalView, answers
from tests.support.rows import every_row

VIEW = TerminalView(row=3, column=7, rows=40, columns=120, modes=frozenset((25, 2004)))


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
