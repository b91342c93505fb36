"""A claimed task in a workspace that is laid out for its report, and somebody who carries reports out.

What a dispatcher does around a worker, without starting one.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.board.rows import Detail, NewTask
from holdfast.board.store import open_store
from holdfast.handoff import envelope, key, outbox
from holdfast.handoff.broker import Broker
from holdfast.handoff.envelope import Grant
from holdfast.handoff.service import Service

LOOK_S: Final = 0.05  # between two looks into an outbox
LEASE_MS: Final = 3_600_000


@dataclass(frozen=True)
class Assigned:
    """A run, its workspace, and the board it belongs to."""

    home: Path
    workspace: Path
    address: str
    grant: Grant
    command: tuple[str, ...]

    @property
    def run_file(self) -> Path:
        return self.workspace / ".holdfast" / "run.json"

    def detail(self) -> Detail:
        with open_store(self.address, create=False) as store:
            return store.show(self.grant.task)

    @contextmanager
    def ingesting(self) -> Iterator[None]:
        """Read the outbox again and again, as the dispatcher does."""
        stop = threading.Event()

        def loop() -> None:
            with open_store(self.address, create=False) as store:
                broker = Broker(store, key.load(self.home))
                while not stop.wait(LOOK_S):
                    outbox.ingest(self.workspace, broker.carry_out)
                outbox.ingest(self.workspace, broker.carry_out)

        thread = threading.Thread(target=loop)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """The socket, as the dispatcher has it."""
        service = Service(lambda: open_store(self.address, create=False), key.load(self.home))
        async with service.listening(Path(self.grant.socket)):
            yield

    @asynccontextmanager
    async def both(self) -> AsyncIterator[None]:
        """Every channel."""
        async with self.listening():
            with self.ingesting():
                yield
                await asyncio.sleep(0)


def assigned(place: Path, command: tuple[str, ...], *, body: str = "Do it.") -> Assigned:
    """A new board `b` below `place` with one task, which a run holds; the workspace is laid out for it."""
    home, workspace = place / "home", place / "workspace"
    home.mkdir()
    workspace.mkdir()
    address = str(home / "board.db")
    with open_store(address) as store:
        store.create_board("b")
        made = store.create("b", NewTask(title="do it", body=body, assignee="coder"))
        won = store.claim("b", worker="w", host="h", lease_ms=LEASE_MS)
        assert won is not None
        task, run = won
    grant = Grant(
        board="b",
        task=made.id,
        run=run.id,
        generation=run.generation,
        token=envelope.mint(key.load(home), "b", task.id, run.id, run.generation),
        socket=str(home / "board.sock"),
        outbox=str(outbox.place_of(workspace)),
        command=list(command),
    )
    outbox.lay_out(workspace, grant)
    return Assigned(home, workspace, address, grant, command)
