import msgspec

from holdfast.board.rules.rows import Comment, Message, ParentResult
from holdfast.board.rules.transitions import Status
from holdfast.dispatch.rules.prompts import (
    FILE,
    MAX_BODY,
    MAX_COMMENTS,
    MAX_PARENTS,
    ReportChannel,
    brief,
    fits,
    prompt,
    report_only,
    reporting,
)
from tests.support.dispatch import a_detail, a_task

COMMAND = ReportChannel(("/opt/a python", "-m", "holdfast"))


def test_a_script_is_the_body_and_nothing_else() -> None:
    assert prompt("{body}", a_detail(body="make {brief}"), COMMAND) == "make {brief}"


def test_a_template_holds_the_brief() -> None:
    text = prompt("You review {x}.\n\n{brief}", a_detail(body="look"), COMMAND)
    assert text.startswith("You review {x}.\n\n# Task t_1: do it\n\nlook\n\n")


def test_a_brief_says_how_to_report() -> None:
    text = brief(a_detail(), COMMAND)
    assert "'/opt/a python' -m holdfast handoff complete" in text
    assert "handoff block" in text
    assert "kanban_complete" in reporting(ReportChannel(tools=True))


def test_results_and_comments_are_quoted_as_what_others_wrote() -> None:
    comments = [
        Comment(task_id="t_1", number=n, author="ann", body=f"note {n}\n# Task", at_ms=0, run_id=None)
        for n in range(MAX_COMMENTS + 1)
    ]
    results = [
        ParentResult(task_id=f"t_{n}", title="before", status=Status.DONE, result="made a\nb")
        for n in range(MAX_PARENTS + 1)
    ]
    text = brief(a_detail(comments=comments, results=results), COMMAND)
    assert "> made a\n> b" in text
    assert "> note 10\n> # Task" in text
    assert "> note 0\n" not in text
    assert f"t_{MAX_PARENTS}:" not in text


def test_messages_that_nobody_has_seen_are_in_the_brief_and_others_are_not() -> None:
    message = Message(
        task_id="t_1",
        number=1,
        run_id="r_1",
        author="ann",
        body="use tabs\n# Task",
        at_ms=0,
        delivered_ms=None,
        seen_ms=None,
    )
    detail = msgspec.structs.replace(a_detail(), messages=[message])
    text = brief(detail, COMMAND)
    assert "ann:\n> use tabs\n> # Task" in text
    seen = msgspec.structs.replace(message, delivered_ms=1, seen_ms=2)
    assert "use tabs" not in brief(msgspec.structs.replace(detail, messages=[seen]), COMMAND)


def test_a_worker_is_told_how_to_hear_what_people_say_to_it() -> None:
    assert "holdfast handoff heartbeat" in reporting(COMMAND)
    assert "kanban_heartbeat" in reporting(ReportChannel(tools=True))


def test_a_long_body_is_cut_and_says_where_the_rest_is() -> None:
    text = brief(a_detail(body="x" * (MAX_BODY + 1)), COMMAND)
    assert FILE in text
    assert fits(text)
    assert not fits("x" * 100_000)


def test_the_last_error_is_told() -> None:
    detail = a_detail(errors=["first", "second"])
    assert "> second" in brief(detail, COMMAND)
    assert "> first" not in brief(detail, COMMAND)


def test_a_worker_is_told_which_checks_will_be_run_and_what_was_said() -> None:
    detail = msgspec.structs.replace(a_detail(), task=a_task(checks=["make test", "x" * 5000]))
    text = brief(detail, COMMAND, ["# Said", ""])
    assert "- `make test`\n- `xxx" in text
    assert "x" * 2000 not in text
    assert "\n\n# Said\n\n# How to report" in text


def test_a_run_for_the_report_alone_is_told_not_to_work() -> None:
    text = report_only(a_detail(body="build it"), COMMAND)
    assert "Do not do the work again" in text
    assert "> build it" in text
    assert "handoff complete" in text
