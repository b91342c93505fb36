"""What the board's verbs cost on a small board and on a large one, in both databases, measured in turns."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from bench.client import Failed
from bench.measures import MS
from bench.servers import Side
from holdfast.board.database.database import Transaction, Value
from holdfast.board.rules.rows import NewTask
from holdfast.board.store import Store, open_store
from tests.support import postgres

T = TypeVar("T")

SMALL: Final = 1_000
VERBS: Final = ("create", "claim", "complete", "page")
_NUMBERS: Final = """WITH RECURSIVE numbers (n) AS (
    SELECT CAST(0 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :size
), places (n, place) AS (SELECT n, n - n / 10 * 10 FROM numbers)
"""
_TASKS: Final = """INSERT INTO tasks (id, board, title, body, assignee, status, priority, created_by,
    created_ms, status_ms, ended_ms, open_parents, generation, attempts, max_attempts, question, options,
    waiting_for, reason, version)
SELECT 't_' || n, 'b', 'task ' || n, 'what is to be done', 'profile ' || (n - n / 5 * 5),
    CASE WHEN place < 4 THEN 'done' WHEN place = 4 THEN 'waiting_human' WHEN place < 7 THEN 'ready'
        ELSE 'todo' END,
    n - n / 7 * 7, 'bench', :now - :size + n, :now, CASE WHEN place < 4 THEN :now END,
    CASE WHEN place < 7 THEN 0 ELSE 1 END, 0, 0, 3, CASE WHEN place = 4 THEN 'what now?' END, '[]', '', '', 1
FROM places"""
_LINKS: Final = """INSERT INTO links (parent, child, open)
SELECT 't_' || (n / 10 * 10 + 6), 't_' || n, 1 FROM places WHERE place > 6"""
_EVENTS: Final = """INSERT INTO events (board, seq, task_id, kind, actor, at_ms, payload)
SELECT 'b', n + 2, 't_' || n, 'created', 'bench', :now, '{}' FROM numbers"""  # number 1 is the board's own


class Stage(NamedTuple):
    """One database with a small board and a large one, each in a store of its own."""

    small: Store
    large: Store


@contextlib.contextmanager
def stage(kind: str, folder: Path, size: int) -> Iterator[Stage]:
    """Filled, until the end of the block.

    Raises:
        Failed: PostgreSQL is not installed.
    """
    with contextlib.ExitStack() as stack:
        addresses = [str(folder / "small.db"), str(folder / "large.db")]
        if kind == "postgres":
            binaries = postgres.programs()
            if binaries is None:
                raise Failed("PostgreSQL is not installed")
            server = stack.enter_context(postgres.server(binaries))
            addresses = [postgres.fresh(server), postgres.fresh(server)]
        stores = [stack.enter_context(open_store(address)) for address in addresses]
        for store, count in zip(stores, (SMALL, size), strict=True):
            fill(store, count)
        yield Stage(*stores)


def fill(store: Store, size: int) -> None:
    """Four of ten done, three that wait for another, two ready, one blocked; with priorities and profiles.

    In a few statements: task by task fifty thousand take minutes. The store itself checks the result.
    """
    store.create_board("b")

    def change(tx: Transaction) -> None:
        values: dict[str, Value] = {"size": size, "now": tx.now_ms}
        for statement in (_TASKS, _LINKS, _EVENTS):
            tx.select(_NUMBERS + statement, values)
        tx.all("next_seq", board="b", count=size)

    store.database.write(change)
    if store.database.address.startswith("postgresql"):
        store.database.write(lambda tx: tx.select("ANALYZE", {}))  # as its own housekeeping does in a while
    if wrong := store.faults():
        raise Failed(f"the board is not sound: {wrong[0]}")


def measured(stage: Stage, count: int) -> dict[Side, dict[str, list[float]]]:
    """Milliseconds of so many of each verb; small and large take turns, whatever else the machine does."""
    stores = {Side.SMALL: stage.small, Side.OURS: stage.large}
    found: dict[Side, dict[str, list[float]]] = {side: {verb: [] for verb in VERBS} for side in stores}

    def timed(side: Side, verb: str, call: Callable[[], T]) -> T:
        began = time.perf_counter()
        answer = call()
        found[side][verb].append((time.perf_counter() - began) * MS)
        return answer

    for number in range(count):
        for side, store in list(stores.items())[:: 1 if number % 2 else -1]:
            timed(side, "create", partial(store.create, "b", NewTask(title="new", assignee="profile 1")))
            won = timed(side, "claim", partial(store.claim, "b", worker="w", host="h"))
            assert won is not None
            timed(side, "complete", partial(store.complete, won[1].ref, "e", "ok"))
            timed(side, "page", partial(store.page, "b"))
    return found
