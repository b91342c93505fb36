"""Who gets which task. A claim has its board for itself, so that caps and pauses hold among many."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from holdfast.board import assign, boards, ledger, lists, messages, tasks
from holdfast.board.database import Row, Transaction, row_of
from holdfast.board.rows import Run, Task
from holdfast.board.transitions import Move
from holdfast.errors import UsageError

MAX_LEASE_MS: Final = 24 * 3_600_000  # a worker that is silent for longer is gone
MAX_PROFILES: Final = 200  # that one claim looks at, one after the other


def claim(
    tx: Transaction,
    slug: str,
    *,
    worker: str,
    host: str,
    lease_ms: int,
    task: str | None,
    assignees: Sequence[str] | None,
) -> tuple[Task, Run] | None:
    """The best ready task that there is room for, or this one, for one caller only; None without any."""
    board = boards.get(tx, slug, lock=True)
    tasks.wake(tx, slug)
    if host:
        offer(tx, slug, host, assignees)
    if assign.stopped(board) is not None:
        return None
    run = ledger.new_id("r")
    row = (
        _claimed(tx, slug, run, host, assignees)
        if task is None
        else _this(tx, slug, run, host, assignees, task)
    )
    if row is None:
        return None
    claimed = row_of(Task, row)
    made = tx.row(
        "run_add",
        id=run,
        task_id=claimed.id,
        board=slug,
        generation=claimed.generation,
        worker=worker,
        host=host,
        profile=claimed.assignee,
        lease_until_ms=tx.now_ms + lease(lease_ms),
        now=tx.now_ms,
    )
    if claimed.generation > 1:
        messages.pass_on(tx, claimed)
    tx.log(slug, Move.CLAIM, worker, task=claimed.id, run=run, generation=claimed.generation, host=host)
    return claimed, row_of(Run, made)


def room(tx: Transaction, slug: str, assignees: Iterable[str], host: str) -> dict[str, str]:
    """The profiles for which this host could not claim now, whatever is ready, and why not."""
    board = boards.get(tx, slug)
    capacity, busy = lists.capacity(tx, slug), lists.busy(tx, slug)
    reasons = {
        name: assign.stopped(board) or assign.caps_reached(name, capacity=capacity, busy=busy, host=host)
        for name in assignees
    }
    return {name: reason for name, reason in reasons.items() if reason is not None}


def offer(tx: Transaction, slug: str, host: str, assignees: Sequence[str] | None) -> None:
    """Remember that somebody starts workers for these profiles, or for all. Said often, written seldom."""
    profiles = None if assignees is None else msgspec.json.encode(sorted(set(assignees))).decode()
    row = tx.one("offer_get", board=slug, host=host)
    fresh = row is not None and tx.now_ms - int(str(row["at_ms"])) < lists.OFFER_MS // 3
    if row is None or row["profiles"] != profiles or not fresh:
        tx.all("offer_set", board=slug, host=host, profiles=profiles, now=tx.now_ms)


def lease(lease_ms: int) -> int:
    if not 0 < lease_ms <= MAX_LEASE_MS:
        raise UsageError(f"a lease lasts up to {MAX_LEASE_MS} ms")
    return lease_ms


def _claimed(tx: Transaction, slug: str, run: str, host: str, assignees: Sequence[str] | None) -> Row | None:
    capacity = lists.capacity(tx, slug)
    if assignees is None and capacity == assign.Capacity():
        return tx.one("task_claim_next", board=slug, run=run, now=tx.now_ms)
    if assignees is None:
        ready = [str(row["name"]) for row in tx.all("ready_assignees", board=slug, most=MAX_PROFILES)]
    else:
        ready = sorted(set(assignees))[:MAX_PROFILES]
    best = None
    for name in _with_room(tx, slug, ready, host, capacity):
        # One look at the head of an index for each profile: the cost does not depend on how much is ready.
        row = tx.one("task_best_of", board=slug, assignee=name)
        if row is not None:
            rank = (-int(str(row["priority"])), int(str(row["created_ms"])), str(row["id"]))
            best = rank if best is None else min(best, rank)
    return None if best is None else tx.one("task_claim", board=slug, task=best[2], run=run, now=tx.now_ms)


def _this(
    tx: Transaction, slug: str, run: str, host: str, assignees: Sequence[str] | None, task_id: str
) -> Row | None:
    row = tx.one("task_free", board=slug, task=task_id)
    if row is None:
        return None
    assignee = str(row["assignee"])
    if assignees is not None and assignee not in assignees:
        return None
    if not _with_room(tx, slug, [assignee], host, lists.capacity(tx, slug)):
        return None
    return tx.one("task_claim", board=slug, task=task_id, run=run, now=tx.now_ms)


def _with_room(
    tx: Transaction, slug: str, names: list[str], host: str, capacity: assign.Capacity
) -> list[str]:
    if capacity == assign.Capacity():
        return names
    busy = lists.busy(tx, slug)
    return [
        name for name in names if assign.caps_reached(name, capacity=capacity, busy=busy, host=host) is None
    ]
