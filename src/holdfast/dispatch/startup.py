"""A dispatcher put together: one for each home, with socket, store, supervisor and profiles."""

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.agents.worker.book import WorkerRecords
from holdfast.board.asyncstore import AsyncStore
from holdfast.board.rules import assign, budget
from holdfast.board.rules.assign import Assignment, Places
from holdfast.board.rules.rows import Run
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import Store
from holdfast.board.verbs.lists import MAX_PAGE
from holdfast.dispatch import homefiles
from holdfast.dispatch.context import DispatchContext
from holdfast.dispatch.dispatcher import Dispatcher, DispatchOptions
from holdfast.dispatch.homefiles import only_one
from holdfast.dispatch.installed import InstalledProfiles, notice
from holdfast.dispatch.rules.dispatcherstatus import DispatcherStatus
from holdfast.dispatch.supervisorclient import SupervisorClient
from holdfast.local import homekey
from holdfast.sandbox.plan import prerequisites

log = logging.getLogger(__name__)

COMMAND = prerequisites.command()


def host_name(home: Path) -> str:
    """One name for each home of each machine, since a run belongs to the dispatcher of one home."""
    return f"{socket.gethostname()}-{hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:8]}"


async def serve(
    home: Path,
    address: str,
    plan: DispatchOptions,
    *,
    told: Callable[[str, Run], None] = lambda _kind, _run: None,
    environ: Mapping[str, str] = os.environ,
    host: str | None = None,
    again: asyncio.Event | None = None,
) -> None:
    """Dispatch for some boards, as the plan says. `again` has worker-profiles.toml read again when it is set.

    Raises:
        Conflict: this home has a dispatcher.
        NotFound: there is no such board or store.
        HoldfastError: something that it needs does not start.
    """
    WorkerRecords(home).prepare()
    async with only_one(home):
        homefiles.clear_status(home)
        found = InstalledProfiles(home, environ)
        if (said := notice(home)) is not None:
            log.warning(said)
        secret = homekey.load(home)
        async with contextlib.AsyncExitStack() as opened:
            store = await opened.enter_async_context(AsyncStore.open(address))
            for board in plan.boards:
                await store.ask(Store.stats, board)  # is it there?
            supervisor = await opened.enter_async_context(SupervisorClient.open(home))
            name = host or host_name(home)
            status = DispatcherStatus(name, os.getpid(), plan.boards, time.time())
            context = DispatchContext(
                home, address, name, store, supervisor, found, COMMAND, secret, environ, status
            )
            await Dispatcher(context, plan, told, again or asyncio.Event()).serve()


def foresee(
    store: Store,
    board: str,
    host: str,
    profiles: frozenset[str],
    held: str | None = None,
    places: Places = Places(),  # noqa: B008 - nobody changes it
) -> Assignment:
    """What a round would claim now, and why every other ready task waits; of the newest tasks.

    `held` is why the host starts nothing now, `places` where it lets work be done.
    """
    capacity, busy = store.capacity(board)
    ready = store.page(board, status=TaskStatus.READY, limit=MAX_PAGE).tasks
    spent = store.spent_budgets(ready)
    shut = {task.id: why for task in ready if (why := places.find_holdup(task)) is not None}
    found = assign.assign(
        [task for task in ready if task.id not in spent | shut],
        hosts={host: profiles},
        capacity=capacity,
        busy=busy,
        now_ms=store.now_ms(),
        held={host: held} if held else None,
    )
    waiting = {task: budget.question(words) for task, words in spent.items()}
    return Assignment(found.claims, {**found.waiting, **shut, **waiting})
