"""What tests of the handoff share: runs with their grants, and a service with a loop that reads outboxes."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.board.asyncstore import AsyncStore
from holdfast.board.rules.rows import Run, Task
from holdfast.board.store import Store, open_store
from holdfast.handoff import envelope, outbox
from holdfast.handoff.broker import Broker, listen
from holdfast.handoff.envelope import Grant
from tests.support.boards import claimed, made
from tests.support.patience import patient

KEY: Final = b"k" * 32
WAIT_S: Final = patient(40.0)  # for anything, on a loaded machine


def grant_of(run: Run, workspace: Path, socket: Path | None = None, *, key: bytes = KEY) -> Grant:
    return Grant(
        board=run.board,
        task=run.task_id,
        run=run.id,
        generation=run.generation,
        token=envelope.mint(key, run.board, run.task_id, run.id, run.generation),
        socket=str(socket or ""),
        outbox=str(outbox.place_of(workspace)),
        command=[sys.executable, "-m", "holdfast"],
    )


def started(store: Store, workspace: Path, socket: Path | None = None) -> tuple[Task, Grant]:
    """A task that is claimed, in a workspace that is laid out for its report."""
    workspace.mkdir(exist_ok=True)
    task, run = claimed(store, made(store).id)
    grant = grant_of(run, workspace, socket)
    outbox.lay_out(workspace, grant)
    return task, grant


@contextlib.contextmanager
def ingesting(address: str, workspaces: Sequence[Path], *, key: bytes = KEY) -> Iterator[None]:
    """Read the outboxes inside the block, again and again, with a store of its own."""
    ended = threading.Event()

    def read() -> None:
        with open_store(address) as store:
            broker = Broker(store, key)
            while not ended.wait(0.01):
                for workspace in workspaces:
                    outbox.ingest(workspace, broker.carry_out)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join(WAIT_S)


@contextlib.asynccontextmanager
async def serving(
    address: str, socket: Path, workspaces: Sequence[Path] = (), *, key: bytes = KEY
) -> AsyncIterator[None]:
    """All channels inside the block."""
    async with AsyncStore.open(address) as store, listen(store, key, socket):
        with ingesting(address, workspaces, key=key):
            yield


async def asked(question: Callable[[], envelope.HandoffAnswer]) -> envelope.HandoffAnswer:
    """A sender waits; the loop does not wait with it."""
    async with asyncio.timeout(WAIT_S):
        return await asyncio.to_thread(question)
