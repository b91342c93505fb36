"""A run looked at from outside: what is kept of it, and while it runs here what its supervisor says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.agents.sdk import Workers
from holdfast.agents.supervisor.background import supervisor_socket
from holdfast.agents.supervisor.control import Client
from holdfast.board.reading import BoardReader
from holdfast.board.rules.rows import Run
from holdfast.dispatch.context import worker_of
from holdfast.errors import NotFound, Unreachable


def chosen(store: BoardReader, id: str, run: str | None) -> Run:
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


def kept(store: BoardReader, run: Run, name: str) -> bytes | None:
    """A file of a run, if it is kept."""
    if all(file.name != name for file in store.kept(run.id)):
        return None
    return store.file(run.task_id, run.id, name)


async def asked(home: Path, run: Run, method: str, params: Mapping[str, object]) -> dict[str, Any] | None:
    """What the supervisor of this home, which is not started for that, says about the worker of a live run.

    None when there is none, or it knows no such worker.
    """
    if run.outcome is not None:
        return None
    try:
        client = await Client.connect(supervisor_socket(home))
    except Unreachable:
        return None
    try:
        answer: dict[str, Any] = await Workers(client, home).call(
            method, {"worker": worker_of(run.id), **params}
        )
        return answer
    except NotFound:
        return None
    finally:
        await client.aclose()
