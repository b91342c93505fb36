"""A run looked at from outside: what is kept of it, and while it runs here what its supervisor says."""

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
    """A run of the task, the newest unless it is named. Raises NotFound."""
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
    """A file of a run, if it is kept."""
    if all(file.name != name for file in store.kept_files(run.id)):
        return None
    return store.file(run.task_id, run.id, name)


async def live_report(home: Path, run: Run) -> WorkerReport | None:
    """Of the worker of a live run; None where `_asked` gets no answer."""
    return await _ask(home, run, messages.STATUS, WorkerParams(worker_of(run.id)))


async def live_output(home: Path, run: Run, most: int) -> bytes | None:
    """Likewise, the end of what it said."""
    said = await _ask(home, run, messages.LOGS, LogsParams(worker_of(run.id), most))
    return None if said is None else said.data


async def _ask(home: Path, run: Run, method: RpcMethod[P, R], params: P) -> R | None:
    """What the supervisor of this home, which is not started for that, says about the worker of a live run.

    None when there is none, or it knows no such worker.
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
