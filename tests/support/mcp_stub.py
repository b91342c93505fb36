"""An MCP server with one tool, `echo`, on standard input and output. Runs as a program, stdlib only."""

import json
import os
import sys
from typing import Any

ECHO = {
    "name": "echo",
    "description": "Say it again, and say where.",
    "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        about = {"name": "stub", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [ECHO]}
    if method == "tools/call":
        marker = os.environ.get("STUB_MARKER")
        said = f"marker={marker} cwd={os.getcwd()} echo={params['arguments']['message']}"
        return {"content": [{"type": "text", "text": said}], "isError": False}
    return {}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = result_of(request["method"], request.get("params") or {})
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
