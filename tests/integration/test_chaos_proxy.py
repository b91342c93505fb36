"""The proxy that mistreats connections does only what it says, or no test behind it would mean anything."""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.chaos import Chaos, End, Target, chaos
from tests.support.patience import patient
from tests.support.tcp import tcp_server
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

WAIT_S = patient(30.0)
ENDS: list[End] = ["reset", "close", "half"]
PAYLOAD = random.Random(0).randbytes(300_000)  # noqa: S311 # no secret


@dataclass
class Sink:
    """Keeps what each connection brought; on its end it says how much that was."""

    target: Target
    brought: list[bytes] = field(default_factory=list)
    ended: asyncio.Queue[None] = field(default_factory=asyncio.Queue)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = b""
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65536):
                data += piece
            writer.write(b"%d" % len(data))
        self.brought.append(data)
        await hang_up(writer)
        self.ended.put_nowait(None)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    await hang_up(writer)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[Target]:
    async with tcp_server(echo) as port:
        yield ("127.0.0.1", port)


@contextlib.asynccontextmanager
async def sinking() -> AsyncIterator[Sink]:
    sink = Sink(("127.0.0.1", 0))
    async with tcp_server(sink.take) as port:
        sink.target = ("127.0.0.1", port)
        yield sink


async def exchange(proxy: Chaos, payload: bytes) -> bytes:
    """What comes back when this is sent; a connection that breaks brings what it brought."""
    loop = asyncio.get_running_loop()
    came = b""
    with socket.socket() as sock:
        sock.setblocking(False)

        async def send() -> None:
            with contextlib.suppress(OSError):
                await loop.sock_sendall(sock, payload)
                sock.shutdown(socket.SHUT_WR)

        await asyncio.wait_for(loop.sock_connect(sock, ("127.0.0.1", proxy.port)), WAIT_S)
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(send())
            with contextlib.suppress(ConnectionError):
                while piece := await loop.sock_recv(sock, 65536):
                    came += piece
            sending.cancel()
    return came


@pytest.mark.parametrize("seed", range(3))
async def test_split_and_delayed_bytes_arrive_as_they_were_sent(seed: int) -> None:
    async with echoing() as target, chaos(target, seed=seed, split=0.9, delay=0.5) as proxy:
        assert await exchange(proxy, PAYLOAD) == PAYLOAD
        assert (proxy.connections, proxy.cuts) == (1, 0)


async def test_the_target_may_be_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with await asyncio.start_unix_server(echo, path), chaos(path, seed=1) as proxy:
        assert await exchange(proxy, PAYLOAD) == PAYLOAD


async def test_many_connections_at_once_do_not_mix() -> None:
    payloads = [bytes([n]) * 5000 for n in range(20)]
    async with echoing() as target, chaos(target, seed=2) as proxy:
        async with asyncio.TaskGroup() as tasks:
            answers = [tasks.create_task(exchange(proxy, payload)) for payload in payloads]
        assert [answer.result() for answer in answers] == payloads


async def places(seed: int, *, split: float = 0.0, delay: float = 0.0) -> list[bytes]:
    """What reaches the target on a few connections, one after the other."""
    async with (
        sinking() as sink,
        chaos(
            sink.target, seed=seed, cut_every_bytes=(100, 9000), ends=["close"], split=split, delay=delay
        ) as proxy,
    ):
        for _ in range(6):
            await exchange(proxy, PAYLOAD)
            async with asyncio.timeout(WAIT_S):
                await sink.ended.get()
        assert proxy.cuts == 6
        return sink.brought


async def test_a_connection_is_cut_within_the_range_and_brings_a_beginning() -> None:
    brought = await places(seed=3)
    assert all(100 <= len(data) <= 9000 for data in brought)
    assert all(PAYLOAD.startswith(data) for data in brought)
    assert len({len(data) for data in brought}) > 1


async def test_the_seed_decides_where_and_nothing_else_does() -> None:
    first = await places(seed=4)
    assert await places(seed=4, split=0.5, delay=0.2) == first
    assert await places(seed=5) != first


@pytest.mark.parametrize("end", ENDS)
async def test_however_a_connection_ends_both_sides_notice(end: End) -> None:
    async with (
        sinking() as sink,
        chaos(sink.target, seed=6, cut_every_bytes=(50, 500), ends=[end]) as proxy,
    ):
        await exchange(proxy, PAYLOAD)
        async with asyncio.timeout(WAIT_S):
            await sink.ended.get()
        assert proxy.ended == {end: 1}
        assert PAYLOAD.startswith(sink.brought[0])


async def test_a_half_closed_connection_still_carries_the_other_direction() -> None:
    async with (
        sinking() as sink,
        chaos(sink.target, seed=7, cut_every_bytes=(500, 500), ends=["half"]) as proxy,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(PAYLOAD[:500])
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == b"500"  # the target saw an end that nobody sent
        await hang_up(writer)


async def test_bytes_of_both_directions_count() -> None:
    async with (
        echoing() as target,
        chaos(target, seed=8, cut_every_bytes=(1000, 1000), ends=["close"], split=0.0) as proxy,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        async with asyncio.timeout(WAIT_S):
            for _ in range(4):
                writer.write(b"x" * 120)
                assert await reader.readexactly(120) == b"x" * 120
            writer.write(b"x" * 120)
            assert len(await reader.read()) < 120
        await hang_up(writer)
        assert proxy.cuts == 1


async def test_after_the_last_cut_it_is_an_honest_proxy() -> None:
    async with (
        echoing() as target,
        chaos(target, seed=9, cut_every_bytes=(10, 50), refuse=1.0, max_refuse_s=0.0, max_cuts=0) as proxy,
    ):
        assert await exchange(proxy, PAYLOAD) == PAYLOAD
        assert (proxy.cuts, proxy.refusals) == (0, 0)
    async with echoing() as target, chaos(target, seed=9, cut_every_bytes=(10, 50), max_cuts=3) as proxy:
        answers = [await exchange(proxy, PAYLOAD) for _ in range(4)]
        assert [answer == PAYLOAD for answer in answers] == [False, False, False, True]
        assert proxy.cuts == 3


async def test_whoever_is_refused_finds_nobody_for_a_moment() -> None:
    async with echoing() as target, chaos(target, seed=10, refuse=1.0, max_refuse_s=600.0) as proxy:
        assert await exchange(proxy, PAYLOAD) == b""
        with pytest.raises(ConnectionRefusedError):
            await exchange(proxy, PAYLOAD)
        assert (proxy.refusals, proxy.connections) == (1, 0)


async def test_after_the_moment_somebody_listens_again_on_the_same_port() -> None:
    answers: list[bytes] = []
    async with (
        echoing() as target,
        chaos(target, seed=11, refuse=0.5, max_refuse_s=0.05) as proxy,
        asyncio.timeout(WAIT_S),
    ):
        while proxy.refusals < 3 or b"again" not in answers[-1:]:
            with contextlib.suppress(ConnectionRefusedError):
                answers.append(await exchange(proxy, b"again"))
            await asyncio.sleep(0)
        assert set(answers) <= {b"", b"again"}


async def test_a_target_that_is_gone_ends_the_connection_and_not_the_proxy(tmp_path: Path) -> None:
    async with chaos(tmp_path / "nobody", seed=12) as proxy:
        assert await exchange(proxy, PAYLOAD) == b""
        async with await asyncio.start_unix_server(echo, tmp_path / "nobody"):
            assert await exchange(proxy, PAYLOAD) == PAYLOAD


async def test_nothing_is_left_when_the_block_ends() -> None:
    async with echoing() as target:
        before = asyncio.all_tasks()
        async with chaos(target, seed=13) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"x")
            async with asyncio.timeout(WAIT_S):
                assert await reader.readexactly(1) == b"x"
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            await hang_up(writer)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", proxy.port)
            while asyncio.all_tasks() - before:
                await asyncio.sleep(0)
