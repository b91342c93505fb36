"""Which reports stand: precedence, freshness, decay."""

from holdfast.agents.evidence.digest import FILE_S, MAX_ITEMS, Digest, Window, began
from holdfast.agents.evidence.evidence import (
    Claim,
    Exited,
    Idle,
    Progress,
    Ready,
    Requested,
    Retrying,
    Source,
    TokenUsage,
    Trouble,
    Unread,
    Used,
    Want,
    Wants,
    Work,
    Working,
)
from holdfast.agents.evidence.evidence import Failure as F
from tests.support.evidence import Row, refused, story
from tests.support.rows import every_row

ASKS = Wants(Want.DECISION)
WORKS = Working(Work.THINKING)
DECISION = (0.0, Source.PROTOCOL, Wants(Want.DECISION, request="1"))


def standing(*rows: Row, now: float = 10.0) -> list[Source]:
    digest = Digest(story(*rows), now, 0.0)
    return [digest.items[index].source for index in digest.live]


STANDING: dict[str, tuple[list[Row], list[Source]]] = {
    "nothing": ([], []),
    "each source is heard by its last word": (
        [(1, Source.ESCAPE, WORKS), (2, Source.ESCAPE, Idle())],
        [Source.ESCAPE],
    ),
    "the stronger first, whatever came first": (
        [(1, Source.ESCAPE, WORKS), (2, Source.TITLE, Idle())],
        [Source.ESCAPE, Source.TITLE],
    ),
    "a weaker one that is older is void": (
        [(1, Source.TITLE, Idle()), (2, Source.ESCAPE, WORKS)],
        [Source.ESCAPE],
    ),
    "an edge voids what its own source said before": (
        [(1, Source.PROTOCOL, ASKS), (2, Source.PROTOCOL, Progress(Work.TOOL))],
        [],
    ),
    "an edge voids what weaker sources said before": (
        [(1, Source.SCREEN, ASKS), (2, Source.PROTOCOL, Progress(Work.TOOL))],
        [],
    ),
    "an edge of a weaker source does not": (
        [(1, Source.ESCAPE, ASKS), (2, Source.TEXT, Progress(Work.STREAMING))],
        [Source.ESCAPE],
    ),
    "a new command contradicts escape, title and screen": (
        [
            (1, Source.ESCAPE, ASKS),
            (2, Source.TITLE, ASKS),
            (3, Source.SCREEN, ASKS),
            (4, Source.CHILDREN, Progress(Work.TOOL)),
        ],
        [],
    ),
    "a new command does not contradict the kernel": (
        [(1, Source.SYSCALL, Wants(Want.STDIN_EOF)), (4, Source.CHILDREN, Progress(Work.TOOL))],
        [Source.SYSCALL],
    ),
    "a look that finds nothing takes back what it said and nothing else": (
        [(1, Source.TTY, Wants(Want.PASSWORD)), (2, Source.TITLE, WORKS), (3, Source.TTY, Idle())],
        [Source.TITLE],
    ),
    "nor does the proof that nobody reads its terminal say more": (
        [(1, Source.SYSCALL, Wants(Want.PROMPT)), (2, Source.TITLE, WORKS), (3, Source.SYSCALL, Unread())],
        [Source.TITLE],
    ),
    "a question on the screen goes before a busy socket": (
        [(1, Source.SCREEN, ASKS), (2, Source.SOCKET, Working(Work.NETWORK))],
        [Source.SCREEN, Source.SOCKET],
    ),
    "a busy screen does not": (
        [(1, Source.SCREEN, WORKS), (2, Source.SOCKET, Working(Work.NETWORK))],
        [Source.SOCKET],
    ),
    "a screen sign that one change did not bring back still stands": (
        [(1, Source.SCREEN, ASKS), (2, Source.STABILITY, WORKS)],
        [Source.SCREEN, Source.STABILITY],
    ),
    "a screen sign is gone after two changes without it": (
        [(1, Source.SCREEN, ASKS), (2, Source.STABILITY, WORKS), (3, Source.STABILITY, WORKS)],
        [Source.STABILITY],
    ),
}


@every_row("name", STANDING)
def test_what_stands(name: str) -> None:
    rows, expected = STANDING[name]
    assert standing(*rows) == expected


def test_a_file_is_believed_for_two_minutes() -> None:
    row: Row = (0.0, Source.FILE, WORKS)
    assert standing(row, now=FILE_S) == [Source.FILE]
    assert standing(row, now=FILE_S + 1) == []


def test_a_decayed_report_does_not_give_way_to_an_older_one() -> None:
    rows: list[Row] = [(0.0, Source.TEXT, ASKS), (1.0, Source.FILE, WORKS)]
    assert standing(*rows, now=FILE_S + 2) == []


def test_a_question_in_a_file_does_not_decay_by_the_clock() -> None:
    row: Row = (0.0, Source.FILE, ASKS)
    assert standing(row, now=10 * FILE_S) == [Source.FILE]
    assert standing(row, (1, Source.STABILITY, WORKS), (2, Source.STABILITY, WORKS)) == [Source.STABILITY]


TAKES_PART: list[tuple[Source, Claim, bool]] = [
    (Source.PROTOCOL, Ready(), True),
    (Source.SOCKET, Requested(), True),
    (Source.TEXT, Retrying(1, None, None), True),
    (Source.TEXT, Progress(Work.STREAMING), True),
    (Source.SOCKET, Working(Work.NETWORK), True),
    (Source.STABILITY, Working(Work.STREAMING), False),
    (Source.TITLE, Idle(), True),
    (Source.STABILITY, Idle(), False),
    (Source.CHILDREN, Idle(), False),
    (Source.SCREEN, Wants(Want.PROMPT), True),
    (Source.SCREEN, Wants(Want.TRUST), False),
    (Source.SCREEN, Wants(Want.LOGIN), False),
    (Source.DENIAL, refused("/x"), False),
    (Source.TEXT, Trouble(F.SANDBOX), False),
    (Source.EXIT, Exited(0), False),
]


@every_row(("source", "claim", "expected"), TAKES_PART)
def test_what_shows_that_it_takes_part(source: Source, claim: Claim, expected: bool) -> None:
    assert began(story((0.0, source, claim))) is expected


def test_since_is_when_a_source_began_to_say_it() -> None:
    digest = Digest(
        story(
            (1, Source.TITLE, Idle()),
            (2, Source.TITLE, WORKS),
            (3, Source.SCREEN, Idle()),
            (4, Source.TITLE, WORKS),
        ),
        5.0,
        0.0,
    )
    assert digest.since(digest.live[0]) == 2


def test_marks_say_what_was_seen_last() -> None:
    items = story(
        (1, Source.PROTOCOL, Progress(Work.STREAMING)),
        (2, Source.SOCKET, Progress(Work.STREAMING)),
        (3, Source.TEXT, Retrying(1, 5, F.PROVIDER)),
        (4, Source.SOCKET, Requested()),
        (5, Source.STABILITY, Progress(Work.STREAMING)),
    )
    digest = Digest(items, 5.0, 0.0)
    assert (digest.output, digest.received, digest.advance) == (0, 2, 3)
    assert digest.progress_at == 5


def test_without_evidence_the_start_is_the_last_progress() -> None:
    digest = Digest([], 5.0, 3.0)
    assert digest.progress_at == 3.0
    assert digest.voice() is None


def test_that_nobody_reads_the_terminal_holds_until_the_next_look_says_otherwise() -> None:
    rows: list[Row] = [(1, Source.SYSCALL, Unread()), (2, Source.TITLE, WORKS)]
    proof = Digest(story(*rows), 10.0, 0.0).unread()
    assert proof is not None
    assert proof.at == 1
    for claim in (Wants(Want.PROMPT), Idle()):
        assert Digest(story(*rows, (3, Source.SYSCALL, claim)), 10.0, 0.0).unread() is None


def test_a_repeated_report_keeps_its_first_and_its_latest_times() -> None:
    window = Window(story(*((float(at), Source.SOCKET, Working(Work.NETWORK)) for at in range(10))))
    assert [item.at for item in window.items] == [0.0, 8.0, 9.0]


def test_a_report_that_came_back_is_another_one() -> None:
    works = [Work.TOOL, Work.TOOL, Work.THINKING, Work.TOOL]
    window = Window(story(*((float(at), Source.ESCAPE, Working(work)) for at, work in enumerate(works))))
    assert [item.at for item in window.items] == [0.0, 1.0, 2.0, 3.0]


def test_what_is_counted_is_kept_each_time() -> None:
    rows = [(float(at), Source.DENIAL, refused("/home/u/.x")) for at in range(5)]
    rows_sent = [(float(at), Source.SOCKET, Requested()) for at in range(5)]
    assert len(Window(story(*rows, *rows_sent)).items) == 10


def test_the_commonest_kind_gives_way_so_that_an_old_request_stays() -> None:
    requests = [(float(at), Source.SOCKET, Requested()) for at in range(2 * MAX_ITEMS)]
    window = Window(story(DECISION, *requests))
    assert len(window.items) == MAX_ITEMS
    assert window.items[0] == story(DECISION)[0]
    assert window.items[-1].at == requests[-1][0]


def test_a_tool_is_not_pushed_out_by_text() -> None:
    tool = (0.0, Source.PROTOCOL, Progress(Work.TOOL))
    works = [Work.STREAMING, Work.STREAMING, Work.THINKING] * MAX_ITEMS
    texts = [(float(at), Source.PROTOCOL, Progress(work)) for at, work in enumerate(works)]
    assert Window(story(tool, *texts)).items[0] == story(tool)[0]


def test_adding_says_whether_it_is_news() -> None:
    window = Window(max_items=3)
    first, other = story((0.0, Source.TITLE, Working(Work.TOOL)), (2.0, Source.TITLE, Working(Work.THINKING)))
    assert window.add(first)
    assert not window.add(first)
    assert window.add(other)
    assert window.add(first)


def test_of_what_was_used_only_the_newest_count_is_kept_and_it_is_no_news() -> None:
    counts = [(float(at), Source.PROTOCOL, Used(TokenUsage(at, at))) for at in range(3)]
    window = Window(story(DECISION, *counts))
    assert [item.at for item in window.items] == [0.0, 2.0]
    assert not window.add(story((3.0, Source.PROTOCOL, Used(TokenUsage(9, 9))))[0])


def outvoted(*rows: Row, now: float = 20.0) -> bool:
    """Is its word that it works, of 2 s, not heard any more?"""
    items = story((2, Source.ESCAPE, Working(Work.THINKING)), *rows)
    voice = Digest(items, now, 0.0).voice()
    return voice is None or voice.source is not Source.ESCAPE


def test_a_word_that_it_works_is_outvoted_by_a_screen_that_came_to_rest() -> None:
    prompt: Row = (12, Source.SCREEN, Wants(Want.PROMPT))
    still: Row = (12, Source.STABILITY, Idle(since=8.0))
    assert outvoted((8, Source.STABILITY, Progress(Work.STREAMING)), prompt, still)
    assert outvoted((12, Source.SCREEN, Wants(Want.DECISION)), still)
    assert not outvoted(prompt)
    assert not outvoted(still)
    assert not outvoted(prompt, still, (13, Source.STABILITY, Progress(Work.STREAMING)))
    assert not outvoted((12, Source.SCREEN, Working(Work.THINKING)), still)
    assert not outvoted(prompt, (12, Source.STABILITY, Idle(since=1.0)))  # it began after that
    assert not outvoted(prompt, still, (13, Source.CHILDREN, Working(Work.TOOL)))
