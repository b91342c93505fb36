"""What one run uses: kept on the board while it lives, and held against what it may use."""

import asyncio
from collections.abc import Callable

from holdfast.agents.catalog import CATALOG
from holdfast.board import budget
from holdfast.board.budget import Budget, Used
from holdfast.board.rows import Run
from holdfast.board.store import Store
from holdfast.dispatch.desk import Desk
from holdfast.dispatch.fleet import Report
from holdfast.dispatch.launchers import Launcher


class Purse:
    """`empty` is set once nothing is left of what the run, or all runs of its task, may use.

    `session` says what the CLI calls its session.
    """

    def __init__(self, desk: Desk, run: Run, launcher: Launcher | None, session: Callable[[], str]) -> None:
        self.empty = asyncio.Event()
        self._desk = desk
        self._run = run
        self._used = Used()
        self._budget = Budget() if launcher is None else launcher.budget
        self._session = session if launcher is not None and CATALOG[launcher.cli].counts_session else None

    async def take(self, report: Report) -> None:
        """Keep what the worker says that it has used.

        Raises:
            HoldfastError: the store does not answer.
        """
        used = budget.reported(report["usage"])
        if used == self._used:
            return
        if await self._desk.ask(lambda store: self._taken(store, used)) is not None:
            self.empty.set()
        self._used = used

    async def spent(self) -> str | None:
        """Of what nothing is left, in words, whoever attended to the run when it was used."""
        return await self._desk.ask(self._spent)

    def _taken(self, store: Store, used: Used) -> str | None:
        store.use(self._run.ref, used._replace(tokens=max(0, used.tokens - self._before(store))))
        return self._spent(store)

    def _before(self, store: Store) -> int:
        """Tokens of earlier runs in the session that this one goes on with, if its CLI counts them again."""
        session = self._session() if self._session is not None else ""
        earlier = (one for one in store.runs(self._run.task_id) if one.generation < self._run.generation)
        return sum(one.tokens for one in earlier if session and one.session == session)

    def _spent(self, store: Store) -> str | None:
        task, run = store.task(self._run.task_id), store.run(self._run.id)
        own = budget.spent(budget.of_run(run), self._budget)
        return store.spent([task]).get(task.id) or (f"{own} of one run" if own else None)
