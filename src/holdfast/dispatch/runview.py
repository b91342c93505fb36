"""A view of a run from outside: its kept files, and the supervisor's report while it runs here."""

from pathlib import Path
from typing import TypeVar

from holdfast.agents.supervisor import background, messages
from holdfast.agents.supervisor.messages import LogsParams, WorkerParams, WorkerReport
from holdfast.board.rules.rows import Run
from holdfast.board.store import Store
from holdfast.dispatch.context import worker_of
from holdfast.errors import NotFound, Unreachable
from holdfast.unixrpc.calls import RpcMethod

P = TypeVar("P")
R = TypeVar("R")


def choose_run(store: Store, id: str, run: str | None) -> Run:
    """A run of the task: the one named, or the newest. Raises NotFound."""
    if run is not None:
        found = store.run(run)
        if found.task_id != id:
            raise NotFound(f"{run} is no run of {id}", remedy=f"holdfast task runs {id}")
        return found
    runs = store.runs(id)
    if not runs:
        raise NotFound(f"{id} has not run yet", remedy=f"holdfast task why {id}")
    return runs[-1]


def read_kept(store: Store, run: Run, name: str) -> bytes | None:
    """A file of a run; None if it is not kept."""
    if all(file.name != name for file in store.kept_files(run.id)):
        return None
    return store.file(run.task_id, run.id, name)


async def live_report(home: Path, run: Run) -> WorkerReport | None:
    """The report of a live run's worker; None where `_ask` gets no answer."""
    return await _ask(home, run, messages.STATUS, WorkerParams(worker_of(run.id)))


async def live_output(home: Path, run: Run, most: int) -> bytes | None:
    """The end of a live run's output; None likewise."""
    said = await _ask(home, run, messages.LOGS, LogsParams(worker_of(run.id), most))
    return None if said is None else said.data


async def _ask(home: Path, run: Run, method: RpcMethod[P, R], params: P) -> R | None:
    """Call the supervisor of this home about the worker of a live run, without starting a supervisor.

    None when the run is over, there is no supervisor, or it knows no such worker.
    """
    if run.outcome is not None:
        return None
    try:
        client = await background.connect(home)
    except Unreachable:
        return None
    try:
        return await client.call(method, params)
    except NotFound:
        return None
    finally:
        await client.aclose()
