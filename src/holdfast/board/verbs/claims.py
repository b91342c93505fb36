"""Claims of tasks. A claim locks its board, so that caps and pauses hold among many claimants."""

from collections.abc import Container, Iterator, Sequence
from typing import Final

import msgspec

from holdfast.board.database.database import Row, Transaction, row_of
from holdfast.board.rules import assign
from holdfast.board.rules.assign import Places
from holdfast.board.rules.rows import Run, Task
from holdfast.board.rules.transitions import Move
from holdfast.board.verbs import boards, ledger, lists, messages, tasks
from holdfast.board.verbs.lists import Offer
from holdfast.errors import UsageError

LEASE_MS: Final = 60_000  # by default; there are several heartbeats in that time
MAX_LEASE_MS: Final = 24 * 3_600_000  # a worker that is silent for longer is gone
MAX_PROFILES: Final = 200  # examined by one claim, one after the other
MAX_POOLS: Final = 200  # likewise, of each of them


def claim(
    tx: Transaction,
    slug: str,
    *,
    worker: str,
    host: str = "",
    lease_ms: int = LEASE_MS,
    task: str | None = None,
    assignees: Sequence[str] | None = None,
    places: Places | None = None,
) -> tuple[Task, Run] | None:
    """Claim the best ready task (of these profiles, or `task`) for this caller; None if there is none.

    With `places`, only a task for a place that takes work now is claimed, and the run records the place.
    Pauses, caps and slots hold among all claimants. The offer of this host to work is recorded for `why`.
    """
    board = boards.get(tx, slug, lock=True)
    tasks.wake(tx, slug)
    places = _close_full(tx, slug, places)
    if host:
        _note_offer(tx, slug, host, assignees, places=places)
    if assign.why_stopped(board) is not None:
        return None
    run = ledger.new_id("r")
    row = (
        _claim_best(tx, slug, run, host, assignees, places)
        if task is None
        else _claim_this(tx, slug, run, host, assignees, places, task)
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
        pool=claimed.pool,
        environment=claimed.environment if places is None else places.find_environment(claimed),
        lease_until_ms=tx.now_ms + check_lease(lease_ms),
        now=tx.now_ms,
    )
    if claimed.generation > 1:
        messages.pass_on(tx, claimed)
    tx.log(slug, Move.CLAIM, worker, task=claimed.id, run=run, generation=claimed.generation, host=host)
    return claimed, row_of(Run, made)


def offer(
    tx: Transaction,
    slug: str,
    host: str,
    assignees: Sequence[str],
    *,
    held: str = "",
    places: Places | None = None,
) -> None:
    """Record that this host starts workers for these profiles, or why it does not now (`held`).

    To be repeated before `lists.OFFER_MS` is over.
    """
    boards.get(tx, slug)
    _note_offer(tx, slug, host, assignees, held, _close_full(tx, slug, places))


def _close_full(tx: Transaction, slug: str, places: Places | None) -> Places | None:
    """Close full environments: their slots are shared by all dispatchers of the board."""
    if places is None or not places.slots:
        return places
    return places.close_full(lists.busy(tx, slug).environments)


def _note_offer(
    tx: Transaction,
    slug: str,
    host: str,
    assignees: Sequence[str] | None,
    held: str = "",
    places: Places | None = None,
) -> None:
    """Record an offer; unchanged ones are written only now and then. No profiles means all profiles."""
    said = Offer(None if assignees is None else tuple(sorted(set(assignees))), held, places)
    profiles = None if said == Offer() else msgspec.json.encode(said).decode()
    row = tx.one("offer_get", board=slug, host=host)
    fresh = row is not None and 0 <= tx.now_ms - int(str(row["at_ms"])) < lists.OFFER_MS // 3
    if row is None or row["profiles"] != profiles or not fresh:
        tx.all("offer_set", board=slug, host=host, profiles=profiles, now=tx.now_ms)


def check_lease(lease_ms: int) -> int:
    if not 0 < lease_ms <= MAX_LEASE_MS:
        raise UsageError(f"a lease lasts up to {MAX_LEASE_MS} ms")
    return lease_ms


def _claim_best(
    tx: Transaction,
    slug: str,
    run: str,
    host: str,
    assignees: Sequence[str] | None,
    places: Places | None,
) -> Row | None:
    capacity, none = lists.capacity(tx, slug), assign.Capacity()
    if assignees is None and capacity == none and places is None:
        return tx.one("task_claim_next", board=slug, run=run, now=tx.now_ms)
    if assignees is None:
        ready = [str(row["name"]) for row in tx.all("ready_assignees", board=slug, most=MAX_PROFILES)]
    else:
        ready = sorted(set(assignees))[:MAX_PROFILES]
    busy = assign.Busy() if capacity == none else lists.busy(tx, slug)
    drained = assign.find_pools_reached(capacity=capacity, busy=busy)
    heads = [
        (-int(str(row["priority"])), int(str(row["created_ms"])), str(row["id"]))
        for name in ready
        if assign.find_cap_reached(name, capacity=capacity, busy=busy, host=host) is None
        for row in _heads(tx, slug, name, drained, None if places is None else places.list_claimable(name))
    ]
    return tx.one("task_claim", board=slug, task=min(heads)[2], run=run, now=tx.now_ms) if heads else None


def _heads(
    tx: Transaction, slug: str, assignee: str, drained: Container[str], environments: Sequence[str] | None
) -> Iterator[Row]:
    """The best ready tasks of a profile by environment and pool; the best one that fits is among them.

    This reads the head of one index for each profile and environment, and for each pool while a pool is full,
    so the cost does not depend on the number of ready tasks.
    """
    pools: list[str | None] = [None]
    if drained:
        rows = tx.all("ready_pools", board=slug, assignee=assignee, most=MAX_POOLS)
        pools = [str(row["name"]) for row in rows if row["name"] not in drained]
    for pool in pools:
        of: dict[str, str] = {"board": slug, "assignee": assignee}
        query = "task_best_of"
        if pool is not None:
            query, of = "task_best_in", {**of, "pool": pool}
        if environments is None:
            yield from tx.all(query, **of)
            continue
        at = {"task_best_of": "task_best_at", "task_best_in": "task_best_in_at"}[query]
        for environment in environments:
            yield from tx.all(at, **of, environment=environment)


def _claim_this(
    tx: Transaction,
    slug: str,
    run: str,
    host: str,
    assignees: Sequence[str] | None,
    places: Places | None,
    task_id: str,
) -> Row | None:
    row = tx.one("task_free", board=slug, task=task_id)
    if row is None:
        return None
    assignee = str(row["assignee"])
    if assignees is not None and assignee not in assignees:
        return None
    if places is not None and row["environment"] not in places.list_claimable(assignee):
        return None
    capacity, busy = lists.capacity(tx, slug), lists.busy(tx, slug)
    if assign.find_cap_reached(assignee, capacity=capacity, busy=busy, host=host, pool=str(row["pool"])):
        return None
    return tx.one("task_claim", board=slug, task=task_id, run=run, now=tx.now_ms)
