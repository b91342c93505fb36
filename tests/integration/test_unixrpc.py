"""Typed methods on a real unix socket: answers, errors, notices, and what a client may not take."""

import asyncio
import errno
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest

from holdfast.errors import (
    ConnectionLost,
    MethodNotFound,
    NotFound,
    OperationFailed,
    RemoteProtocolError,
    StartupError,
    Unreachable,
    UsageError,
)
from holdfast.local import peers
from holdfast.unixrpc import client as client_module
from holdfast.unixrpc.calls import Notice, RpcMethod
from holdfast.unixrpc.client import PeerGone, RpcClient
from holdfast.unixrpc.server import Peer, RpcLimits, RpcServer
from holdfast.wire import rpc
from tests.support.patience import patient
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

WAIT_S: Final = patient(30.0)
LIMITS: Final = RpcLimits(line=4096, unsent=1 << 20, clients=3, calls=2)


class Word(msgspec.Struct, frozen=True):
    word: str = ""
    times: int = 1


ECHO: Final = RpcMethod("echo", Word, Word)
HOLD: Final = RpcMethod("hold", Word, Word)
FAIL: Final = RpcMethod("fail", Word, Word)
LOSE: Final = RpcMethod("lose", Word, Word)
CRASH: Final = RpcMethod("crash", Word, Word)
REPEAT: Final = RpcMethod("repeat", Word, Word)
NOBODYS: Final = RpcMethod("nobody's", Word, Word)
SAID: Final = Notice("said", Word)


class Answers:
    """Of a server: `held` are the calls of `hold` under way, which end with `go`."""

    def __init__(self, limits: RpcLimits) -> None:
        self.server = RpcServer(limits)
        self.held = 0
        self.gone = 0
        self.go = asyncio.Event()
        self.server.answer(ECHO, self._echo)
        self.server.answer(HOLD, self._hold)
        self.server.answer(FAIL, self._fail)
        self.server.answer(LOSE, self._lose)
        self.server.answer(CRASH, self._crash)
        self.server.answer(REPEAT, self._repeat)

    async def _echo(self, asked: Word, _peer: Peer) -> Word:
        return asked

    async def _hold(self, asked: Word, peer: Peer) -> Word:
        peer.farewells.append(self._leave)
        self.held += 1
        await self.go.wait()
        return asked

    async def _fail(self, asked: Word, _peer: Peer) -> Word:
        raise NotFound(f"no {asked.word}", remedy="look elsewhere")

    async def _lose(self, asked: Word, _peer: Peer) -> Word:
        raise Unreachable(f"{asked.word} does not answer")

    async def _crash(self, asked: Word, _peer: Peer) -> Word:
        if asked.word:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", asked.word)
        raise ZeroDivisionError("secret")

    async def _repeat(self, asked: Word, peer: Peer) -> Word:
        for _ in range(asked.times):
            peer.notify(SAID, Word(asked.word))
        return Word()

    def _leave(self) -> None:
        self.gone += 1

    async def until(self, **wanted: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while {name: getattr(self, name) for name in wanted} != wanted:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def answering(path: Path, limits: RpcLimits = LIMITS) -> AsyncIterator[Answers]:
    answers = Answers(limits)
    async with asyncio.timeout(WAIT_S), answers.server.listening(path):
        yield answers


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[RpcClient]:
    client = await RpcClient.connect(path, "oracle", [SAID], max_line=LIMITS.line)
    try:
        yield client
    finally:
        await client.aclose()


async def test_calls_are_answered_with_what_they_return_or_raise(tmp_path: Path) -> None:
    async with answering(tmp_path / "s"), connected(tmp_path / "s") as client:
        assert await client.call(ECHO, Word("hello")) == Word("hello")
        with pytest.raises(NotFound, match="no door") as refused:
            await client.call(FAIL, Word("door"))
        assert refused.value.remedy == "look elsewhere"
        with pytest.raises(OperationFailed) as crashed:
            await client.call(CRASH, Word())
        assert "secret" not in str(crashed.value)
        with pytest.raises(OperationFailed, match=r"^/gone/python: No such file or directory$"):
            await client.call(CRASH, Word("/gone/python"))
        with pytest.raises(MethodNotFound):
            await client.call(NOBODYS, Word())
        with pytest.raises(UsageError, match="bytes"):
            await client.call(ECHO, Word("x" * LIMITS.line))
        assert await client.call(ECHO, Word("still there")) == Word("still there")


async def test_what_is_no_call_is_answered_and_a_line_without_end_ends_the_connection(tmp_path: Path) -> None:
    async with answering(tmp_path / "s"):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        for line in (b"[" * 1000, b"\xff", b"{}", b'{"method":"echo"}', b'{"id":1,"method":"echo","id":1}'):
            writer.write(line + b"\n")
            said = json.loads(await reader.readline())
            assert (said["id"], said["error"]["data"]["kind"]) == (-1, RemoteProtocolError.__name__), line
        writer.write(b'{"id":"a","method":"echo","params":{"word":1}}\n')
        said = json.loads(await reader.readline())
        assert (said["id"], said["error"]["data"]["kind"]) == ("a", UsageError.__name__)
        writer.write(b"x" * (LIMITS.line + 10))
        assert json.loads(await reader.readline())["error"]["data"]["kind"] == RemoteProtocolError.__name__
        assert await reader.read() == b""
        writer.close()


async def test_a_link_that_the_other_side_lost_is_not_taken_for_ours(tmp_path: Path) -> None:
    async with answering(tmp_path / "s"), connected(tmp_path / "s") as client:
        with pytest.raises(Unreachable, match="the machine does not answer") as told:
            await client.call(LOSE, Word("the machine"))
        assert not isinstance(told.value, PeerGone)
        assert await client.call(ECHO, Word("hello")) == Word("hello")


async def test_a_slow_call_holds_up_no_other_and_only_so_many_are_under_way(tmp_path: Path) -> None:
    async with answering(tmp_path / "s") as answers, connected(tmp_path / "s") as client:
        calls = [asyncio.create_task(client.call(HOLD, Word("a")))]
        await answers.until(held=1)
        assert await client.call(ECHO, Word("b")) == Word("b")
        calls += [asyncio.create_task(client.call(HOLD, Word("c"))) for _ in range(2)]
        await answers.until(held=2)
        async with connected(tmp_path / "s") as other:
            assert await other.call(ECHO, Word("d")) == Word("d")
        assert answers.held == 2
        answers.go.set()
        assert await asyncio.gather(*calls) == [Word("a"), Word("c"), Word("c")]


async def test_a_call_that_takes_too_long_fails_and_the_next_gets_its_own_answer(tmp_path: Path) -> None:
    async with answering(tmp_path / "s") as answers, connected(tmp_path / "s") as client:
        with pytest.raises(OperationFailed, match="the oracle does not answer to hold"):
            await client.call(HOLD, Word("late"), timeout_s=0.01)
        answers.go.set()
        assert await client.call(ECHO, Word("b")) == Word("b")


async def test_notices_come_in_order_until_the_other_side_is_gone(tmp_path: Path) -> None:
    async with connected_to_one_that_ends(tmp_path / "s") as (client, end):
        await client.call(REPEAT, Word("again", 3))
        notices = client.notices()
        assert [await anext(notices) for _ in range(3)] == [Word("again")] * 3
        await end()
        assert [said async for said in notices] == []
        assert [said async for said in client.notices()] == []
        with pytest.raises(PeerGone, match="the oracle is gone"):
            await client.call(ECHO, Word())


@asynccontextmanager
async def connected_to_one_that_ends(
    path: Path,
) -> AsyncIterator[tuple[RpcClient, Callable[[], Awaitable[None]]]]:
    ended, over = asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        async with answering(path):
            await ended.wait()
        over.set()

    async def end() -> None:
        ended.set()
        await over.wait()

    serving = asyncio.create_task(serve())
    async with asyncio.timeout(WAIT_S):
        while not path.exists():
            await asyncio.sleep(0.01)
        async with connected(path) as client:
            yield client, end
        await end()
        await serving


async def test_a_server_that_ends_says_so_to_everybody_who_waits(tmp_path: Path) -> None:
    async with connected_to_one_that_ends(tmp_path / "s") as (client, end):
        waiting = asyncio.create_task(client.call(HOLD, Word(), timeout_s=None))
        await client.call(ECHO, Word())
        await end()
        with pytest.raises(PeerGone):
            await waiting
    assert not (tmp_path / "s").exists()
    with pytest.raises(Unreachable, match="no oracle answers"):
        await RpcClient.connect(tmp_path / "s", "oracle")


async def test_a_message_of_another_version_is_left_out(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        for line in (
            b'{"note":"said","params":{"word":"old"}}',
            b'{"method":"said","params":{"word":1}}',
            b'{"method":"x"}',
        ):
            writer.write(line + b"\n")
        writer.write(b'{"id":1,"error":{"code":-32004,"message":"none","remedy":"r"}}\n')
        writer.write(b'{"method":"said","params":{"word":"new","more":1}}\n')
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "s")
    async with asyncio.timeout(WAIT_S), server, connected(tmp_path / "s") as client:
        with pytest.raises(NotFound, match="none"):
            await client.call(ECHO, Word())
        notices = client.notices()
        assert [await anext(notices), await anext(notices)] == [Word("old"), Word("new")]


async def test_a_client_that_does_not_read_is_cut_off(tmp_path: Path) -> None:
    limits = RpcLimits(line=4096, unsent=1000, clients=1, calls=1)
    async with answering(tmp_path / "s", limits):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        word, times = "x" * 4000, 1000  # said without a pause in which anybody could read
        writer.write(rpc.request(1, "repeat", Word(word, times)) + b"\n")
        assert len(await reader.read()) < len(word) * times
        writer.close()


async def test_notices_that_nobody_takes_end_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_NOTICES", 3)
    async with answering(tmp_path / "s"), connected(tmp_path / "s") as client:
        await client.call(REPEAT, Word("again", 5))
        with pytest.raises(ConnectionLost):
            await client.call(ECHO, Word())
        assert len([said async for said in client.notices()]) == 5


async def test_one_client_too_many_and_one_who_is_idle_are_sent_away(tmp_path: Path) -> None:
    limits = RpcLimits(line=4096, unsent=1000, clients=1, calls=1, idle_s=0.2)
    async with answering(tmp_path / "s", limits) as answers:
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(b'{"id":1,"method":"hold"}\n')
        await answers.until(held=1)
        async with connected(tmp_path / "s") as other:
            with pytest.raises(ConnectionLost):
                await other.call(ECHO, Word())
        await asyncio.wait([asyncio.create_task(answers.until(gone=1))], timeout=2 * (limits.idle_s or 0))
        assert answers.gone == 0  # whoever waits for an answer is not idle
        answers.go.set()
        assert json.loads(await reader.readline())["id"] == 1
        assert await reader.read() == b""
        await answers.until(gone=1)
        writer.close()


async def test_a_stranger_gets_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "uid_of_unix_peer", lambda _sock: os.getuid() + 1)
    async with answering(tmp_path / "s"), connected(tmp_path / "s") as client:
        with pytest.raises(ConnectionLost):
            await client.call(ECHO, Word())


async def test_the_socket_is_its_owner_s_alone_and_replaces_one_that_was_left(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    async with answering(path), connected(path) as client:
        assert path.stat().st_mode & 0o777 == 0o600
        assert await client.call(ECHO, Word("here")) == Word("here")
        async with answering(path), connected(path) as other:  # somebody came after us
            assert await other.call(ECHO, Word("new")) == Word("new")
            path.rename(tmp_path / "kept")
            path.touch()
    assert path.exists()
    for place in (tmp_path / "none" / "s", tmp_path / ("x" * 200)):
        with pytest.raises(StartupError):
            async with answering(place):
                pass
