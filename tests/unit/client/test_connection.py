"""Calls and answers on one link, without a link."""

import asyncio
import json
from typing import Any

import pytest

from holdfast.client import connection as module
from holdfast.client.connection import ClientConnection
from holdfast.client.events.ordering import Closed, Pushed
from holdfast.client.networkfilter import ALLOWED, DENIED, Reply
from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    NotFound,
    RemoteProtocolError,
    UsageError,
)
from holdfast.wire import rpc


class FakeLink:
    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.aborted: HoldfastError | None = None

    def send(self, message: bytes) -> None:
        self.sent.append(json.loads(message))

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self, error: HoldfastError) -> None:
        self.aborted = error

    async def aclose(self) -> None: ...


class FakeOwner:
    def __init__(self) -> None:
        self.taken: list[Pushed] = []
        self.notes: list[tuple[str, object]] = []
        self.lost: list[tuple[ClientConnection, HoldfastError]] = []
        self.asked: list[tuple[object, Reply]] = []

    def take(self, pushed: Pushed) -> None:
        self.taken.append(pushed)

    def note(self, method: str, params: object) -> None:
        self.notes.append((method, params))

    def ask(self, params: object, reply: Reply) -> None:
        self.asked.append((params, reply))

    def connection_lost(self, connection: ClientConnection, error: HoldfastError) -> None:
        self.lost.append((connection, error))


class Stage:
    def __init__(self) -> None:
        self.owner = FakeOwner()
        self.link = FakeLink()
        self.connection = ClientConnection(self.owner, 1)
        self.connection.on_open(self.link)

    async def call(self, method: str, params: object = None, **more: Any) -> "asyncio.Task[Any]":
        """A call that has had its chance to be sent."""
        task = asyncio.ensure_future(self.connection.call(method, params, **more))
        await self.settle()
        return task

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    def receive(self, message: object) -> None:
        self.connection.on_message(json.dumps(message).encode())


async def test_answers_find_their_calls_in_any_order() -> None:
    stage = Stage()
    calls = [await stage.call("environment/status") for _ in range(3)]
    assert [message["id"] for message in stage.link.sent] == [1, 2, 3]
    stage.receive({"id": 3, "result": "c"})
    stage.receive({"id": 1, "result": "a"})
    stage.receive({"id": 2, "error": {"code": -32004, "message": "gone"}})
    assert (await calls[0], await calls[2]) == ("a", "c")
    with pytest.raises(NotFound):
        await calls[1]


async def test_a_call_that_was_given_up_is_forgotten_and_its_late_answer_ignored() -> None:
    stage = Stage()
    with pytest.raises(TimeoutError):
        await stage.connection.call("environment/info", None, timeout_s=0)
    waiting = await stage.call("environment/info")
    waiting.cancel()
    await stage.settle()
    for number in range(1, stage.link.sent[-1]["id"] + 1):
        stage.receive({"id": number, "result": None})
    assert stage.connection.lost is None
    assert stage.link.aborted is None


async def test_calls_beyond_the_bound_wait_and_those_that_clean_up_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_CALLS", 2)
    stage = Stage()
    calls = [await stage.call("fs/getMetadata") for _ in range(4)]
    assert len(stage.link.sent) == 2
    cleaning = await stage.call("process/terminate", cleanup=True)
    assert [message["method"] for message in stage.link.sent[2:]] == ["process/terminate"]
    answered: set[int] = set()
    for _ in range(4):
        for message in list(stage.link.sent):
            if message["id"] not in answered:
                answered.add(message["id"])
                stage.receive({"id": message["id"], "result": "done"})
        await stage.settle()
    assert [await call for call in (*calls, cleaning)] == ["done"] * 5


async def test_a_call_waits_until_the_link_takes_more() -> None:
    stage = Stage()
    stage.connection.on_writable(False)
    waiting = await stage.call("fs/writeFile")
    assert stage.link.sent == []
    stage.connection.on_writable(True)
    await stage.settle()
    assert len(stage.link.sent) == 1
    stage.receive({"id": 1, "result": None})
    await waiting


async def test_a_lost_link_fails_what_was_under_way_and_says_that_it_may_have_happened() -> None:
    stage = Stage()
    calls = [await stage.call("fs/remove"), await stage.call("process/start")]
    stage.connection.on_end(ConnectionLost("reset"))
    for call in calls:
        with pytest.raises(ConnectionLost, match="may or may not have happened"):
            await call
    assert [error for _, error in stage.owner.lost] == [stage.connection.lost]
    with pytest.raises(ConnectionLost, match="was not sent"):
        await stage.connection.call("fs/remove", None)


async def test_an_answer_before_the_end_wins() -> None:
    stage = Stage()
    call = await stage.call("fs/remove")
    stage.receive({"id": 1, "result": "done"})
    stage.connection.on_end(ConnectionLost("reset"))
    assert await call == "done"


async def test_events_and_notes_go_to_the_owner() -> None:
    stage = Stage()
    stage.receive({"method": "process/closed", "params": {"processId": "p1", "seq": 3}})
    stage.connection.on_message(b'{"method":"process/closed","params":{"processId":"p1","seq":4}}')
    stage.receive({"method": "fs/missingChanged", "params": {"watchId": "w"}})
    assert stage.owner.taken == [Pushed("p1", Closed(3)), Pushed("p1", Closed(4))]
    assert stage.owner.notes == [("fs/missingChanged", {"watchId": "w"})]


async def test_a_question_goes_to_the_owner_and_its_answer_back() -> None:
    stage = Stage()
    for number in (1, 2, 3):
        stage.receive({"id": number, "method": "network/policyRequest", "params": {"n": number}})
    stage.receive({"id": "x", "method": "something/else"})
    (one, first), (_, second), (_, third) = stage.owner.asked
    assert one == {"n": 1}
    second(ALLOWED)
    first(DENIED)
    third(None)
    unknown, *answers = stage.link.sent
    assert (unknown["id"], unknown["error"]["code"]) == ("x", -32601)
    assert answers[:2] == [
        {"id": 2, "result": {"decision": {"type": "allow"}}},
        {"id": 1, "result": {"decision": {"type": "deny", "reason": "not_allowed"}}},
    ]
    assert (answers[2]["id"], answers[2]["error"]["code"]) == (3, -32602)


async def test_an_answer_after_the_link_is_sent_to_nobody() -> None:
    stage = Stage()
    stage.receive({"id": 1, "method": "network/policyRequest", "params": {}})
    stage.connection.on_end(ConnectionLost("reset"))
    [(_, reply)] = stage.owner.asked
    reply(ALLOWED)
    assert stage.link.sent == []


@pytest.mark.parametrize("number", ["1", 0, -1, 7])
async def test_a_question_has_a_number_that_no_other_has(number: object) -> None:
    stage = Stage()
    stage.receive({"id": 7, "method": "network/policyRequest"})
    with pytest.raises(RemoteProtocolError):
        stage.receive({"id": number, "method": "network/policyRequest"})


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "result": None},
        {"id": "1", "result": None},
        {"id": -1, "error": {"code": -32600, "message": "what?"}},
        {"id": 1},
        [],
        {"method": "process/exited", "params": {}},
    ],
)
async def test_what_makes_no_sense_is_refused(message: object) -> None:
    with pytest.raises(RemoteProtocolError):
        Stage().receive(message)


async def test_a_server_that_asks_and_reads_no_answers_is_left() -> None:
    stage = Stage()
    for number in range(1, 3000):
        stage.receive({"id": number, "method": "who/are/you"})
    assert len(stage.link.sent) == 2999
    stage.connection.on_writable(False)
    for number in range(3000, 6000):
        stage.receive({"id": number, "method": "who/are/you"})
    assert len(stage.link.sent) < 4100
    assert isinstance(stage.link.aborted, ConnectionLost)


async def test_an_answer_that_the_link_is_dead_ends_the_link() -> None:
    stage = Stage()
    call = await stage.call("fs/remove")
    stage.receive({"id": 1, "error": {"code": -32000, "message": "JSON-RPC transport closed"}})
    with pytest.raises(ConnectionLost):
        await call
    assert isinstance(stage.link.aborted, ConnectionLost)


async def test_a_message_nobody_would_take_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MAX_MESSAGE_BYTES", 100)
    stage = Stage()
    with pytest.raises(UsageError):
        await stage.connection.call("fs/writeFile", {"data": "x" * 100})
    assert stage.link.sent == []
