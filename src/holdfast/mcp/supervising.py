"""The tools of an agent with authority over a board and the workers of a home."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.agents.sdk import Workers
from holdfast.board.store import Store, open_store
from holdfast.errors import UsageError
from holdfast.mcp import boardtools, toolbox
from holdfast.mcp.boardtools import BOARD_TOOLS
from holdfast.mcp.workertools import WORKER_TOOLS

T = TypeVar("T")

INSTRUCTIONS: Final = (
    "Tasks of a kanban board (kanban_*), and the agent CLIs in sandboxes on this machine (worker_*). "
    "worker_watch with the last mark tells what changes; worker_explain tells why something does not go on."
)


class Supervising:
    """Answers calls; the store has a thread of its own."""

    tools = tuple(tool for tool, _ in (*BOARD_TOOLS, *WORKER_TOOLS))

    def __init__(self, address: str, *, board: str, who: str, home: Path) -> None:
        self.instructions = INSTRUCTIONS
        self._address, self._board, self._who, self._home = address, board, who, home
        self._store: Store | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="board")
        self._verbs = {tool.name: (tool, do) for tool, do in BOARD_TOOLS}
        self._calls = {tool.name: (tool, do) for tool, do in WORKER_TOOLS}

    async def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Do it with this tools's authority."""
        if name in self._verbs:
            tool, verb = self._verbs[name]
            asked, ignored = toolbox.read(tool, given)
            return toolbox.answer(await self._on_board(lambda tools: verb(tools, asked)), ignored)
        if name in self._calls:
            tool, call = self._calls[name]
            asked, ignored = toolbox.read(tool, given)
            async with Workers.connect(self._home) as workers:
                return toolbox.answer(await call(workers, asked), ignored)
        known = ", ".join(tool.name for tool in self.tools)
        raise UsageError(f"there is no tool {name[:80]}", remedy=f"one of: {known}")

    async def aclose(self) -> None:
        """Close the store, in its own thread."""
        if self._store is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown()

    async def _on_board(self, do: Callable[[boardtools.BoardTools], T]) -> T:
        def done() -> T:
            if self._store is None:
                self._store = open_store(self._address, create=False)
            return do(boardtools.BoardTools(self._store, self._board, self._who))

        return await asyncio.get_running_loop().run_in_executor(self._thread, done)


@contextlib.asynccontextmanager
async def supervising(address: str, *, board: str, who: str, home: Path) -> AsyncIterator[Supervising]:
    """A tools whose store is closed in the end."""
    tools = Supervising(address, board=board, who=who, home=home)
    try:
        yield tools
    finally:
        await tools.aclose()
