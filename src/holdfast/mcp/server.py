"""The MCP server on standard input and output: the SDK outside, a tools with tools inside."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from holdfast import __version__
from holdfast.errors import HoldfastError
from holdfast.mcp import toolbox
from holdfast.mcp.toolbox import Tool

NAME: Final = "holdfast"


class ToolHandler(Protocol):
    """Tools, and what becomes of a call."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    @property
    def instructions(self) -> str: ...

    async def call(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Raises HoldfastError."""


async def serve(tools: ToolHandler) -> None:
    """Serve until standard input ends."""
    server = build_server(tools)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def build_server(tools: ToolHandler) -> Server[Any]:
    """The SDK's server for a tools."""

    async def listed(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe_tool(tool) for tool in tools.tools])

    async def called(
        _: ServerRequestContext[Any], asked: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            data, failed = toolbox.encode(await tools.call(asked.name, asked.arguments or {})), False
        except HoldfastError as exc:
            data, failed = toolbox.encode(toolbox.problem(exc)), True
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=data.decode())], is_error=failed
        )

    return Server(
        NAME,
        version=__version__,
        instructions=tools.instructions,
        on_list_tools=listed,
        on_call_tool=called,
    )


def _describe_tool(tool: Tool) -> types.Tool:
    # Agent CLIs decide by the hints whether to ask a person first, and an unattended one has nobody to ask.
    hints = types.ToolAnnotations(
        read_only_hint=tool.looks,
        destructive_hint=False,
        idempotent_hint=tool.looks or tool.once,
        open_world_hint=False,
    )
    return types.Tool(
        name=tool.name, description=tool.about, input_schema=toolbox.schema(tool.takes), annotations=hints
    )
