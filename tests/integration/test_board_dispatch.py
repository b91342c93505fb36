"""What a dispatcher relies on, on both databases: caps, pauses, files, workspaces, report-only runs."""

from collections.abc import Callable, Iterator

import pytest

from holdfast.board.rules.retry import FailureKind
from holdfast.board.rules.rows import (
    MAX_ATTACHMENTS,
    MAX_FILE,
    MAX_KEPT,
    Edit,
    NewTask,
    ParentResult,
    RunRef,
    WorkspaceKind,
)
from holdfast.board.rules.transitions import Move, Status
from holdfast.board.store import Store
from holdfast.board.verbs import lists
from holdfast.errors import (
    Conflict,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    StaleRun,
    StoreDamaged,
    UsageError,
)
from tests.support.boards import SettableClock, claimed, made


@pytest.fixture(autouse=True)
def sound(store: Store) -> Iterator[None]:
    """Whatever a test does, everything still adds up afterwards."""
    yield
    assert store.faults() == []


def won(store: Store, *assignees: str, host: str = "h") -> str | None:
    """The title of what such a claim gets."""
    found = store.claim("b", worker="w", host=host, assignees=assignees)
    return found[0].title if found else None


# --- room


def test_the_best_task_of_several_profiles_is_claimed(store: Store) -> None:
    made(store, "low", priority=1)
    made(store, "high", priority=3, assignee="writer")
    made(store, "middle", priority=2)
    made(store, "not mine", priority=9, assignee="painter")
    made(store, "last", priority=0, assignee="writer")
    titles = [won(store, "coder", "writer", "nobody") for _ in range(5)]
    assert titles == ["high", "middle", "low", "last", None]


def test_a_full_profile_is_passed_over_for_the_best_that_has_room(store: Store) -> None:
    store.set_cap("b", "profile", "coder", 1)
    made(store, "first", priority=9)
    second = made(store, "second", priority=8)
    made(store, "writing", priority=1, assignee="writer")
    assert [won(store, "coder", "writer") for _ in range(3)] == ["first", "writing", None]
    assert store.why(second.id).reason == "cap of profile coder: 1"


def test_a_claim_for_whatever_there_is_keeps_the_caps_too(store: Store) -> None:
    store.set_cap("b", "profile", "coder", 0)
    made(store, "coding", priority=9)
    assert store.claim("b", worker="w", host="h") is None
    made(store, "nobody's", assignee="")
    found = store.claim("b", worker="w", host="h")
    assert found is not None
    assert found[0].title == "nobody's"


@pytest.mark.parametrize(("scope", "name"), [("board", ""), ("profile", "coder"), ("host", "h")])
def test_a_claim_of_one_task_keeps_the_caps(store: Store, scope: str, name: str) -> None:
    first, second = made(store), made(store)
    store.set_cap("b", scope, name, 1)
    _, run = claimed(store, first.id)
    assert store.claim("b", worker="w", host="h", task=second.id) is None
    assert "cap" in store.why(second.id).reason
    store.complete(run.ref, "e", "ok")
    assert claimed(store, second.id)[0].id == second.id


def test_a_drained_pool_is_passed_over_for_the_best_that_has_room(store: Store) -> None:
    store.set_cap("b", "pool", "gpu", 1)
    for title, priority in {"first": 9, "second": 8, "third": 7}.items():
        made(store, title, priority=priority, pool="gpu")
    made(store, "writing", priority=6, assignee="writer", pool="gpu")
    made(store, "plain", priority=2)
    made(store, "other", priority=5, pool="licence")
    assert [won(store, "coder", "writer") for _ in range(4)] == ["first", "other", "plain", None]
    assert store.capacity("b")[1].pools == {"gpu": 1, "licence": 1}
    [waiting] = [task for task in store.page("b").tasks if task.title == "writing"]
    assert store.why(waiting.id).reason == "cap of pool gpu: 1"
    assert store.claim("b", worker="w", host="h", task=waiting.id) is None
    [run] = [run for run in store.held("h") if run.pool == "gpu"]
    store.complete(run.ref, "e", "ok")
    assert won(store, "coder", "writer") == "second"


def test_a_run_keeps_its_pool_whatever_becomes_of_the_tasks(store: Store) -> None:
    store.set_cap("b", "pool", "gpu", 1)
    task, run = claimed(store, made(store, pool="gpu").id)
    made(store, "next", pool="gpu")
    store.edit(task.id, Edit(pool=""))
    assert store.run(run.id).pool == "gpu"
    assert won(store, "coder") is None


def test_a_host_that_starts_nothing_now_says_why(store: Store, clock: SettableClock) -> None:
    task = made(store)
    store.offer("b", "h", ["coder"], held="less than 1 GiB of memory is free")
    assert store.why(task.id).reason == "host h starts nothing now: less than 1 GiB of memory is free"
    store.offer("b", "other", ["coder"])
    assert "claimed" in store.why(task.id).reason
    clock.now_ms += lists.OFFER_MS + 1
    assert "no worker accepts it" in store.why(task.id).reason
    store.offer("b", "h", ["coder"], held="busy")
    assert won(store, "coder", host="h") is not None
    assert "claimed" in store.why(made(store).id).reason


def test_an_offer_of_an_earlier_version_is_understood(store: Store, clock: SettableClock) -> None:
    task = made(store)
    store.offer("b", "h", ["writer"])
    store.database.write(lambda tx: tx.select("UPDATE offers SET profiles = '[\"coder\"]'", {}))
    assert "claimed" in store.why(task.id).reason


def test_a_full_host_leaves_the_task_to_another(store: Store) -> None:
    store.set_cap("b", "host", "h", 0)
    task = made(store, "x")
    assert won(store, "coder", host="h") is None
    assert store.why(task.id).reason == "cap of host h"
    assert won(store, "coder", host="other") == "x"


def test_a_claim_of_one_task_is_for_its_profile_only(store: Store) -> None:
    task = made(store)
    assert store.claim("b", worker="w", assignees=["writer"], task=task.id) is None
    assert store.claim("b", worker="w", assignees=["coder"], task=task.id) is not None


# --- boards that stand still


def test_a_paused_board_gives_nothing_away_and_what_runs_goes_on(store: Store, clock: SettableClock) -> None:
    _, run = claimed(store, made(store).id)
    waiting = made(store, "next")
    assert store.pause("b", True, who="ann").paused
    assert store.claim("b", worker="w", host="h") is None
    assert store.claim("b", worker="w", host="h", task=waiting.id) is None
    assert "paused" in store.why(waiting.id).reason
    store.heartbeat(run.ref)
    store.complete(run.ref, "e", "ok")
    store.pause("b", True)
    assert not store.pause("b", False).paused
    assert won(store, "coder") == "next"
    changes = [event.payload for event in store.events("b") if event.kind == "board_changed"]
    assert [change["paused"] for change in changes] == [True, False]


def test_an_archived_board_is_left_alone(store: Store) -> None:
    _, run = claimed(store, made(store).id)
    waiting = made(store)
    with pytest.raises(InvalidRequest):
        store.archive_board("b")
    store.complete(run.ref, "e", "ok")
    assert store.archive_board("b").archived
    assert store.claim("b", worker="w") is None
    assert "archived" in store.why(waiting.id).reason
    with pytest.raises(InvalidRequest):
        made(store)
    assert not store.archive_board("b", False).archived
    assert claimed(store)[0].id == waiting.id
    with pytest.raises(NotFound):
        store.archive_board("nothing")


def test_a_task_says_when_nobody_starts_workers_for_it(store: Store, clock: SettableClock) -> None:
    task = made(store)
    assert "no worker accepts it" in store.why(task.id).reason
    assert won(store, "writer") is None
    assert "no worker accepts it" in store.why(task.id).reason
    store.offer("b", "other", ["coder"])
    assert store.why(task.id).reason == "waits to be claimed"
    store.set_cap("b", "host", "other", 0)
    assert store.why(task.id).reason == "cap of host other"
    clock.now_ms += lists.OFFER_MS + 1
    assert "no worker accepts it" in store.why(task.id).reason


def test_an_offer_that_is_repeated_is_not_written_again(store: Store, clock: SettableClock) -> None:
    read = "SELECT at_ms FROM offers"
    won(store, "coder")
    [first] = store.database.read(lambda tx: tx.select(read, {}))
    clock.now_ms += 1000
    won(store, "coder")
    assert store.database.read(lambda tx: tx.select(read, {})) == [first]
    clock.now_ms += lists.OFFER_MS
    won(store, "coder")
    assert store.database.read(lambda tx: tx.select(read, {})) != [first]


# --- wishes


def test_a_task_says_where_and_how_long_it_is_worked_on(store: Store) -> None:
    task = made(store, workspace_kind=WorkspaceKind.WORKTREE, workspace="/srv/project", max_runtime_s=60)
    assert (task.workspace_kind, task.workspace, task.max_runtime_s) == ("worktree", "/srv/project", 60)
    assert made(store).workspace_kind is WorkspaceKind.SCRATCH


def test_a_key_is_for_one_wish_with_its_workspace(store: Store) -> None:
    first = NewTask(title="x", workspace_kind=WorkspaceKind.DIR, workspace="/srv/a")
    made_first = store.create("b", first, key="k")
    assert store.create("b", first, key="k") == made_first
    with pytest.raises(Conflict):
        store.create("b", NewTask(title="x", workspace_kind=WorkspaceKind.DIR, workspace="/srv/b"), key="k")


def test_a_task_is_edited_without_moving(store: Store) -> None:
    task = made(store, workspace_kind=WorkspaceKind.DIR, workspace="/srv/a", max_runtime_s=5)
    change = Edit(
        title="better", body="more", priority=7, max_attempts=9, max_runtime_s=None, workspace="/srv/b"
    )
    edited = store.edit(task.id, change, who="ann")
    assert (edited.title, edited.body, edited.priority, edited.max_attempts) == ("better", "more", 7, 9)
    assert (edited.max_runtime_s, edited.workspace, edited.status) == (None, "/srv/b", Status.READY)
    last = store.show(task.id).events[-1]
    assert (last.kind, last.actor) == ("edited", "ann")
    assert last.payload["members"] == change.members()


def test_an_edit_that_makes_no_sense_changes_nothing(store: Store, clock: SettableClock) -> None:
    task, run = claimed(store, made(store, max_attempts=3).id)
    with pytest.raises(UsageError):
        store.edit(task.id, Edit())
    with pytest.raises(UsageError):
        store.edit(task.id, Edit(title=""))
    with pytest.raises(UsageError):
        store.edit(task.id, Edit(workspace="/srv/b"))
    with pytest.raises(InvalidRequest):
        store.edit(task.id, Edit(workspace_kind=WorkspaceKind.DIR, workspace="/srv/b"))
    assert store.edit(task.id, Edit(max_attempts=1)).max_attempts == 1
    store.edit(task.id, Edit(max_attempts=3))
    store.fail(run.ref, FailureKind.INFRA)
    with pytest.raises(InvalidRequest):
        store.edit(task.id, Edit(max_attempts=1))
    store.move(task.id, Move.COMPLETE)
    with pytest.raises(InvalidRequest):
        store.edit(task.id, Edit(title="too late"))


# --- work whose report is missing


def test_a_report_is_asked_for_until_it_is_there(store: Store, clock: SettableClock) -> None:
    task, run = claimed(store, made(store).id)
    store.fail(run.ref, FailureKind.HANDOFF)
    assert store.move(task.id, Move.RETRY, report_only=True).report_only
    again, run = claimed(store, task.id)
    assert again.report_only
    assert store.fail(run.ref, FailureKind.INFRA).report_only
    clock.now_ms += 10**7
    again, run = claimed(store)
    assert again.report_only
    assert not store.complete(run.ref, "e", "here it is").report_only


def test_a_rerun_does_the_work_again(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    store.fail(run.ref, FailureKind.HANDOFF)
    store.move(task.id, Move.RETRY, report_only=True)
    _, run = claimed(store, task.id)
    assert store.fail(run.ref, FailureKind.HANDOFF).report_only
    assert not store.move(task.id, Move.RETRY).report_only


def test_only_a_missing_report_is_asked_for(store: Store) -> None:
    task, run = claimed(store, made(store, max_attempts=1).id)
    for move in (Move.RETRY, Move.BLOCK):
        with pytest.raises(IllegalTransition):
            store.move(task.id, move, report_only=True)
    store.fail(run.ref, FailureKind.TASK)
    with pytest.raises(IllegalTransition):
        store.move(task.id, Move.RETRY, report_only=True)
    assert store.task(task.id).status is Status.FAILED


# --- what is known of a run


def test_the_runs_of_a_host_are_found_on_all_boards(store: Store) -> None:
    store.create_board("c")
    store.create("c", NewTask(title="x"))
    first, second = claimed(store, made(store).id)[1], store.claim("c", worker="w", host="h")
    ended = claimed(store, made(store).id)[1]
    store.complete(ended.ref, "e", "ok")
    store.claim("b", worker="w", host="another", task=made(store).id)
    assert second is not None
    assert {run.id for run in store.held("h")} == {first.id, second[1].id}


def test_what_is_found_out_about_a_run_is_added_to_it(store: Store, clock: SettableClock) -> None:
    task, run = claimed(store, made(store).id)
    placed = store.set_run(run.ref, workspace="/srv/t", session="s1", metadata={"agent": "x"})
    assert (placed.workspace, placed.session) == ("/srv/t", "s1")
    store.fail(run.ref, FailureKind.TASK, error="no", metadata={"exit": 1})
    after = store.set_run(run.ref, metadata={"usage": {"inputTokens": 3}})
    assert after.metadata == {"agent": "x", "exit": 1, "usage": {"inputTokens": 3}}
    assert (after.workspace, after.outcome) == ("/srv/t", "failed")
    events = store.show(task.id).events
    assert store.set_run(run.ref, session="s1") == after
    assert store.show(task.id).events == events


# --- files


def test_files_are_kept_with_the_task_and_with_its_runs(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    attached = store.attach(task.id, "notes.txt", b"hello", who="ann")
    store.complete(run.ref, "e", "ok")
    kept = store.keep(run.id, "notes.txt", b"\x00\xff")
    assert store.attachments(task.id) == store.show(task.id).files == [attached]
    assert store.kept(run.id) == [kept]
    assert store.file(task.id, None, "notes.txt") == b"hello"
    assert store.file(task.id, run.id, "notes.txt") == b"\x00\xff"
    assert [event.kind for event in store.show(task.id).events][-3:] == ["attached", "complete", "kept"]
    for missing in (lambda: store.file(task.id, None, "x"), lambda: store.kept("r_nothing")):
        with pytest.raises(NotFound):
            missing()


def test_an_attachment_stays_and_what_is_kept_is_replaced(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    attached = store.attach(task.id, "a", b"1")
    assert store.attach(task.id, "a", b"1") == attached
    with pytest.raises(Conflict):
        store.attach(task.id, "a", b"2")
    store.keep(run.id, "a", b"1")
    assert store.keep(run.id, "a", b"22").size == 2
    before = store.boards()
    store.keep(run.id, "a", b"22")
    assert store.boards() == before
    assert store.file(task.id, run.id, "a") == b"22"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0", "a\n", "x" * 201])
def test_a_file_has_a_plain_name(store: Store, name: str) -> None:
    task = made(store)
    with pytest.raises(UsageError):
        store.attach(task.id, name, b"")


def test_files_are_bounded_in_size_and_number(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    with pytest.raises(UsageError):
        store.attach(task.id, "large", bytes(MAX_FILE + 1))
    for number in range(MAX_ATTACHMENTS):
        store.attach(task.id, f"{number}", b"")
    for number in range(MAX_KEPT):
        store.keep(run.id, f"{number}", b"")
    with pytest.raises(InvalidRequest):
        store.attach(task.id, "one more", b"")
    with pytest.raises(InvalidRequest):
        store.keep(run.id, "one more", b"")
    assert store.keep(run.id, "0", b"again").size == 5


def test_a_file_that_was_changed_behind_our_back_is_not_handed_out(store: Store) -> None:
    task = made(store)
    store.attach(task.id, "a", b"1")
    store.database.write(lambda tx: tx.select("UPDATE files SET data = :data", {"data": b"2"}))
    with pytest.raises(StoreDamaged):
        store.file(task.id, None, "a")


# --- what a worker may do besides answering


def test_a_worker_links_what_it_made(store: Store) -> None:
    other = made(store)
    _, run = claimed(store, made(store).id)
    child = store.create_child(run.ref, "c", NewTask(title="the rest"))
    for _ in range(2):
        assert store.run_link(run.ref, "l", other.id, child.id).open_parents == 2
    stranger = made(store)
    with pytest.raises(InvalidRequest):
        store.run_link(run.ref, "l2", other.id, stranger.id)
    with pytest.raises(Conflict):
        store.run_link(run.ref, "l", child.id, other.id)


def test_a_worker_attaches_a_file_once(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    first = store.run_attach(run.ref, "a", "plot.png", b"\x89")
    store.complete(run.ref, "e", "ok")
    assert store.run_attach(run.ref, "a", "plot.png", b"\x89") == first
    assert store.attachments(task.id) == [first]
    with pytest.raises(StaleRun):
        store.run_attach(run.ref, "b", "other.png", b"")


def test_a_worker_sees_its_task_what_came_before_and_what_it_made(store: Store) -> None:
    parent, stranger = made(store, "parent"), made(store, "stranger")
    task = made(store, "child", parent.id)
    store.move(parent.id, Move.COMPLETE, result="42")
    _, run = claimed(store, task.id)
    shown = store.run_show(run.ref)
    assert shown == store.show(task.id)
    expected = ParentResult(task_id=parent.id, title="parent", status=Status.DONE, result="42")
    assert shown.results == [expected]
    child = store.create_child(run.ref, "c", NewTask(title="the rest"))
    assert store.run_show(run.ref, parent.id).task.result == "42"
    assert store.run_show(run.ref, child.id).task == child
    with pytest.raises(InvalidRequest):
        store.run_show(run.ref, stranger.id)


@pytest.mark.parametrize("verb", ["link", "attach", "show"])
def test_a_run_that_lost_its_task_neither_sees_nor_changes_it(store: Store, verb: str) -> None:
    task, run = claimed(store, made(store).id)
    child = store.create_child(run.ref, "c", NewTask(title="the rest"))
    store.move(task.id, Move.BLOCK)
    verbs: dict[str, Callable[[], object]] = {
        "link": lambda: store.run_link(run.ref, "e", made(store).id, child.id),
        "attach": lambda: store.run_attach(run.ref, "e", "a", b""),
        "show": lambda: store.run_show(run.ref),
    }
    with pytest.raises(StaleRun):
        verbs[verb]()
    assert store.attachments(task.id) == []
    assert len(store.show(child.id).parents) == 1


# --- what a run is in, and what it says that it made


def test_one_run_at_a_time_is_in_a_directory_whatever_the_host_and_the_board(store: Store) -> None:
    store.create_board("other")
    _, mine = claimed(store, made(store).id)
    store.create("other", NewTask(title="x", assignee="coder"))
    won = store.claim("other", worker="w", host="elsewhere")
    assert won is not None
    theirs = won[1]
    assert store.occupy(mine.ref, "/srv/p").workspace == "/srv/p"
    assert store.occupy(mine.ref, "/srv/p").workspace == "/srv/p"
    with pytest.raises(Conflict):
        store.occupy(theirs.ref, "/srv/p")
    assert store.run(theirs.id).workspace == ""
    assert store.occupy(theirs.ref, "/srv/q").workspace == "/srv/q"
    _, next_ = claimed(store, made(store).id)
    assert store.occupy(next_.ref, "/srv/p").workspace == "/srv/p"  # its own dispatcher sees to that
    store.complete(mine.ref, "e", "ok")
    store.complete(next_.ref, "e", "ok")
    assert store.occupy(theirs.ref, "/srv/p").workspace == "/srv/p"


def test_what_a_run_did_not_make_is_written_down_once_and_its_answer_stands(store: Store) -> None:
    foreign = made(store, "somebody else's")
    task, run = claimed(store, made(store).id)
    own = store.create_child(run.ref, "c", NewTask(title="left to do"))
    metadata: dict[str, object] = {"created_cards": [own.id, foreign.id, "t_nowhere", 7], "artifacts": "x"}
    assert store.complete(run.ref, "e", "ok", metadata=metadata).status is Status.DONE
    for _ in range(2):
        found = store.verify(run.ref, ["gone.txt"])
        assert (found.cards, found.files) == ([foreign.id, "t_nowhere"], ["gone.txt"])
    [event] = [event for event in store.show(task.id).events if event.kind == "claims_unverified"]
    assert (event.run_id, event.payload) == (run.id, {"cards": found.cards, "files": found.files})
    assert store.task(task.id).status is Status.DONE
    with pytest.raises(StaleRun):
        store.verify(RunRef(run.id, run.generation + 1), [])


def test_a_run_whose_claims_are_so_gets_no_event(store: Store) -> None:
    task, run = claimed(store, made(store).id)
    own = store.create_child(run.ref, "c", NewTask(title="left to do"))
    store.complete(run.ref, "e", "ok", metadata={"created_cards": [own.id], "artifacts": ["a"]})
    store.verify(run.ref, [])
    assert "claims_unverified" not in {event.kind for event in store.show(task.id).events}
