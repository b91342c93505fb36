"""However terminal bytes are cut into reads, they mean the same; and no bytes at all do harm."""

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.agents.terminal import escapes
from holdfast.agents.terminal.escapes import EscapeReader, Event, Query, Splitter, TerminalView, answers
from holdfast.agents.terminal.screen import Screen

PARTS = [
    *(
        b"\x1b",
        b"[",
        b"]",
        b"P",
        b"_",
        b"\\",
        b"\x07",
        b"\x18",
        b";",
        b"?",
        b"$p",
        b"1",
        b"25",
        b"9999999",
        b"h",
        b"l",
    ),
    *(
        b"H",
        b"J",
        b"K",
        b"L",
        b"M",
        b"P",
        b"S",
        b"T",
        b"X",
        b"@",
        b"r",
        b"7",
        b"8",
        b"c",
        b"n",
        b"6n",
        b"m",
        b"u",
    ),
    *(b"1049", b"2004", b"7501;state=idle", b"2;title", b"9;4;1;", b"text", b"\r\n", b"\t", b"\b", b"\xff"),
    *(
        "界".encode(),
        "e\u0301".encode(),
        "\u200d".encode(),
        "\ufe0f".encode(),
        "\x9b".encode(),
        b"\x00",
        b":",
        b">",
    ),
    *(
        b"\x1b[",
        b"\x1b]",
        b"\x1b\\",
        b"\x1b[?1049h",
        b"\x1b[?1049l",
        b"\x1b]7501;",
        b"\x1b[3;1r",
        b"\x1b[?7l",
    ),
]
STREAMS = st.one_of(st.lists(st.sampled_from(PARTS), max_size=60).map(b"".join), st.binary(max_size=200))
CUTS = st.lists(st.integers(0, 200), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def read(parts: list[bytes]) -> tuple[list[Event], bytes, set[int], str]:
    reader = EscapeReader()
    seen = [reader.feed(part) for part in parts]
    events = [event for one in seen for event in one.events]
    return events, b"".join(one.forward for one in seen), reader.modes, reader.title


def drawn(parts: list[bytes], rows: int, columns: int) -> tuple[str, ...]:
    screen = Screen(rows, columns)
    for number, part in enumerate(parts):
        screen.feed(part)
        screen.look(float(number))
    return screen.look(1000.0).lines


@given(STREAMS, CUTS)
@settings(deadline=None)
@example(b"\x1b]2;a\x1b\\", [5])
@example(b"\x1b]2;a\x1b[6n", [5])
def test_any_cut_gives_the_same_events(data: bytes, cuts: list[int]) -> None:
    whole = read([data])
    assert read(pieces(data, cuts)) == whole
    assert read(pieces(data, list(range(len(data))))) == whole


@given(STREAMS, CUTS, st.integers(1, 4), st.integers(1, 12))
@settings(deadline=None)
@example("e\u0301".encode(), [1], 1, 1)
def test_any_cut_gives_the_same_screen(data: bytes, cuts: list[int], rows: int, columns: int) -> None:
    assert drawn(pieces(data, cuts), rows, columns) == drawn([data], rows, columns)


@given(STREAMS)
@settings(deadline=None)
def test_a_person_s_terminal_is_asked_nothing(data: bytes) -> None:
    assert not [
        event
        for event in EscapeReader().feed(EscapeReader().feed(data).forward).events
        if isinstance(event, Query)
    ]


@given(STREAMS)
@settings(deadline=None)
def test_answers_hold_nothing_of_the_workers_but_numbers(data: bytes) -> None:
    queries = [event for event in EscapeReader().feed(data).events if isinstance(event, Query)]
    assert all(query.argument.isdigit() or not query.argument for query in queries)
    assert b"title" not in answers(queries, TerminalView())


@given(st.sampled_from([b"\x1b]", b"\x1bP", b"\x1b[", b"\x1b_", b"\x1b"]), st.binary(min_size=1, max_size=9))
@settings(deadline=None)
def test_what_is_kept_for_later_is_bounded(start: bytes, filling: bytes) -> None:
    splitter = Splitter()
    for part in pieces(start + filling * 20_000, list(range(0, 180_000, 4096))):
        for _ in splitter.feed(part):
            pass
        assert len(splitter._rest) <= escapes.MAX_STRING + 2
