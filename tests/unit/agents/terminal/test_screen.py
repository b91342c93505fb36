from holdfast.agents.terminal.screen import MAX_PENDING, Screen
from tests.support.rows import every_row


def shown(data: bytes, *, rows: int = 4, columns: int = 20) -> list[str]:
    screen = Screen(rows, columns)
    screen.feed(data)
    return list(screen.look(1.0).lines)


@every_row(
    ("data", "lines"),
    [
        (b"one\r\ntwo", ["one", "two", "", ""]),
        (b"\x1b[2;3Hx\x1b[1;1Hy", ["y", "  x", "", ""]),
        (b"12345678901234567890ab", ["12345678901234567890", "ab", "", ""]),
        (b"\x1b[?7l12345678901234567890ab", ["1234567890123456789b", "", "", ""]),
        (b"a\r\nb\r\nc\r\nd\r\ne", ["b", "c", "d", "e"]),
        (b"abc\x1b[2D\x1b[K", ["a", "", "", ""]),
        (b"abc\x1b[2D\x1b[1K", ["  c", "", "", ""]),
        (b"a\r\nb\x1b[2J\x1b[Hc", ["c", "", "", ""]),
        (b"a\r\nb\r\nc\x1b[2;1H\x1b[J", ["a", "", "", ""]),
        (b"a\r\nb\r\nc\x1b[2;1H\x1b[L", ["a", "", "b", "c"]),
        (b"a\r\nb\r\nc\x1b[1;1H\x1b[M", ["b", "c", "", ""]),
        (b"a\r\nb\r\nc\x1b[S", ["b", "c", "", ""]),
        (b"a\r\nb\x1b[T", ["", "a", "b", ""]),
        (b"a\r\nb\r\nc\r\nd\x1b[2;3r\x1b[3;1H\nx", ["a", "c", "x", "d"]),
        (b"abc\x1b[1;1H\x1b[P\x1b[@", [" bc", "", "", ""]),
        (b"a\tb", ["a       b", "", "", ""]),
        (b"\x1b7abc\x1b8x\x1b8y", ["ybc", "", "", ""]),
        (b"\x1b[sabc\x1b[ux", ["xbc", "", "", ""]),
    ],
)
def test_it_shows_what_a_terminal_shows(data: bytes, lines: list[str]) -> None:
    assert shown(data) == lines


@every_row(
    "noise",
    [
        b"\x1b[>4;2m",  # private colours, at which the library would lose the rest
        b"\x1b[38:2::1:2:3m",
        b"\x1b[1;2;3;4A",
        b"\x1b[9J\x1b[1;1H\x1b[9K",
        b"\x1b_Gi=31,s=1;AAAA\x1b\\",
        b"\x1bP+q544e\x07more\x1b\\",  # a bell does not end this kind of string
        b"\x1b]7501;state=idle\x07",
        b"\x1b[?2026$p",
        b"\x1b[6n",
        b"\x1b[ q",
        b"\x1b(B",
        b"\x1b F",
        b"\x1b[?3h",
        b"\x1b[?6h\x1b[1d",
        "\u200d\ufe0f".encode(),
        "\x9b1m\x9d0;x".encode()[:2],
    ],
)
def test_what_does_not_draw_does_not_show_and_loses_nothing(noise: bytes) -> None:
    assert shown(noise + b"after", rows=2)[0] == "after"


def test_wide_and_combined_characters_take_the_room_they_take() -> None:
    assert shown("a界e\u0301b".encode(), rows=1) == ["a界éb"]
    assert shown("a界b\x1b[1;2Hx".encode(), rows=1)[0].startswith("ax")
    assert shown("✳\ufe0f working".encode(), rows=1) == ["✳ working"]


def test_a_character_may_be_cut_by_a_read() -> None:
    screen = Screen(1, 10)
    for byte in "é界".encode():
        screen.feed(bytes([byte]))
        screen.look(1.0)
    assert screen.look(1.0).lines == ("é界",)


def test_a_full_screen_program_gives_the_screen_back() -> None:
    screen = Screen(2, 10)
    screen.feed(b"shell\x1b[?1049h\x1b[2J\x1b[Hfull")
    assert screen.look(1.0).lines == ("full", "")
    screen.feed(b"\x1b[?1049l!")
    assert screen.look(2.0).lines == ("shell!", "")


def test_it_says_since_when_it_looks_like_this() -> None:
    screen = Screen(2, 10)
    screen.feed(b"a")
    first = screen.look(1.0)
    screen.feed(b"\x1b]0;blinking title\x07\x1b[1;31m")
    assert screen.look(5.0) == first
    screen.feed(b"\rb")
    second = screen.look(6.0)
    assert (first.changed_at, second.changed_at) == (1.0, 6.0)
    assert first.digest != second.digest


def test_it_knows_where_the_cursor_is() -> None:
    screen = Screen(5, 10)
    screen.feed(b"\x1b[3;4H")
    look = screen.look(1.0)
    assert (look.row, look.column) == (3, 4)
    screen.feed(b"\x1b[1;1H0123456789")
    assert screen.look(1.0).column == 10


def test_a_flood_is_bounded_and_its_end_is_shown() -> None:
    screen = Screen(2, 20)
    for number in range(60_000):
        screen.feed(b"\x1b[32mline %06d\x1b[0m\r\n" % number)
    screen.feed(b"end")
    assert screen.skipped > 0
    assert screen.look(1.0).lines == ("line 059999", "end")
    screen.feed(b"x" * 3 * MAX_PENDING)
    screen.look(2.0)


def test_saved_cursors_do_not_pile_up() -> None:
    screen = Screen(2, 10)
    screen.feed(b"\x1b7" * 1000)
    screen.look(1.0)
    assert len(screen._cells.savepoints) == 1
