"""A WebSocket proxy between a client and an exec server: it records, cuts, and tells lies when asked.

The recording is what each side received. `broken_rules` judges it: the real client hides several mistakes of
a server by reconnecting and reading the output again, so a command that looks fine proves little.
"""

import asyncio
import base64
import binascii
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal, TypeAlias

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.http11 import Request, Response

from tests.support.patience import patient

Message: TypeAlias = dict[str, Any]
Side: TypeAlias = Literal["client", "server"]
Fault: TypeAlias = Callable[["Entry"], Message | None]
"""What the receiver gets instead of the entry's message; None loses it."""

MAX_BYTES: Final = 64 * 1024 * 1024  # the protocol's limit for one message
MAX_CHUNK_BYTES: Final = 1024 * 1024  # the client gives a process up over an event that is larger
WAIT_LIMIT_S: Final = patient(30.0)
_EVENTS: Final = ("process/output", "process/exited", "process/closed")


@dataclass(frozen=True, slots=True)
class Entry:
    """One message; a response has the method of the request it answers."""

    connection: int
    sender: Side
    kind: Literal["request", "notification", "response", "error"]
    method: str | None
    message: Message

    @property
    def params(self) -> Message:
        return self.message.get("params") or {}

    @property
    def result(self) -> Message:
        return self.message.get("result") or {}


class Recorder:
    """The proxy's state; `entries` grows while the conversation goes on."""

    def __init__(self, upstream: Callable[[], str], fault: Fault | None) -> None:
        self.entries: list[Entry] = []
        self.connections = 0
        self.url = ""
        self.reachable = True
        self.at_once = False  # a command's start is not answered before it has ended: see `_held_back`
        self._upstream = upstream
        self._fault = fault
        self._links: dict[ServerConnection, ClientConnection] = {}
        self._news = asyncio.Event()

    def sent(self, method: str, *, by: Side = "client", kind: str | None = None) -> list[Entry]:
        """What `by` sent about `method`; responses of the server have the method of their request."""
        found = (e for e in self.entries if e.sender == by and e.method == method)
        return [e for e in found if kind is None or e.kind == kind]

    def answers(self, method: str) -> list[Message]:
        return [entry.result for entry in self.sent(method, by="server", kind="response")]

    def error_codes(self, method: str) -> list[int]:
        return [entry.message["error"]["code"] for entry in self.sent(method, by="server", kind="error")]

    def output(self, stream: str) -> bytes:
        """All that was pushed on one stream, over all processes, each in the order of its numbers."""
        pushed = [e for e in self.sent("process/output", by="server") if e.params["stream"] == stream]
        turns: defaultdict[str, deque[Entry]] = defaultdict(deque)
        for entry in sorted(pushed, key=_seq):
            turns[entry.params["processId"]].append(entry)
        ordered = (turns[e.params["processId"]].popleft() for e in pushed)
        return b"".join(base64.b64decode(e.params["chunk"]) for e in ordered)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that only a further message can make true."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def cut(self) -> None:
        """Both sides lose the connection without a word."""
        for client, server in self._links.items():
            client.transport.abort()
            server.transport.abort()

    async def admit(self, client: ServerConnection, _: Request) -> Response | None:
        """Let the client in once the server has let us in."""
        try:
            if not self.reachable:
                raise ConnectionRefusedError
            options: dict[str, Any] = {"compression": None, "max_size": MAX_BYTES, "ping_interval": None}
            self._links[client] = await connect(self._upstream(), proxy=None, **options)
        except (OSError, InvalidHandshake):
            return client.respond(HTTPStatus.SERVICE_UNAVAILABLE, "")
        return None

    async def relay(self, client: ServerConnection) -> None:
        server = self._links[client]
        self.connections += 1
        number = self.connections
        asked: dict[str, str] = {}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(number, "client", client, server, asked))
                both.create_task(self._pump(number, "server", server, client, asked))
        finally:
            del self._links[client]
            await server.close()

    async def _pump(
        self,
        number: int,
        sender: Side,
        source: ServerConnection | ClientConnection,
        sink: ServerConnection | ClientConnection,
        asked: dict[str, str],
    ) -> None:
        held: list[str | bytes] = []
        with suppress(ConnectionClosed):
            async for raw in source:
                entry = _classify(number, sender, json.loads(raw), asked)
                if self._fault is None:
                    self._record(entry)
                    held.append(raw)
                elif (changed := self._fault(entry)) is not None:
                    kind = "error" if "error" in changed else entry.kind
                    self._record(Entry(number, sender, kind, entry.method, changed))
                    held.append(json.dumps(changed))
                if not self._held_back(entry, already=len(held) > 1):
                    for message in held:
                        await sink.send(message)
                    held.clear()
        await sink.close()

    def _held_back(self, entry: Entry, *, already: bool) -> bool:
        """Whether to wait for more before passing this on.

        The client looks for a denial only in commands that end within 150 ms of the answer to their start;
        for a machine with much to do that is a matter of luck.
        """
        if not self.at_once or entry.sender == "client" or entry.kind == "error":
            return False
        begins = entry.method == "process/start"
        return begins or (already and entry.method != "process/closed")

    def _record(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._news.set()


def _classify(number: int, sender: Side, message: Message, asked: dict[str, str]) -> Entry:
    identity = json.dumps(message.get("id"))
    if "method" in message:
        method = message["method"]
        if "id" not in message:
            return Entry(number, sender, "notification", method, message)
        if sender == "client":
            asked[identity] = method
        return Entry(number, sender, "request", method, message)
    return Entry(number, sender, "error" if "error" in message else "response", asked.get(identity), message)


@asynccontextmanager
async def recording(upstream: Callable[[], str], fault: Fault | None = None) -> AsyncIterator[Recorder]:
    """A recorder on a free loopback port; `upstream` says where the server is at that moment."""
    recorder = Recorder(upstream, fault)
    options: dict[str, Any] = {"compression": None, "max_size": MAX_BYTES, "ping_interval": None}
    async with serve(
        recorder.relay, "127.0.0.1", 0, process_request=recorder.admit, close_timeout=1, **options
    ) as listener:
        recorder.url = f"ws://127.0.0.1:{next(iter(listener.sockets)).getsockname()[1]}"
        yield recorder


def broken_rules(entries: Iterable[Entry], *, sorted_by_client: bool = False) -> list[str]:
    """What in a recording no exec server may do; empty is good.

    The reference gives numbers under a lock and sends from several tasks: on a busy machine its events now
    and then overtake each other, and a client sorts them. With `sorted_by_client` they are judged after that.
    """
    entries = list(entries)
    return _broken_answers(entries) + _broken_events(entries, sorted_by_client=sorted_by_client)


def _broken_answers(entries: list[Entry]) -> list[str]:
    problems = []
    asked: set[tuple[int, str]] = set()
    for entry in entries:
        key = (entry.connection, json.dumps(entry.message.get("id")))
        if entry.sender == "client" and entry.kind == "request":
            asked.add(key)
        elif entry.sender == "server" and entry.kind in ("response", "error"):
            if key not in asked:
                problems.append(f"an answer to nothing asked: {entry.message}")
            asked.discard(key)
            if entry.kind == "response" and "result" not in entry.message:
                problems.append(f"neither result nor error: {entry.message}")
            if entry.kind == "error" and not _is_error(entry.message["error"]):
                problems.append(f"malformed error: {entry.message}")
    return problems


def _is_error(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("code"), int)
        and isinstance(value.get("message"), str)
    )


def _seq(event: Entry) -> int:
    return int(event.params.get("seq") or 0)


def _broken_events(entries: list[Entry], *, sorted_by_client: bool) -> list[str]:
    """Per process: seq counts 1, 2, 3, ...; one exited; closed comes last."""
    problems: list[str] = []
    by_process: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.sender == "server" and entry.method in _EVENTS:
            by_process[entry.params.get("processId", "")].append(entry)
    homes = {e.params["processId"]: e.connection for e in entries if e.method == "process/start" and e.params}
    for process, events in by_process.items():
        problems += [f"{process}: malformed {e.message}" for e in events if not _is_event(e)]
        if any(event.connection != homes.get(process) for event in events):
            continue  # resumed elsewhere: what happened in between was read, not pushed
        if sorted_by_client:
            events.sort(key=_seq)
        numbers = [event.params.get("seq") for event in events]
        methods = [event.method for event in events]
        if numbers != list(range(1, len(numbers) + 1)):
            first = next(place for place, number in enumerate(numbers) if number != place + 1)
            problems.append(
                f"{process}: seq is not 1, 2, 3, ... but {numbers[max(0, first - 2) : first + 4]}"
            )
        if "process/closed" in methods and (
            methods[-1] != "process/closed"
            or methods.count("process/closed") != 1
            or methods.count("process/exited") != 1
        ):
            problems.append(f"{process}: ends with {methods[-4:]}")
    return problems


def _is_event(event: Entry) -> bool:
    if event.method == "process/exited":
        return isinstance(event.params.get("exitCode"), int)
    if event.method == "process/closed":
        return True
    try:
        size = len(base64.b64decode(event.params["chunk"], validate=True))
    except (KeyError, TypeError, binascii.Error):
        return False
    return event.params.get("stream") in ("stdout", "stderr", "pty") and 1 <= size <= MAX_CHUNK_BYTES
