"""What the board's verbs cost on a small board and on a large one, in both databases, measured in turns."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.client import Failed
from holdfast.board import tasks
from holdfast.board.database import Transaction
from holdfast.board.rows import NewTask
from holdfast.board.store import Store, open_store
from holdfast.board.transitions import Move
from tests.support import postgres

SMALL: Final = 1_000
BATCH: Final = 1_000  # tasks made in one change
VERBS: Final = ("create", "claim", "complete", "page")


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
    """Four of ten done, three that wait for another, two ready, one blocked; with priorities and profiles."""
    store.create_board("b")

    def some(tx: Transaction, first: int) -> None:
        previous = ""
        for number in range(first, min(first + BATCH, size)):
            place = number % 10
            parents = (previous,) if place >= 7 else ()
            new = NewTask(
                title=f"task {number}", parents=parents, priority=number % 7, assignee=f"profile {number % 5}"
            )
            made = tasks.add(tx, "b", new, who="bench").id
            if place < 5:
                tasks.move(tx, made, Move.BLOCK if place == 4 else Move.COMPLETE, who="bench")
            previous = previous if place >= 7 else made

    for first in range(0, size, BATCH):
        store.database.write(lambda tx, first=first: some(tx, first))  # type: ignore[misc]


def measured(store: Store, count: int) -> dict[str, list[float]]:
    """Milliseconds of so many of each verb."""
    found: dict[str, list[float]] = {verb: [] for verb in VERBS}

    def timed(verb: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        answer = call()
        found[verb].append((time.perf_counter() - began) * 1e3)
        return answer

    for number in range(count):
        timed("create", lambda: store.create("b", NewTask(title="new", assignee="profile 1")))
        won = timed("claim", lambda: store.claim("b", worker="w", host="h"))
        timed("complete", lambda won=won: store.complete(won[1].ref, "e", "ok"))  # type: ignore[misc]
        timed("page", lambda: store.page("b"))
        if number % 10 == 0:
            store.create("b", NewTask(title="again"))
    return found
