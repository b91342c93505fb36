"""What is said on a status pipe, and what follows from its end."""

import pytest

from holdfast.sandbox.kernel.kernel import StageFailed
from holdfast.sandbox.protocol.report import (
    MAX_REPORT,
    StartReport,
    decode_report,
    encode_report,
    is_complete,
)


def test_a_command_that_runs_says_what_is_weaker_and_that_it_runs() -> None:
    said = encode_report(("landlock", "loopback"), runs=True)
    assert decode_report(said) == StartReport(("landlock", "loopback"), None, runs=True)


def test_a_failure_says_where_and_never_that_it_runs() -> None:
    said = encode_report(("loopback",), failure=StageFailed("uidmap", 1, "/a\udcff b"), runs=True)
    report = decode_report(said)
    assert report.failure is not None
    assert (report.failure.stage, report.failure.errno, report.failure.path) == ("uidmap", 1, "/a\udcff b")
    assert (report.weakened, report.runs) == (("loopback",), False)
    assert len(said) < MAX_REPORT


def test_who_says_nothing_or_breaks_off_does_not_run() -> None:
    whole = encode_report(("landlock",), runs=True)
    assert not any(decode_report(whole[:end]).runs for end in range(len(whole)))
    assert encode_report() == b""


def test_a_job_that_does_not_become_its_command_does_not_run() -> None:
    said = encode_report(runs=True) + encode_report(failure=StageFailed("exec", 2, "nosuch"))
    assert (decode_report(said).failure is not None, decode_report(said).runs) == (True, False)


def test_anything_else_is_no_report() -> None:
    with pytest.raises(ValueError, match="not a report"):
        decode_report(b"hello\0")


def test_only_that_the_command_runs_is_the_last_word() -> None:
    """A job that begins may still fail; of a pipe in the middle of a word nothing is known."""
    whole = encode_report(["proc"], runs=True)
    assert is_complete(whole)
    assert not any(is_complete(whole[:length]) for length in range(len(whole)))
    assert not is_complete(encode_report(["proc"], begins=True))
    assert decode_report(encode_report(begins=True)).runs
    failed = encode_report(begins=True) + encode_report(failure=StageFailed("exec", 2, "/x"))
    assert not is_complete(failed)
    assert not decode_report(failed).runs
