"""What a column shows."""

import msgspec
import pytest

from holdfast.board.rules.rows import Run, Task
from holdfast.board.rules.transitions import TaskStatus
from holdfast.errors import UsageError
from holdfast.web.cards import MAX_CARDS, MAX_LINE, MAX_SEARCH, CardFilter, card, matches, parse_filter
from tests.support.rows import every_row

TASK = msgspec.convert(
    {
        **dict.fromkeys(("created_ms", "status_ms", "open_parents", "generation", "attempts", "version"), 1),
        **dict.fromkeys(("ended_ms", "run_id", "wake_ms", "question", "result", "created_by_run"), None),
        **{"id": "t", "board": "b", "title": "Fix IT", "body": "quickly", "assignee": "codex"},
        **{"status": "ready", "priority": 0, "created_by": "me", "max_attempts": 3, "options": []},
        **{"waiting_for": "", "reason": "r"},
    },
    Task,
)
RUN = msgspec.convert(
    {
        **dict.fromkeys(("generation", "lease_until_ms", "started_ms"), 1),
        **dict.fromkeys(("ended_ms", "outcome", "failure", "summary", "error"), None),
        **dict.fromkeys(("worker", "host", "profile", "board", "id", "task_id"), "x"),
        **{"heartbeat_ms": 7, "note": "reading", "metadata": {}},
    },
    Run,
)


def changed(**members: object) -> Task:
    return msgspec.structs.replace(TASK, **members)


def test_a_query_becomes_a_filter_and_what_is_empty_or_unknown_does_not_count() -> None:
    query = {"status": "ready", "search": "", "mine": "true", "limit": "7", "cursor": "1.t", "other": "x"}
    assert parse_filter(query) == CardFilter(status=TaskStatus.READY, mine=True, limit=7, cursor="1.t")


@every_row(
    "query",
    [
        *({"status": "nowhere"}, {"limit": "0"}, {"limit": str(MAX_CARDS + 1)}, {"limit": "many"}),
        *({"mine": "perhaps"}, {"search": "x" * (MAX_SEARCH + 1)}),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        parse_filter(query)


@every_row(
    ("asked", "shown"),
    [
        (CardFilter(), True),
        (CardFilter(status=TaskStatus.READY, assignee="codex", search="fix"), True),
        (CardFilter(search="QUICK"), True),
        (CardFilter(search="slow"), False),
        (CardFilter(status=TaskStatus.DONE), False),
        (CardFilter(assignee="claude"), False),
    ],
)
def test_a_card_is_shown_where_all_filters_let_it(asked: CardFilter, shown: bool) -> None:
    assert matches(TASK, asked, "anna") is shown


@pytest.mark.parametrize(("name", "shown"), [("", True), ("anna", True), ("ben", False)])
def test_what_somebody_else_is_asked_for_does_not_wait_on_me(name: str, shown: bool) -> None:
    assert matches(changed(waiting_for=name), CardFilter(mine=True), "anna") is shown
    assert matches(changed(status=TaskStatus.REVIEW, reviewer=name), CardFilter(mine=True), "anna") is shown
    assert not matches(changed(status=TaskStatus.REVIEW, waiting_for="checks"), CardFilter(mine=True), "anna")
    assert matches(changed(waiting_for=name), CardFilter(), "anna")


@every_row(
    ("task", "line"),
    [
        (TASK, "why"),
        (changed(status=TaskStatus.WAITING_HUMAN, question="which\n one?"), "which one?"),
        (changed(status=TaskStatus.WAITING_HUMAN), "why"),
        (changed(status=TaskStatus.DONE, result="it is there"), "it is there"),
        (changed(status=TaskStatus.DONE), ""),
        (changed(status=TaskStatus.FAILED), "r"),
        (changed(status=TaskStatus.CANCELLED), "r"),
    ],
)
def test_a_card_says_what_matters_in_its_column(task: Task, line: str) -> None:
    assert card(task, "why", None).line == line


def test_a_running_card_says_what_its_worker_says_and_when() -> None:
    shown = card(changed(status=TaskStatus.RUNNING), "is running", RUN)
    assert (shown.line, shown.beat_ms) == ("reading", 7)
    stuck = card(
        changed(status=TaskStatus.RUNNING), "is running", msgspec.structs.replace(RUN, stuck="no news")
    )
    assert stuck.line == "looks stuck: no news"
    assert card(changed(status=TaskStatus.RUNNING), "is running", None).line == ""


def test_a_card_that_failed_says_the_cause() -> None:
    failed = changed(status=TaskStatus.FAILED, reason="its work did not succeed (3 of 3 attempts)")
    said = card(failed, "", None, "exit code 2; denied: /usr/x").line
    assert said == "its work did not succeed (3 of 3 attempts): exit code 2; denied: /usr/x"


def test_a_reason_is_not_cut_within_a_word_and_has_no_escape_codes() -> None:
    said = card(changed(status=TaskStatus.FAILED, reason="\x1b[31mdenied\x1b[0m " * 100), "", None).line
    assert said.endswith("denied…")
    assert "\x1b" not in said


def test_what_a_card_says_is_bounded() -> None:
    shown = card(changed(status=TaskStatus.DONE, result="x" * 100_000), "", None)
    assert MAX_LINE - 20 < len(shown.line) <= MAX_LINE
    assert not hasattr(shown, "body")
