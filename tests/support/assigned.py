"""One run with everything around it but its worker: board, workspace, channels."""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from holdfast.board.rules.rows import Detail
from holdfast.board.store import open_store
from holdfast.handoff.envelope import Grant
from tests.support.handoff import ingesting, serving, started


@dataclass(frozen=True)
class Assigned:
    """A run, its workspace, and the board it belongs to."""

    home: Path
    workspace: Path
    address: str
    grant: Grant

    @property
    def run_file(self) -> Path:
        return self.workspace / ".holdfast" / "run.json"

    @property
    def server(self) -> list[str]:
        """The command of the MCP server that a worker of this run is given."""
        return [*self.grant.command, "mcp", "--run", str(self.run_file)]

    def detail(self) -> Detail:
        with open_store(self.address, create=False) as store:
            return store.show(self.grant.task)

    def serving(self) -> AbstractAsyncContextManager[None]:
        """Socket and outbox are looked after inside the block."""
        return serving(self.address, Path(self.grant.socket), [self.workspace])

    def ingesting(self) -> AbstractContextManager[None]:
        """Only the outbox is."""
        return ingesting(self.address, [self.workspace])


def assigned(place: Path, workspace: Path | None = None) -> Assigned:
    """A new board `b` below `place` with a task that a run holds, in a workspace that is laid out."""
    home, workspace = place / "board", workspace or place / "workspace"
    home.mkdir()
    address = str(home / "board.db")
    with open_store(address) as store:
        store.create_board("b")
        _, grant = started(store, workspace, home / "board.sock")
    return Assigned(home, workspace, address, grant)
