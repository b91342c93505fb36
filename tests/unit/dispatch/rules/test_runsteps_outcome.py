import pytest

from holdfast.agents.evidence import evidence
from holdfast.board.rules.retry import FailureKind
from holdfast.dispatch.rules.runsteps import (
    MAX_REASON,
    Complete,
    Fail,
    Stop,
    WorkerEnd,
    WorkFound,
    apply_budget,
    judge,
)
from tests.support.rows import every_row

COMPLETED = WorkerEnd("completed", None, "", 0)
CRASHED = WorkerEnd("failed", "crash", "exit code 3, and no word about the cause", 3)
LOST = WorkerEnd("lost", None, "its exec server is gone")


def test_an_exit_code_completes_a_task_only_where_the_launcher_says_so() -> None:
    assert judge(COMPLETED, WorkFound(), "exit", said="built\nall 12 pass\n") == Complete(
        "built\nall 12 pass"
    )
    assert judge(COMPLETED, WorkFound(), "exit") == Complete("exit code 0")
    assert isinstance(judge(COMPLETED, WorkFound(), "report", said="I am done!"), Fail)


def test_where_the_exit_code_speaks_nothing_else_does() -> None:
    words = WorkerEnd("failed", "sandbox", "it printed: permission denied", 0)
    assert judge(words, WorkFound(), "exit") == Complete("exit code 0")
    assert isinstance(judge(WorkerEnd("failed", "timeout", "too long", None), WorkFound(), "exit"), Fail)
    early = judge(WorkerEnd("failed", "launch", "it ended before it took part", 3), WorkFound(), "exit")
    assert isinstance(early, Fail)
    assert early.failure is FailureKind.TASK


def test_zero_bytes_do_not_keep_a_run_from_being_told() -> None:
    assert judge(COMPLETED, WorkFound(), "exit", said="a\0b") == Complete("a\N{REPLACEMENT CHARACTER}b")
    failed = judge(WorkerEnd("failed", "crash", "a\0b", 1), WorkFound(), "report")
    assert isinstance(failed, Fail)
    assert "\0" not in failed.reason


def test_work_without_a_report_is_a_failed_handoff() -> None:
    outcome = judge(COMPLETED, WorkFound(changed=2), "report")
    assert isinstance(outcome, Fail)
    assert outcome.failure is FailureKind.HANDOFF
    assert "2 files" in outcome.reason


@pytest.mark.parametrize("failure", [evidence.Failure.QUOTA, evidence.Failure.RATE_LIMIT])
def test_an_announced_reset_is_passed_on_with_a_quota_and_with_nothing_else(failure: str) -> None:
    outcome = judge(WorkerEnd("failed", failure, "usage limit", 1, limit_s=90.0), WorkFound(), "report")
    assert isinstance(outcome, Fail)
    assert (outcome.failure, outcome.resets_s) == (FailureKind.QUOTA, 90.0)
    other = judge(WorkerEnd("failed", "network", "", 1, limit_s=90.0), WorkFound(), "report")
    assert isinstance(other, Fail)
    assert other.resets_s is None


def test_no_report_and_no_work_is_a_failure_of_the_task() -> None:
    outcome = judge(COMPLETED, WorkFound(), "report")
    assert isinstance(outcome, Fail)
    assert outcome.failure is FailureKind.TASK


@every_row("end", [COMPLETED, CRASHED, LOST])
@every_row("success", ["report", "exit"])
def test_a_report_that_was_refused_is_a_failed_handoff_however_it_ended(end: WorkerEnd, success: str) -> None:
    outcome = judge(end, WorkFound(changed=1, refused="not JSON"), success)  # type: ignore[arg-type]  # one of two
    assert isinstance(outcome, Fail)
    assert outcome.failure is FailureKind.HANDOFF
    assert "not JSON" in outcome.reason


def test_a_refused_word_of_a_worker_that_crashed_without_work_does_not_hide_the_crash() -> None:
    outcome = judge(CRASHED, WorkFound(refused="not JSON"), "report")
    assert isinstance(outcome, Fail)
    assert outcome.failure is FailureKind.TASK


@pytest.mark.parametrize("end", [COMPLETED, CRASHED])
def test_a_run_for_the_report_alone_never_makes_the_work_be_done_again(end: WorkerEnd) -> None:
    for success in ("report", "exit"):
        outcome = judge(end, WorkFound(report_only=True), success)
        assert isinstance(outcome, Fail)
        assert outcome.failure is FailureKind.HANDOFF


def test_a_run_for_the_report_alone_that_meets_a_quota_is_tried_again() -> None:
    for end, failure in ((LOST, FailureKind.INFRA), (WorkerEnd("failed", "quota", ""), FailureKind.QUOTA)):
        outcome = judge(end, WorkFound(report_only=True), "report")
        assert isinstance(outcome, Fail)
        assert outcome.failure is failure


@every_row(
    ("failure", "told"),
    [
        ("quota", FailureKind.QUOTA),
        ("rate-limit", FailureKind.QUOTA),
        ("auth", FailureKind.AUTH),
        ("provider", FailureKind.INFRA),
        ("network", FailureKind.INFRA),
        ("launch", FailureKind.INFRA),
        ("crash", FailureKind.TASK),
        ("timeout", FailureKind.TASK),
        ("sandbox", FailureKind.TASK),
        ("killed", FailureKind.TASK),
    ],
)
def test_every_failure_has_its_class(failure: str, told: FailureKind) -> None:
    assert evidence.Failure(failure)
    outcome = judge(WorkerEnd("failed", failure, "because"), WorkFound(changed=1), "report")
    assert isinstance(outcome, Fail)
    assert outcome.failure is told
    assert "because" in outcome.reason


def test_a_worker_that_is_lost_is_no_fault_of_the_task() -> None:
    outcome = judge(LOST, WorkFound(changed=1), "exit")
    assert isinstance(outcome, Fail)
    assert outcome.failure is FailureKind.INFRA


def test_a_reason_names_what_was_denied_and_is_bounded() -> None:
    end = WorkerEnd("failed", "sandbox", "x" * MAX_REASON, denials=("/etc/shadow",))
    outcome = judge(end, WorkFound(), "report")
    assert isinstance(outcome, Fail)
    assert len(outcome.reason) == MAX_REASON
    many = tuple(f"/etc/{n}" for n in range(20))
    told = judge(WorkerEnd("completed", None, "", denials=many), WorkFound(changed=1), "report")
    assert isinstance(told, Fail)
    assert told.reason.endswith("denied: /etc/0, /etc/1, /etc/2 and 17 more")
    outcome = judge(WorkerEnd("failed", "sandbox", "", denials=("/etc/shadow",)), WorkFound(), "report")
    assert isinstance(outcome, Fail)
    assert "/etc/shadow" in outcome.reason


def test_a_spent_budget_ends_the_tries_and_takes_nothing_back_that_was_done() -> None:
    failed = Fail(FailureKind.TASK, "ended by signal 15")
    assert apply_budget(failed, "5 of 5 tokens") == Stop("5 of 5 tokens", "ended by signal 15")
    assert apply_budget(failed, None) == failed
    for kept in (Complete("done"), Fail(FailureKind.HANDOFF, "no report")):
        assert apply_budget(kept, "5 of 5 tokens") == kept
