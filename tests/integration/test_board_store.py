"""What the store promises, on SQLite and on a real PostgreSQL server: one suite for both."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from holdfast.board.rules.assign import Busy, Capacity, Places
from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import NewTask, RunRef
from holdfast.board.rules.transitions import Move, TaskStatus, pairs
from holdfast.board.store import Store, open_store
from holdfast.board.verbs.runs import MAX_ANSWERS
from holdfast.errors import (
    Conflict,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    StaleRun,
    UsageError,
)
from tests.support.boards import SettableClock, claimed, made


def kinds(store: Store, task: str) -> list[str]:
    return [event.kind for event in store.show(task).events]


@pytest.fixture(autouse=True)
def sound(store: Store) -> Iterator[None]:
    """Whatever a test does, everything still adds up afterwards."""
    yield
    assert store.faults() == []


# --- boards and tasks


def test_a_board_is_made_once(store: Store) -> None:
    assert [board.slug for board in store.boards()] == ["b"]
    with pytest.raises(Conflict):
        store.create_board("b")
    with pytest.raises(UsageError):
        store.create_board("Not a slug")


def test_nothing_is_made_on_a_board_that_is_not_there(store: Store) -> None:
    with pytest.raises(NotFound):
        store.create("c", NewTask(title="x"))
    with pytest.raises(NotFound):
        store.claim("c", worker="w")
    with pytest.raises(NotFound):
        store.page("c")


def test_a_task_begins_where_its_wishes_put_it(store: Store, clock: SettableClock) -> None:
    parent = made(store)
    assert parent.status is TaskStatus.READY
    assert made(store, "x", parent.id).status is TaskStatus.TODO
    assert made(store, triage=True).status is TaskStatus.TRIAGE
    assert made(store, wake_ms=clock.now_ms + 1).status is TaskStatus.SCHEDULED
    assert parent.created_ms == clock.now_ms


def test_a_store_opened_again_has_everything(store: Store, address: str) -> None:
    task = made(store, "kept", body="with a body")
    with open_store(address, create=False) as again:
        assert again.task(task.id) == task


def test_the_constraints_of_the_database_know_the_same_transitions(store: Store) -> None:
    rows = store.database.read(lambda tx: tx.select("SELECT before, after FROM transitions", {}))
    assert {(TaskStatus(str(row["before"])), TaskStatus(str(row["after"]))) for row in rows} == pairs()


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE tasks SET status = 'archived', ended_ms = 1 WHERE status = 'ready'",
        "UPDATE tasks SET status = 'running' WHERE status = 'ready'",
        "UPDATE tasks SET open_parents = 1 WHERE status = 'ready'",
        "UPDATE tasks SET attempts = 99",
        "UPDATE tasks SET wake_ms = 1 WHERE status = 'ready'",
        "UPDATE tasks SET status = 'nonsense'",
        "UPDATE events SET kind = 'other'",
        "DELETE FROM events",
        "INSERT INTO links (parent, child, open) VALUES ('nobody', 'nothing', 1)",
    ],
)
def test_the_database_itself_refuses_what_must_never_be(store: Store, text: str) -> None:
    task = made(store)
    with pytest.raises(Exception, match=r"(?i)constraint|never|illegal|check"):
        store.database.write(lambda tx: tx.select(text, {}))
    assert store.task(task.id) == task


# --- idempotency keys


def test_a_key_makes_one_task_and_repeats_the_first_answer(store: Store) -> None:
    first = store.create("b", NewTask(title="x"), key="k")
    claimed(store, first.id)
    assert store.create("b", NewTask(title="x"), key="k") == first
    assert len(store.page("b").tasks) == 1


def test_a_key_is_for_one_wish_on_one_board(store: Store) -> None:
    first = store.create("b", NewTask(title="x"), key="k")
    with pytest.raises(Conflict):
        store.create("b", NewTask(title="another"), key="k")
    store.create_board("c")
    assert store.create("c", NewTask(title="x"), key="k").id != first.id


# --- dependencies


def test_a_task_is_ready_when_the_last_of_its_parents_is_done(store: Store) -> None:
    first, second = made(store), made(store)
    child = made(store, "child", first.id, second.id)
    assert child.open_parents == 2
    store.move(first.id, Move.COMPLETE)
    assert store.task(child.id).status is TaskStatus.TODO
    store.move(second.id, Move.COMPLETE)
    assert store.task(child.id).status is TaskStatus.READY
    assert kinds(store, child.id)[-1] == "promote"


@pytest.mark.parametrize("ending", [Move.CANCEL, Move.BLOCK])
def test_only_done_releases_those_that_wait(store: Store, ending: Move) -> None:
    parent = made(store)
    child = made(store, "child", parent.id)
    store.move(parent.id, ending)
    assert store.task(child.id).status is TaskStatus.TODO
    assert parent.id in store.why(child.id).reason


def test_a_done_parent_is_nothing_to_wait_for(store: Store) -> None:
    parent = made(store)
    store.move(parent.id, Move.COMPLETE)
    assert made(store, "child", parent.id).status is TaskStatus.READY
    other = made(store)
    assert store.link(parent.id, other.id).status is TaskStatus.READY


def test_an_archived_parent_that_was_done_stays_done(store: Store) -> None:
    parent = made(store)
    child = made(store, "child", parent.id)
    store.move(parent.id, Move.COMPLETE)
    store.move(parent.id, Move.ARCHIVE)
    assert store.task(child.id).status is TaskStatus.READY


def test_a_link_holds_a_ready_task_and_its_removal_frees_it(store: Store) -> None:
    parent, child = made(store), made(store)
    assert store.link(parent.id, child.id).status is TaskStatus.TODO
    assert store.link(parent.id, child.id).open_parents == 1
    assert store.unlink(parent.id, child.id).status is TaskStatus.READY
    with pytest.raises(NotFound):
        store.unlink(parent.id, child.id)


def test_a_cycle_is_refused_however_long(store: Store) -> None:
    chain = [made(store)]
    for _ in range(5):
        chain.append(made(store, "next", chain[-1].id))
    for parent, child in itertools.combinations_with_replacement(chain, 2):
        with pytest.raises(InvalidRequest):
            store.link(child.id, parent.id)


def test_links_stay_on_one_board_and_off_what_has_ended(store: Store) -> None:
    store.create_board("c")
    other = store.create("c", NewTask(title="x"))
    task, ended = made(store), made(store)
    store.move(ended.id, Move.CANCEL)
    for parent, child in [(other.id, task.id), (ended.id, task.id), (task.id, ended.id)]:
        with pytest.raises(InvalidRequest):
            store.link(parent, child)
    with pytest.raises(NotFound):
        store.link("t_nothing", task.id)


def test_a_running_task_that_gets_a_parent_waits_once_it_is_free(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    store.link(made(store).id, task.id)
    assert store.task(task.id).status is TaskStatus.RUNNING
    store.block(run.ref, "e", "hm?")
    assert store.move(task.id, Move.UNBLOCK).status is TaskStatus.TODO


# --- claims


def test_the_best_task_is_claimed_first_and_once(store: Store, clock: SettableClock) -> None:
    names = []
    for priority in (1, 5, 5, 0):
        clock.now_ms += 1
        names.append(made(store, priority=priority).id)
    won = [claimed(store)[0].id for _ in names]
    assert won == [names[1], names[2], names[0], names[3]]
    assert store.claim("b", worker="w") is None


def test_a_claim_can_be_for_a_profile_or_for_one_task(store: Store) -> None:
    coder, writer = made(store, priority=9), made(store, assignee="writer")
    won = store.claim("b", worker="w", assignees=["writer"])
    assert won is not None
    assert won[0].id == writer.id
    assert store.claim("b", worker="w", task=writer.id) is None
    assert claimed(store, coder.id)[1].profile == "coder"


def test_a_claim_takes_what_is_for_a_place_that_takes_work_and_says_where(store: Store) -> None:
    places = Places({"box": "", "gone": "unreachable"}, {"far": "box", "lost": "gone"})
    both = {"worker": "w", "host": "h", "assignees": ["coder", "far", "lost"]}
    made(store, "gone", environment="gone", priority=9)
    made(store, "unknown", environment="x", priority=8)
    made(store, "lost", assignee="lost", priority=7)
    box = made(store, "box", environment="box", priority=2)
    home = made(store, "home", assignee="far", priority=1)
    back = made(store, "back", assignee="lost", environment="box")
    here = made(store, "here", priority=-1)
    store.set_cap("b", "pool", "dry", 0)  # whatever else is looked at
    won = [store.claim("b", places=places, **both) for _ in range(5)]  # type: ignore[arg-type]
    assert [(one[0].id, one[1].environment) for one in won if one is not None] == [
        (box.id, "box"),
        (home.id, "box"),
        (back.id, "box"),
        (here.id, ""),
    ]
    assert store.claim("b", worker="w", places=places, task=back.id) is None
    [away] = store.page("b", search="gone").tasks
    assert "host h starts nothing now: environment gone: unreachable" in store.why(away.id).reason
    assert store.claim("b", worker="w", host="h", places=places, task=away.id) is None
    assert [(one.host, one.environment, one.shut, one.running) for one in store.places("b")] == [
        ("h", "", "", 1),
        ("h", "box", "", 3),
        ("h", "gone", "unreachable", 0),
    ]


def test_the_slots_of_an_environment_are_for_all_hosts_of_the_board(store: Store) -> None:
    places = Places({"box": "", "other": ""}, {"far": "box"}, {"box": 2})
    for number in range(3):
        made(store, f"far {number}", assignee="far")
    waiting = made(store, "last", environment="box", priority=-1)
    won = [
        store.claim("b", worker="w", host=host, assignees=["far", "coder"], places=places)
        for host in ("one", "two", "one", "two")
    ]
    assert [one is not None for one in won] == [True, True, False, False]
    assert "environment box: all 2 slots are taken" in store.why(waiting.id).reason
    assert store.claim("b", worker="w", host="two", places=places, task=waiting.id) is None
    assert won[0] is not None
    store.complete(won[0][1].ref, "e", "done")
    assert store.claim("b", worker="w", host="two", places=places, task=waiting.id) is not None
    elsewhere = made(store, "elsewhere", environment="other")
    assert store.claim("b", worker="w", host="two", places=places, task=elsewhere.id) is not None


def test_a_claim_makes_a_run_with_a_lease_and_a_generation(store: Store, clock: SettableClock) -> None:
    made(store)
    won = store.claim("b", worker="w", host="h", lease_ms=5000)
    assert won is not None
    task, run = won
    assert (task.status, task.run_id, task.attempts) == (TaskStatus.RUNNING, run.id, 1)
    assert (run.generation, run.lease_until_ms, run.outcome) == (1, clock.now_ms + 5000, None)
    assert store.runs(task.id) == [run]


def test_what_waits_for_the_clock_is_claimed_when_it_is_time(store: Store, clock: SettableClock) -> None:
    task = made(store, wake_ms=clock.now_ms + 10)
    assert store.claim("b", worker="w") is None
    clock.now_ms += 10
    assert claimed(store)[0].id == task.id


def test_a_person_s_gate_is_never_opened_by_the_clock(store: Store, clock: SettableClock) -> None:
    task = made(store)
    store.move(task.id, Move.BLOCK, question="blue or red?", options=("blue", "red"), waiting_for="ann")
    clock.now_ms += 10**10
    store.wake("b")
    store.expire("b")
    assert store.claim("b", worker="w") is None
    asked = store.task(task.id)
    assert (asked.status, asked.question, asked.options) == (
        TaskStatus.WAITING_HUMAN,
        "blue or red?",
        ["blue", "red"],
    )


# --- what a worker says


def test_completion_is_one_change(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    child = made(store, "child", task.id)
    done = store.complete(run.ref, "e", "all good", metadata={"files": 3})
    assert (done.status, done.result, done.run_id) == (TaskStatus.DONE, "all good", None)
    [ended] = store.runs(task.id)
    assert (ended.outcome, ended.summary, ended.metadata) == ("completed", "all good", {"files": 3})
    assert store.task(child.id).status is TaskStatus.READY
    assert [event.kind for event in store.events("b")][-2:] == ["complete", "promote"]


def test_a_repeated_answer_gets_the_first_answer_for_ever(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    first = store.complete(run.ref, "e", "ok")
    before = store.boards()[0].last_seq
    store.move(task.id, Move.ARCHIVE)
    assert store.complete(run.ref, "e", "ok") == first
    assert store.boards()[0].last_seq == before + 1


def test_another_answer_after_the_first_is_refused_and_recorded_once(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    store.complete(run.ref, "e1", "ok")
    for _ in range(3):
        with pytest.raises(StaleRun):
            store.block(run.ref, "e2", "or is it?")
    with pytest.raises(Conflict):
        store.complete(run.ref, "e1", "something else")
    assert store.task(task.id).status is TaskStatus.DONE
    refused = [event for event in store.show(task.id).events if event.kind == "answer_refused"]
    assert [event.payload["envelope"] for event in refused] == ["e2"]


def test_a_question_goes_to_a_person_and_the_answer_starts_a_new_run(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    asked = store.block(run.ref, "e", "blue or red?", options=("blue", "red"), waiting_for="ann")
    assert (asked.status, asked.waiting_for) == (TaskStatus.WAITING_HUMAN, "ann")
    assert store.move(task.id, Move.UNBLOCK).status is TaskStatus.READY
    assert claimed(store)[1].generation == 2


def test_a_worker_may_wait_for_the_clock_within_its_budget(store: Store, clock: SettableClock) -> None:
    task = made(store, max_attempts=2)
    for expected in (TaskStatus.WAITING_SYSTEM, TaskStatus.WAITING_HUMAN):
        _, run = claimed(store)
        waiting = store.block(run.ref, "e", "the build farm", until_ms=clock.now_ms + 5)
        assert waiting.status is expected
        clock.now_ms += 5
    assert len(store.runs(task.id)) == 2


def test_a_review_ends_with_approval_or_with_changes(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    assert store.request_review(run.ref, "e", "please look").status is TaskStatus.REVIEW
    assert store.move(task.id, Move.REQUEST_CHANGES, reason="no tests").status is TaskStatus.READY
    _, run = claimed(store)
    store.request_review(run.ref, "e", "now?")
    assert store.move(task.id, Move.COMPLETE).result == "now?"


def test_comments_and_children_of_a_run_are_made_once(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    for _ in range(2):
        comment = store.run_comment(run.ref, "c", "half way")
        child = store.create_child(run.ref, "n", NewTask(title="the rest"))
    assert (comment.number, comment.run_id) == (1, run.id)
    assert (child.status, child.created_by_run) == (TaskStatus.TODO, run.id)
    detail = store.show(task.id)
    assert len(detail.comments) == len(detail.children) == 1
    store.complete(run.ref, "e", "ok")
    assert store.task(child.id).status is TaskStatus.READY
    assert store.run_comment(run.ref, "c", "half way") == comment


def test_a_run_cannot_fill_the_board(store: Store) -> None:
    _, run = claimed(store, made(store).id)
    store.database.write(
        lambda tx: [
            tx.all("answer_reserve", scope=f"run:{run.id}", name=f"x{n}", question="", now=0)
            for n in range(MAX_ANSWERS)
        ]
    )
    with pytest.raises(InvalidRequest):
        store.run_comment(run.ref, "one more", "x")


# --- fencing


@pytest.mark.parametrize("verb", ["heartbeat", "comment", "create", "complete", "block", "review", "fail"])
def test_a_superseded_run_changes_nothing(store: Store, clock: SettableClock, verb: str) -> None:
    task, old = claimed(store, made(store).id)
    clock.now_ms = old.lease_until_ms
    assert [lost.id for lost in store.expire("b").lost] == [task.id]
    clock.now_ms += 10**7
    _, new = claimed(store)
    clock.now_ms += 1000
    before = store.show(task.id)
    verbs: dict[str, Callable[[], object]] = {
        "heartbeat": lambda: store.heartbeat(old.ref, lease_ms=10**6),
        "comment": lambda: store.run_comment(old.ref, "e", "x"),
        "create": lambda: store.create_child(old.ref, "e", NewTask(title="x")),
        "complete": lambda: store.complete(old.ref, "e", "x"),
        "block": lambda: store.block(old.ref, "e", "x"),
        "review": lambda: store.request_review(old.ref, "e", "x"),
        "fail": lambda: store.fail(old.ref, FailureKind.TASK),
    }
    for _ in range(2):
        with pytest.raises(StaleRun):
            verbs[verb]()
    after = store.show(task.id)
    assert (after.task, after.runs, after.comments) == (before.task, before.runs, before.comments)
    assert len(store.page("b").tasks) == 1
    assert store.heartbeat(new.ref).id == new.id


def test_refused_files_are_events_once_each_and_not_without_end(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    for number in range(100):
        for _ in range(2):
            store.refuse_file(run.ref, f"{number}.json", "it is no envelope")
    told = [event for event in store.events("b", limit=500) if event.kind == "file_refused"]
    assert len(told) == 20
    assert (told[0].task_id, told[0].run_id) == (task.id, run.id)
    assert told[0].payload == {"file": "0.json", "reason": "it is no envelope"}
    store.complete(run.ref, "e", "ok")
    store.refuse_file(run.ref, "late.json", "x")  # also of a run that is over
    assert store.faults() == []


def test_a_generation_that_is_made_up_is_refused(store: Store) -> None:
    _, run = claimed(store, made(store).id)
    made_up = RunRef(run.id, run.generation + 1)
    with pytest.raises(StaleRun):
        store.heartbeat(made_up)
    store.complete(run.ref, "e", "ok")
    with pytest.raises(StaleRun):
        store.complete(made_up, "e", "ok")
    with pytest.raises(NotFound):
        store.heartbeat(RunRef("r_nothing", 1))


@pytest.mark.parametrize("by_ms", [10**7, -(10**7)])
def test_a_clock_that_jumps_gives_every_lease_one_more_term(
    store: Store, clock: SettableClock, by_ms: int
) -> None:
    task, run = claimed(store, made(store).id)
    term = run.lease_until_ms - run.heartbeat_ms
    offset = store.expire("b").offset_ms
    clock.now_ms += by_ms
    found = store.expire("b", offset_ms=offset)
    assert (found.lost, store.task(task.id).status) == ([], TaskStatus.RUNNING)
    assert abs(found.jump_ms - by_ms) < 10**6
    assert store.run(run.id).lease_until_ms == clock.now_ms + term
    assert store.events("b")[-1].kind == "clock_jumped"
    clock.now_ms += term
    assert [lost.id for lost in store.expire("b").lost] == [task.id]


def test_a_clock_that_went_back_while_nobody_looked_holds_no_lease_for_longer(
    store: Store, clock: SettableClock
) -> None:
    task, run = claimed(store, made(store).id)
    clock.now_ms -= 10**7
    assert store.expire("b").lost == []
    clock.now_ms += run.lease_until_ms - run.heartbeat_ms
    assert [lost.id for lost in store.expire("b").lost] == [task.id]


def test_a_run_that_is_attended_to_is_renewed_and_not_lost(store: Store, clock: SettableClock) -> None:
    (mine, run), (theirs, _) = (claimed(store, made(store).id) for _ in range(2))
    clock.now_ms = run.lease_until_ms
    found = store.expire("b", living=[run.ref], lease_ms=5000)
    assert ([lost.id for lost in found.lost], found.renewed) == ([theirs.id], 1)
    assert store.task(mine.id).run_id == run.id
    assert store.run(run.id).lease_until_ms == clock.now_ms + 5000


def test_a_host_that_offered_before_the_clock_went_back_is_not_here_for_hours(
    store: Store, clock: SettableClock
) -> None:
    store.offer("b", "gone", ["coder"])
    store.offer("b", "here", ["writer"])
    clock.now_ms -= 10**7
    store.offer("b", "here", ["writer"])
    why = {name: store.why(made(store, assignee=name).id).reason for name in ("coder", "writer")}
    assert "no dispatcher starts workers" in why["coder"]
    assert "no dispatcher starts workers" not in why["writer"]


@pytest.mark.parametrize("move", [Move.BLOCK, Move.CANCEL, Move.COMPLETE])
def test_a_person_s_move_ends_the_run_with_the_task(store: Store, move: Move) -> None:
    task, run = claimed(store, made(store).id)
    store.move(task.id, move, who="ann")
    [ended] = store.runs(task.id)
    assert ended.outcome == ("cancelled" if move is Move.CANCEL else "superseded")
    with pytest.raises(StaleRun):
        store.complete(run.ref, "e", "too late")


def test_a_heartbeat_extends_the_lease_and_says_nothing_else(store: Store, clock: SettableClock) -> None:
    task, run = claimed(store, made(store).id)
    seq = store.boards()[0].last_seq
    clock.now_ms += 50
    beaten = store.heartbeat(run.ref, lease_ms=1000, note="compiling")
    assert (beaten.lease_until_ms, beaten.heartbeat_ms, beaten.note) == (
        clock.now_ms + 1000,
        clock.now_ms,
        "compiling",
    )
    clock.now_ms += 999
    assert store.expire("b").lost == []
    assert store.boards()[0].last_seq == seq
    assert store.task(task.id).version == task.version


# --- failures


def test_alternating_failures_never_run_a_task_more_often_than_allowed(
    store: Store, clock: SettableClock
) -> None:
    task = made(store, max_attempts=4)
    failures = itertools.cycle([FailureKind.INFRA, FailureKind.QUOTA, FailureKind.TASK])
    while (won := store.claim("b", worker="w")) is not None:
        store.fail(won[1].ref, next(failures), error="no")
        clock.now_ms += 10**7
    assert len(store.runs(task.id)) == 4
    assert store.task(task.id).status is TaskStatus.FAILED
    assert store.move(task.id, Move.RETRY).attempts == 0


def test_a_failure_is_waited_out(store: Store, clock: SettableClock) -> None:
    task, run = claimed(store, made(store).id)
    waiting = store.fail(run.ref, FailureKind.QUOTA, resets_ms=clock.now_ms + 60_000)
    assert waiting.status is TaskStatus.WAITING_SYSTEM
    assert "until" in store.why(task.id).reason
    assert store.claim("b", worker="w") is None
    clock.now_ms += 62_000
    assert claimed(store)[0].id == task.id


def test_a_failed_handoff_spends_nothing_and_waits_for_a_person(store: Store, clock: SettableClock) -> None:
    task, run = claimed(store, made(store, max_attempts=1).id)
    lost = store.fail(run.ref, FailureKind.HANDOFF, error="the board could not be reached")
    assert (lost.status, lost.attempts) == (TaskStatus.HANDOFF_FAILED, 0)
    [ended] = store.runs(task.id)
    assert (ended.outcome, ended.error) == ("handoff_failed", "the board could not be reached")
    clock.now_ms += 10**10
    assert store.claim("b", worker="w") is None
    assert store.move(task.id, Move.COMPLETE, result="accepted").status is TaskStatus.DONE


def test_a_run_that_is_given_back_spends_nothing_and_its_task_is_claimed_at_once(store: Store) -> None:
    task, run = claimed(store, made(store, max_attempts=1).id)
    back = store.give_back(run.ref, reason="the dispatcher was ended")
    assert (back.status, back.attempts, back.reason) == (
        TaskStatus.WAITING_SYSTEM,
        0,
        "the dispatcher was ended",
    )
    [ended] = store.runs(task.id)
    assert (ended.outcome, ended.error) == ("lost", "the dispatcher was ended")
    again = store.claim("b", worker="w")
    assert again is not None
    assert (again[0].id, again[0].attempts) == (task.id, 1)
    with pytest.raises(StaleRun):
        store.give_back(run.ref, reason="twice")


def test_an_answer_after_the_lease_counts_while_nobody_else_has_the_task(
    store: Store, clock: SettableClock
) -> None:
    _, run = claimed(store, made(store).id)
    clock.now_ms = run.lease_until_ms + 1
    assert store.complete(run.ref, "e", "slow but here").status is TaskStatus.DONE


# --- moves, lists, reasons


@pytest.mark.parametrize(
    "move", [Move.CLAIM, Move.PROMOTE, Move.WAKE, Move.FAIL, Move.REQUEST_CHANGES, Move.ARCHIVE]
)
def test_a_move_that_is_not_there_changes_nothing(store: Store, move: Move) -> None:
    task = made(store)
    with pytest.raises(IllegalTransition):
        store.move(task.id, move)
    assert store.task(task.id) == task


def test_a_schedule_needs_a_time(store: Store, clock: SettableClock) -> None:
    task = made(store)
    with pytest.raises(UsageError):
        store.move(task.id, Move.SCHEDULE)
    assert store.move(task.id, Move.SCHEDULE, wake_ms=clock.now_ms + 5).status is TaskStatus.SCHEDULED


def test_pages_follow_each_other_without_gaps_or_repeats(store: Store, clock: SettableClock) -> None:
    names = []
    for number in range(7):
        clock.now_ms += number % 2  # some are made in the same millisecond
        names.append(made(store, f"task {number}").id)
    seen, cursor = [], None
    while True:
        page = store.page("b", limit=2, cursor=cursor)
        seen += [task.id for task in page.tasks]
        cursor = page.cursor
        if cursor is None:
            break
    assert len(seen) == 7
    assert set(seen) == set(names)


def test_lists_can_be_filtered_and_searched(store: Store) -> None:
    plain, other = (
        made(store, "Fix the 100% case"),
        made(store, "write", assignee="writer", body="About cases"),
    )
    claimed(store, plain.id)
    assert [task.id for task in store.page("b", status=TaskStatus.RUNNING).tasks] == [plain.id]
    assert [task.id for task in store.page("b", assignee="writer").tasks] == [other.id]
    assert [task.id for task in store.page("b", search="100%").tasks] == [plain.id]
    assert [task.id for task in store.page("b", search="ABOUT").tasks] == [other.id]
    assert store.page("b", search="1_0").tasks == []
    assert store.page("b", search="fix%case").tasks == []
    assert store.page("b", search="case", status=TaskStatus.RUNNING, assignee="writer").tasks == []


@pytest.mark.parametrize(("limit", "cursor"), [(0, None), (501, None), (10, "nonsense"), (10, "12.")])
def test_a_page_that_makes_no_sense_is_refused(store: Store, limit: int, cursor: str | None) -> None:
    with pytest.raises(UsageError):
        store.page("b", limit=limit, cursor=cursor)


def test_reading_writes_nothing(store: Store, clock: SettableClock) -> None:
    task = made(store, wake_ms=clock.now_ms + 1)
    clock.now_ms += 10
    before = (store.boards(), store.show(task.id))
    (
        store.page("b"),
        store.stats("b"),
        store.why(task.id),
        store.runs(task.id),
        store.events("b"),
        store.faults(),
    )
    assert (store.boards(), store.show(task.id)) == before


def test_events_are_numbered_without_gaps_in_order(store: Store) -> None:
    task = made(store)
    store.comment(task.id, "hello", who="ann")
    store.assign(task.id, "writer")
    with pytest.raises(IllegalTransition):
        store.move(task.id, Move.ARCHIVE)
    store.move(task.id, Move.CANCEL)
    events = store.events("b")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.kind for event in events] == ["board_created", "created", "commented", "assigned", "cancel"]
    assert store.events("b", after=events[2].seq) == events[3:]
    assert events[2].actor == "ann"


def test_caps_are_kept_with_the_board_and_are_a_reason(store: Store) -> None:
    claimed(store, made(store).id)
    waiting = made(store)
    assert "claimed" in store.why(waiting.id).reason
    store.set_cap("b", "profile", "coder", 5)
    store.set_cap("b", "profile", "coder", 1)
    assert store.why(waiting.id).reason == "cap of profile coder: 1"
    store.set_cap("b", "board", "", 1)
    assert store.why(waiting.id).reason == "cap of the board: 1"
    assert store.capacity("b") == (Capacity(1, {"coder": 1}, {}), Busy(1, {"coder": 1}, {"h": 1}))


def test_the_numbers_of_a_board_add_up(store: Store, clock: SettableClock) -> None:
    made(store)
    clock.now_ms += 40
    claimed(store, made(store).id)
    stats = store.stats("b")
    assert (stats.total, stats.running, stats.tasks["ready"], stats.oldest_ready_ms) == (2, 1, 1, 40)


def test_a_change_elsewhere_is_hinted_at(store: Store, address: str) -> None:
    store.database.changed(0)
    assert not store.database.changed(0)
    with open_store(address) as other:
        made(other)
    assert store.database.changed(10)


def test_a_task_that_failed_says_how_its_last_run_did(store: Store) -> None:
    task, run = claimed(store, store.create("b", NewTask(title="t", max_attempts=1)).id)
    store.fail(run.ref, FailureKind.TASK, error="exit code 2; denied: /usr/x")
    assert store.task(task.id).status is TaskStatus.FAILED
    assert "failed: its work did not succeed (1 of 1 attempts)" in store.why(task.id).reason
    assert "denied: /usr/x" in store.why(task.id).reason
