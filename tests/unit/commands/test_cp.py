"""The line that shows how far a copy is."""

from holdfast.commands.cp import REDRAW_S, Meter, amount
from tests.support.rows import every_row


@every_row(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1024**2 * 1.5, "1.5 MiB"), (1024**5, "1024.0 TiB")],
)
def test_bytes_for_people(size: float, text: str) -> None:
    assert amount(size) == text


def test_the_line_says_how_much_how_fast_and_how_long_still() -> None:
    line = Meter(0.0).line(256 * 1024, 1024 * 1024, 2.0, width=80)
    assert line is not None
    assert line.startswith("[######----")
    assert line.endswith(" 25%  256.0 KiB of 1.0 MiB  128.0 KiB/s  0:06 left")
    assert len(line) < 80


def test_long_waits_have_hours() -> None:
    line = Meter(0.0).line(1, 7300, 1.0, width=80)
    assert line is not None
    assert line.endswith("2:01:39 left")


def test_a_narrow_terminal_gets_no_bar_and_no_second_line() -> None:
    line = Meter(0.0).line(1, 2, 1.0, width=20)
    assert line is not None
    assert "[" not in line
    assert len(line) == 19


def test_at_the_beginning_nothing_is_known() -> None:
    line = Meter(5.0).line(0, 0, 5.0, width=80)
    assert line is not None
    assert line.endswith("-:-- left")


def test_it_is_not_drawn_more_often_than_anybody_reads() -> None:
    meter = Meter(0.0)
    assert meter.line(1, 2, 0.0, width=80)
    assert meter.line(1, 2, REDRAW_S / 2, width=80) is None
    assert meter.line(1, 2, REDRAW_S, width=80)
