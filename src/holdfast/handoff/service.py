"""The socket of the handoff: one line is an envelope, one line is its answer.

An envelope that the store could neither carry out nor refuse gets no answer: the connection ends, and the
sender has the outbox.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.board.asyncstore import AsyncStore
from holdfast.errors import HoldfastError, RemoteProtocolError, StartupError
from holdfast.handoff import envelope
from holdfast.handoff.broker import Broker
from holdfast.handoff.envelope import MAX_ENVELOPE, HandoffAnswer
from holdfast.local import peers

log = logging.getLogger(__name__)

MAX_CLIENTS: Final = 64  # at once, of all workers of a home; one more is sent away, and has its outbox
IDLE_S: Final = 60.0  # a client that says nothing for that long makes room for others
MAX_PATH: Final = 107  # bytes, as the kernel allows; nobody could connect to a longer one
BACKLOG: Final = 128  # connections the kernel holds for us


class Service:
    """Answers envelopes of any run of one home."""

    def __init__(self, store: AsyncStore, key: bytes) -> None:
        self._store, self._key = store, key
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @contextlib.asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        """Listen at `path` inside the block, in place of whoever listened there before.

        Raises:
            StartupError: it cannot listen there.
        """
        with _bound(path) as sock:
            server = await asyncio.start_unix_server(self._client, sock=sock, limit=MAX_ENVELOPE + 1)
            try:
                yield
            finally:
                server.close()
                for writer in self._clients.values():
                    writer.transport.abort()  # its task ends by itself, after what it is carrying out
                await asyncio.gather(*self._clients)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a stream's callback runs in a task of its own")
        self._clients[task] = writer
        try:
            if len(self._clients) <= MAX_CLIENTS and _is_ours(writer):
                await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as exc:
            log.debug("a client is gone", extra={"reason": type(exc).__name__})
        except HoldfastError as exc:
            log.warning("the store does not answer", extra={"reason": type(exc).__name__})
        finally:
            del self._clients[task]
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    line = await reader.readuntil(b"\n")
            except asyncio.LimitOverrunError:
                await _say(writer, envelope.refusal("", RemoteProtocolError("the line is too long")))
                return
            await _say(writer, await self._answer(line))

    async def _answer(self, line: bytes) -> HandoffAnswer:
        try:
            letter = envelope.decode(line.rstrip(b"\n"))
        except RemoteProtocolError as exc:
            return envelope.refusal("", exc)
        return await self._store.ask(lambda store: Broker(store, self._key).carry_out(letter))


async def _say(writer: asyncio.StreamWriter, answer: HandoffAnswer) -> None:
    """Raises OSError or TimeoutError when nobody takes it."""
    if writer.is_closing():  # meanwhile, by them or by us; not every loop says so with an OSError
        raise ConnectionAbortedError
    writer.write(msgspec.json.encode(answer) + b"\n")
    async with asyncio.timeout(IDLE_S):
        await writer.drain()


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    uid = peers.uid_of_unix_peer(writer.get_extra_info("socket"))
    return peers.allowed(uid, own=os.getuid())


@contextlib.contextmanager
def _bound(path: Path) -> Iterator[socket.socket]:
    """A socket for our user alone, ready under its name from the first moment there is one."""
    if len(os.fsencode(path)) > MAX_PATH:
        raise StartupError(f"{path} is too long for a socket", remedy="set HOLDFAST_HOME to a shorter path")
    hidden = path.with_name(f".{secrets.token_hex(4)}")
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(str(hidden))
        hidden.chmod(0o600)
        sock.listen(BACKLOG)
        here = hidden.stat().st_ino
        hidden.rename(path)
    except OSError as exc:
        sock.close()
        with contextlib.suppress(OSError):
            hidden.unlink()
        raise StartupError(f"cannot listen on {path}: {exc.strerror or exc}") from None
    try:
        yield sock
    finally:
        sock.close()
        with contextlib.suppress(OSError):
            if path.stat().st_ino == here:  # somebody else may have come after us
                path.unlink()
