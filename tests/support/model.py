"""A model provider on loopback that behaves as its address says: `…/s/hello`, `…/s/401`, `…/s/hang` …

It speaks the four protocols of tests/support/model_wires.py, so every agent CLI can be sent to it. `write`
asks for a shell command that makes the file MADE, through whatever shell tool the CLI offers; `ask` wants it
to be approved, where the model has a say in that; `busy` asks for one command after the other and never has
enough, `loop` for the same one; `fail` for one that fails, `sleep` for one that takes its time, `leave` for
one that is left running, `eat` for one that takes all memory; `report` calls the tool that completes a task.
What came in is in `requests`, keys not.
"""

import asyncio
import hashlib
import json
import re
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.model_wires import WIRES, Asked, Call, Json, Said, example
from tests.support.patience import patient

MADE: Final = "made-by-the-model.txt"
REPORT: Final = "kanban_complete"
CONTENT: Final = "written by the model"
ANSWER: Final = "This is what the scripted model says, and all of it."
SCENARIOS: Final = frozenset(
    {
        *("hello", "write", "ask", "report", "busy", "fail", "sleep", "loop", "quota", "context"),
        *("leave", "eat"),
        *("401", "404", "429", "500", "hang", "stall", "truncate"),
    }
)

_SHELLS: Final = {  # tool → the argument that is the command
    "exec_command": "cmd",
    "shell_command": "command",
    "bash": "command",
    "Bash": "command",
    "run_shell_command": "command",
    "shell": "command",
    "run_commands": "commands",
}
_COMMANDS: Final = {  # by scenario, where it is not to make the file
    "fail": "ls /is/not/there",
    "sleep": "tail -f /dev/null",  # some refuse to sleep
    "loop": "true",
    "leave": "tail -f /dev/null",
    "eat": "tail /dev/zero",
}
_LEFT: Final[dict[str, object]] = {  # how a shell tool is told not to wait
    "yield_time_ms": 2000,
    "run_in_background": True,
    "is_background": True,
}
_MESSAGES: Final = {
    401: "Incorrect API key provided.",
    404: "The model does not exist.",
    429: "Rate limit reached.",
    500: "The server had an error.",
}
_ERRORS: Final = {  # by a name, where a status alone does not say it
    "quota": (429, "You exceeded your current quota, please check your plan and billing details."),
    "context": (400, "This model's maximum context length is 8192 tokens: context_length_exceeded."),
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
    at: float = 0.0  # on the monotonic clock


@dataclass
class Model:
    base: str = ""
    requests: list[Request] = field(default_factory=list)
    connections: set[asyncio.StreamWriter] = field(default_factory=set)
    servers: list[asyncio.Server] = field(default_factory=list)
    command: str = f"echo '{CONTENT}' > {MADE}"  # that `write` and `ask` want to be run

    async def listen(self, certificate: Path | None = None) -> str:
        """Another address of it; with a certificate that nobody signed, a secure one that nobody trusts."""
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(_make_certificate(certificate))
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=1 << 22, ssl=context)
        self.servers.append(server)
        return f"http{'s' if context else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"

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
        self.requests.append(
            Request(scenario, name, asked, _headers(head), _credential(head), time.monotonic())
        )
        if scenario.isdigit():
            status = int(scenario)
            await _send(writer, status, wire.error(status, _MESSAGES[status]))
        elif scenario in _ERRORS:
            await _send(writer, _ERRORS[scenario][0], wire.error(*_ERRORS[scenario]))
        elif scenario == "hang":
            await reader.read()
        else:
            await _play(scenario, asked, wire.say(_turn(scenario, asked, self.command)), reader, writer)


def _turn(scenario: str, asked: Asked, command: str) -> str | Call:
    if asked.schema is not None:
        return json.dumps(example(asked.schema))
    if scenario == "report" and not asked.rounds:
        report = next((name for name in asked.tools if name.endswith(REPORT)), None)
        return ANSWER if report is None else Call(report, {"summary": CONTENT}, asked.spaces.get(report, ""))
    tool = next((name for name in _SHELLS if name in asked.tools), None)
    if scenario == "busy" and tool is not None:
        return Call(tool, _shell_arguments(asked, tool, f"echo {asked.rounds} >> {MADE}"))
    if scenario not in ("write", "ask", *_COMMANDS) or tool is None or (asked.rounds and scenario != "loop"):
        return ANSWER
    arguments = _shell_arguments(asked, tool, _COMMANDS.get(scenario, command))
    if scenario == "leave":
        offered = asked.tools[tool].get("properties", {})
        left = {name: value for name, value in _LEFT.items() if name in offered}
        behind = f"{_COMMANDS[scenario]} > /dev/null 2>&1 & sleep 2"
        arguments |= left or _shell_arguments(asked, tool, behind)
    if scenario == "ask" and "sandbox_permissions" in asked.tools[tool].get("properties", {}):
        arguments |= {"sandbox_permissions": "require_escalated", "justification": "May I?"}
    return Call(tool, arguments)


def _shell_arguments(asked: Asked, tool: str, command: str) -> Json:
    """With this command, or a list of one where the tool takes several."""
    name = _SHELLS[tool]
    several = asked.tools[tool].get("properties", {}).get(name, {}).get("type") == "array"
    return {**example(asked.tools[tool]), name: [command] if several else command}


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


def _make_certificate(path: Path) -> Path:
    """Key and certificate of 127.0.0.1 in one file, signed by itself."""
    asked = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    where = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", f"{path}.pem"]
    subprocess.run(["openssl", *asked.split(), *where], check=True, capture_output=True, timeout=patient(30))
    path.write_text(path.read_text("utf-8") + Path(f"{path}.pem").read_text("utf-8"), "utf-8")
    return path


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
    model.base = await model.listen()
    try:
        yield model
    finally:
        for server in model.servers:
            server.close()
        for writer in list(model.connections):
            writer.transport.abort()
