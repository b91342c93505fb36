"""Open files of the other machine, read and written block by block.

A handle lives as long as its connection. A stream that meets a new connection fails and says so; it is never
taken up again, because the file may be another one by now.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal, TypeAlias

from holdfast.client.answer import typed
from holdfast.client.session import Caller
from holdfast.errors import ConnectionLost, HoldfastError, NotFound, RemoteProtocolError
from holdfast.local.tasks import TaskSet
from holdfast.wire.files import Block, HandleParams, OpenParams, ReadBlockParams, WriteBlockParams
from holdfast.wire.paths import PathUri
from holdfast.wire.permissions import SandboxContext
from holdfast.wire.rpc import JsonValue

BLOCK_BYTES: Final = 1024 * 1024  # the most a block may have

Blocks: TypeAlias = AsyncIterable[bytes] | Iterable[bytes]


class OpenFiles:
    """The handles of one session."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._closing = TaskSet()

    async def read(self, path: PathUri, sandbox: SandboxContext | None) -> AsyncGenerator[bytes, None]:
        """The bytes of a file; one that is dropped early is closed in the background."""
        async with self._opened(path, "read", sandbox) as handle:
            offset, at_end = 0, False
            while not at_end:
                answer = await self._call("fs/readBlock", ReadBlockParams(handle, offset, BLOCK_BYTES))
                block = typed(answer, Block)
                if len(block.chunk) > BLOCK_BYTES or not (block.chunk or block.eof):
                    raise RemoteProtocolError("the server's block is not what was asked for")
                offset, at_end = offset + len(block.chunk), block.eof
                if block.chunk:
                    yield block.chunk

    async def write(self, path: PathUri, sandbox: SandboxContext | None, blocks: Blocks) -> None:
        """Make what `blocks` yields the contents."""
        async with self._opened(path, "replace", sandbox) as handle:
            offset = 0
            async for block in regrouped(blocks):
                await self._call("fs/writeBlock", WriteBlockParams(handle, offset, block))
                offset += len(block)

    @asynccontextmanager
    async def _opened(
        self, path: PathUri, mode: Literal["read", "replace"], sandbox: SandboxContext | None
    ) -> AsyncIterator[str]:
        """An open file, closed at the end; whoever leaves early does not wait for that."""
        handle = uuid.uuid4().hex
        try:
            await self._caller.call("fs/open", OpenParams(handle, path, sandbox, mode))
        except asyncio.CancelledError:
            self._close_later(handle)
            raise
        try:
            yield handle
        except BaseException:
            self._close_later(handle)
            raise
        await self._close(handle)

    async def _call(self, method: str, params: object) -> JsonValue:
        try:
            return await self._caller.call(method, params)
        except NotFound:
            raise ConnectionLost(
                "the file was open on a connection that is gone", remedy="open it again from the beginning"
            ) from None

    def _close_later(self, handle: str) -> None:
        self._closing.start(self._close(handle))

    async def _close(self, handle: str) -> None:
        with suppress(HoldfastError):  # what could not be closed was closed by the end of its connection
            await self._caller.call("fs/close", HandleParams(handle), cleanup=True)


async def each(blocks: Blocks) -> AsyncIterator[bytes]:
    """Whatever yields, asynchronously."""
    if isinstance(blocks, AsyncIterable):
        async for block in blocks:
            yield block
    else:
        for block in blocks:
            yield block


async def regrouped(blocks: Blocks) -> AsyncIterator[bytes]:
    """The same bytes in blocks as large as they may be: every one costs a round trip."""
    kept = bytearray()
    async for block in each(blocks):
        rest = memoryview(block)
        while len(kept) + len(rest) >= BLOCK_BYTES:
            room = BLOCK_BYTES - len(kept)
            yield bytes(kept) + rest[:room]
            kept.clear()
            rest = rest[room:]
        kept += rest
    if kept:
        yield bytes(kept)
