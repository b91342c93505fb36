"""What `wait` keeps of a command: both streams within a bound, and how it ended."""

import pytest

from holdfast.client.events.ordering import Closed, Exited, Output
from holdfast.client.events.result import Collector, Result
from holdfast.wire.processes import DenialReport, Usage

USAGE = Usage(user_ms=1, system_ms=2, peak_rss_bytes=3)
DENIAL = DenialReport("filesystem", "/x", None, "write", None, None, 1.0, "EROFS")


def test_a_result_is_what_was_said_on_each_stream_and_how_it_ended() -> None:
    collector = Collector(100)
    for event in (
        Output(1, "stdout", b"a"),
        Output(2, "stderr", b"b"),
        Exited(3, 7, True, USAGE, DENIAL),
        Output(4, "stdout", b"late"),
        Closed(5),
    ):
        collector.take(event)
    assert collector.result(None) == Result(7, b"alate", b"b", DENIAL, True, None, USAGE, 0)


def test_what_a_terminal_said_is_its_standard_output() -> None:
    collector = Collector(100)
    collector.take(Output(1, "pty", b"a"))
    collector.take(Exited(2, 0, False))
    assert (collector.result(None).stdout, collector.result(None).stderr) == (b"a", b"")


def test_what_does_not_fit_and_what_was_missed_before_is_counted() -> None:
    collector = Collector(4)
    collector.missed_bytes = 5
    collector.take(Output(1, "stdout", b"0123456789"))
    collector.take(Output(2, "stderr", b"012345"))
    collector.take(Exited(3, 0, False))
    result = collector.result(None)
    assert (len(result.stdout), len(result.stderr), result.dropped_bytes) == (4, 4, 6 + 2 + 5)


def test_there_is_no_result_before_the_exit() -> None:
    with pytest.raises(AssertionError):
        Collector(1).result(None)
