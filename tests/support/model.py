"""A model provider on loopback that behaves as its address says: `…/s/hello`, `…/s/401`, `…/s/hang` …

It speaks the four protocols of tests/support/model_wires.py, so every agent CLI can be sent to it. `write`
asks for a shell command that makes the file MADE, through whatever shell tool the CLI offers; `ask` wants it
to be approved, where the model has a say in that; `busy` asks for one command after the other and never has
enough; `report` calls the tool that completes a task. What came in
is in `requests`, keys not.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from tests.support.model_wires import WIRES, Asked, Call, Json, Said, example

MADE: Final = "made-by-the-model.txt"
REPORT: Final = "kanban_complete"
CONTENT: Final = "written by the model"
ANSWER: Final = "This is what the scripted model says, and all of it."
SCENARIOS: Final = frozenset(
    {"hello", "write", "ask", "report", "busy", "401", "404", "429", "500", "hang", "stall", "truncate"}
)

_SHELLS: Final = {  # tool → the argument that is the command
    "exec_command": "cmd",
    "shell_command": "command",
    "bash": "command",
    "Bash": "command",
    "run_shell_command": "command",
}
_MESSAGES: Final = {
    401: "Incorrect API key provided.",
    404: "The model does not exist.",
    429: "Rate limit reached.",
    500: "The server had an error.",
}
_WIRE_OF: Final = {
    "/responses": "responses",
    "/chat/completions": "chat",
    "/messages": "anthropic",
    ":generateContent": "gemini",
    ":streamGenerateContent": "gemini",
}
_PATH: Final = re.compile(r"/s/(?P<scenario>\w+)(?P<path>/[^?]*)")


@dataclass(frozen=True)
class Request:
    """What a CLI asked: its headers hold no key; `credential` is the digest of the one it sent."""

    scenario: str
    wire: str
    asked: Asked
    headers: dict[str, str]
    credential: str = ""


@dataclass
class Model:
    base: str = ""
    requests: list[Request] = field(default_factory=list)
    connections: set[asyncio.StreamWriter] = field(default_factory=set)

    def url(self, scenario: str) -> str:
        """The address to give to a CLI, without the part that says the version of a protocol."""
        assert scenario in SCENARIOS
        return f"{self.base}/s/{scenario}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request: every answer says that it is the last."""
        self.connections.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                await self._answer(head, await _body(head, reader), reader, writer)
            finally:
                self.connections.discard(writer)
                writer.close()

    async def _answer(
        self, head: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        found = _PATH.match(head.split(" ", 2)[1])
        path = found["path"] if found else ""
        name = next((wire for end, wire in _WIRE_OF.items() if path.endswith(end)), None)
        if found is None or name is None or not head.startswith("POST"):
            await _send(writer, 200, {"data": [], "models": [], "totalTokens": 1, "input_tokens": 1})
            return
        wire, scenario = WIRES[name], found["scenario"]
        asked = wire.read(json.loads(body))
        asked.stream = asked.stream or path.endswith(":streamGenerateContent")
        self.requests.append(Request(scenario, name, asked, _headers(head), _credential(head)))
        if scenario.isdigit():
            status = int(scenario)
            await _send(writer, status, wire.error(status, _MESSAGES[status]))
        elif scenario == "hang":
            await reader.read()
        else:
            await _play(scenario, asked, wire.say(_turn(scenario, asked)), reader, writer)


def _turn(scenario: str, asked: Asked) -> str | Call:
    if asked.schema is not None:
        return json.dumps(example(asked.schema))
    if scenario == "report" and not asked.rounds:
        report = next((name for name in asked.tools if name.endswith(REPORT)), None)
        return ANSWER if report is None else Call(report, {"summary": CONTENT}, asked.spaces.get(report, ""))
    tool = next((name for name in _SHELLS if name in asked.tools), None)
    if scenario == "busy" and tool is not None:
        return Call(tool, {**example(asked.tools[tool]), _SHELLS[tool]: f"echo {asked.rounds} >> {MADE}"})
    if scenario not in ("write", "ask") or tool is None or asked.rounds:
        return ANSWER
    arguments = {**example(asked.tools[tool]), _SHELLS[tool]: f"echo '{CONTENT}' > {MADE}"}
    if scenario == "ask" and "sandbox_permissions" in asked.tools[tool].get("properties", {}):
        arguments |= {"sandbox_permissions": "require_escalated", "justification": "May I?"}
    return Call(tool, arguments)


async def _play(
    scenario: str, asked: Asked, said: Said, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    cut = scenario in ("stall", "truncate")
    if not asked.stream and not cut:
        await _send(writer, 200, said.whole)
        return
    kind = "text/event-stream" if asked.stream else "application/json"
    pieces = said.pieces if asked.stream else [json.dumps(said.whole).encode()[:40]]
    writer.write(_opening(200, kind, "transfer-encoding: chunked"))
    for piece in pieces[: len(pieces) // 2 or 1] if cut else pieces:
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
    if scenario == "stall":
        await reader.read()
        return
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _opening(status: int, kind: str, framing: str) -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{framing}\r\nconnection: close\r\n\r\n".encode()


async def _send(writer: asyncio.StreamWriter, status: int, value: Json) -> None:
    data = json.dumps(value).encode()
    writer.write(_opening(status, "application/json", f"content-length: {len(data)}") + data)
    await writer.drain()


async def _body(head: str, reader: asyncio.StreamReader) -> bytes:
    if size := re.search(r"\r\ncontent-length: *(\d+)", head, re.IGNORECASE):
        return await reader.readexactly(int(size[1]))
    if not re.search(r"\r\ntransfer-encoding: *chunked", head, re.IGNORECASE):
        return b""
    body = b""
    while length := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(length)
        await reader.readline()
    return body


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _credential(head: str) -> str:
    found = re.search(
        r"\r\n(?:authorization: bearer|x-api-key:|x-goog-api-key:) *([^\r]+)", head, re.IGNORECASE
    )
    return digest(found[1]) if found else ""


def _headers(head: str) -> dict[str, str]:
    fields = (line.split(":", 1) for line in head.split("\r\n")[1:] if ":" in line)
    said = {name.lower(): value.strip() for name, value in fields}
    return {
        name: f"{len(value)} characters" if "key" in name or name == "authorization" else value
        for name, value in said.items()
    }


@asynccontextmanager
async def scripted_model() -> AsyncIterator[Model]:
    """A provider on a free loopback port."""
    model = Model()
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0, limit=1 << 22)
    model.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield model
    finally:
        server.close()
        for writer in list(model.connections):
            writer.transport.abort()
