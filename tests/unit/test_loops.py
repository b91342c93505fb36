"""The event loop of the tests: who leaves a connection open is told so himself, and nobody else."""

import asyncio
import gc
import socket
import warnings

import pytest

from tests.support.loops import SettlingLoop
from tests.support.patience import patient


def test_a_connection_that_nobody_closed_is_told_where_it_was_made() -> None:
    async def leave() -> socket.socket:
        ours, theirs = socket.socketpair()
        await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        return theirs

    loop = SettlingLoop()
    other = loop.run_until_complete(leave())
    with pytest.raises(AssertionError, match=r"left open.*_SelectorSocketTransport"):
        loop.close()
    with other:
        assert other.recv(1) == b""
    assert loop.is_closed()


def test_who_was_accepted_and_has_no_handler_any_more_is_sent_away() -> None:
    async def serve() -> socket.socket:
        begun = asyncio.Event()

        async def handle(*_: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
            client = socket.create_connection(server.sockets[0].getsockname(), patient(10))
            await begun.wait()
            return client

    with asyncio.Runner(loop_factory=SettlingLoop) as runner:
        client = runner.run(serve())
    with client:
        assert client.recv(1) == b""


def test_who_was_accepted_by_a_server_that_was_then_closed_is_sent_away() -> None:
    async def never(*_: object) -> None:
        raise AssertionError

    async def serve() -> socket.socket:
        server = await asyncio.start_server(never, "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname(), patient(10))
        while len(asyncio.all_tasks()) == 1:
            await asyncio.sleep(0)
        server.close()
        return client

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=SettlingLoop) as runner:
            client = runner.run(serve())
        gc.collect()
    with client:
        assert client.recv(1) == b""
    assert told == []
