"""The MCP server on standard input and output: the SDK outside, a desk with tools inside."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from holdfast import __version__
from holdfast.agents.sdk import Workers
from holdfast.board.store import Store, open_store
from holdfast.errors import HoldfastError, UsageError
from holdfast.handoff import envelope
from holdfast.handoff.sender import Sender
from holdfast.mcp import boardtools, reports, toolbox
from holdfast.mcp.boardtools import BOARD_TOOLS
from holdfast.mcp.toolbox import Tool
from holdfast.mcp.workertools import WORKER_TOOLS

T = TypeVar("T")

NAME: Final = "holdfast"
MAX_AT_ONCE: Final = 4  # reports on their way at once: a model that calls in parallel, not one in a loop
_SUPERVISING: Final = (
    "Tasks of a kanban board (kanban_*), and the agent CLIs in sandboxes on this machine (worker_*). "
    "worker_watch with the last mark tells what changes; worker_explain tells why something does not go on."
)


class Desk(Protocol):
    """Tools, and what becomes of a call."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    @property
    def instructions(self) -> str: ...

    async def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Raises HoldfastError."""


class Reporting:
    """The desk of a worker."""

    tools = tuple(report.tool for report in reports.REPORTS)

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        grant = sender.grant
        self.instructions = reports.INSTRUCTIONS.format(task=grant.task, board=grant.board)
        self._threads = concurrent.futures.ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="report")

    async def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Say it for the run, and answer what the board says."""
        letter = reports.letter(name, given, self._sender.grant)
        said = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: self._sender.send(letter.verb, letter.args, id=letter.id)
        )
        if said.error is not None:
            raise envelope.error_of(said.error)
        return toolbox.answer(reports.told(name, said.result or {}, self._sender.grant), letter.ignored)


class Supervising:
    """The desk of an agent with authority over a board and the workers of a home."""

    tools = tuple(tool for tool, _ in (*BOARD_TOOLS, *WORKER_TOOLS))

    def __init__(self, address: str, *, board: str, who: str, home: Path) -> None:
        self.instructions = _SUPERVISING
        self._address, self._board, self._who, self._home = address, board, who, home
        self._store: Store | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="board")
        self._verbs = {tool.name: (tool, do) for tool, do in BOARD_TOOLS}
        self._calls = {tool.name: (tool, do) for tool, do in WORKER_TOOLS}

    async def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Do it with this desk's authority."""
        if name in self._verbs:
            tool, verb = self._verbs[name]
            asked, ignored = toolbox.read(tool, given)
            return toolbox.answer(await self._on_board(lambda desk: verb(desk, asked)), ignored)
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

    async def _on_board(self, do: Callable[[boardtools.Desk], T]) -> T:
        def done() -> T:
            if self._store is None:
                self._store = open_store(self._address, create=False)
            return do(boardtools.Desk(self._store, self._board, self._who))

        return await asyncio.get_running_loop().run_in_executor(self._thread, done)


async def serve(desk: Desk) -> None:
    """Serve until standard input ends."""
    server = made(desk)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


@contextlib.asynccontextmanager
async def supervising(address: str, *, board: str, who: str, home: Path) -> AsyncIterator[Supervising]:
    """A desk whose store is closed in the end."""
    desk = Supervising(address, board=board, who=who, home=home)
    try:
        yield desk
    finally:
        await desk.aclose()


def made(desk: Desk) -> Server[Any]:
    """The SDK's server for a desk."""

    async def listed(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_shown(tool) for tool in desk.tools])

    async def called(
        _: ServerRequestContext[Any], asked: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            data, failed = toolbox.encode(await desk.call(asked.name, asked.arguments or {})), False
        except HoldfastError as exc:
            data, failed = toolbox.encode(toolbox.problem(exc)), True
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=data.decode())], is_error=failed
        )

    return Server(
        NAME,
        version=__version__,
        instructions=desk.instructions,
        on_list_tools=listed,
        on_call_tool=called,
    )


def _shown(tool: Tool) -> types.Tool:
    # Agent CLIs decide by the hints whether to ask a person first, and an unattended one has nobody to ask.
    hints = types.ToolAnnotations(read_only_hint=tool.looks, destructive_hint=False, open_world_hint=False)
    return types.Tool(
        name=tool.name, description=tool.about, input_schema=toolbox.schema(tool.takes), annotations=hints
    )
