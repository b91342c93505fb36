"""The real Claude Code and OpenCode: where they are, and a model that wants one tool each turn."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from tools.get_agents import PINS, installed

ENV: Final = {"claude": "CLAUDE_BIN", "opencode": "OPENCODE_BIN"}


def requires_agent(name: str) -> Path:
    """The program; without it the test is skipped, and in CI it fails."""
    named = os.environ.get(ENV[name])
    found = Path(named) if named else installed(name)
    if found is not None and found.is_file():
        return found
    reason = f"NO {name}: `python -m tools.get_agents {name}` installs {PINS[name].version}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def model(calls: list[tuple[str, dict[str, object]]]) -> Iterator[tuple[str, list[str]]]:
    """The address of a model that asks for these tools in turn; the texts of their results as they come."""
    results: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told = _results(body["messages"])
            results[:] = told
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            offered = {tool["name"] for tool in body.get("tools", [])}
            call = calls[len(told)] if offered and len(told) < len(calls) else None
            for event in _turn(len(told), call):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", results
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _results(messages: list[dict[str, Any]]) -> list[str]:
    parts = [
        part for message in messages if isinstance(message["content"], list) for part in message["content"]
    ]
    return [json.dumps(part["content"]) for part in parts if part["type"] == "tool_result"]


def _turn(number: int, call: tuple[str, dict[str, object]] | None) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {"id": f"m{number}", "type": "message", "role": "assistant", "model": "m", "content": []}
    yield {"type": "message_start", "message": {**start, "stop_reason": None, "usage": usage}}
    if call is None:
        block: dict[str, object] = {"type": "text", "text": ""}
        delta: dict[str, object] = {"type": "text_delta", "text": "Done."}
    else:
        block = {"type": "tool_use", "id": f"t{number}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "end_turn" if call is None else "tool_use"
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    yield {"type": "message_stop"}
