"""Many real processes at one board: each task is won once, a key makes one task, counters stay right."""

import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from holdfast.board.database.database import Transaction
from holdfast.board.rules.rows import NewTask, Task, TaskEvent
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.store import open_store
from holdfast.board.verbs import tasks
from tests.support import postgres
from tests.support.boards import Crowd
from tests.support.patience import patient
from tests.support.tiers import sizes

CLAIMERS = 16
WAITING = "SELECT pid FROM pg_locks WHERE NOT granted"


@pytest.mark.timeout(300)
@sizes("races", quick=150, deep=1000)
def test_every_task_is_won_by_exactly_one_of_sixteen_claimers(address: str, races: int) -> None:
    with open_store(address) as store:
        store.create_board("b")
        created = store.database.write(
            lambda tx: [
                tasks.add(tx, "b", NewTask(title="x", priority=n % 7), who="me").id for n in range(races)
            ]
        )
        with Crowd("claim", address, [f"w{n}" for n in range(CLAIMERS)]) as crowd:
            crowd.begin()
            won = [task for spoken in crowd.said() for task in spoken]
        assert Counter(won) == Counter(created)
        assert store.stats("b").running == races
        assert store.faults() == []


def most_at_once(events: list[TaskEvent], profiles: dict[str, str]) -> Counter[str]:
    """How many runs there ever were at once: of the board, of a profile, of a host."""
    now, most = Counter[str](), Counter[str]()
    paused = False
    hosts: dict[str, str] = {}
    for event in events:
        if event.kind == "board_changed":
            paused = bool(event.payload["paused"])
        if event.kind not in ("claim", "complete"):
            continue
        task = str(event.task_id)
        if event.kind == "claim":
            assert not paused
            hosts[task] = str(event.payload["host"])
        for name in ("board", profiles[task], hosts[task]):
            now[name] += 1 if event.kind == "claim" else -1
            most[name] = max(most[name], now[name])
    return most


@pytest.mark.timeout(300)
@sizes("bounded", quick=60, deep=200)
def test_caps_and_pauses_hold_among_sixteen_claimers(address: str, bounded: int) -> None:
    """So many tasks are worked on within caps."""
    with open_store(address) as store:
        store.create_board("b")
        caps = {"board": 5, "coder": 2, "h0": 1}
        store.set_cap("b", "board", "", caps["board"])
        store.set_cap("b", "profile", "coder", caps["coder"])
        store.set_cap("b", "host", "h0", caps["h0"])
        profiles = {
            store.create("b", NewTask(title="x", priority=n % 7, assignee=("coder", "writer")[n % 2])).id: (
                "coder",
                "writer",
            )[n % 2]
            for n in range(bounded)
        }
        with Crowd("bounded", address, [f"h{n % 4}" for n in range(CLAIMERS)]) as crowd:
            crowd.begin()
            for _ in range(5):
                store.pause("b", True)
                store.pause("b", False)
                done = store.stats("b").tasks["done"]
                until = time.monotonic() + patient(60)
                while store.stats("b").tasks["done"] in (done, done + 1) and done < bounded - 2:
                    assert time.monotonic() < until
                    store.changed(0.05)
            finished = [task for spoken in crowd.said() for task in spoken]
        assert sorted(finished) == sorted(profiles)
        events: list[TaskEvent] = []
        after = 0
        while page := store.events("b", after=after, limit=500):
            events, after = events + page, page[-1].seq
        most = most_at_once(events, profiles)
        assert {name: most[name] for name in caps if most[name] > caps[name]} == {}
        assert store.faults() == []


@pytest.mark.timeout(300)
def test_eight_processes_with_one_key_make_one_task(address: str) -> None:
    with open_store(address) as store:
        store.create_board("b")
        with Crowd("create", address, ["k"] * 8) as crowd:
            crowd.begin()
            answers = crowd.said()
        assert len({tuple(ids) for ids in answers}) == 1
        assert len(set(answers[0])) == len(answers[0]) == store.stats("b").total


@pytest.mark.timeout(300)
def test_a_store_is_made_once_by_all_that_open_it_at_once(address: str) -> None:
    with Crowd("claim", address, []) as nobody:
        assert nobody.members == []
    with Crowd("create", address, ["k"] * 4), open_store(address) as store:
        assert store.boards() == []


@pytest.mark.timeout(300)
def test_parents_that_finish_at_once_release_their_common_children(address: str) -> None:
    with open_store(address) as store:
        store.create_board("b")
        first = [store.create("b", NewTask(title="parent")).id for _ in range(12)]
        for number in range(24):
            parents = tuple(first[(number * step) % 12] for step in (1, 5, 7))
            store.create("b", NewTask(title="child", parents=parents))
        with Crowd("tangle", address, [f"w{n}" for n in range(6)]) as crowd:
            crowd.begin()
            finished = [task for spoken in crowd.said() for task in spoken]
        stats = store.stats("b")
        assert stats.tasks[TaskStatus.TODO] == 0
        assert stats.tasks[TaskStatus.DONE] + stats.tasks[TaskStatus.READY] == 36
        assert len(finished) == len(set(finished)) == stats.tasks[TaskStatus.DONE]
        assert [event.seq for event in store.events("b", limit=500)] == list(
            range(1, stats.board.last_seq + 1)
        )
        assert store.faults() == []


def test_a_link_waits_for_the_parent_that_somebody_is_finishing(postgres_server: str) -> None:
    address = postgres.fresh(postgres_server)
    with open_store(address) as store, ThreadPoolExecutor(1) as beside:
        store.create_board("b")
        parent, child = (store.create("b", NewTask(title="x")).id for _ in range(2))

        def link() -> Task:
            with open_store(address) as other:
                return other.link(parent, child)

        def finish(tx: Transaction) -> "Future[Task]":
            tasks.move(tx, parent, Move.COMPLETE, who="me")
            linking = beside.submit(link)
            until = time.monotonic() + patient(40)
            while not linking.done() and not tx.select(WAITING, {}):
                assert time.monotonic() < until
                time.sleep(0.01)
            return linking

        assert store.database.write(finish).result(patient(40)).status is TaskStatus.READY
        assert store.faults() == []
