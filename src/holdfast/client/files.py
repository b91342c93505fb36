"""Files of the other machine.

Paths are absolute and native there, as text or as a `PurePath`. With a policy a call is confined like a
command. A call that was under way when the link died raises `ConnectionLost`; it is not repeated, and a write
may or may not have happened.

An open file lives as long as its connection. A stream of blocks fails when the connection was replaced. It is
never resumed, because the file may be another one by now.
"""

import asyncio
import itertools
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypeVar

import pybase64

from holdfast.client.events.ordering import convert
from holdfast.client.policy import Policy
from holdfast.client.session import SessionCaller
from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    InvalidRequest,
    NotFound,
    RemoteProtocolError,
    UsageError,
)
from holdfast.local.tasks import TaskSet
from holdfast.wire.environment import EnvironmentInfo
from holdfast.wire.files import (
    CanonicalPath,
    CopyParams,
    CreateDirectoryParams,
    DirectoryEntry,
    DirectoryListing,
    FileBlock,
    FileContents,
    HandleParams,
    LinkAwareParams,
    Metadata,
    MissingChanged,
    OpenParams,
    PathParams,
    ReadBlockParams,
    RemoveParams,
    WalkOptions,
    WalkParams,
    WalkResult,
    WatchMissingParams,
    WatchResult,
    WriteBlockParams,
    WriteFileParams,
)
from holdfast.wire.paths import PathUri, RemotePath, to_native, to_uri
from holdfast.wire.permissions import SandboxContext
from holdfast.wire.rpc import JsonValue

T = TypeVar("T")
Blocks: TypeAlias = AsyncIterable[bytes] | Iterable[bytes]

MAX_WHOLE_BYTES: Final = 11 * 1024 * 1024  # as base64 it still fits the reference's 16 MiB frame
BLOCK_BYTES: Final = 1024 * 1024  # the protocol's bound of a block
MAX_READ_BYTES: Final = 512 * 1024 * 1024  # the most that a server reads at once; more needs blocks
MAX_DEPTH: Final = 64  # of a walk; this and the next two are the protocol's own bounds
MAX_DIRECTORIES: Final = 10_000
MAX_ENTRIES: Final = 50_000
INFO_TIMEOUT_S: Final = 30.0  # as the reference waits for it


@dataclass(frozen=True, slots=True)
class Found:
    """An entry below the directory that was walked."""

    path: str
    is_directory: bool


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry that a walk could not enter or name, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Walk:
    """Breadth first, names in order. `truncated`: a bound was reached and there is more."""

    entries: tuple[Found, ...]
    unreadable: tuple[Unreadable, ...]
    truncated: bool


class Watch:
    """A watch on paths, which fires once. It is armed when it is returned.

    The protocol has one watch per connection and lets it fire without a change. So firing means only that
    cached knowledge about these paths must be dropped. A newer watch or a lost link ends this one early, and
    fires it as well.
    """

    def __init__(self, watch_id: int) -> None:
        self._id = watch_id
        self._fired = asyncio.Event()

    @property
    def fired(self) -> bool:
        """Whether something has, or may have, changed."""
        return self._fired.is_set()

    async def changed(self) -> None:
        """Wait until it has fired."""
        await self._fired.wait()


class Files:
    """The files that one server sees."""

    def __init__(self, caller: SessionCaller, *, info: EnvironmentInfo | None = None) -> None:
        """`info` comes from the handshake; without it the server is asked when it is needed."""
        self._caller = caller
        self._info = info
        self._stats: _Shared[Metadata] = _Shared()
        self._watches = _Watches(caller)
        self._open = _OpenFiles(caller)

    async def read(self, path: RemotePath, *, policy: Policy | None = None) -> bytes:
        """All bytes of a regular file.

        Raises:
            UsageError: it has more than MAX_READ_BYTES.
        """
        size = (await self.stat(path, policy=policy)).size
        if size <= MAX_WHOLE_BYTES:
            params = LinkAwareParams(to_uri(path), sandbox=await self._sandbox(policy))
            return convert(await self._caller.call("fs/readFile", params), FileContents).data_base64
        if size > MAX_READ_BYTES:
            raise UsageError(f"the file has {size} bytes", remedy="read it with open_blocks")
        return b"".join([block async for block in self.open_blocks(path, policy=policy)])

    async def read_text(
        self, path: RemotePath, *, encoding: str = "utf-8", policy: Policy | None = None
    ) -> str:
        return (await self.read(path, policy=policy)).decode(encoding)

    async def write(self, path: RemotePath, data: bytes | str, *, policy: Policy | None = None) -> None:
        """Make `data` the whole contents, text as UTF-8; its directory must exist.

        Above MAX_WHOLE_BYTES it is written in blocks: other processes may see a partial file during the
        write.

        Raises:
            UsageError: it is more than that, and the server does not take blocks.
        """
        content = data.encode() if isinstance(data, str) else data
        if len(content) > MAX_WHOLE_BYTES:
            await self.write_blocks(path, (content,), policy=policy)
            return
        text = pybase64.b64encode_as_string(content)
        params = WriteFileParams(to_uri(path), text, sandbox=await self._sandbox(policy))
        await self._change("fs/writeFile", params)

    async def open_blocks(
        self, path: RemotePath, *, policy: Policy | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a regular file in blocks of up to 1 MiB, read on demand.

        It keeps reading the file that was there at the first block. If the iteration is abandoned, the file
        is closed in the background. A lost link ends the iteration with `ConnectionLost`, and it cannot be
        resumed.
        """
        uri, sandbox = to_uri(path), await self._streaming_sandbox(policy)
        async with aclosing(self._open.read(uri, sandbox)) as blocks:
            async for block in blocks:
                yield block

    async def write_blocks(
        self,
        path: RemotePath,
        blocks: Blocks,
        *,
        policy: Policy | None = None,
    ) -> None:
        """Replace the contents by what `blocks` yields; after a failure the part written so far stays.

        Raises:
            UsageError: the server takes no blocks, and it is more than MAX_WHOLE_BYTES.
        """
        uri = to_uri(path)
        if not (await self._server()).capabilities.file_write_streaming:
            await self.write(path, await _join(blocks), policy=policy)
            return
        try:
            await self._open.write(uri, await self._streaming_sandbox(policy), blocks)
        finally:
            self._stats.renew()

    async def stat(
        self, path: RemotePath, *, follow_symlinks: bool = True, policy: Policy | None = None
    ) -> Metadata:
        """Return the metadata of what is at the path.

        Raises:
            NotFound: there is nothing, or a link to nothing.
            InvalidRequest: there is a link in the path, with `follow_symlinks=False`.
        """
        uri, sandbox = to_uri(path), await self._sandbox(policy)
        if follow_symlinks and sandbox is None:
            return await self._stats.ask(uri.uri, lambda: self._stat(LinkAwareParams(uri)))
        return await self._stat(LinkAwareParams(uri, follow_symlinks, sandbox))

    async def exists(self, path: RemotePath, *, policy: Policy | None = None) -> bool:
        """Whether anything is at the path, links followed."""
        try:
            await self.stat(path, policy=policy)
        except NotFound:
            return False
        return True

    async def list(self, path: RemotePath, *, policy: Policy | None = None) -> tuple[DirectoryEntry, ...]:
        """List a directory, sorted by name. A link counts as its target, if that exists."""
        params = PathParams(to_uri(path), await self._sandbox(policy))
        listing = convert(await self._caller.call("fs/readDirectory", params), DirectoryListing)
        return tuple(sorted(listing.entries, key=lambda entry: entry.file_name))

    async def walk(
        self,
        path: RemotePath,
        *,
        max_depth: int = MAX_DEPTH,
        max_entries: int = MAX_ENTRIES,
        follow_directory_symlinks: bool = False,
        prune_hidden_directories: bool = False,
        policy: Policy | None = None,
    ) -> Walk:
        """List directories and regular files below a directory, without links; depth 0 is its own entries."""
        options = WalkOptions(
            max_depth, MAX_DIRECTORIES, max_entries, follow_directory_symlinks, prune_hidden_directories
        )
        params = WalkParams(to_uri(path), options, await self._sandbox(policy))
        found = convert(await self._caller.call("fs/walk", params), WalkResult)
        return Walk(
            tuple(Found(to_native(entry.path), entry.kind == "directory") for entry in found.entries),
            tuple(Unreadable(to_native(error.path), error.message) for error in found.errors),
            found.truncated,
        )

    async def canonical(self, path: RemotePath, *, policy: Policy | None = None) -> str:
        """The path with all links resolved; it must exist."""
        params = PathParams(to_uri(path), await self._sandbox(policy))
        return to_native(convert(await self._caller.call("fs/canonicalize", params), CanonicalPath).path)

    async def make_directory(
        self, path: RemotePath, *, parents: bool = True, policy: Policy | None = None
    ) -> None:
        """Create a directory.

        With `parents` those above are created too, and an existing directory is no error.
        """
        sandbox = await self._sandbox(policy)
        await self._change(
            "fs/createDirectory", CreateDirectoryParams(to_uri(path), parents, sandbox=sandbox)
        )

    async def copy(
        self,
        source: RemotePath,
        destination: RemotePath,
        *,
        recursive: bool = False,
        policy: Policy | None = None,
    ) -> None:
        """Copy a file over `destination`, or with `recursive` a directory into it, within that machine."""
        here, there = to_uri(source), to_uri(destination)
        await self._change("fs/copy", CopyParams(here, there, recursive, await self._sandbox(policy)))

    async def remove(
        self,
        path: RemotePath,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        policy: Policy | None = None,
    ) -> None:
        """Remove a file, a link itself, an empty directory, or with `recursive` a full one."""
        uri, sandbox = to_uri(path), await self._sandbox(policy)
        await self._change("fs/remove", RemoveParams(uri, recursive, missing_ok, sandbox=sandbox))

    async def watch(self, *missing: RemotePath, present: RemotePath | None = None) -> Watch:
        """Arm a watch that fires once when one of the `missing` paths appears or `present` changes.

        There is one at a time: arming another fires this one. The protocol takes no policy here.

        Raises:
            InvalidRequest: the server cannot watch, or cannot watch these paths.
        """
        uris = [to_uri(path) for path in missing]
        shown = None if present is None else to_uri(present)
        if not (await self._server()).capabilities.fs_watch_missing:
            raise InvalidRequest("the server cannot watch files", remedy="ask it again from time to time")
        return await self._watches.arm(uris, shown)

    async def _stat(self, params: LinkAwareParams) -> Metadata:
        return convert(await self._caller.call("fs/getMetadata", params), Metadata)

    async def _change(self, method: str, params: object) -> None:
        try:
            await self._caller.call(method, params)
        finally:
            self._stats.renew()

    async def _server(self) -> EnvironmentInfo:
        if self._info is None:
            answer = await self._caller.call("environment/info", None, timeout_s=INFO_TIMEOUT_S)
            self._info = convert(answer, EnvironmentInfo)
        return self._info

    async def _sandbox(self, policy: Policy | None) -> SandboxContext | None:
        if policy is None or not policy.confines:
            return None
        if policy.root is not None:
            return policy.context(policy.root)
        cwd = (await self._server()).cwd
        return policy.context(None if cwd is None else to_native(cwd))

    async def _streaming_sandbox(self, policy: Policy | None) -> SandboxContext | None:
        sandbox = await self._sandbox(policy)
        if sandbox is not None and not (await self._server()).capabilities.sandboxed_file_streaming:
            raise InvalidRequest(
                "the server cannot confine a file that is read or written in blocks",
                remedy=f"use read and write, which take up to {MAX_WHOLE_BYTES} bytes there",
            )
        return sandbox


async def _join(blocks: Blocks) -> bytes:
    whole = bytearray()
    async for block in _each(blocks):
        whole += block
        if len(whole) > MAX_WHOLE_BYTES:
            raise UsageError(
                f"the server takes at most {MAX_WHOLE_BYTES} bytes at once, and no blocks",
                remedy="send the rest to a command's standard input, such as `tee`",
            )
    return bytes(whole)


class _Watches:
    """The watch of one session."""

    def __init__(self, caller: SessionCaller) -> None:
        self._caller = caller
        self._numbers = itertools.count(1)
        self._current: Watch | None = None
        caller.on("fs/missingChanged", self._on_changed)
        caller.on_lost(self._on_lost)

    async def arm(self, missing: Sequence[PathUri], present: PathUri | None) -> Watch:
        """Raises InvalidRequest if the server will not watch these paths."""
        self._fire()
        watch = self._current = Watch(next(self._numbers))
        params = WatchMissingParams(watch._id, list(missing), present)
        answer = convert(await self._caller.call("fs/watchMissing", params), WatchResult)
        if not answer.watching:
            raise InvalidRequest(
                "the server does not watch these paths",
                remedy="missing paths must not exist, the present one must, and none leads through a link",
            )
        return watch

    def _on_changed(self, params: JsonValue) -> None:
        if self._current is not None and convert(params, MissingChanged).watch_id == self._current._id:
            self._fire()

    def _on_lost(self, _: HoldfastError) -> None:
        self._fire()

    def _fire(self) -> None:
        watch, self._current = self._current, None
        if watch is not None:
            watch._fired.set()


class _Shared(Generic[T]):
    """Sends a question once when several callers ask it at the same time.

    Answers and errors are shared while the question is under way, and never kept.
    """

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Task[T]] = {}

    async def ask(self, key: str, question: Callable[[], Coroutine[None, None, T]]) -> T:
        """The answer to the question with this key.

        A caller that stops waiting does not cancel it for the others.
        """
        task = self._asked.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(question())
            self._asked[key] = task
            task.add_done_callback(lambda done: self._answered(key, done))
        return await asyncio.shield(task)

    def renew(self) -> None:
        """Forget the questions under way after a change: later callers do not join them."""
        self._asked.clear()

    def _answered(self, key: str, task: asyncio.Task[T]) -> None:
        if self._asked.get(key) is task:
            del self._asked[key]
        if not task.cancelled():
            task.exception()  # mark the exception as retrieved, even if no caller waits any more


class _OpenFiles:
    """The open file handles of one session."""

    def __init__(self, caller: SessionCaller) -> None:
        self._caller = caller
        self._closing = TaskSet()

    async def read(self, path: PathUri, sandbox: SandboxContext | None) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file; if the iteration is abandoned, the file is closed in the background."""
        async with self._open(path, "read", sandbox) as handle:
            offset, at_end = 0, False
            while not at_end:
                answer = await self._call("fs/readBlock", ReadBlockParams(handle, offset, BLOCK_BYTES))
                block = convert(answer, FileBlock)
                if len(block.chunk) > BLOCK_BYTES or not (block.chunk or block.eof):
                    raise RemoteProtocolError("the server's block is not what was asked for")
                offset, at_end = offset + len(block.chunk), block.eof
                if block.chunk:
                    yield block.chunk

    async def write(self, path: PathUri, sandbox: SandboxContext | None, blocks: Blocks) -> None:
        """Replace the contents by what `blocks` yields."""
        async with self._open(path, "replace", sandbox) as handle:
            offset = 0
            async for block in _regroup(blocks):
                await self._call("fs/writeBlock", WriteBlockParams(handle, offset, block))
                offset += len(block)

    @asynccontextmanager
    async def _open(
        self, path: PathUri, mode: Literal["read", "replace"], sandbox: SandboxContext | None
    ) -> AsyncIterator[str]:
        """Open a file, and close it at the end, or in the background after an error or cancellation."""
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
        with suppress(HoldfastError):  # if it could not be closed, the end of its connection has closed it
            await self._caller.call("fs/close", HandleParams(handle), cleanup=True)


async def _each(blocks: Blocks) -> AsyncIterator[bytes]:
    """Iterate asynchronously over either kind of iterable."""
    if isinstance(blocks, AsyncIterable):
        async for block in blocks:
            yield block
    else:
        for block in blocks:
            yield block


async def _regroup(blocks: Blocks) -> AsyncIterator[bytes]:
    """Yield the same bytes in blocks of the largest size allowed: each block costs a round trip."""
    kept = bytearray()
    async for block in _each(blocks):
        rest = memoryview(block)
        while len(kept) + len(rest) >= BLOCK_BYTES:
            room = BLOCK_BYTES - len(kept)
            yield bytes(kept) + rest[:room]
            kept.clear()
            rest = rest[room:]
        kept += rest
    if kept:
        yield bytes(kept)
