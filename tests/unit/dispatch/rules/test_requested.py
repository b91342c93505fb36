"""What the next run is told about the work that was reviewed."""

from typing import Final

import msgspec
import pytest

from holdfast.board.rules.rows import Comment, Detail, TaskEvent
from holdfast.dispatch.rules import requested
from holdfast.dispatch.rules.requested import answer, changes, diff_line
from tests.support.dispatch import a_detail, a_run
from tests.support.rows import every_row

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
    told = changes("anna", said, DIFF, here=True)
    assert told.splitlines()[0] == "# Changes that anna asked for"
    assert "> no tests\n> at all" in told
    assert "## src/a.py:2\n    +zwei\n> spell it" in told
    assert "## src/a.py:7\n> gone?" in told


def test_however_much_is_asked_for_it_fits_into_a_prompt() -> None:
    said = [comment("x" * 10 * requested.MAX_ONE)] * 100
    told = changes("anna", said, "", here=True)
    assert len(told) < requested.MAX_WORDS + 100
    assert told.endswith("cut]")


def test_a_worker_elsewhere_is_not_told_that_the_work_is_there() -> None:
    told = changes("anna", [comment("no")], DIFF, here=False)
    assert requested.FILE in told
    assert requested.FILE not in changes("anna", [comment("no")], DIFF, here=True)


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


def test_the_answer_to_a_question_is_told_with_it() -> None:
    assert answer(after("the left one")) == "# What anna answered\n\n> which one?\n\nthe left one"


@pytest.mark.parametrize("detail", [after("so", outcome="failed"), after("so", kind="retry")])
def test_whoever_sends_a_task_back_to_work_is_heard(detail: Detail) -> None:
    assert answer(detail) == "# What anna said when sending it back to work\n\nso"


@every_row("detail", [after(), after(None), after("old", None), after("so", kind="edited"), a_detail()])
def test_without_an_answer_nothing_is_said(detail: Detail) -> None:
    assert answer(detail) == ""
