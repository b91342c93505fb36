from typing import Final

import msgspec
import pytest

from holdfast.board.rules.rows import Comment, Detail, ParentResult, TaskEvent, TaskMessage
from holdfast.board.rules.transitions import TaskStatus
from holdfast.dispatch.rules import prompts
from holdfast.dispatch.rules.prompts import (
    FILE,
    MAX_BODY,
    MAX_COMMENTS,
    MAX_PARENTS,
    ReportChannel,
    build_brief,
    build_prompt,
    build_report_request,
    describe_answer,
    describe_changes,
    describe_reporting,
    diff_line,
    fits,
    read_answer,
)
from tests.support.dispatch import a_detail, a_run, a_task
from tests.support.rows import every_row

COMMAND = ReportChannel(("/opt/a python", "-m", "holdfast"))


def test_a_script_is_the_body_and_nothing_else() -> None:
    assert build_prompt("{body}", a_detail(body="make {brief}"), COMMAND) == "make {brief}"


def test_a_template_holds_the_brief() -> None:
    text = build_prompt("You review {x}.\n\n{brief}", a_detail(body="look"), COMMAND)
    assert text.startswith("You review {x}.\n\n# Task t_1: do it\n\nlook\n\n")


def test_a_brief_says_how_to_report() -> None:
    text = build_brief(a_detail(), COMMAND)
    assert "'/opt/a python' -m holdfast handoff complete" in text
    assert "handoff block" in text
    assert "kanban_complete" in describe_reporting(ReportChannel(tools=True))


def test_results_and_comments_are_quoted_as_what_others_wrote() -> None:
    comments = [
        Comment(task_id="t_1", number=n, author="ann", body=f"note {n}\n# Task", at_ms=0, run_id=None)
        for n in range(MAX_COMMENTS + 1)
    ]
    results = [
        ParentResult(task_id=f"t_{n}", title="before", status=TaskStatus.DONE, result="made a\nb")
        for n in range(MAX_PARENTS + 1)
    ]
    text = build_brief(a_detail(comments=comments, results=results), COMMAND)
    assert "> made a\n> b" in text
    assert "> note 10\n> # Task" in text
    assert "> note 0\n" not in text
    assert f"t_{MAX_PARENTS}:" not in text


def test_messages_that_nobody_has_seen_are_in_the_brief_and_others_are_not() -> None:
    message = TaskMessage(
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
    text = build_brief(detail, COMMAND)
    assert "ann:\n> use tabs\n> # Task" in text
    seen = msgspec.structs.replace(message, delivered_ms=1, seen_ms=2)
    assert "use tabs" not in build_brief(msgspec.structs.replace(detail, messages=[seen]), COMMAND)


def test_a_worker_is_told_how_to_hear_what_people_say_to_it() -> None:
    assert "holdfast handoff heartbeat" in describe_reporting(COMMAND)
    assert "kanban_heartbeat" in describe_reporting(ReportChannel(tools=True))


def test_a_long_body_is_cut_and_says_where_the_rest_is() -> None:
    text = build_brief(a_detail(body="x" * (MAX_BODY + 1)), COMMAND)
    assert FILE in text
    assert fits(text)
    assert not fits("x" * 100_000)


def test_the_last_error_is_told() -> None:
    detail = a_detail(errors=["first", "second"])
    assert "> second" in build_brief(detail, COMMAND)
    assert "> first" not in build_brief(detail, COMMAND)


def test_a_worker_is_told_which_checks_will_be_run_and_what_was_said() -> None:
    detail = msgspec.structs.replace(a_detail(), task=a_task(checks=["make test", "x" * 5000]))
    text = build_brief(detail, COMMAND, ["# Said", ""])
    assert "- `make test`\n- `xxx" in text
    assert "x" * 2000 not in text
    assert "\n\n# Said\n\n# How to report" in text


def test_a_run_for_the_report_alone_is_told_not_to_work() -> None:
    text = build_report_request(a_detail(body="build it"), COMMAND)
    assert "Do not do the work again" in text
    assert "> build it" in text
    assert "handoff complete" in text


DIFF: Final = """diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,4 @@
 one
-two
+zwei
++++ b/not a file
 three
@@ -10 +11,2 @@ def f():
 ten
+eleven
diff --git a/new b/new
new file mode 100644
--- /dev/null
+++ b/new
@@ -0,0 +1 @@
+only
\\ No newline at end of file
"""


@every_row(
    ("path", "line", "text"),
    [
        ("src/a.py", 1, " one"),
        ("src/a.py", 2, "+zwei"),
        ("src/a.py", 3, "++++ b/not a file"),
        ("src/a.py", 4, " three"),
        ("src/a.py", 5, None),
        ("src/a.py", 12, "+eleven"),
        ("new", 1, "+only"),
        ("new", 2, None),
        ("b/new", 1, None),
    ],
)
def test_the_line_of_a_diff_is_found_by_its_number_after_the_change(
    path: str, line: int, text: str | None
) -> None:
    assert diff_line(DIFF, path, line) == text


def comment(body: str, path: str = "", line: int | None = None) -> Comment:
    return Comment(
        task_id="t_1", number=1, author="anna", body=body, at_ms=0, run_id=None, path=path, line=line
    )


def test_requested_changes_are_told_with_place_and_line() -> None:
    said = [comment("no tests\nat all"), comment("spell it", "src/a.py", 2), comment("gone?", "src/a.py", 7)]
    told = describe_changes("anna", said, DIFF, here=True)
    assert told.splitlines()[0] == "# Changes that anna asked for"
    assert "> no tests\n> at all" in told
    assert "## src/a.py:2\n    +zwei\n> spell it" in told
    assert "## src/a.py:7\n> gone?" in told


def test_however_much_is_asked_for_it_fits_into_a_prompt() -> None:
    said = [comment("x" * 10 * prompts.MAX_REMARK)] * 100
    told = describe_changes("anna", said, "", here=True)
    assert len(told) < prompts.MAX_REVIEW + 100
    assert told.endswith("cut]")


def test_a_worker_elsewhere_is_not_told_that_the_work_is_there() -> None:
    told = describe_changes("anna", [comment("no")], DIFF, here=False)
    assert prompts.REVIEWED in told
    assert prompts.REVIEWED not in describe_changes("anna", [comment("no")], DIFF, here=True)


def after(*reasons: str | None, outcome: str | None = "blocked", kind: str = "unblock") -> Detail:
    """A task whose run ended so, and that was then sent back to work with these words."""
    events = [
        TaskEvent(
            board="b",
            seq=number,
            task_id="t_1",
            run_id=None,
            kind=kind,
            actor="anna",
            at_ms=0,
            payload={} if reason is None else {"reason": reason},
        )
        for number, reason in enumerate(reasons, 1)
    ]
    run = msgspec.structs.replace(a_run(), outcome=outcome, summary="which one?")
    return msgspec.structs.replace(a_detail(), runs=[run], events=events)


@every_row(
    ("detail", "said"),
    [(after("red"), "red"), (after("old", None), ""), (after("so", kind="edited"), None), (a_detail(), None)],
)
def test_a_script_gets_the_answer_alone(detail: Detail, said: str | None) -> None:
    assert read_answer(detail) == said


def test_the_answer_to_a_question_is_told_with_it() -> None:
    assert describe_answer(after("the left one")) == "# What anna answered\n\n> which one?\n\nthe left one"


@pytest.mark.parametrize("detail", [after("so", outcome="failed"), after("so", kind="retry")])
def test_whoever_sends_a_task_back_to_work_is_heard(detail: Detail) -> None:
    assert describe_answer(detail) == "# What anna said when sending it back to work\n\nso"


@every_row("detail", [after(), after(None), after("old", None), after("so", kind="edited"), a_detail()])
def test_without_an_answer_nothing_is_said(detail: Detail) -> None:
    assert describe_answer(detail) == ""
