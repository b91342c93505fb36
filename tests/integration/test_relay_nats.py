"""Nodes of a relay behind one address: a harness comes to one, its executor is at another, NATS between."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import nats
import pytest
from websockets.asyncio.client import ClientConnection

from holdfast.client.environments import Environments
from holdfast.commands.relay import _plan_nats
from holdfast.errors import StartupError
from holdfast.relay import bridge, natsbus
from holdfast.relay import store as verbs
from holdfast.relay.natsbus import NatsOptions
from holdfast.relay.rules.access import Role
from holdfast.wire import relayframes
from holdfast.wire.relayframes import Body
from tests.integration.test_relay_command import make_certificate
from tests.support.natsservers import NatsServer, nats_server
from tests.support.patience import patient
from tests.support.rawrelay import LIMIT_S, RelayUnderTest, dial, ended, receive, refused, relay_under_test
from tests.support.relayservice import registering
from tests.support.tcp import tcp_server
from tests.support.tiers import DEEP


class Nodes(NamedTuple):
    """`near` is where the harness comes, `far` has the executor."""

    nats: NatsServer
    near: RelayUnderTest
    far: RelayUnderTest

    @contextlib.asynccontextmanager
    async def harness(self, token: str, stream: str) -> AsyncIterator[ClientConnection]:
        async with dial(await self.lead(token)) as socket:
            await socket.send(relayframes.resume(stream))
            yield socket

    async def lead(self, token: str) -> str:
        bundle = await self.near.connect(token)
        assert bundle.status == 200, bundle
        return str(bundle.body["url"])


@pytest.fixture
async def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Nodes]:
    """Both are found at the address of the first, as behind a load balancer that leads everybody there."""
    monkeypatch.setattr(bridge, "SILENT_S", patient(bridge.SILENT_S))
    monkeypatch.setattr(natsbus, "AGAIN_S", 0.02)
    store = str(tmp_path / "relay.db")
    async with nats_server() as server:
        options = NatsOptions((server.url,))
        async with (
            relay_under_test(store, monkeypatch, nats=options) as near,
            relay_under_test(store, monkeypatch, nats=options, node_url=near.url) as far,
        ):
            yield Nodes(server, near, far)


async def test_frames_cross_unchanged_and_each_end_hears_that_the_other_is_gone(nodes: Nodes) -> None:
    token = nodes.near.add_token("both")
    async with nodes.far.executor(token) as executor:
        async with nodes.harness(token, "s1") as one, nodes.harness(token, "s2") as two:
            assert {(await receive(executor)).stream_id for _ in range(2)} == {"s1", "s2"}
            record = relayframes.data("s1", 0, os.urandom(61_456))
            await one.send(record)
            assert await executor.recv() == record
            for stream, harness in (("s2", two), ("s1", one)):
                back = relayframes.data(stream, 7, os.urandom(100), "trace", "")
                await executor.send(back)
                assert await harness.recv() == back
            two.transport.abort()
            farewell = await receive(executor)
            assert (farewell.stream_id, farewell.body) == ("s2", Body.RESET)
            await one.send(relayframes.resume("s2"))  # a harness has one stream, wherever it is
            await ended(one)
            assert (await receive(executor)).body is Body.RESET
        async with nodes.harness(token, "s3") as three:
            assert (await receive(executor)).stream_id == "s3"
            executor.transport.abort()
            await ended(three)


async def test_a_bundle_opens_one_socket_at_whichever_node(nodes: Nodes) -> None:
    token = nodes.near.add_token("both")
    async with nodes.far.executor(token):
        url = await nodes.lead(token)
        there = url.replace(nodes.near.url[4:], nodes.far.url[4:])
        async with dial(url):
            assert [await refused(url), await refused(there)] == [(401, "expired")] * 2


async def test_a_revoked_token_ends_a_stream_that_crosses(nodes: Nodes) -> None:
    box = nodes.near.add_token("box", Role.EXECUTOR)
    ann, bob = nodes.near.add_token("ann", Role.HARNESS), nodes.near.add_token("bob", Role.HARNESS)
    async with (
        nodes.far.executor(box) as executor,
        nodes.harness(ann, "s1") as hers,
        nodes.harness(bob, "s2") as his,
    ):
        nodes.near.change(lambda tx: verbs.revoke_token(tx, "ann"))
        await ended(hers)
        assert await his.ping()
        nodes.near.change(lambda tx: verbs.revoke_token(tx, "box"))
        await ended(executor)
        await ended(his)


@pytest.mark.parametrize("slow", ["harness", pytest.param("executor", marks=DEEP)])
async def test_who_reads_slowly_slows_the_other_node_down_and_nothing_is_lost(
    nodes: Nodes, slow: str
) -> None:
    token, count = nodes.near.add_token("both"), 300
    block = b"x" * 60_000  # 18 MB: more than anything on the way holds
    async with nodes.far.executor(token) as executor, nodes.harness(token, "s1") as harness:
        await receive(executor)
        reader, writer = (harness, executor) if slow == "harness" else (executor, harness)
        reader.transport.pause_reading()

        async def send() -> None:
            for seq in range(count):
                await writer.send(relayframes.data("s1", seq, block))

        sending = asyncio.create_task(send())
        done, _ = await asyncio.wait([sending], timeout=patient(0.3))
        assert not done
        for node in (nodes.near.node, nodes.far.node):
            assert node._bus is not None
            assert node._bus._queued_bytes < 2 * 1024 * 1024
        reader.transport.resume_reading()
        assert [(await receive(reader)).seq for _ in range(count)] == list(range(count))
        await sending


async def test_a_node_that_goes_or_falls_silent_is_noticed(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = nodes.near.add_token("both")
    async with nodes.far.executor(token) as executor, nodes.harness(token, "s1") as harness:
        assert (await receive(executor)).stream_id == "s1"
        assert nodes.far.node._bridge is not None
        monkeypatch.setattr(nodes.far.node._bridge, "_bus", Deaf())  # as a node that was killed
        now = asyncio.get_running_loop().time
        assert nodes.near.node._bridge is not None
        nodes.near.node._bridge.check(now() + bridge.SILENT_S + 1)
        await ended(harness)


class Deaf:
    """A bus that takes everything and carries nothing."""

    is_up = True

    def publish(self, subject: str, data: bytes, reply: str = "") -> bool:
        return True


async def test_a_node_without_the_bus_is_not_waited_for(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = nodes.near.add_token("both")
    monkeypatch.setattr(bridge, "OPEN_S", LIMIT_S * 10)  # NATS says at once that nobody listens
    async with relay_under_test(nodes.near.store, monkeypatch) as third, third.executor(token):
        url = str((await nodes.near.connect(token)).body["url"])
        async with asyncio.timeout(LIMIT_S):
            assert await refused(url.replace(third.url[4:], nodes.near.url[4:])) == (401, "route_unavailable")


async def test_nobody_on_nats_reads_forges_or_does_more_than_cut(nodes: Nodes) -> None:
    token = nodes.near.add_token("both")
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        heard.append(message)

    listener = await nats.connect(nodes.nats.url)
    try:
        await listener.subscribe(">", cb=hear)
        await listener.flush()
        async with nodes.far.executor(token) as executor, nodes.harness(token, "s1") as harness:
            assert (await receive(executor)).stream_id == "s1"
            frame = relayframes.data("s1", 0, b"sealed by the ends")
            await harness.send(frame)
            assert await executor.recv() == frame
            await listener.flush()
            assert any(frame in message.data for message in heard), "the control: it went this way"
            for message in tuple(heard):
                await listener.publish(message.subject, message.data)  # again
                await listener.publish(message.subject, message.data[:-1] + b"\0")
                await listener.publish(message.subject, message.data[:9])
            await listener.flush()
            back = relayframes.data("s1", 1, b"answered")
            await executor.send(back)
            assert await harness.recv() == back
            again = relayframes.data("s1", 1, b"and again")
            await harness.send(again)
            assert await executor.recv() == again  # nothing came twice
            assert not any(token.encode() in message.data for message in heard)
    finally:
        await listener.close()
    assert nodes.far.node._bridge is not None
    assert nodes.far.node._bridge.foreign > 0


async def test_a_command_goes_on_while_nats_is_killed_and_started_again(nodes: Nodes, tmp_path: Path) -> None:
    """Both ends ours, the executor at the one node and the client at the other."""
    token = nodes.near.add_token("both")
    named = {
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": nodes.near.url,
        "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": "box",
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": token,
        "HOME": "/nonexistent",
    }
    async with (
        asyncio.timeout(LIMIT_S),
        registering(nodes.far.url, "box", token, seed=bytes(32)),
        Environments.load(environ=named) as environments,
    ):
        there = await environments.get()
        script = "echo begun; until test -e go; do sleep 0.05; done; head -c 500000 /dev/zero; exit 4"
        process = await there.start(["/bin/sh", "-c", script], cwd=tmp_path)
        await anext(aiter(process))
        assert [len(node.node._bridge or ()) for node in (nodes.near, nodes.far)] == [1, 1]
        await nodes.nats.kill()
        (tmp_path / "go").touch()
        await nodes.nats.start()
        result = await process.wait(max_output_bytes=2**22)
        assert (result.code, len(result.stdout)) == (4, 6 + 500_000)


async def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str | Path | None) -> None:
    """A node with what the command line says of NATS."""
    url, *files = words
    options = _plan_nats(str(url), *(None if file is None else Path(file) for file in files))
    async with relay_under_test(str(tmp_path / "r.db"), monkeypatch, nats=options) as node:
        assert node.node._bus is not None
        assert node.node._bus.is_up


async def test_nats_is_shown_credentials_over_tls_and_believed_only_with_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(natsbus, "CLOSE_S", 0.1)  # the library waits for the end of TLS that never began
    pem, right, wrong = make_certificate(tmp_path), tmp_path / "right", tmp_path / "wrong"
    right.write_text("me:secret\n", "utf-8")
    wrong.write_text("me:guess\n", "utf-8")
    served = ("--tls", "--tlscert", str(pem), "--tlskey", str(pem), "--user", "me", "--pass", "secret")
    async with nats_server(*served) as server:
        url = server.url.replace("nats:", "tls:")
        await begin(tmp_path, monkeypatch, url, right, pem, None)
        for credentials, trusted in ((wrong, pem), (right, None), (None, pem)):
            with pytest.raises(StartupError, match="NATS cannot be used") as caught:
                await begin(tmp_path, monkeypatch, url, credentials, trusted, None)
            assert "secret" not in f"{caught.value} {caught.value.remedy}"


async def test_a_nats_that_turns_out_not_to_speak_tls_is_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"version":"2.9.10","headers":true,"max_payload":1048576,"proto":1}\r\n')
        heard.append(await reader.read(10_000))

    credentials = tmp_path / "token"
    credentials.write_text("secret\n", "utf-8")
    async with tcp_server(answer) as port:
        with pytest.raises(StartupError, match="NATS cannot be used"):
            await begin(tmp_path, monkeypatch, f"tls://127.0.0.1:{port}", credentials, None, None)
    assert heard == [b""]


@pytest.mark.parametrize("options", [("nats://127.0.0.1:1", "cannot be reached"), ("", "max_payload")])
async def test_a_nats_that_is_not_there_or_takes_too_little_is_said_at_the_start(
    options: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, said = options
    small = tmp_path / "small.conf"
    small.write_text("max_payload: 1000\n", "utf-8")
    async with nats_server("-c", str(small)) as server:
        with pytest.raises(StartupError) as caught:
            await begin(tmp_path, monkeypatch, url or server.url, None, None, None)
    assert said in f"{caught.value} {caught.value.remedy}"
