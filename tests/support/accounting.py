"""Keeping the books: what a message is owed, what a process said, what a server holds.

`due` is a second opinion on the envelope, written from the protocol's text and not from our parser.
`Account` merges pushed events and read pages of one process as a client has to after a reconnect,
and `Client` is such a client.
`Census` counts what may not leak.
"""

import asyncio
import base64
import contextlib
import enum
import gc
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.support.patience import patient
from tests.support.peer import MAX_BYTES, Peer, Refused

RESUME_S: Final = patient(7.0)  # inside of the time a session waits in these tests
FINISH_S: Final = patient(30.0)  # for what one session runs, on a loaded machine
MAX_VALUES: Final = 262_144
MAX_DEPTH: Final = 127
_BARE: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[^\[\]{}"]+', re.DOTALL)


class Due(enum.Enum):
    """What a message brings its sender."""

    ANSWER = enum.auto()
    REFUSAL = enum.auto()  # an error nobody in particular asked for, id -1
    NOTHING = enum.auto()
    DROP = enum.auto()


class Debt(NamedTuple):
    due: Due
    id: int | str | None = None
    method: str = ""


_REFUSAL: Final = Debt(Due.REFUSAL)
_DROP: Final = Debt(Due.DROP)


def due(data: bytes, *, initialized: bool) -> Debt:
    """What the protocol promises for `data` on a connection that is, or is not, past `initialize`."""
    message = _parsed(data)
    if not isinstance(message, dict):
        return _REFUSAL
    if "method" in message:
        method = message["method"]
        if not isinstance(method, str):
            return _REFUSAL
        if "id" not in message:
            return Debt(Due.NOTHING) if method == "initialized" and initialized else _DROP
        traced = _is_trace(message.get("trace"))
        return Debt(Due.ANSWER, message["id"], method) if _is_id(message["id"]) and traced else _REFUSAL
    if "result" in message:
        return _DROP if _is_id(message.get("id")) else _REFUSAL
    error = message.get("error")
    if not isinstance(error, dict) or not _is_id(message.get("id")):
        return _REFUSAL
    return _DROP if _is_i64(error.get("code")) and isinstance(error.get("message"), str) else _REFUSAL


def _parsed(data: bytes) -> Any:
    """The JSON value, or None: a message is never null."""
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        return None
    try:
        value = _decoder.decode(data.decode("utf-8"))
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate is not text
    except (ValueError, RecursionError):
        return None
    return None if len(data) > MAX_VALUES and _values(value) > MAX_VALUES else value


def _depth(data: bytes) -> int:
    depth = deepest = 0
    for bracket in _BARE.sub(b"", data):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a repeated key")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(name)


_decoder: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _values(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_values, items))


def _is_i64(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_id(value: Any) -> bool:
    return isinstance(value, str) or _is_i64(value)


def _is_trace(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and all(
        isinstance(value.get(name), str | None) for name in ("traceparent", "tracestate")
    )


class Lost(AssertionError):
    """The server's story of a process has a hole, a contradiction or a repetition."""


class Exit(NamedTuple):
    code: int


class Closed(NamedTuple):
    pass


class Output(NamedTuple):
    stream: str
    data: bytes


Event = Output | Exit | Closed


@dataclass
class Account:
    """One process, by the numbers of its events."""

    events: dict[int, Event] = field(default_factory=dict)
    last_pushed: int = 0  # on the present connection; 0 before the first

    def new_connection(self) -> None:
        self.last_pushed = 0

    @property
    def last_seq(self) -> int:
        """Up to here nothing is missing."""
        seq = 0
        while seq + 1 in self.events:
            seq += 1
        return seq

    @property
    def finished(self) -> bool:
        return isinstance(self.events.get(self.last_seq), Closed)

    def pushed(self, method: str, params: dict[str, Any]) -> None:
        """A notification; on one connection they come in order and without a gap."""
        seq: int = params["seq"]
        if self.last_pushed and seq != self.last_pushed + 1:
            raise Lost(f"event {seq} was pushed after event {self.last_pushed}")
        self.last_pushed = seq
        match method:
            case "process/output":
                self._enter(seq, Output(params["stream"], base64.b64decode(params["chunk"])))
            case "process/exited":
                self._enter(seq, Exit(params["exitCode"]))
            case "process/closed":
                self._enter(seq, Closed())
            case _:
                raise Lost(f"an event of an unknown kind: {method}")

    def read(self, after: int, page: dict[str, Any]) -> None:
        """A page read with neither limit nor wait; it leaves no number up to `nextSeq` unknown."""
        for chunk in page["chunks"]:
            self._enter(chunk["seq"], Output(chunk["stream"], base64.b64decode(chunk["chunk"])))
        end: int = page["nextSeq"]
        if page["closed"]:
            end -= 1
            self._enter(end, Closed())
        told = {chunk["seq"] for chunk in page["chunks"]}
        missing = [seq for seq in range(after + 1, end) if seq not in told]
        if page["exited"] and len(missing) == 1:
            self._enter(missing.pop(), Exit(page["exitCode"]))
        if missing:
            raise Lost(f"a read after {after} up to {end} leaves out {missing}")

    def output(self, stream: str) -> bytes:
        parts = (self.events[seq] for seq in range(1, self.last_seq + 1))
        return b"".join(part.data for part in parts if isinstance(part, Output) and part.stream == stream)

    @property
    def exit_code(self) -> int:
        [end] = [event for event in self.events.values() if isinstance(event, Exit)]
        return end.code

    def _enter(self, seq: int, event: Event) -> None:
        if self.events.setdefault(seq, event) != event:
            raise Lost(f"event {seq} is told in two ways")


class Client:
    """One session over as many connections as it takes, with an account of each of its processes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session_id: str | None = None
        self.accounts: dict[str, Account] = {}
        self.drops = 0
        self.peer: Peer

    async def attach(self) -> None:
        """Connect; from the second time on also resume and read what was missed."""
        async with asyncio.timeout(RESUME_S):
            while True:
                link = await connect(
                    self._url, compression=None, max_size=MAX_BYTES, proxy=None, close_timeout=1
                )
                self.peer = Peer(link)
                try:
                    told = await self.peer.initialize(resume=self._session_id)
                    break
                except Refused as refusal:
                    await self.detach()
                    if refusal.code != -32010:
                        raise
                    await asyncio.sleep(0.02)
        assert self._session_id in (None, told["sessionId"])
        self._session_id = told["sessionId"]
        for name, account in self.accounts.items():
            if not account.finished:
                after = account.last_seq
                params = {"processId": name, "afterSeq": after, "maxBytes": None, "waitMs": 0}
                page = await self.peer.call("process/read", params)
                account.read(after, page)
                self.note()

    def note(self) -> None:
        """Enter what was pushed into the accounts; a start whose answer was lost has none."""
        for name, events in self.peer.events.items():
            if name in self.accounts:
                for event in events:
                    self.accounts[name].pushed(event["method"], event["params"])
            events.clear()

    async def drop(self) -> None:
        """Lose the connection as a network does."""
        self.drops += 1
        self.peer.link.transport.abort()
        await self.detach()

    async def detach(self) -> None:
        await self.peer.aclose()
        with suppress(ConnectionClosed, asyncio.CancelledError):
            await self.peer._reader
        self.note()
        for account in self.accounts.values():
            account.new_connection()

    async def start(self, name: str, script: str, **more: Any) -> None:
        self.accounts[name] = Account()
        await self.peer.start(name, script, **more)

    async def finished(self, limit_s: float = FINISH_S) -> bool:
        """Wait until every process has closed, or the time is over."""

        def all_closed() -> bool:
            self.note()
            return all(account.finished for account in self.accounts.values())

        try:
            async with asyncio.timeout(limit_s):
                await self.peer.until(all_closed)
        except TimeoutError:
            return False
        return True


@dataclass(frozen=True)
class Census:
    """What a process holds. Compare two to find what leaked between them."""

    files: int
    children: tuple[int, ...]
    private_kib: int

    @classmethod
    def of(cls, pid: int) -> "Census":
        return cls(len(os.listdir(f"/proc/{pid}/fd")), tuple(children(pid)), _private_kib(pid))


def children(pid: int) -> Iterator[int]:
    """The children of every thread."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended by now
            yield from map(int, (task / "children").read_text("ascii").split())


def grandchildren(pid: int) -> list[int]:
    """Of a server: what its profile runs."""
    return [each for child in children(pid) for each in children(child)]


def open_files(pid: int) -> list[str]:
    """What its descriptors lead to."""
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            names.append(os.readlink(entry))
    return names


def _private_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_"))


def objects() -> int:
    """How many objects this process keeps."""
    gc.collect()
    return len(gc.get_objects())


async def settled(condition: Any, limit_s: float, what: Any) -> None:
    """Wait until `condition()` holds; `what()` says what was there instead."""
    try:
        async with asyncio.timeout(limit_s):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {limit_s} s: {what()}") from None
