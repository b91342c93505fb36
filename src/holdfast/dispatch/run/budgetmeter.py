"""What one run uses: kept on the board while it lives, and held against what it may use."""

import asyncio
import fnmatch
import glob
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.agents.catalog.agent import Agent
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.board.rules import budget
from holdfast.board.rules.budget import Budget, Used
from holdfast.board.rules.rows import Run
from holdfast.board.store import Store
from holdfast.dispatch.context import DispatchContext

MAX_ENTRIES: Final = 2_000  # looked at to find the file; a worker can make any number of them
MAX_TAIL: Final = 256 * 1024  # bytes from the end: some of the largest lines


class BudgetMeter:
    """`empty` is set once nothing is left of what the run, or all runs of its task, may use.

    `session` says what the CLI calls its session.
    """

    def __init__(self, context: DispatchContext, run: Run, session: Callable[[], str]) -> None:
        self.empty = asyncio.Event()
        self._context = context
        self._run = run
        self._session = session
        self._used = Used()
        profile = context.profiles.get(run.profile)
        self._budget = Budget() if profile is None else profile.budget
        self._agent = None if profile is None else CATALOG[profile.cli]

    async def take(self, report: WorkerReport) -> None:
        """Keep what the worker says that it has used.

        Raises:
            HoldfastError: the store does not answer.
        """
        used = budget.reported(msgspec.to_builtins(report.usage))
        by_session = self._agent is not None and self._agent.transcript is not None
        if used == self._used and not by_session:
            return
        if await self._context.store.ask(self._take, used) is not None:
            self.empty.set()
        self._used = used

    async def spent(self) -> str | None:
        """Of what nothing is left, in words, whoever attended to the run when it was used."""
        return await self._context.store.ask(self._spent)

    def _take(self, store: Store, used: Used) -> str | None:
        if self._agent is not None and self._agent.transcript is not None:
            used = self._of_session(store, used, self._agent)
        if used != Used():
            store.use(self._run.ref, used)
        return self._spent(store)

    def _of_session(self, store: Store, used: Used, agent: Agent) -> Used:
        """Without what earlier runs used in the session that this one goes on with, and counts again."""
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

    def _spent(self, store: Store) -> str | None:
        task, run = store.task(self._run.task_id), store.run(self._run.id)
        own = budget.spent(budget.of_run(run), self._budget)
        return store.spent([task]).get(task.id) or (f"{own} of one run" if own else None)


def count_tokens(state: Path, agent: Agent, session: str) -> int:
    """What a CLI writes down while it goes on: of this session, or without a name of the largest there is.

    0 when that is not known: no such file, or nothing about it in its end. The file is in a directory that
    the worker writes: nothing there is followed, waited for or read whole.
    """
    if agent.transcript is None:
        return 0
    name = glob.escape(session) or "*"
    parts = [part.replace("{session}", name) for part in agent.transcript.place.split("/")]
    ends = (
        agent.transcript.tokens.findall(_read_tail(path))
        for path in _find_transcripts(str(state), parts, [MAX_ENTRIES])
    )
    return max((sum(map(int, counts[-1])) for counts in ends if counts), default=0)


def _find_transcripts(folder: str, parts: list[str], left: list[int]) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                left[0] -= 1
                if left[0] < 0:
                    return
                if not fnmatch.fnmatchcase(entry.name, parts[0]):
                    continue
                if len(parts) == 1:
                    yield entry.path
                elif entry.is_dir(follow_symlinks=False):
                    yield from _find_transcripts(entry.path, parts[1:], left)
    except OSError:
        return


def _read_tail(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return b""
        return os.pread(fd, MAX_TAIL, max(0, about.st_size - MAX_TAIL))
    except OSError:
        return b""
    finally:
        os.close(fd)
