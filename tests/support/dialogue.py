"""Scripted conversations with an exec server, reduced to what two servers must have in common.

`$W` in a message stands for the URI of the directory the conversation is about, `$P` for its native path.
"""

import asyncio
import base64
import json
import os
import shutil
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from typing import Any, Final, TypeAlias

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.support.patience import patient

ANSWER_LIMIT_S: Final = patient(30.0)
MAX_BYTES: Final = 64 * 1024 * 1024  # the protocol's limit for one message
MOMENTARY: Final = ("timestamp", "client")
VOLATILE: Final = ("sessionId", "environmentInfo", "createdAtMs", "modifiedAtMs", "message", "warnings")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request; `shape` compares only the types of what comes back."""

    method: str
    params: object = None
    shape: bool = False


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes or text as they are; the answer is the next response, or the end of the connection."""

    data: str | bytes


@dataclass(frozen=True, slots=True)
class Tell:
    """A notification, which nobody answers."""

    method: str


@dataclass(frozen=True, slots=True)
class Closed:
    """Wait for the end of a process; the answer is all its events."""

    process: str


@dataclass(frozen=True, slots=True)
class Told:
    """The answer is what was asked and told about the network of a process that has ended.

    A question is answered by the name of its host: `yes...` is allowed, `ask...` is put off, others are not.
    """

    process: str


Step: TypeAlias = Ask | Raw | Tell | Closed | Told
READY: Final[list[Step]] = [Ask("initialize", {"clientName": "interop"}), Tell("initialized")]
STATUS: Final = Ask("environment/status")


def b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def fs(method: str, name: str | None, **more: Any) -> Ask:
    path = {} if name is None else {"path": f"$W/{name}"}
    return Ask(f"fs/{method}", path | more)


def start(script: str, process: str = "p", **more: Any) -> Ask:
    base = {"processId": process, "argv": ["/bin/sh", "-c", script], "cwd": "$W", "env": {}, "tty": False}
    return Ask("process/start", base | more)


READ_ALL: Final[dict[str, Any]] = {
    "path": {"type": "special", "value": {"kind": "root"}},
    "access": "read",
}


def sandbox(*entries: dict[str, Any], network: str = "restricted", **more: Any) -> dict[str, Any]:
    files = {"type": "restricted", "entries": list(entries)}
    base = {
        "permissions": {"type": "managed", "file_system": files, "network": network},
        "windowsSandboxLevel": "disabled",
        "cwd": "$W",
        "workspaceRoots": ["$W"],
    }
    return base | more


def at(name: str, access: str) -> dict[str, Any]:
    return {"path": {"type": "path", "path": f"$W/{name}".rstrip("/")}, "access": access}


def process(method: str, name: str = "p", **more: Any) -> Ask:
    return Ask(f"process/{method}", {"processId": name} | more)


def canonical(uri: str) -> Ask:
    """Discovery names each root as it understood it, whether or not the root exists."""
    return Ask("capabilityRoots/discoverV1", {"roots": [{"id": "r", "path": uri}]})


def walk(name: str, **options: Any) -> Ask:
    base = {"maxDepth": 9, "maxDirectories": 99, "maxEntries": 99, "followDirectorySymlinks": False}
    return fs("walk", name, options=base | options)


def lay_out(folder: Path) -> None:
    """The same small tree each time."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in {
        "a.txt": "hello\n",
        "script-without-interpreter": "true\n",
        "dir/b.txt": "b",
        "dir/.hidden/h.txt": "h",
        "dir/sub/c.txt": "c",
        "plug/.codex-plugin/plugin.json": '{"name": "plug", "version": "1"}',
        "plug/.mcp.json": "{}",
        "plug/skills/one/SKILL.md": "---\nname: one\n---\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (folder / "script-without-interpreter").chmod(0o755)
    (folder / "empty").mkdir()
    os.mkfifo(folder / "fifo")
    for link, target in {"link": "a.txt", "dirlink": "dir", "broken": "gone", "loop": "loop"}.items():
        (folder / link).symlink_to(target)


class Talk:
    """One connection; `answers` is what there is to compare."""

    def __init__(self, link: ClientConnection, folder: Path) -> None:
        self.answers: list[object] = []
        self._link = link
        self._folder = folder
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._network: dict[str, list[object]] = {}
        self._numbers = count(1)

    async def take(self, step: Step) -> None:
        match step:
            case Ask(method, params, shape):
                number = next(self._numbers)
                await self._send(json.dumps({"id": number, "method": method, "params": params}))
                answer = await self._answer()
                self.answers.append(types_in(answer) if shape else comparable(answer))
            case Raw(data):
                await self._send(data)
                self.answers.append(comparable(await self._answer()))
            case Tell(method):
                await self._send(json.dumps({"method": method}))
            case Closed(name):
                while self._events.get(name, [{}])[-1].get("method") != "process/closed":
                    self._note(await self._receive())
                self.answers.append(history(self._events.pop(name)))
            case Told(name):
                self.answers.append(self._network.pop(name, []))

    async def _send(self, data: str | bytes) -> None:
        if isinstance(data, str):
            uri = self._folder.as_uri()
            data = data.replace("$W", uri).replace("$P", str(self._folder))
        await self._link.send(data)

    async def _answer(self) -> dict[str, Any]:
        while True:
            try:
                message = await self._receive()
            except ConnectionClosed:
                return {"closed": True}
            if "method" not in message:
                return message
            self._note(message)

    async def _receive(self) -> dict[str, Any]:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            message: dict[str, Any] = json.loads(await self._link.recv())
        if message.get("method") == "network/policyRequest":
            await self._link.send(json.dumps({"id": message["id"], "result": decision_about(message)}))
        return message

    def _note(self, message: dict[str, Any]) -> None:
        if message["method"].startswith("process/"):
            self._events.setdefault(message["params"]["processId"], []).append(message)
        elif message["method"].startswith("network/"):
            params = {key: value for key, value in message["params"].items() if key not in MOMENTARY}
            self._network.setdefault(params.pop("processId"), []).append((message["method"], params))


def decision_about(message: dict[str, Any]) -> dict[str, Any]:
    kind = {"yes": "allow", "ask": "ask"}.get(message["params"]["request"]["host"][:3], "deny")
    return {"decision": {"type": kind} if kind == "allow" else {"type": kind, "reason": "because"}}


def comparable(value: object) -> object:
    """Without texts for people, identities and times."""
    if isinstance(value, dict):
        return {k: "..." if _varies(k, v) else comparable(v) for k, v in value.items()}
    return [comparable(item) for item in value] if isinstance(value, list) else value


def _varies(key: str, value: object) -> bool:
    # A discovery says in `error`, with a text, why it failed.
    return key in VOLATILE or (key == "error" and isinstance(value, str))


def types_in(value: object) -> object:
    """Only the types; a yes or no and the code of an error are what they are everywhere."""
    if isinstance(value, dict):
        return {key: item if key == "code" else types_in(item) for key, item in value.items()}
    if isinstance(value, list):
        return [types_in(item) for item in value[:1]]
    return value if isinstance(value, bool) else type(value).__name__


def history(events: list[dict[str, Any]]) -> list[object]:
    """The events of one process; how output is cut into chunks is the kernel's business."""
    assert [event["params"]["seq"] for event in events] == list(range(1, len(events) + 1))
    told: list[object] = []
    for stream, group in groupby(events, key=lambda event: event["params"].get("stream")):
        if stream is None:
            told += [{**event["params"], "seq": event["method"]} for event in group]
        else:
            told.append((stream, b"".join(base64.b64decode(event["params"]["chunk"]) for event in group)))
    return told


async def answers_of(url: str, folder: Path, steps: list[Step]) -> list[object]:
    lay_out(folder)
    options: dict[str, Any] = {"compression": None, "max_size": MAX_BYTES, "proxy": None, "close_timeout": 1}
    async with connect(url, **options) as link:
        talk = Talk(link, folder)
        for step in steps:
            await talk.take(step)
    return talk.answers
