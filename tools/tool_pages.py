"""The page of the reference about MCP tools."""

from collections.abc import Iterable

from holdfast.mcp.reports import REPORTS
from holdfast.mcp.supervising import BOARD_TOOLS
from holdfast.mcp.toolbox import Tool, schema
from holdfast.mcp.workertools import WORKER_TOOLS
from tools.markdown import page, table


def tools_page() -> str:
    """Every tool of both kinds of agents."""
    worker = [report.tool for report in REPORTS]
    board = [tool for tool, _ in BOARD_TOOLS]
    workers = [tool for tool, _ in WORKER_TOOLS]
    return page(
        "MCP tools",
        "What `holdfast mcp` offers. Parameters in bold have to be given. Names that are not listed are "
        "ignored, and the answer says so. An answer is a JSON object with `ok`; what is wrong is an error of "
        "the tool, with `error` and mostly a `remedy`.",
        "## For a worker, about its own task\n\n" + _rows(worker),
        "## For a supervising agent, about a board\n\n" + _rows(board),
        "## For a supervising agent, about workers\n\n" + _rows(workers),
    )


def _rows(tools: Iterable[Tool]) -> str:
    lines = [(f"`{tool.name}`", tool.about, _parameters(tool)) for tool in tools]
    return table(("tool", "what it does", "parameters"), lines)


def _parameters(tool: Tool) -> str:
    found = schema(tool.takes)
    needed = set(found["required"])
    return ", ".join(f"**{name}**" if name in needed else name for name in found["properties"])
