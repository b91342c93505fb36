"""What one run uses: recorded on the board while it lives, and compared with its budget."""

import asyncio
import glob
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.worker.statefiles import find_files, read_tail
from holdfast.board.rules import budget
from holdfast.board.rules.budget import Budget, BudgetUse
from holdfast.board.rules.rows import Run
from holdfast.board.store import Store
from holdfast.dispatch.context import DispatchContext


class BudgetMeter:
    """Measures the use of one run. `empty` is set once the budget of the run or its task is used up.

    The budget of a task covers all its runs. `session` returns the CLI's name for its session.
    """

    def __init__(self, context: DispatchContext, run: Run, session: Callable[[], str]) -> None:
        self.empty = asyncio.Event()
        self._context = context
        self._run = run
        self._session = session
        self._used = BudgetUse()
        profile = context.profiles.get(run.profile)
        self._budget = Budget() if profile is None else profile.budget
        # Only built-in CLIs have a known transcript of their use; a record cannot name one.
        self._agent = None if profile is None else CATALOG.get(profile.cli)

    async def take(self, report: WorkerReport) -> None:
        """Record the usage that the worker reports.

        Raises:
            HoldfastError: the store does not answer.
        """
        used = budget.read_usage(msgspec.to_builtins(report.usage))
        by_session = self._agent is not None and self._agent.transcript is not None
        if used == self._used and not by_session:
            return
        if await self._context.store.ask(self._take, used) is not None:
            self.empty.set()
        self._used = used

    async def describe_spent(self) -> str | None:
        """Which budget is used up, in words, even if another dispatcher followed the run at that time."""
        return await self._context.store.ask(self._describe_spent)

    def _take(self, store: Store, used: BudgetUse) -> str | None:
        if self._agent is not None and self._agent.transcript is not None:
            used = self._subtract_session(store, used, self._agent)
        if used != BudgetUse():
            store.use(self._run.ref, used)
        return self._describe_spent(store)

    def _subtract_session(self, store: Store, used: BudgetUse, agent: Agent) -> BudgetUse:
        """Subtract the use of earlier runs in the session that this run continues: the CLI counts it too."""
        session = self._session()
        earlier = [
            one
            for one in store.runs(self._run.task_id)
            if session and one.session == session and one.generation < self._run.generation
        ]
        places = [self._context.state(one.id) for one in (self._run, *earlier)]
        written = max(count_tokens(place, agent, session) for place in places)
        before = sum(one.tokens for one in earlier)
        return used._replace(tokens=max(0, max(used.tokens, written) - before))

    def _describe_spent(self, store: Store) -> str | None:
        task, run = store.task(self._run.task_id), store.run(self._run.id)
        own = budget.describe_spent(budget.of_run(run), self._budget)
        return store.spent_budgets([task]).get(task.id) or (f"{own} of one run" if own else None)


def count_tokens(state: Path, agent: Agent, session: str) -> int:
    """The tokens in a CLI's transcript: of this session, or without a name of the largest one there is.

    0 when that is not known: no such file, or no count at its end.
    """
    if agent.transcript is None:
        return 0
    name = glob.escape(session) or "*"
    place = agent.transcript.place.replace("{session}", name)
    ends = (agent.transcript.tokens.findall(read_tail(path)[0]) for path in find_files(str(state), place))
    return max((sum(map(int, counts[-1])) for counts in ends if counts), default=0)
