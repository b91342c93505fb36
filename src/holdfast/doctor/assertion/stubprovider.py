"""A model on loopback that asks for one command, then is done: as much of the Responses API as that takes."""

import contextlib
import hmac
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

MAX_BODY_BYTES: Final = 16 * 1024 * 1024  # instructions and tools are 40 KiB; those of people, much more
MAX_TURNS: Final = 8  # a client that asks again and again does not take the answer
IDLE_S: Final = 30.0  # of a connection; the client has its own limit
CALL: Final = "holdfast"

_POLL_S: Final = 0.05
_YIELD_MS: Final = 30_000  # the longest that the client waits for a command before it asks the model
_USAGE: Final = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}

# How each generation of the client takes a command; the first one that it offers is used.
_SHELLS: Final[Mapping[str, Callable[[str], dict[str, object]]]] = {
    "exec_command": lambda script: {"cmd": script, "yield_time_ms": _YIELD_MS},
    "shell_command": lambda script: {"command": script, "timeout_ms": _YIELD_MS},
    "shell": lambda script: {"command": ["sh", "-c", script], "timeout_ms": _YIELD_MS},
}


class StubProvider:
    """`output` is what the command's tool answered, None until it did; `offered` the tools there were."""

    def __init__(self, script: str) -> None:
        self.token: Final = secrets.token_urlsafe(32)
        self.url = ""
        self.output: str | None = None
        self.offered: tuple[str, ...] = ()
        self.turns = 0
        self._script = script
        self._lock = threading.Lock()

    def knows(self, authorization: str) -> bool:
        return hmac.compare_digest(authorization.encode(), f"Bearer {self.token}".encode())

    def answer(self, body: bytes) -> bytes:
        """The events of one turn.

        Raises:
            ValueError: it is no request, or one too many.
        """
        request = json.loads(body)
        if not isinstance(request, dict):
            raise ValueError
        with self._lock:
            self.turns += 1
            if self.turns > MAX_TURNS:
                raise ValueError
            item = self._item(request)
        events: list[dict[str, object]] = [
            {"type": "response.created", "response": {"id": "resp"}},
            {"type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": {"id": "resp", "usage": _USAGE}},
        ]
        return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()

    def _item(self, request: Mapping[str, Any]) -> dict[str, object]:
        for item in _objects(request.get("input")):
            if item.get("call_id") == CALL and str(item.get("type")).endswith("_call_output"):
                self.output = _text(item.get("output"))
        self.offered = tuple(
            str(tool.get("name") or tool.get("type")) for tool in _objects(request.get("tools"))
        )
        tool = next((name for name in _SHELLS if name in self.offered), None)
        if self.output is None and tool is not None:
            arguments = json.dumps(_SHELLS[tool](self._script))
            return {"type": "function_call", "call_id": CALL, "name": tool, "arguments": arguments}
        said = [{"type": "output_text", "text": "done"}]
        return {"type": "message", "role": "assistant", "id": "msg", "content": said}


@contextlib.contextmanager
def playing(script: str) -> Iterator[StubProvider]:
    """One on a free port of the loopback address; whoever does not know its token gets no answer."""
    stub = StubProvider(script)

    class _Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = IDLE_S

        def do_POST(self) -> None:
            size = self.headers.get("content-length", "")
            if not stub.knows(self.headers.get("authorization", "")):
                self._send(401)
            elif not self.path.endswith("/responses"):
                self._send(404)
            elif not size.isdecimal() or int(size) > MAX_BODY_BYTES:
                self._send(413)
            else:
                try:
                    self._send(200, stub.answer(self.rfile.read(int(size))))
                except ValueError:
                    self._send(400)

        def do_GET(self) -> None:
            self._send(404)

        def _send(self, status: int, body: bytes = b"") -> None:
            self.close_connection = status != 200  # what was not read would be taken for the next request
            self.send_response(status)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class _Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None:
            pass  # a client that was killed does not wait for its answer

    with _Server(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
        thread.start()
        stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(output: object) -> str:
    if isinstance(output, str):
        return output
    if isinstance(output, dict):
        return _text(output.get("content"))
    return "".join(str(part.get("text", "")) for part in _objects(output))
