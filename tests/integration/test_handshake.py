"""Handshake, gates, sessions, ordering and lanes, over a real connection."""

import asyncio
import json

import pytest
from websockets.exceptions import ConnectionClosed

from holdfast.server import executor
from holdfast.server.executor import Clocks
from holdfast.wire.methods import METHODS
from tests.support.patience import patient
from tests.support.peer import Peer, Refused, connected, ready, serving
from tests.support.tiers import both_loops

__all__ = ["both_loops"]

SLEEPER = {"argv": ["/bin/sleep", "60"], "cwd": "file:///tmp", "env": {}, "tty": False}


async def test_initialize_answers_with_a_session_and_what_this_executor_is() -> None:
    async with serving() as (url, _), connected(url) as peer:
        result = await peer.initialize()
        assert result["sessionId"]
        info = result["environmentInfo"]
        assert info == await peer.call("environment/info")
        assert info["shell"]["path"].startswith("/")
        assert info["cwd"].startswith("file:///")
        assert info["platformOs"] == "linux"
        assert info["capabilities"]["fileWriteStreaming"] is True
        assert info["capabilities"]["networkProxyLaunch"] is True
        assert await peer.call("environment/status", {}) == {"status": "ready"}


@pytest.mark.parametrize("params", [None, {}])
async def test_a_method_without_parameters_takes_null_and_the_empty_object(params: object) -> None:
    async with serving() as (url, _), ready(url) as peer:
        assert await peer.call("environment/status", params) == {"status": "ready"}


@pytest.mark.parametrize("params", [{"x": 1}, [], "x", 1])
async def test_a_method_without_parameters_refuses_any(params: object) -> None:
    async with serving() as (url, _), ready(url) as peer:
        with pytest.raises(Refused) as refused:
            await peer.call("environment/status", params)
        assert refused.value.code == -32602


async def test_nothing_but_initialize_works_before_the_handshake_is_complete() -> None:
    sample = {"processId": "p"}
    async with serving() as (url, _), connected(url) as peer:
        for _ in ("no initialize", "no initialized"):
            for method in ("process/terminate", "process/read"):
                with pytest.raises(Refused) as refused:
                    await peer.call(method, sample)
                assert refused.value.code == -32600
            with pytest.raises(Refused) as undecodable:
                await peer.call("process/terminate", {})
            assert undecodable.value.code == -32602  # decoding comes before the gate
            if not peer.session_id:
                peer.session_id = (await peer.call("initialize", {"clientName": "x"}))["sessionId"]
        with pytest.raises(Refused) as twice:
            await peer.call("initialize", {"clientName": "x"})
        assert twice.value.code == -32600
        await peer.tell("initialized", None)
        await peer.tell("initialized", ["again", "with anything"])
        assert await peer.call("process/terminate", sample) == {"running": False}


async def test_every_method_of_the_table_has_a_handler() -> None:
    async with serving() as (url, _), ready(url) as peer:
        for method in METHODS:
            with pytest.raises(Refused) as refused:
                await peer.call(method, {"definitely": "wrong"})
            assert refused.value.code in (-32602, -32600), method
        with pytest.raises(Refused) as unknown:
            await peer.call("no/such")
        assert unknown.value.code == -32601


async def test_malformed_messages_are_answered_with_minus_one_and_the_connection_lives() -> None:
    bad = [
        "{",
        "[]",
        "3",
        '{"id":1}',
        '{"id":1.0,"method":"x"}',
        '{"id":null,"method":"x"}',
        "",
        '{"a":1,"a":2}',
    ]
    async with serving() as (url, _), ready(url) as peer:
        for text in bad:
            await peer.send(text)
            with pytest.raises(Refused) as refused:
                await peer.answer(-1)
            assert refused.value.code == -32600
        await peer.send(b'{"id":"bin","method":"environment/status"}')
        assert await peer.answer("bin") == {"status": "ready"}


@pytest.mark.parametrize(
    "message",
    [
        {"method": "surprise"},
        {"id": 77, "result": {}},
        {"id": 77, "error": {"code": 1, "message": "x"}},
    ],
)
async def test_a_broken_protocol_drops_the_connection_but_not_the_session(message: object) -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "sleep 60")
        await peer.send(message)
        with pytest.raises((ConnectionError, ConnectionClosed)):
            await peer.until(lambda: False)
        async with connected(url) as again:
            await again.initialize(resume=peer.session_id)
            assert await again.call("process/terminate", {"processId": "p"}) == {"running": True}


async def test_initialized_before_initialize_drops_the_connection() -> None:
    async with serving() as (url, _), connected(url) as peer:
        await peer.tell("initialized", {})
        with pytest.raises((ConnectionError, ConnectionClosed)):
            await peer.until(lambda: False)


async def test_an_attached_session_cannot_be_taken_and_the_client_may_try_again() -> None:
    async with serving() as (url, _), ready(url) as owner, connected(url) as thief:
        for session, code in ((owner.session_id, -32010), ("nobody", -32600)):
            with pytest.raises(Refused) as refused:
                await thief.initialize(resume=session)
            assert refused.value.code == code
        await thief.initialize()
        assert thief.session_id != owner.session_id


async def test_a_session_whose_link_ends_a_moment_later_is_resumed_and_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine a server comes to the new link before it comes to the end of the old one."""
    monkeypatch.setattr(executor, "LEFT_S", patient(30.0))
    async with serving() as (url, _), connected(url) as old, connected(url) as new:
        await old.initialize()
        asked = await new.ask("initialize", {"clientName": "test", "resumeSessionId": old.session_id})
        await asyncio.sleep(0.05)
        assert asked not in new.answers
        old.link.transport.abort()
        assert (await new.answer(asked))["sessionId"] == old.session_id


async def test_of_two_resumes_exactly_one_wins() -> None:
    async with serving() as (url, _):
        async with ready(url) as peer:
            session = peer.session_id
        async with connected(url) as one, connected(url) as two:
            await asyncio.sleep(0)
            results = await asyncio.gather(
                one.initialize(resume=session), two.initialize(resume=session), return_exceptions=True
            )
            assert sorted(type(result).__name__ for result in results) == ["Refused", "dict"]


async def test_resume_does_not_wait_for_a_long_poll_of_the_dropped_connection() -> None:
    async with serving() as (url, _), connected(url) as old:
        await old.initialize()
        await old.call("process/start", {"processId": "p", **SLEEPER})
        await old.ask("process/read", {"processId": "p", "waitMs": 600_000})
        old.link.transport.abort()
        async with connected(url) as new:
            await _resume(new, old.session_id)
            assert (await new.call("process/read", {"processId": "p"}))["exited"] is False


async def _resume(peer: Peer, session: str) -> None:
    """As a client does: again while the server has not noticed the loss."""
    async with asyncio.timeout(patient(20)):
        while True:
            try:
                await peer.initialize(resume=session)
                return
            except Refused as refused:
                assert refused.code == -32010


async def test_an_expired_session_is_unknown() -> None:
    async with serving(clocks=Clocks(detached_s=0.05)) as (url, executor):
        async with ready(url) as peer:
            session = peer.session_id
        async with asyncio.timeout(patient(20)):
            while len(executor.sessions):
                await asyncio.sleep(0.01)
        async with connected(url) as again:
            with pytest.raises(Refused) as refused:
                await again.initialize(resume=session)
            assert refused.value.code == -32600


async def test_by_default_requests_are_answered_strictly_in_order() -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.call("process/start", {"processId": "p", **SLEEPER})
        slow = await peer.ask("process/read", {"processId": "p", "waitMs": 150})
        quick = await peer.ask("environment/status")
        await peer.answer(quick)
        assert slow in peer.answers


async def test_control_requests_pass_while_every_ordinary_slot_is_taken() -> None:
    async with serving(slots=2) as (url, _), ready(url) as peer:
        await peer.call("process/start", {"processId": "p", **SLEEPER})
        polls = [await peer.ask("process/read", {"processId": "p", "waitMs": 600_000}) for _ in range(6)]
        assert await peer.call("environment/status") == {"status": "ready"}
        assert await peer.call("fs/close", {"handleId": "x"}) == {}
        with pytest.raises(Refused):
            await peer.call("no/such")
        assert not set(polls) & set(peer.answers)
        assert await peer.call("process/terminate", {"processId": "p"}) == {"running": True}
        for poll in polls:
            assert (await peer.answer(poll))["exited"] is True


async def test_ids_come_back_with_their_type() -> None:
    async with serving() as (url, _), ready(url) as peer:
        for id_ in ("", "7", -5, 2**63 - 1):
            await peer.send(json.dumps({"id": id_, "method": "environment/status"}))
            assert await peer.answer(id_) == {"status": "ready"}


async def test_a_traceparent_is_accepted_and_nonsense_in_it_ignored() -> None:
    async with serving() as (url, _), ready(url) as peer:
        for trace in (
            None,
            {},
            {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"},
            {"traceparent": "?"},
        ):
            await peer.send({"id": "t", "method": "environment/status", "trace": trace})
            assert await peer.answer("t") == {"status": "ready"}
        await peer.send({"id": "t", "method": "environment/status", "trace": "text"})
        with pytest.raises(Refused):
            await peer.answer(-1)
