"""Reviews, checks and the inbox, on both databases."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import pytest

from holdfast.board.rules.rows import Edit, Run, Task
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.store import Store, open_store
from holdfast.board.verbs.inbox import CHECKS_MS, MAX_LISTED
from holdfast.board.verbs.reviews import CHECKS, MAX_REMARKS, Check, Remark, Review
from holdfast.errors import IllegalTransition, InvalidRequest, NotFound, StaleRun, UsageError
from tests.support.board_command import Board
from tests.support.boards import SettableClock, claimed, made
from tests.support.patience import patient


@pytest.fixture(autouse=True)
def sound(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test does, everything still adds up afterwards."""
    store: Store | None = request.getfixturevalue("store") if "store" in request.fixturenames else None
    yield
    if store is not None:
        assert store.faults() == []


def reviewed(store: Store, **wishes: object) -> tuple[Task, Run]:
    """A task whose worker wants it to be looked at."""
    _, run = claimed(store, made(store, "do it", **wishes).id)
    return store.request_review(run.ref, "e", "look at it"), run


def completed(store: Store, **wishes: object) -> tuple[Task, Run]:
    _, run = claimed(store, made(store, "do it", **wishes).id)
    return store.complete(run.ref, "e", "I did it"), run


def events(store: Store, kind: str) -> list[dict[str, object]]:
    return [event.payload for event in store.events("b", limit=500) if event.kind == kind]


# --- a person


def test_requested_changes_and_remarks_are_kept_for_the_next_run(store: Store) -> None:
    task, run = reviewed(store, reviewer="anna")
    store.comment(task.id, "something else", who="bob")
    remarks = (Remark("src/a.py", 3, "spell it"), Remark("b", 1, "why?"))
    after = store.review(task.id, Review(changes="no tests", remarks=remarks), who="anna")
    assert (after.status, after.reason, after.attempts) == (TaskStatus.READY, "no tests", 0)
    asked = store.requested_changes(task.id)
    assert asked is not None
    assert (asked.who, asked.run) == ("anna", run.id)
    assert [(one.path, one.line, one.body) for one in asked.comments] == [
        ("", None, "no tests"),
        ("src/a.py", 3, "spell it"),
        ("b", 1, "why?"),
    ]
    assert store.show(task.id).comments[1:] == asked.comments


def test_the_newest_review_counts(store: Store) -> None:
    task, _ = reviewed(store)
    assert store.requested_changes(task.id) is None
    store.review(task.id, Review(changes="first"))
    _, run = claimed(store, task.id)
    store.request_review(run.ref, "e", "again")
    store.review(task.id, Review(remarks=(Remark("a", 1, "second"),)))
    asked = store.requested_changes(task.id)
    assert asked is not None
    assert [one.body for one in asked.comments] == ["second"]
    _, run = claimed(store, task.id)
    store.request_review(run.ref, "e", "again")
    assert store.review(task.id, Review(approve=True)).status is TaskStatus.DONE
    assert store.requested_changes(task.id) is None


def test_an_approved_task_is_done_and_releases_those_that_wait_for_it(store: Store) -> None:
    task, _ = reviewed(store)
    child = made(store, "child", task.id)
    assert store.review(task.id, Review(approve=True)).result == "look at it"
    assert store.task(child.id).status is TaskStatus.READY


@pytest.mark.parametrize("given", [Review(), Review(changes=" "), Review(approve=True, changes="but")])
def test_a_review_approves_or_says_what_is_to_be_changed(store: Store, given: Review) -> None:
    task, _ = reviewed(store)
    with pytest.raises(UsageError):
        store.review(task.id, given)
    with pytest.raises(UsageError):
        store.move(task.id, Move.REQUEST_CHANGES)
    assert store.task(task.id).version == task.version


def test_a_plain_move_asks_for_changes_too(store: Store) -> None:
    task, _ = reviewed(store)
    store.move(task.id, Move.REQUEST_CHANGES, reason="no tests", who="anna")
    asked = store.requested_changes(task.id)
    assert asked is not None
    assert [(asked.who, one.body) for one in asked.comments] == [("anna", "no tests")]


def test_only_the_reviewer_is_heard_unless_somebody_insists(store: Store) -> None:
    task, _ = reviewed(store, reviewer="anna")
    for given in (Review(approve=True), Review(changes="no")):
        with pytest.raises(InvalidRequest):
            store.review(task.id, given, who="bob")
    assert events(store, "reviewed") == []
    assert store.review(task.id, Review(approve=True, anyway=True), who="bob").status is TaskStatus.DONE
    assert [event["anyway"] for event in events(store, "reviewed")] == [True]


def test_only_what_is_in_review_is_reviewed(store: Store) -> None:
    task = made(store)
    with pytest.raises(IllegalTransition):
        store.review(task.id, Review(approve=True))
    with pytest.raises(NotFound):
        store.review("t_nothing", Review(approve=True))


@pytest.mark.parametrize(
    ("path", "line", "body"),
    [
        *(("/etc/passwd", 1, "x"), ("../a", 1, "x"), ("a/../b", 1, "x"), ("./a", 1, "x"), ("a//b", 1, "x")),
        *(("a/", 1, "x"), ("", 1, "x"), ("a\nb", 1, "x"), ("a\0", 1, "x"), ("a" * 5000, 1, "x")),
        *(("a", 0, "x"), ("a", -1, "x"), ("a", 10**12, "x"), ("a", 1, " ")),
    ],
)
def test_a_remark_is_about_a_line_of_a_file_below_the_workspace(path: str, line: int, body: str) -> None:
    with pytest.raises(UsageError):
        Remark(path, line, body)


def test_the_remarks_of_a_review_are_bounded() -> None:
    with pytest.raises(UsageError):
        Review(remarks=(Remark("a", 1, "x"),) * (MAX_REMARKS + 1))


# --- the checks


def results(*codes: int | None, commands: Sequence[str] = ("lint", "test")) -> list[Check]:
    pairs = zip(commands, codes, strict=True)
    return [Check(command=command, exit_code=code, said=f"said {command}") for command, code in pairs]


Finish: TypeAlias = Callable[..., tuple[Task, Run]]
TWO: Final = {"checks": ("lint", "test")}


@pytest.mark.parametrize("finish", [completed, reviewed])
def test_work_with_checks_is_not_done_before_they_have_been_run(store: Store, finish: Finish) -> None:
    task, run = finish(store, **TWO)
    assert (task.status, task.waiting_for) == (TaskStatus.REVIEW, CHECKS)
    assert store.checks_due(run.ref) == ["lint", "test"]
    assert "checks are to be run" in store.why(task.id).reason
    with pytest.raises(InvalidRequest):
        store.review(task.id, Review(approve=True))
    assert store.inbox("b").waiting == []


def test_completed_work_whose_checks_pass_is_done(store: Store) -> None:
    task, run = completed(store, **TWO)
    child = made(store, "child", task.id)
    after = store.record_checks(run.ref, results(0, 0))
    assert (after.status, after.result) == (TaskStatus.DONE, "I did it")
    assert store.task(child.id).status is TaskStatus.READY
    assert store.checks_due(run.ref) is None
    assert [event["passed"] for event in events(store, "checked")] == [True]


def test_work_that_is_to_be_looked_at_stays_in_review_with_the_results(store: Store) -> None:
    task, run = reviewed(store, **TWO)
    after = store.record_checks(run.ref, results(0, 0))
    assert (after.status, after.waiting_for) == (TaskStatus.REVIEW, "")
    assert "all checks pass" in after.reason
    assert [one.task for one in store.inbox("b").waiting] == [task.id]
    assert store.review(task.id, Review(approve=True)).status is TaskStatus.DONE


@pytest.mark.parametrize("code", [1, None])
@pytest.mark.parametrize("finish", [completed, reviewed])
def test_a_check_that_fails_asks_for_changes_and_spends_the_attempt(
    store: Store, finish: Finish, code: int | None
) -> None:
    task, run = finish(store, max_attempts=2, **TWO)
    after = store.record_checks(run.ref, results(0, code))
    assert (after.status, after.attempts) == (TaskStatus.READY, 1)
    asked = store.requested_changes(task.id)
    assert asked is not None
    assert (asked.who, asked.run, len(asked.comments)) == (CHECKS, run.id, 1)
    assert "`test`" in asked.comments[0].body
    assert "said test" in asked.comments[0].body


def test_out_of_attempts_a_person_decides(store: Store) -> None:
    task, run = completed(store, max_attempts=1, **TWO)
    after = store.record_checks(run.ref, results(1, 1))
    assert (after.status, after.waiting_for) == (TaskStatus.REVIEW, "")
    assert "attempts are spent" in after.reason
    assert store.checks_due(run.ref) is None
    [waiting] = store.inbox("b").waiting
    assert waiting.question == after.reason
    assert store.review(task.id, Review(changes="mend it")).attempts == 0
    asked = store.requested_changes(task.id)
    assert asked is not None
    assert [one.body for one in asked.comments] == ["mend it"]


def test_results_that_are_not_due_change_nothing(store: Store) -> None:
    task, run = completed(store, **TWO)
    for wrong in ([], results(0, commands=["lint"]), results(0, 0, commands=["lint", "other"])):
        assert store.record_checks(run.ref, wrong) == task
    store.edit(task.id, Edit(checks=("other",)))
    assert store.record_checks(run.ref, results(0, 0)).status is TaskStatus.REVIEW
    assert store.checks_due(run.ref) == ["other"]
    store.review(task.id, Review(changes="a person was faster"))
    assert store.record_checks(run.ref, results(0, commands=["other"])).status is TaskStatus.READY
    _, newer = claimed(store, task.id)
    store.complete(newer.ref, "e", "again")
    assert store.checks_due(run.ref) is None
    assert store.record_checks(run.ref, results(0, commands=["other"])).status is TaskStatus.REVIEW
    with pytest.raises(StaleRun):
        store.record_checks(type(run.ref)(run.id, run.generation + 1), results(0, 0))
    assert events(store, "checked") == []


def test_without_checks_any_more_completed_work_is_done(store: Store) -> None:
    task, run = completed(store, **TWO)
    store.edit(task.id, Edit(checks=()))
    assert store.checks_due(run.ref) == []
    assert store.record_checks(run.ref, []).status is TaskStatus.DONE


def test_a_person_may_complete_what_no_check_has_passed(store: Store) -> None:
    task, _ = completed(store, **TWO)
    assert store.review(task.id, Review(approve=True, anyway=True)).status is TaskStatus.DONE
    other, _ = completed(store, **TWO)
    assert store.move(other.id, Move.COMPLETE).status is TaskStatus.DONE


def test_a_repeated_answer_says_what_it_said_first(store: Store) -> None:
    task, run = completed(store, **TWO)
    store.record_checks(run.ref, results(0, 0))
    assert store.complete(run.ref, "e", "I did it") == task
    assert store.task(task.id).status is TaskStatus.DONE


# --- the inbox


def test_the_inbox_has_what_waits_for_a_person_and_says_what_to_type(
    store: Store, clock: SettableClock
) -> None:
    in_review, _ = reviewed(store, reviewer="anna")
    clock.now_ms += 1
    asked = store.move(made(store).id, Move.BLOCK, question="blue?", options=("yes", "no"), waiting_for="bob")
    clock.now_ms += 1
    unspecified = made(store, triage=True)
    made(store)
    found = store.inbox("b").waiting
    assert [(one.task, one.who, one.since_ms) for one in found] == [
        (in_review.id, "anna", in_review.status_ms),
        (asked.id, "bob", asked.status_ms),
        (unspecified.id, "", unspecified.status_ms),
    ]
    assert (found[1].question, found[1].options) == ("blue?", ["yes", "no"])
    assert all(one.next and all(one.task in words for words in one.next) for one in found)
    for name, tasks in {"anna": [in_review, unspecified], "carl": [unspecified]}.items():
        assert [one.task for one in store.inbox("b", name=name).waiting] == [task.id for task in tasks]


def test_a_long_inbox_says_of_what_there_is_more(store: Store) -> None:
    for _ in range(3):
        made(store, triage=True)
    found = store.inbox("b", limit=2)
    assert (len(found.waiting), found.more) == (2, [TaskStatus.TRIAGE])
    for limit in (0, MAX_LISTED + 1):
        with pytest.raises(UsageError):
            store.inbox("b", limit=limit)
    with pytest.raises(NotFound):
        store.inbox("nope")


def test_checks_that_nobody_runs_are_worth_a_look_after_a_while(store: Store, clock: SettableClock) -> None:
    task, _ = completed(store, **TWO)
    assert store.inbox("b").waiting == []
    clock.now_ms += CHECKS_MS
    assert [one.task for one in store.inbox("b").waiting] == [task.id]


def test_an_acknowledgement_lasts_until_the_task_moves(store: Store, clock: SettableClock) -> None:
    task, _ = reviewed(store)
    first = store.acknowledge(task.id, who="anna")
    assert first.acknowledged_ms == clock.now_ms
    clock.now_ms += 5
    assert store.acknowledge(task.id, who="bob") == first
    assert [one.acknowledged_ms for one in store.inbox("b").waiting] == [first.acknowledged_ms]
    assert len(events(store, "acknowledged")) == 1
    assert store.review(task.id, Review(changes="no")).acknowledged_ms is None
    with pytest.raises(InvalidRequest):
        store.acknowledge(task.id)


# --- the commands


@pytest.mark.timeout(300)
def test_a_review_on_the_command_line(board: Board) -> None:
    board.answer("board", "create", "b")
    words = ("--reviewer", "anna", "--check", "true", "--check", "make test", "--assignee", "coder")
    task = str(board.task("create", "x", "--board", "b", *words)["id"])
    assert board.task("edit", task, "--check", "")["checks"] == []
    assert board.answer("task", "review", task, "--approve", "--as", "anna", code=1)["error"]
    with open_store(board.address) as store:
        _, run = claimed(store, task)
        store.request_review(run.ref, "e", "look")
    found = board.answer("task", "inbox", "--board", "b", "--for", "anna")["waiting"]
    assert isinstance(found, list)
    assert [(one["task"], one["who"], one["question"]) for one in found] == [(task, "anna", "look")]
    shown = board.run("task", "inbox", "--board", "b").stdout
    assert f"holdfast task review {task} --approve" in shown
    assert board.task("ack", task)["acknowledged_ms"]
    assert board.answer("task", "review", task, "--changes", "no", code=1)["error"]
    assert board.answer("task", "review", task, "--as", "anna", code=2)["error"]
    wrong = ("--at", "a.py", "no line")
    assert board.answer("task", "review", task, *wrong, "--as", "anna", code=2)["error"]
    remarks = ("--at", "src/a.py:3", "spell it", "--at", "b:1", "why?")
    assert board.task("review", task, *remarks, "--as", "anna")["status"] == "ready"
    assert "anna on src/a.py:3: spell it" in board.run("task", "show", task).stdout
    assert board.answer("task", "inbox", "--board", "b")["waiting"] == []
    assert board.answer("task", "ack", task, code=1)["error"]


def test_an_inbox_that_is_followed_says_what_begins_to_wait(sqlite_board: Board) -> None:
    sqlite_board.answer("board", "create", "b")
    following = sqlite_board.start("task", "inbox", "--board", "b", "--for", "anna", "--follow", "--json")
    try:
        assert following.stdout is not None
        assert '"waiting":[]' in following.stdout.readline()
        with open_store(sqlite_board.address) as store:
            made(store)
            store.move(made(store).id, Move.BLOCK, question="blue?", waiting_for="bob")
            mine = store.move(made(store).id, Move.BLOCK, question="red?", waiting_for="anna")
        line = following.stdout.readline()
        assert mine.id in line
        assert '"begins"' in line
    finally:
        following.kill()
        following.communicate()


def test_waiting_for_a_task_includes_its_checks(sqlite_board: Board) -> None:
    sqlite_board.answer("board", "create", "b")
    with open_store(sqlite_board.address) as store:
        task, run = completed(store, **TWO)
        waiting = sqlite_board.start("task", "show", task.id, "--wait", "--json")
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(2)
            store.record_checks(run.ref, results(0, 0))
            assert waiting.wait(patient(60)) == 0
        finally:
            waiting.kill()
            waiting.communicate()
