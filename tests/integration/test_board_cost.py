"""What the verbs cost does not grow with the board: counted in steps of SQLite's machine, not in time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.board.database.database import Transaction
from holdfast.board.database.sqlite import SqliteDatabase
from holdfast.board.rules import metrics
from holdfast.board.rules.budget import BudgetUse
from holdfast.board.rules.rows import NewTask
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.store import Store
from holdfast.board.verbs import tasks
from tests.support.boards import claimed, made

SMALL, LARGE = 500, 5000
TOLERANCE = 1.5
STEPS = 10  # counted by tens: every call back into Python costs more than what it counts


class CountingDatabase(SqliteDatabase):
    """Counts what SQLite does."""

    steps = 0

    def count(self) -> None:
        def step() -> int:
            self.steps += STEPS
            return 0

        self._db.set_progress_handler(step, STEPS)


def filled(path: Path, size: int) -> Store:
    """A board of so many tasks: done, ready, waiting for others, for a person and for the clock."""

    def fill(tx: Transaction) -> None:
        previous = ""
        for number in range(size):
            parents = (previous,) if number % 10 in (3, 6, 9) else ()
            wake_ms = 10**15 if number % 10 == 5 else None
            new = NewTask(
                title=f"task {number}", parents=parents, priority=number % 5, wake_ms=wake_ms, assignee="x"
            )
            previous = tasks.add(tx, "b", new, who="me").id
            if number % 10 in (0, 1, 2, 4):
                tasks.move(tx, previous, Move.COMPLETE if number % 10 else Move.BLOCK, who="me")

    store = Store(CountingDatabase(str(path)))
    store.create_board("b")
    store.database.write(fill)
    return store


def complete(store: Store) -> Callable[[], object]:
    _, run = claimed(store, made(store, priority=99).id)
    made(store, "child", run.task_id)
    return lambda: store.complete(run.ref, "e", "ok")


def capped(store: Store) -> Callable[[], object]:
    """Most of what is ready is of a profile that is full."""
    store.set_cap("b", "profile", "x", 0)
    made(store, priority=-5, assignee="y")

    def claim() -> object:
        won = store.claim("b", worker="w", host="h")
        store.set_cap("b", "profile", "x", 10**6)
        return won

    return claim


def drained(store: Store) -> Callable[[], object]:
    """All of what is ready and important is of a pool that is drained."""
    store.set_cap("b", "pool", "p", 0)
    made(store, priority=-5, assignee="y", pool="q")
    for _ in range(store.stats("b").total // 10):
        made(store, priority=5, assignee="y", pool="p")

    def claim() -> object:
        won = store.claim("b", worker="w", host="h", assignees=["y"])
        store.set_cap("b", "pool", "p", 10**6)
        assert won is not None
        return won

    return claim


def occupy(store: Store) -> Callable[[], object]:
    """After many runs that are over, one of them in the same place."""
    for _ in range(store.stats("b").total // 20):
        _, over = claimed(store, made(store, priority=99).id)
        store.occupy(over.ref, "/srv/p")
        store.complete(over.ref, "e", "ok")
    _, run = claimed(store, made(store, priority=99).id)
    return lambda: store.occupy(run.ref, "/srv/p")


def spent(store: Store) -> Callable[[], object]:
    """Ahead of what is ready are tasks whose budgets are spent."""
    for _ in range(3):
        task, run = claimed(store, made(store, priority=99, max_tokens=1).id)
        store.use(run.ref, BudgetUse(1))
        store.move(task.id, Move.BLOCK, question="what now?")
        store.move(task.id, Move.UNBLOCK)
    return lambda: store.claim("b", worker="w", assignees=["coder", "x"])


def looking_again(store: Store) -> Callable[[], object]:
    """As a dispatcher does every second; only its first look goes through all that waits for the clock."""
    offset = store.expire("b").offset_ms
    return lambda: store.expire("b", offset_ms=offset)


VERBS: dict[str, Callable[[Store], Callable[[], object]]] = {
    "create": lambda store: lambda: made(store),
    "create with a key": lambda store: lambda: store.create("b", NewTask(title="x"), key="k"),
    "claim": lambda store: lambda: claimed(store),
    "claim of a profile": lambda store: lambda: store.claim("b", worker="w", assignees=["x"]),
    "claim of nobody's": lambda store: lambda: store.claim("b", worker="w", assignees=["nobody"]),
    "claim within caps": capped,
    "claim past a drained pool": drained,
    "claim past spent budgets": spent,
    "use": lambda store: (lambda ref: lambda: store.use(ref, BudgetUse(5)))(claimed(store)[1].ref),
    "recent": lambda store: lambda: store.recent("b"),
    "attach": lambda store: (lambda name: lambda: store.attach(name, "a", b"1"))(made(store).id),
    "occupy": occupy,
    "complete": complete,
    "first page": lambda store: lambda: store.page("b"),
    "page of a status": lambda store: lambda: store.page("b", status=TaskStatus.TODO),
    "page of a profile": lambda store: lambda: store.page("b", assignee="x"),
    "page of nobody's": lambda store: lambda: store.page("b", assignee="nobody"),
    "expire": looking_again,
    "why": lambda store: (lambda name: lambda: store.why(name))(made(store).id),
    "inbox": lambda store: lambda: store.inbox("b", limit=20),
    "acknowledge": lambda store: (lambda name: lambda: store.acknowledge(name))(made(store, triage=True).id),
    "events": lambda store: lambda: store.events("b", after=100),
}


@pytest.fixture(autouse=True)
def _short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that both boards have more events than that."""
    monkeypatch.setattr(metrics, "WINDOW", 200)


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    folder = tmp_path_factory.mktemp("cost")
    with filled(folder / "small.db", SMALL) as small, filled(folder / "large.db", LARGE) as large:
        yield small, large


def steps(store: Store, verb: str) -> int:
    act = VERBS[verb](store)
    database = store.database
    assert isinstance(database, CountingDatabase)
    database.count()
    before = database.steps
    act()
    return database.steps - before


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_costs_the_same_on_a_board_ten_times_as_large(boards: tuple[Store, Store], verb: str) -> None:
    small, large = (steps(store, verb) for store in boards)
    assert large <= TOLERANCE * small + 10 * STEPS
