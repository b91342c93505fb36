"""A model that plays a script: the Responses API on loopback, as much of it as the Codex CLI needs.

A script is an async generator. Each `yield` is one model turn: the calls the model makes. What the client
answers is there when the generator continues, so a later turn can use it.
"""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

Item: TypeAlias = dict[str, Any]
Script: TypeAlias = Callable[["Provider"], AsyncIterator[list[Item]]]

_EXIT = re.compile(r"(?:Process exited with code|Exit code:) (-?\d+)")
_SESSION = re.compile(r"session ID (\d+)")
_USAGE = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}


def call(call_id: str, tool: str, arguments: dict[str, Any], *, namespace: str | None = None) -> Item:
    item = {"type": "function_call", "call_id": call_id, "name": tool, "arguments": json.dumps(arguments)}
    return item if namespace is None else item | {"namespace": namespace}


def command(call_id: str, cmd: str, **arguments: object) -> Item:
    return call(call_id, "exec_command", {"cmd": cmd, **arguments})


def type_in(call_id: str, session: int, chars: str, *, yield_time_ms: int = 5000) -> Item:
    arguments = {"session_id": session, "chars": chars, "yield_time_ms": yield_time_ms}
    return call(call_id, "write_stdin", arguments)


def patch(call_id: str, text: str) -> Item:
    return {"type": "custom_tool_call", "call_id": call_id, "name": "apply_patch", "input": text}


def turns(*fixed: list[Item]) -> Script:
    """The script whose turns do not depend on what happens."""

    async def play(_: "Provider") -> AsyncIterator[list[Item]]:
        for items in fixed:
            yield items

    return play


class Provider:
    """What the client told the model, by call."""

    def __init__(self, script: Script) -> None:
        self._turns = script(self)
        self.outputs: dict[str, Any] = {}
        self.prompts: list[str] = []
        self.credentials: list[str] = []
        self.url = ""

    def output(self, call_id: str) -> str:
        value = self.outputs[call_id]
        return value if isinstance(value, str) else "".join(part.get("text", "") for part in value)

    def exit_code(self, call_id: str) -> int | None:
        found = _EXIT.search(self.output(call_id))
        return int(found[1]) if found else None

    def session(self, call_id: str) -> int:
        """The number by which the model addresses the command that `call_id` left running."""
        found = _SESSION.search(self.output(call_id))
        assert found, f"{call_id} left nothing running: {self.output(call_id)[:300]!r}"
        return int(found[1])

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            written = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.credentials += re.findall(r"\r\n[Aa]uthorization: Bearer (\S+)", written)
            head = written.lower()
            size = re.search(r"\r\ncontent-length: (\d+)", head)
            body = await reader.readexactly(int(size[1])) if size else b""
            if head.startswith("post") and head.split()[1].endswith("/responses"):
                status, kind, reply = "200 OK", "text/event-stream", await self._turn(body)
            else:
                status, kind, reply = "404 Not Found", "application/json", b"{}"
            fields = f"content-type: {kind}\r\ncontent-length: {len(reply)}\r\nconnection: close"
            writer.write(f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + reply)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # a client that was killed does not wait for its answer
        finally:
            writer.close()

    async def _turn(self, body: bytes) -> bytes:
        self.prompts.append(body.decode())
        for item in json.loads(body)["input"]:
            if str(item.get("type", "")).endswith("_call_output"):
                self.outputs[item["call_id"]] = item["output"]
        items: list[Item] = await anext(self._turns, [])
        if not items:
            text = {"type": "output_text", "text": "done"}
            items = [{"type": "message", "role": "assistant", "id": "msg", "content": [text]}]
        events: list[Item] = [{"type": "response.created", "response": {"id": "resp"}}]
        events += [{"type": "response.output_item.done", "item": item} for item in items]
        events.append({"type": "response.completed", "response": {"id": "resp", "usage": _USAGE}})
        return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


@asynccontextmanager
async def scripted(
    script: Script, *, tls: ssl.SSLContext | None = None, name: str = "127.0.0.1"
) -> AsyncIterator[Provider]:
    """A provider on a free loopback port, called by this name."""
    provider = Provider(script)
    server = await asyncio.start_server(provider.answer, "127.0.0.1", 0, ssl=tls)
    async with server:
        port = server.sockets[0].getsockname()[1]
        provider.url = f"{'http' if tls is None else 'https'}://{name}:{port}/v1"
        yield provider
