"""A relay's registry and rendezvous, with peers that speak byte by byte."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.board.database.database import Transaction
from holdfast.relay import sockets
from holdfast.relay import store as verbs
from holdfast.relay.rules.access import Role
from holdfast.wire import relayframes
from holdfast.wire.relayframes import Body
from tests.support.patience import patient
from tests.support.rawrelay import (
    LIMIT_S,
    RelayUnderTest,
    dial,
    ended,
    key,
    receive,
    refused,
    relay_under_test,
)


@pytest.fixture
async def relay(address: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RelayUnderTest]:
    """On SQLite and on PostgreSQL."""
    async with relay_under_test(address, monkeypatch) as running:
        yield running


@pytest.fixture
async def lone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RelayUnderTest]:
    """On SQLite alone, for what the database has no part in."""
    async with relay_under_test(str(tmp_path / "relay.db"), monkeypatch) as running:
        yield running


async def test_frames_pass_unchanged_both_ways_and_a_lost_harness_is_told_to_its_executor(
    relay: RelayUnderTest,
) -> None:
    token = relay.add_token("both")
    async with (
        relay.executor(token) as executor,
        relay.harness(token, "s1") as one,
        relay.harness(token, "s2") as two,
    ):
        claims = [await receive(executor), await receive(executor)]
        assert sorted((frame.stream_id, frame.body) for frame in claims) == [
            ("s1", Body.RESUME),
            ("s2", Body.RESUME),
        ]
        record = relayframes.data("s1", 0, os.urandom(61_456))
        await one.send(record)
        assert await executor.recv() == record
        for stream, harness in (("s2", two), ("s1", one)):
            back = relayframes.data(stream, 7, os.urandom(100), "trace", "")
            await executor.send(back)
            assert await harness.recv() == back
        two.transport.abort()
        farewell = await receive(executor)
        assert (farewell.stream_id, farewell.body, bool(farewell.reason)) == ("s2", Body.RESET, True)
        await one.send(record)
        assert await executor.recv() == record


async def test_a_lost_executor_ends_its_harnesses_and_is_offline(relay: RelayUnderTest) -> None:
    token = relay.add_token("both")
    assert (await relay.connect(token)).code == "environment_offline"
    async with relay.executor(token) as executor, relay.harness(token, "s1") as harness:
        executor.transport.abort()
        await ended(harness)
    async with asyncio.timeout(LIMIT_S):
        while (offline := await relay.connect(token)).status == 200:
            await asyncio.sleep(0.01)
    assert (offline.status, offline.code) == (409, "environment_offline")


async def test_an_authorization_is_for_one_key_one_registration_and_one_time(relay: RelayUnderTest) -> None:
    token, other = relay.add_token("both"), relay.add_token("other", tenant="u")
    async with relay.executor(token), relay.executor(token, "second", "f"):
        bundle = (await relay.connect(token)).body
        elsewhere = (await relay.connect(token, "second")).body
        right = {
            "executor_registration_id": bundle["executor_registration_id"],
            "harness_public_key": key("h"),
            "harness_key_authorization": bundle["harness_key_authorization"],
        }
        assert bundle["executor_public_key"] == key("e")
        assert len(bundle["harness_key_authorization"].encode()) <= 4096

        async def valid(environment: str = "box", with_token: str = token, **changed: object) -> object:
            reply = await relay.operate("validate", environment, with_token, **{**right, **changed})
            return reply.body["valid"]

        assert not await valid(harness_public_key=key("i"))
        assert not await valid(executor_registration_id=elsewhere["executor_registration_id"])
        assert not await valid(harness_key_authorization=elsewhere["harness_key_authorization"])
        assert not await valid(harness_key_authorization="")
        assert not await valid(environment="second")
        assert not await valid(with_token=other)
        assert await valid()
        assert not await valid()


async def test_a_bundle_opens_one_socket_and_only_before_it_expires(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = relay.add_token("both")
    async with relay.executor(token):
        bundle = (await relay.connect(token)).body
        async with dial(bundle["url"]):
            assert await refused(bundle["url"]) == (401, "expired")
        monkeypatch.setattr(verbs, "HARNESS_S", -1)
        late = (await relay.connect(token)).body
        assert await refused(late["url"]) == (401, "expired")
        reply = await relay.operate(
            "validate",
            "box",
            token,
            executor_registration_id=late["executor_registration_id"],
            harness_public_key=key("h"),
            harness_key_authorization=late["harness_key_authorization"],
        )
        assert reply.body == {"valid": False}


async def test_an_executor_that_registers_again_keeps_its_registration_and_another_replaces_it(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = relay.add_token("both")
    first = (await relay.register(token)).body
    assert (await relay.register(token)).body["executor_registration_id"] == first["executor_registration_id"]
    async with (
        dial(first["url"]) as old,
        relay.harness(token, "s1") as harness,
        dial(first["url"]) as again,
    ):  # a newer socket of the same executor
        await ended(old)
        await ended(harness)
        second = (await relay.register(token, letter="f")).body
        assert second["executor_registration_id"] != first["executor_registration_id"]
        await ended(again)
    assert (await relay.connect(token)).code == "environment_offline"
    assert await refused(first["url"]) == (503, "route_unavailable")  # it waits for the newer one to dial
    async with dial(second["url"]):
        assert (await relay.connect(token)).body["executor_public_key"] == key("f")
        monkeypatch.setattr(verbs, "TAKEOVER_MS", -1)
        assert await refused(first["url"]) == (503, "route_unavailable")  # as long as the newer one is there


async def test_a_replaced_executor_takes_over_again_when_the_newer_one_is_gone(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = relay.add_token("both")
    first = (await relay.register(token)).body
    await relay.register(token, letter="f")
    monkeypatch.setattr(verbs, "TAKEOVER_MS", -1)
    assert await refused(first["url"]) == (401, "unexpected_executor_registration_id")


async def test_the_newest_socket_of_an_executor_stays_whatever_the_store_says_first(
    lone: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer about the older one comes after that about the newer one, which is at work by then."""
    token = lone.add_token("both")
    attached, newer_is_there = asyncio.Event(), asyncio.Event()
    write = lone.node._store.write

    async def late(verb: Any, *args: Any) -> Any:
        answer = await write(verb, *args)
        if verb is verbs.attach and not attached.is_set():
            attached.set()
            await newer_is_there.wait()
        return answer

    monkeypatch.setattr(lone.node._store, "write", late)
    url = (await lone.register(token)).body["url"]
    older = asyncio.create_task(refused(url))
    async with asyncio.timeout(LIMIT_S):
        await attached.wait()
        async with dial(url) as newer, lone.harness(token, "s1"):
            assert (await receive(newer)).stream_id == "s1"
            newer_is_there.set()
            assert await older == (503, "route_unavailable")
            assert await newer.ping()
            assert (await lone.connect(token)).status == 200


async def test_a_revoked_token_ends_what_it_opened_and_nothing_else(relay: RelayUnderTest) -> None:
    executor_token = relay.add_token("box", Role.EXECUTOR)
    ann, bob = relay.add_token("ann", Role.HARNESS), relay.add_token("bob", Role.HARNESS)
    async with (
        relay.executor(executor_token) as executor,
        relay.harness(ann, "s1") as hers,
        relay.harness(bob, "s2") as his,
    ):
        bundle = (await relay.connect(ann)).body
        relay.change(lambda tx: verbs.revoke_token(tx, "ann"))
        await ended(hers)
        assert (await relay.connect(ann)).status == 401
        assert await refused(bundle["url"]) == (401, "expired")
        assert await his.ping()
        relay.change(lambda tx: verbs.revoke_token(tx, "box"))
        await ended(executor)
        await ended(his)
    assert (await relay.register(executor_token)).status == 401


async def test_a_token_that_expires_ends_what_it_opened(relay: RelayUnderTest) -> None:
    lasting, brief = relay.add_token("box", Role.EXECUTOR), relay.add_token("ann", expires_ms=60_000)
    async with relay.executor(lasting) as executor, relay.harness(brief, "s1") as harness:
        relay.change(lambda tx: tx.select("UPDATE relay_tokens SET expires_ms = 1 WHERE name = 'ann'", {}))
        assert (await relay.connect(brief)).status == 401
        relay.change(verbs.tidy)
        await ended(harness)
        assert await executor.ping()
    tokens, now_ms = relay.change(verbs.list_tokens)
    assert [(one.name, one.state(now_ms)) for one in tokens] == [("ann", "expired"), ("box", "valid")]


async def test_what_nobody_uses_any_more_is_forgotten(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = relay.add_token("both")
    monkeypatch.setattr(verbs, "UNUSED_MS", -1)
    url = (await relay.register(token, "unused")).body["url"]
    async with relay.executor(token, "used"):
        monkeypatch.setattr(verbs, "HARNESS_S", -1)
        await relay.connect(token, "used")
        relay.change(verbs.tidy)
        assert [one.id for one in relay.change(verbs.list_environments)] == ["used"]
        assert relay.change(lambda tx: tx.select("SELECT id FROM relay_authorizations", {})) == []
    assert await refused(url) == (401, "unknown_route")


async def test_tenants_never_meet(relay: RelayUnderTest) -> None:
    one, two = relay.add_token("a", tenant="one"), relay.add_token("a", tenant="two")
    async with relay.executor(one, letter="e"):
        assert (await relay.connect(two)).code == "environment_offline"
        async with relay.executor(two, letter="f"):
            assert (await relay.connect(one)).body["executor_public_key"] == key("e")
            assert (await relay.connect(two)).body["executor_public_key"] == key("f")


async def test_two_nodes_of_one_store_hand_out_each_others_address_and_only_one_holds_an_executor(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = relay.add_token("both")
    async with relay_under_test(relay.store, monkeypatch) as other, relay.executor(token) as executor:
        asked_there = (await other.connect(token)).body["url"]
        assert asked_there.startswith(relay.url.replace("http", "ws"))
        async with dial(asked_there) as harness:
            await harness.send(relayframes.resume("s1"))
            assert (await receive(executor)).stream_id == "s1"
            url = (await other.register(token)).body["url"]
            async with dial(url):  # the same executor, now at the other node
                await ended(executor)
                await ended(harness)
                moved = (await relay.connect(token)).body["url"]
                assert moved.startswith(other.url.replace("http", "ws"))
                assert await refused(moved.replace(other.url[4:], relay.url[4:])) == (
                    401,
                    "route_unavailable",
                )
    assert [one.node_url for one in relay.change(verbs.list_environments)] == [None]


async def test_a_node_that_is_not_heard_of_holds_nothing(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = relay.add_token("both")
    async with relay.executor(token):
        assert (await relay.connect(token)).status == 200
        monkeypatch.setattr(verbs, "LEASE_MS", -1)
        async with asyncio.timeout(LIMIT_S):
            while (await relay.connect(token)).status == 200:
                await asyncio.sleep(0.01)


async def test_a_revocation_finds_a_node_that_was_not_heard_of(
    relay: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut off from the store: it hears of it when it comes back."""
    executor_token, ann = relay.add_token("box", Role.EXECUTOR), relay.add_token("ann", Role.HARNESS)
    async with relay.executor(executor_token) as executor, relay.harness(ann, "s1") as hers:
        monkeypatch.setattr(verbs, "LEASE_MS", -1)
        async with asyncio.timeout(LIMIT_S):
            while (await relay.connect(ann)).status == 200:
                await asyncio.sleep(0.01)
        relay.change(lambda tx: verbs.revoke_token(tx, "ann"))
        await ended(hers)
        assert await executor.ping()


async def test_a_node_that_was_forgotten_lets_go_of_all_that_it_has(relay: RelayUnderTest) -> None:
    """Whatever was revoked meanwhile, nobody could leave it word of that."""
    token, ann = relay.add_token("box"), relay.add_token("ann", Role.HARNESS)

    def forget(tx: Transaction) -> None:
        verbs.leave(tx, relay.node._id)
        verbs.revoke_token(tx, "ann")

    async with relay.executor(token) as executor, relay.harness(ann, "s1") as hers:
        relay.change(forget)
        await ended(hers)
        await ended(executor)
    async with relay.executor(token):  # it is a node like any other again
        assert (await relay.connect(token)).status == 200


REGISTER = "/cloud/environment/box/register"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 5000, 400),
        (f"POST {REGISTER} HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n".encode(), 413),
        (f"POST {REGISTER} HTTP/1.1\r\ncontent-length: -1\r\n\r\n".encode(), 411),
        (f"POST {REGISTER} HTTP/1.1\r\n\r\n".encode(), 411),
        (f"POST {REGISTER} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n".encode(), 411),
        (f"POST {REGISTER} HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{{}}".encode(), 411),
        (f"POST {REGISTER} HTTP/1.1\r\ncontent-length: 2\r\n\r\n{{}}".encode(), 401),
        (f"POST {REGISTER} HTTP/1.1\r\norigin: http://x\r\ncontent-length: 2\r\n\r\n{{}}".encode(), 403),
        (f"GET {REGISTER} HTTP/1.1\r\n\r\n".encode(), 404),
        (b"POST /cloud/environment/box/direct/register HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}", 404),
        (b"GET /ws/environment/box?v=1 HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 404),
    ],
    ids=lambda value: repr(value)[:60],
)
async def test_every_request_has_an_answer(lone: RelayUnderTest, raw: bytes, status: int) -> None:
    assert (await lone.ask("", raw=raw)).status == status


async def test_registrations_and_meetings_are_counted_with_what_became_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with relay_under_test(str(tmp_path / "relay.db"), monkeypatch, metrics=True) as relay:
        token = relay.add_token("both")
        assert (await relay.connect(token)).code == "environment_offline"
        async with relay.executor(token), relay.harness(token, "s1"):
            address = (await relay.connect(token)).body["url"]
            assert await refused(f"{address[:-1]}!") == (401, "invalid_signature")
            page = (await asyncio.to_thread(httpx2.get, f"{relay.url}/metrics", trust_env=False)).text
    for line in (
        'registry_seconds_count{operation="register",status="200"} 1.0',
        'registry_seconds_count{operation="connect",status="409"} 1.0',
        'registry_seconds_count{operation="connect",status="200"} 2.0',
        'rendezvous_total{result="success",role="executor"} 1.0',
        'rendezvous_total{result="success",role="harness"} 1.0',
        'rendezvous_total{result="invalid_signature",role="unknown"} 1.0',
    ):
        assert f"holdfast_relay_{line}\n" in page


async def test_a_token_does_what_it_is_for(lone: RelayUnderTest) -> None:
    executor = lone.add_token("e", Role.EXECUTOR, environments=("box", "b-*"))
    harness = lone.add_token("h", Role.HARNESS)
    stale = lone.add_token("old", expires_ms=-1)
    assert (await lone.register(executor)).status == 200
    assert (await lone.register(executor, "b-1")).status == 200
    assert (await lone.register(executor, "other")).code == "forbidden"
    assert (await lone.register(harness)).code == "forbidden"
    assert (await lone.connect(executor)).code == "forbidden"
    assert (await lone.register(stale)).code == "unauthorized"
    body = {"security_profile": "other", "executor_public_key": key("e")}
    assert (await lone.operate("register", "box", executor, **body)).code == "bad_request"


async def test_a_harness_that_breaks_the_rules_is_cut_off_and_others_go_on(lone: RelayUnderTest) -> None:
    token = lone.add_token("both")
    async with lone.executor(token) as executor, lone.harness(token, "good") as good:
        assert (await receive(executor)).stream_id == "good"
        faults: list[bytes | str] = [
            b"\xff\xff",
            "text",
            relayframes.data("bad", 0, b"x"),
            relayframes.resume("good"),
            relayframes.resume("bad") + b"\x00" * relayframes.MAX_FRAME_BYTES,
        ]
        for fault in faults:
            async with dial((await lone.connect(token)).body["url"]) as bad:
                await bad.send(fault)
                await ended(bad)
        async with lone.harness(token, "bad") as bad:
            assert (await receive(executor)).stream_id == "bad"
            await bad.send(relayframes.data("good", 0, b"forged"))
            await ended(bad)
        assert (await receive(executor)).body is Body.RESET
        await good.send(relayframes.data("good", 0, b"real"))
        assert (await receive(executor)).payload == b"real"


async def test_an_executor_that_sends_what_is_no_frame_keeps_its_streams(lone: RelayUnderTest) -> None:
    token = lone.add_token("both")
    async with lone.executor(token) as executor, lone.harness(token, "s1") as harness:
        await receive(executor)
        for fault in (b"", b"\xff", relayframes.data("nobody", 0, b"x"), relayframes.data("s1", 0, b"x")):
            await executor.send(fault)
        assert (await receive(harness)).payload == b"x"
        await executor.send(b"\x00" * (relayframes.MAX_FRAME_BYTES + 1))
        await ended(executor)
        await ended(harness)


async def test_a_message_in_parts_is_one_frame(lone: RelayUnderTest) -> None:
    token = lone.add_token("both")
    frame = relayframes.data("s1", 0, os.urandom(1000))
    async with lone.executor(token) as executor, lone.harness(token, "s1") as harness:
        await receive(executor)
        await harness.send([frame[:10], frame[10:500], frame[500:]])
        assert await executor.recv() == frame
        await harness.send([b"x"] * 100)
        await ended(harness)


async def test_a_slow_reader_is_cut_off_and_holds_up_nobody(
    lone: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "HARD_BYTES", 2 * 1024 * 1024)
    token = lone.add_token("both")
    block = os.urandom(60_000)
    async with (
        lone.executor(token) as executor,
        lone.harness(token, "quick") as quick,
        lone.harness(token, "slow") as slow,
    ):
        await receive(executor), await receive(executor)
        slow.transport.pause_reading()
        told = asyncio.create_task(_until_reset(executor, "slow"))
        seq = 0
        while not told.done():
            await executor.send(relayframes.data("slow", seq, block))
            await executor.send(relayframes.data("quick", seq, b"on time"))
            assert (await receive(quick)).seq == seq
            seq += 1
        assert 17 < seq < 1000  # a mebibyte is no reason yet; more is only what the kernel holds
        slow.transport.resume_reading()
        slow.transport.abort()


async def _until_reset(executor: object, stream: str) -> None:
    while True:
        frame = await receive(executor)  # type: ignore[arg-type]
        if (frame.stream_id, frame.body) == (stream, Body.RESET):
            return


async def test_an_only_reader_slows_its_executor_down_and_loses_nothing(lone: RelayUnderTest) -> None:
    """With nobody else to hold up, what is sent waits at the sender."""
    token, count = lone.add_token("both"), 600
    block = b"x" * 60_000  # 36 MB: more than anything on the way holds
    async with lone.executor(token) as executor, lone.harness(token, "slow") as slow:
        await receive(executor)
        slow.transport.pause_reading()

        async def send() -> None:
            for seq in range(count):
                await executor.send(relayframes.data("slow", seq, block))

        sending = asyncio.create_task(send())
        done, _ = await asyncio.wait([sending], timeout=patient(1.0))
        assert not done
        slow.transport.resume_reading()
        assert [(await receive(slow)).seq for _ in range(count)] == list(range(count))
        await sending


async def test_a_slow_executor_slows_its_harnesses_down_and_loses_nothing(lone: RelayUnderTest) -> None:
    token, count = lone.add_token("both"), 600
    block = b"x" * 60_000
    async with lone.executor(token) as executor, lone.harness(token, "s1") as harness:
        await receive(executor)
        executor.transport.pause_reading()

        async def send() -> None:
            for seq in range(count):
                await harness.send(relayframes.data("s1", seq, block))

        sending = asyncio.create_task(send())
        done, _ = await asyncio.wait([sending], timeout=patient(1.0))
        assert not done
        executor.transport.resume_reading()
        assert [(await receive(executor)).seq for _ in range(count)] == list(range(count))
        await sending


async def test_who_is_silent_is_pinged_and_then_gone(
    lone: RelayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = lone.add_token("both")
    url = (await lone.register(token)).body["url"]
    host, _, port = lone.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    target = url.partition(host + ":" + port)[2]
    upgrade = f"GET {target} HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    writer.write(f"{upgrade}sec-websocket-version: 13\r\nsec-websocket-key: {'A' * 22}==\r\n\r\n".encode())
    async with asyncio.timeout(LIMIT_S):
        await reader.readuntil(b"\r\n\r\n")
        [connection] = lone.node._sockets
        connection.check(connection.heard + sockets.PING_S + 1)
        assert await reader.readexactly(2) == b"\x89\x00"
        connection.check(connection.heard + sockets.SILENT_S + 1)
        assert await reader.read() == b""
    writer.close()


async def test_many_streams_share_one_executor(lone: RelayUnderTest) -> None:
    token, streams = lone.add_token("both"), [f"s{number}" for number in range(60)]
    async with lone.executor(token) as executor:

        async def talk(stream: str) -> None:
            async with lone.harness(token, stream) as harness:
                for seq in range(20):
                    await harness.send(relayframes.data(stream, seq, stream.encode()))
                    assert (await receive(harness)).seq == seq

        async def echo() -> None:
            while True:
                frame = await receive(executor)
                if frame.body is Body.DATA:
                    assert frame.payload == frame.stream_id.encode()
                    await executor.send(relayframes.data(frame.stream_id, frame.seq, frame.payload))

        echoing = asyncio.create_task(echo())
        await asyncio.gather(*map(talk, streams))
        echoing.cancel()


async def test_the_store_keeps_no_secret_but_the_signing_key_and_is_its_owners_alone(
    lone: RelayUnderTest,
) -> None:
    token = lone.add_token("both")
    async with lone.executor(token):
        bundle = (await lone.connect(token)).body
        assert stat.S_IMODE(os.stat(lone.store).st_mode) == 0o600
        kept = b"".join(path.read_bytes() for path in Path(lone.store).parent.glob("r*"))
        assert json.dumps(token).encode()[1:-1] not in kept
        assert bundle["harness_key_authorization"].encode() not in kept
