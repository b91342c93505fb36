"""The tools of an agent with authority over a board and the workers of a home."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.agents.sdk import Workers
from holdfast.board.asyncstore import AsyncStore
from holdfast.errors import UsageError
from holdfast.mcp import toolbox
from holdfast.mcp.boardtools import BOARD_TOOLS, BoardTools
from holdfast.mcp.workertools import WORKER_TOOLS

INSTRUCTIONS: Final = (
    "Tasks of a kanban board (kanban_*), and the agent CLIs in sandboxes on this machine (worker_*). "
    "worker_watch with the last mark tells what changes; worker_explain tells why something does not go on."
)


class Supervising:
    """Answers calls; the store is opened when a tool of the board is called."""

    tools = tuple(tool for tool, _ in (*BOARD_TOOLS, *WORKER_TOOLS))

    def __init__(self, address: str, *, board: str, who: str, home: Path) -> None:
        self.instructions = INSTRUCTIONS
        self._board, self._who, self._home = board, who, home
        self.store = AsyncStore(address)
        self._verbs = {tool.name: (tool, do) for tool, do in BOARD_TOOLS}
        self._calls = {tool.name: (tool, do) for tool, do in WORKER_TOOLS}

    async def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Do it with the authority of these tools."""
        if name in self._verbs:
            tool, verb = self._verbs[name]
            asked, ignored = toolbox.read(tool, given)
            done = await self.store.ask(lambda store: verb(BoardTools(store, self._board, self._who), asked))
            return toolbox.answer(done, ignored)
        if name in self._calls:
            tool, call = self._calls[name]
            asked, ignored = toolbox.read(tool, given)
            async with Workers.connect(self._home) as workers:
                return toolbox.answer(await call(workers, asked), ignored)
        known = ", ".join(tool.name for tool in self.tools)
        raise UsageError(f"there is no tool {name[:80]}", remedy=f"one of: {known}")


@contextlib.asynccontextmanager
async def supervising(address: str, *, board: str, who: str, home: Path) -> AsyncIterator[Supervising]:
    """Tools whose store is closed in the end."""
    tools = Supervising(address, board=board, who=who, home=home)
    try:
        yield tools
    finally:
        await tools.store.aclose()
