"""Files over a session that answers what the test says."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from holdfast.client.files import BLOCK_BYTES, MAX_READ_BYTES, MAX_WHOLE_BYTES, Files, Found, Unreadable, Walk
from holdfast.client.policy import Policy
from holdfast.errors import (
    ConnectionLost,
    InvalidRequest,
    NotFound,
    OperationFailed,
    RemoteProtocolError,
    UsageError,
)
from holdfast.wire.environment import Capabilities, EnvironmentInfo, ShellInfo
from holdfast.wire.files import DirectoryEntry, Metadata
from tests.support.caller import FakeCaller
from tests.support.patience import patient

SHELL = ShellInfo("sh", "/bin/sh")
ABLE = EnvironmentInfo(
    SHELL,
    cwd="file:///srv/home",
    capabilities=Capabilities(
        file_write_streaming=True, fs_watch_missing=True, sandboxed_file_streaming=True
    ),
)
OLD = EnvironmentInfo(SHELL)


def metadata(size: int = 2) -> dict[str, Any]:
    flags = {"isDirectory": False, "isFile": True, "isSymlink": False}
    return {**flags, "size": size, "createdAtMs": 0, "modifiedAtMs": 5}


class Disk:
    """One file behind fs/open, readBlock, writeBlock and close."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.handles: dict[str, str] = {}

    def caller(self, **more: object) -> FakeCaller:
        names = ("open", "readBlock", "writeBlock", "close")
        answers = {f"fs_{name}": getattr(self, name) for name in names}
        return FakeCaller(**(answers | {"fs_getMetadata": lambda _: metadata(len(self.data))} | more))

    def open(self, params: dict[str, Any]) -> object:
        self.handles[params["handleId"]] = params["mode"]
        if params["mode"] == "replace":
            self.data.clear()
        return {"handleId": params["handleId"]}

    def readBlock(self, params: dict[str, Any]) -> object:
        if params["handleId"] not in self.handles:
            return NotFound("unknown file handle")
        chunk = self.data[params["offset"] : params["offset"] + params["len"]]
        return {"chunk": base64.b64encode(chunk).decode(), "eof": len(chunk) < params["len"]}

    def writeBlock(self, params: dict[str, Any]) -> object:
        if params["handleId"] not in self.handles:
            return NotFound("unknown file handle")
        chunk = base64.b64decode(params["chunk"])
        assert 1 <= len(chunk) <= BLOCK_BYTES
        self.data[params["offset"] : params["offset"] + len(chunk)] = chunk
        return {}

    def close(self, params: dict[str, Any]) -> object:
        self.handles.pop(params["handleId"], None)
        return {}


async def everything(blocks: AsyncIterator[bytes]) -> list[bytes]:
    return [block async for block in blocks]


async def test_a_small_file_is_read_at_once() -> None:
    caller = FakeCaller(fs_getMetadata=metadata(), fs_readFile={"dataBase64": "aGk="})
    files = Files(caller)
    assert await files.read("/srv/a b") == b"hi"
    assert await files.read_text("/srv/a b") == "hi"
    assert caller.sent("fs/readFile")[0]["path"] == "file:///srv/a%20b"
    assert caller.sent("fs/readFile")[0]["sandbox"] is None


async def test_a_large_file_is_read_in_blocks_and_a_huge_one_is_refused() -> None:
    disk = Disk(b"x" * (MAX_WHOLE_BYTES + 1))
    assert await Files(disk.caller()).read("/big") == disk.data
    assert disk.handles == {}
    caller = FakeCaller(fs_getMetadata=metadata(MAX_READ_BYTES + 1))
    with pytest.raises(UsageError) as caught:
        await Files(caller).read("/huge")
    assert caught.value.remedy


async def test_text_and_bytes_are_written_at_once() -> None:
    caller = FakeCaller(fs_writeFile={})
    files = Files(caller)
    await files.write("/a", "é")
    await files.write("/a", b"\xff")
    written = [base64.b64decode(params["dataBase64"]) for params in caller.sent("fs/writeFile")]
    assert written == ["é".encode(), b"\xff"]


async def test_much_is_written_in_blocks() -> None:
    disk = Disk(b"old")
    data = bytes(range(256)) * (MAX_WHOLE_BYTES // 256 + 1)
    await Files(disk.caller(), info=ABLE).write("/a", data)
    assert disk.data == data
    assert disk.handles == {}


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES])
async def test_a_stream_ends_wherever_the_blocks_end(size: int) -> None:
    disk = Disk(b"x" * size)
    blocks = await everything(Files(disk.caller()).open_blocks("/a"))
    assert b"".join(blocks) == disk.data
    assert all(0 < len(block) <= BLOCK_BYTES for block in blocks)
    assert disk.handles == {}


@pytest.mark.parametrize(
    "answer", [{"chunk": "", "eof": False}, {"chunk": "eA==" * BLOCK_BYTES, "eof": False}]
)
async def test_a_block_that_was_not_asked_for_is_the_servers_fault(answer: dict[str, Any]) -> None:
    disk = Disk()
    caller = disk.caller(fs_readBlock=answer)
    with pytest.raises(RemoteProtocolError):
        await everything(Files(caller).open_blocks("/a"))
    await caller.called("fs/close")


async def test_a_stream_that_is_dropped_early_is_closed_in_the_background() -> None:
    disk = Disk(b"x" * 3 * BLOCK_BYTES)
    asked, free = asyncio.Event(), asyncio.Event()

    async def close(params: dict[str, Any]) -> object:
        asked.set()
        await free.wait()
        return disk.close(params)

    caller = disk.caller(fs_close=close)
    async with asyncio.timeout(patient(5)), aclosing(Files(caller).open_blocks("/a")) as blocks:
        await anext(blocks)
    async with asyncio.timeout(patient(5)):
        await asked.wait()  # and nobody waited for the answer
        free.set()
        while disk.handles:
            await asyncio.sleep(0)
    assert caller.cleanups == ["fs/close"]
    assert len(caller.sent("fs/readBlock")) == 1


async def test_an_open_that_is_cancelled_leaves_no_handle() -> None:
    disk = Disk()
    stuck = asyncio.Event()

    async def open_(params: dict[str, Any]) -> object:
        disk.open(params)
        return await stuck.wait()

    caller = disk.caller(fs_open=open_)
    task = asyncio.ensure_future(everything(Files(caller).open_blocks("/a")))
    await caller.called("fs/open")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await caller.called("fs/close")
    assert disk.handles == {}


async def test_a_file_that_cannot_be_opened_is_not_closed() -> None:
    caller = FakeCaller(fs_open=NotFound("no such file"))
    with pytest.raises(NotFound):
        await everything(Files(caller).open_blocks("/a"))
    assert caller.methods() == ["fs/open"]


async def test_a_handle_of_a_lost_connection_is_said_to_be_lost_and_not_missing() -> None:
    disk = Disk(b"x" * 3 * BLOCK_BYTES)
    files = Files(disk.caller(), info=ABLE)
    blocks = files.open_blocks("/a")
    await anext(blocks)
    disk.handles.clear()
    with pytest.raises(ConnectionLost):
        await anext(blocks)

    async def source() -> AsyncIterator[bytes]:
        yield b"x" * BLOCK_BYTES
        disk.handles.clear()
        yield b"y"

    with pytest.raises(ConnectionLost):
        await files.write_blocks("/a", source())


async def test_blocks_are_regrouped_and_may_come_from_anywhere() -> None:
    disk = Disk(b"old")
    files = Files(disk.caller(), info=ABLE)
    await files.write_blocks("/a", [b"ab", b"", b"c"])
    assert disk.data == b"abc"

    async def source() -> AsyncIterator[bytes]:
        for letter in b"xyz":
            yield bytes([letter]) * (BLOCK_BYTES // 2 + 1)

    caller = disk.caller()
    await Files(caller, info=ABLE).write_blocks("/a", source())
    assert disk.data == b"".join(bytes([letter]) * (BLOCK_BYTES // 2 + 1) for letter in b"xyz")
    assert len(caller.sent("fs/writeBlock")) == 2
    await files.write_blocks("/a", [])
    assert disk.data == b""
    assert disk.handles == {}


async def test_a_source_that_fails_closes_the_file() -> None:
    disk = Disk()
    caller = disk.caller()

    async def source() -> AsyncIterator[bytes]:
        yield b"x"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        await Files(caller, info=ABLE).write_blocks("/a", source())
    await caller.called("fs/close")


async def test_a_server_without_blocks_gets_the_file_at_once_up_to_a_bound() -> None:
    caller = FakeCaller(fs_writeFile={})
    files = Files(caller, info=OLD)
    await files.write_blocks("/a", [b"a", b"b"])
    assert caller.sent("fs/writeFile")[0]["dataBase64"] == base64.b64encode(b"ab").decode()
    for writing in (
        files.write_blocks("/a", [b"x"] * 2 + [b"y" * MAX_WHOLE_BYTES]),
        files.write("/a", b"x" * (MAX_WHOLE_BYTES + 1)),
    ):
        with pytest.raises(UsageError) as caught:
            await writing
        assert caught.value.remedy
    assert caller.methods() == ["fs/writeFile"]


async def test_what_the_server_can_do_is_asked_once_if_nobody_said() -> None:
    disk = Disk()
    info = {
        "shell": {"name": "sh", "path": "/bin/sh"},
        "capabilities": {"fileWriteStreaming": True, "new": 1},
    }
    caller = disk.caller(environment_info=info)
    files = Files(caller)
    await files.write_blocks("/a", [b"1"])
    await files.write_blocks("/a", [b"2"])
    assert caller.methods().count("environment/info") == 1


# --- policies


async def test_a_policy_travels_with_every_call() -> None:
    disk = Disk(b"data")
    caller = disk.caller(
        fs_getMetadata=metadata(), fs_readFile={"dataBase64": ""}, fs_writeFile={}, fs_createDirectory={},
        fs_readDirectory={"entries": []}, fs_walk={"entries": [], "errors": [], "truncated": False},
        fs_canonicalize={"path": "file:///a"}, fs_copy={}, fs_remove={},
    )  # fmt: skip
    files, policy = Files(caller, info=ABLE), Policy.workspace_write("/srv/p")
    await files.read("/a", policy=policy)
    await files.read_text("/a", policy=policy)
    await files.write("/a", b"", policy=policy)
    await everything(files.open_blocks("/a", policy=policy))
    await files.write_blocks("/a", [b"x"], policy=policy)
    await files.stat("/a", policy=policy)
    await files.stat("/a", follow_symlinks=False, policy=policy)
    await files.exists("/a", policy=policy)
    await files.list("/a", policy=policy)
    await files.walk("/a", policy=policy)
    await files.canonical("/a", policy=policy)
    await files.make_directory("/a", policy=policy)
    await files.copy("/a", "/b", policy=policy)
    await files.remove("/a", policy=policy)
    on_handles = ("fs/readBlock", "fs/writeBlock", "fs/close")
    contexts = [params["sandbox"] for method, params in caller.calls if method not in on_handles]
    assert len(contexts) == 16
    assert all(context["cwd"] == "file:///srv/p" for context in contexts)


async def test_a_policy_without_a_root_is_about_the_servers_directory() -> None:
    caller = FakeCaller(fs_getMetadata=metadata())
    await Files(caller, info=ABLE).stat("/a", policy=Policy.read_only())
    await Files(caller, info=OLD).stat("/a", policy=Policy.read_only())
    cwds = [params["sandbox"]["cwd"] for params in caller.sent("fs/getMetadata")]
    assert cwds == ["file:///srv/home", None]


async def test_full_access_asks_for_no_sandbox() -> None:
    caller = FakeCaller(fs_getMetadata=metadata())
    await Files(caller).stat("/a", policy=Policy.full_access())
    assert caller.sent("fs/getMetadata")[0]["sandbox"] is None


async def test_blocks_are_never_sent_under_a_policy_that_the_server_would_not_enforce() -> None:
    caller = FakeCaller()
    unconfined = EnvironmentInfo(SHELL, capabilities=Capabilities(file_write_streaming=True))
    files, policy = Files(caller, info=unconfined), Policy.read_only()
    with pytest.raises(InvalidRequest):
        await everything(files.open_blocks("/a", policy=policy))
    with pytest.raises(InvalidRequest):
        await files.write_blocks("/a", [b"x"], policy=policy)
    assert caller.calls == []


# --- asking and changing


async def test_the_shape_of_every_change() -> None:
    caller = FakeCaller(fs_createDirectory={}, fs_copy={}, fs_remove={})
    files = Files(caller)
    await files.make_directory("/d")
    await files.make_directory("/d", parents=False)
    await files.copy("/a", "/b")
    await files.copy("/a", "/b", recursive=True)
    await files.remove("/a")
    await files.remove("/a", recursive=True, missing_ok=True)
    assert [params["recursive"] for params in caller.sent("fs/createDirectory")] == [True, False]
    assert [params["recursive"] for params in caller.sent("fs/copy")] == [False, True]
    assert caller.sent("fs/copy")[0]["sourcePath"] == "file:///a"
    assert caller.sent("fs/copy")[0]["destinationPath"] == "file:///b"
    removals = [(params["recursive"], params["force"]) for params in caller.sent("fs/remove")]
    assert removals == [(False, False), (True, True)]


async def test_answers_speak_of_native_paths() -> None:
    walked = {
        "entries": [
            {"path": "file:///a/b%20c", "kind": "directory"},
            {"path": "file:///a/f", "kind": "file"},
        ],
        "errors": [{"path": "file:///a/x", "message": "denied"}],
        "truncated": True,
    }
    entries = [{"fileName": name, "isDirectory": False, "isFile": True} for name in ("b", "a")]
    caller = FakeCaller(
        fs_walk=walked, fs_readDirectory={"entries": entries}, fs_canonicalize={"path": "file:///C:/x"}
    )
    files = Files(caller)
    assert await files.walk("/a", max_depth=3, prune_hidden_directories=True) == Walk(
        (Found("/a/b c", True), Found("/a/f", False)), (Unreadable("/a/x", "denied"),), True
    )
    options = caller.sent("fs/walk")[0]["options"]
    assert (options["maxDepth"], options["pruneHiddenDirectories"]) == (3, True)
    assert await files.list("/a") == (DirectoryEntry("a", False, True), DirectoryEntry("b", False, True))
    assert await files.canonical("C:\\y") == "C:\\x"


async def test_a_path_exists_unless_the_server_does_not_find_it() -> None:
    assert await Files(FakeCaller(fs_getMetadata=metadata())).exists("/a")
    assert not await Files(FakeCaller(fs_getMetadata=NotFound("no"))).exists("/a")
    with pytest.raises(OperationFailed):
        await Files(FakeCaller(fs_getMetadata=OperationFailed("broken"))).exists("/a")


async def test_a_path_that_is_none_never_reaches_the_server() -> None:
    caller = FakeCaller()
    files = Files(caller)
    for asking in (
        files.read("x"),
        files.write("file:///x", b""),
        files.stat("/a\0"),
        files.copy("/a", "b"),
        files.walk(""),
        files.watch("x"),
        everything(files.open_blocks("x")),
        files.write_blocks("x", []),
    ):
        with pytest.raises(UsageError) as caught:
            await asking
        assert caught.value.remedy
    assert caller.calls == []


# --- sharing


class Gate:
    """Answers one metadata request after the other, when told to."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[object]] = []

    async def __call__(self, params: dict[str, Any]) -> object:
        self.waiting.append(asyncio.get_running_loop().create_future())
        return await self.waiting[-1]


async def test_metadata_is_asked_once_by_all_who_ask_meanwhile_and_never_remembered() -> None:
    gate = Gate()
    caller = FakeCaller(fs_getMetadata=gate)
    files = Files(caller)
    askers = [asyncio.ensure_future(files.stat("/a")) for _ in range(3)]
    await caller.called("fs/getMetadata")
    other = asyncio.ensure_future(files.stat("/b"))
    unfollowed = asyncio.ensure_future(files.stat("/a", follow_symlinks=False))
    confined = asyncio.ensure_future(files.stat("/a", policy=Policy.workspace_write("/a")))
    await caller.called("fs/getMetadata", 4)
    askers[0].cancel()
    for answer in gate.waiting:
        answer.set_result(metadata())
    results = await asyncio.gather(*askers[1:], other, unfollowed, confined)
    assert results == [Metadata(False, True, False, 2, 0, 5)] * 5
    assert len(gate.waiting) == 4
    again = asyncio.ensure_future(files.stat("/a"))
    await caller.called("fs/getMetadata", 5)
    gate.waiting[-1].set_result(metadata())
    await again


async def test_an_error_is_shared_too_and_asked_again_later() -> None:
    gate = Gate()
    caller = FakeCaller(fs_getMetadata=gate)
    files = Files(caller)
    askers = [asyncio.ensure_future(files.stat("/a")) for _ in range(2)]
    await caller.called("fs/getMetadata")
    gate.waiting[0].set_result(NotFound("no"))
    assert [type(e) for e in await asyncio.gather(*askers, return_exceptions=True)] == [NotFound, NotFound]
    again = asyncio.ensure_future(files.stat("/a"))
    await caller.called("fs/getMetadata", 2)
    gate.waiting[1].set_result(metadata())
    assert (await again).size == 2


@pytest.mark.parametrize("change", ["write", "write_blocks", "make_directory", "remove", "copy", "failing"])
async def test_nobody_joins_a_question_asked_before_a_change(change: str) -> None:
    gate = Gate()
    refused = OperationFailed("read-only")
    caller = Disk().caller(
        fs_getMetadata=gate, fs_writeFile={}, fs_createDirectory={}, fs_remove={}, fs_copy=refused
    )
    files = Files(caller, info=ABLE)
    before = asyncio.ensure_future(files.stat("/a"))
    await caller.called("fs/getMetadata")
    match change:
        case "write":
            await files.write("/a", b"")
        case "write_blocks":
            await files.write_blocks("/a", [])
        case "make_directory":
            await files.make_directory("/a")
        case "remove":
            await files.remove("/a")
        case _:
            with pytest.raises(OperationFailed):
                await files.copy("/a", "/b")
    after = asyncio.ensure_future(files.stat("/a"))
    await caller.called("fs/getMetadata", 2)
    gate.waiting[1].set_result(metadata(7))
    assert (await after).size == 7
    gate.waiting[0].set_result(metadata(1))
    assert (await before).size == 1


# --- watches


async def test_a_watch_fires_once_for_its_own_number() -> None:
    caller = FakeCaller(fs_watchMissing={"watching": True})
    files = Files(caller, info=ABLE)
    watch = await files.watch("/a", "/b", present="/c")
    assert caller.sent("fs/watchMissing") == [
        {"watchId": 1, "missing": ["file:///a", "file:///b"], "present": "file:///c"}
    ]
    caller.push("fs/missingChanged", {"watchId": 7})
    assert not watch.fired
    caller.push("fs/missingChanged", {"watchId": 1})
    async with asyncio.timeout(patient(5)):
        await watch.changed()
    caller.push("fs/missingChanged", {"watchId": 1})


async def test_a_newer_watch_and_a_lost_link_fire_the_one_before() -> None:
    caller = FakeCaller(fs_watchMissing={"watching": True})
    files = Files(caller, info=ABLE)
    first = await files.watch("/a")
    second = await files.watch("/b")
    assert (first.fired, second.fired) == (True, False)
    caller.lose(ConnectionLost("gone"))
    assert (first.fired, second.fired) == (True, True)
    assert [params["watchId"] for params in caller.sent("fs/watchMissing")] == [1, 2]


async def test_a_watch_may_fire_before_its_answer_is_here() -> None:
    def at_once(params: dict[str, Any]) -> object:
        caller.push("fs/missingChanged", {"watchId": params["watchId"]})
        return {"watching": True}

    caller = FakeCaller(fs_watchMissing=at_once)
    assert (await Files(caller, info=ABLE).watch("/a")).fired


async def test_what_cannot_be_watched_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        await Files(FakeCaller(fs_watchMissing={"watching": False}), info=ABLE).watch("/a")
    with pytest.raises(InvalidRequest):
        await Files(FakeCaller(), info=OLD).watch("/a")
