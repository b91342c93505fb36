"""The MCP messages on standard input and output: lines in, answers and calls out. Pure module.

A server of tools needs four methods of the protocol (`initialize`, `ping`, `tools/list`, `tools/call`), and
every agent CLI that was tried starts one such process for each worker. The official SDK implements all
methods, but takes three times the memory of everything else in the process. The tests use it as the client.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from holdfast import decoding
from holdfast.mcp import toolbox
from holdfast.mcp.toolbox import Tool, ToolAnswer

RequestId: TypeAlias = int | str

NAME: Final = "holdfast"
# The versions that begin with `initialize`. A client of a later version calls `server/discover`, gets the
# error that there is no such method, and falls back to the newest of these.
VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
NOT_JSON, NO_REQUEST, NO_METHOD, NO_PARAMS = -32700, -32600, -32601, -32602  # JSON-RPC error codes
_MAX_ECHO: Final = 80  # characters of the client's own text in an answer


class _Message(msgspec.Struct):
    """A client's message: a request, a notification, or an answer to a request that was never sent."""

    id: RequestId | msgspec.UnsetType | None = msgspec.UNSET
    method: str = ""
    params: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool is to be called; `answer` makes the line that answers it."""

    id: RequestId
    name: str
    given: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client does not wait for the answer to this call any more."""

    id: RequestId


@dataclass(frozen=True, slots=True)
class Say:
    """A line to be sent at once."""

    line: bytes


Heard: TypeAlias = Call | Cancelled | Say | None


@dataclass(frozen=True, slots=True)
class Server:
    """The server's description of itself."""

    version: str
    instructions: str
    tools: Sequence[Tool]


def hear(line: bytes, server: Server) -> Heard:
    """What to do about a line; None if nothing."""
    try:
        said = decoding.decode(line, _Message)
    except msgspec.ValidationError as exc:  # JSON-RPC requires an error answer, even without an id
        return Say(_error(None, NO_REQUEST, str(exc)))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Say(_error(None, NOT_JSON, "this is not JSON"))
    if isinstance(said.id, msgspec.UnsetType):
        about = said.params.get("requestId")
        if said.method == "notifications/cancelled" and isinstance(about, int | str):
            return Cancelled(about)
        return None
    if said.id is None:
        return Say(_error(None, NO_REQUEST, "the id of a request is a number or a text"))
    return _heed(said.id, said, server) if said.method else None


def _heed(id: RequestId, asked: _Message, server: Server) -> Call | Say:
    match asked.method:
        case "initialize":
            return Say(_result(id, _introduce(server, asked.params.get("protocolVersion"))))
        case "ping":
            return Say(_result(id, {}))
        case "tools/list":
            return Say(_result(id, {"tools": [_describe_tool(tool) for tool in server.tools]}))
        case "tools/call":
            name, arguments = asked.params.get("name"), asked.params.get("arguments")
            if isinstance(name, str) and isinstance(arguments, dict | None):
                return Call(id, name, arguments or {})
            return Say(_error(id, NO_PARAMS, "a call has a name, and arguments that are an object"))
    return Say(_error(id, NO_METHOD, f"there is no method {asked.method[:_MAX_ECHO]}"))


def answer(id: RequestId, said: ToolAnswer) -> bytes:
    """The line that answers a call."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": said.text}], "isError": said.failed}
    if said.structured is not None:
        result["structuredContent"] = msgspec.Raw(said.structured)
    return _result(id, result)


def _introduce(server: Server, asked: object) -> dict[str, Any]:
    return {
        "protocolVersion": asked if asked in VERSIONS else VERSIONS[-1],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": NAME, "version": server.version},
        "instructions": server.instructions,
    }


def _describe_tool(tool: Tool) -> dict[str, Any]:
    # By these hints agent CLIs decide whether to ask a person first; an unattended CLI cannot ask.
    hints = {
        "readOnlyHint": tool.looks,
        "destructiveHint": False,
        "idempotentHint": tool.looks or tool.once,
        "openWorldHint": False,
    }
    return {
        "name": tool.name,
        "description": tool.about,
        "inputSchema": toolbox.schema(tool.takes),
        "annotations": hints,
    }


def _result(id: RequestId, result: object) -> bytes:
    return _encode({"id": id, "result": result})


def _error(id: RequestId | None, code: int, message: str) -> bytes:
    return _encode({"id": id, "error": {"code": code, "message": message}})


def _encode(members: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **members}) + b"\n"
