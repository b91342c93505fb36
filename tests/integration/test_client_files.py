"""Files, HTTP and policies of the client, on a server of ours."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.client import files as files_module
from holdfast.client.environment import Environment, connect
from holdfast.client.files import BLOCK_BYTES, MAX_WHOLE_BYTES, Found
from holdfast.client.policy import Policy
from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    InvalidRequest,
    NotFound,
    OperationFailed,
    SessionLost,
    UsageError,
)
from holdfast.wire.files import DirectoryEntry
from tests.support.cut import Way, way_to
from tests.support.httpd import httpd, reply
from tests.support.patience import patient
from tests.support.peer import serving

MAX_HANDLES = 128  # of one connection
PROFILE = """
[filesystem]
":root" = "read"
":workspace" = "write"
"**/.env" = "deny"
"""


@pytest.fixture
async def env() -> AsyncIterator[Environment]:
    async with serving() as (url, _), connect(url) as env:
        yield env


@contextlib.asynccontextmanager
async def interruptible() -> AsyncIterator[tuple[Environment, Way]]:
    async with serving() as (url, _), way_to(url) as way, connect(way.url) as env:
        yield env, way


async def test_a_file_is_written_seen_copied_and_removed(env: Environment, tmp_path: Path) -> None:
    files, folder, file = env.files, tmp_path / "new dir" / "deep", tmp_path / "new dir" / "deep" / "é"
    await files.make_directory(folder)
    await files.make_directory(folder)
    with pytest.raises(HoldfastError):
        await files.make_directory(folder, parents=False)
    await files.write(file, "text é")
    assert file.read_text("utf-8") == "text é"
    assert await files.read_text(file) == "text é"
    found = await files.stat(file)
    assert (found.is_file, found.is_directory, found.size) == (True, False, 7)
    assert await files.list(tmp_path / "new dir") == (DirectoryEntry("deep", True, False),)
    (tmp_path / "link").symlink_to(folder)
    assert await files.canonical(tmp_path / "link" / "é") == str(file.resolve())
    await files.copy(tmp_path / "new dir", tmp_path / "copy", recursive=True)
    walk = await files.walk(tmp_path / "copy")
    assert walk.entries == (
        Found(str(tmp_path / "copy" / "deep"), True),
        Found(str(tmp_path / "copy" / "deep" / "é"), False),
    )
    assert not walk.truncated
    with pytest.raises(OperationFailed):
        await files.remove(tmp_path / "copy")
    await files.remove(tmp_path / "copy", recursive=True)
    assert not await files.exists(tmp_path / "copy")
    await files.remove(tmp_path / "copy", missing_ok=True)
    with pytest.raises(NotFound):
        await files.remove(tmp_path / "copy")


async def test_what_is_not_there_or_not_readable_has_its_own_error(env: Environment, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await env.files.read(tmp_path / "none")
    with pytest.raises(InvalidRequest):
        await env.files.read(tmp_path)
    with pytest.raises(UsageError):
        await env.files.read("relative")
    (tmp_path / "link").symlink_to("x")
    with pytest.raises(InvalidRequest):
        await env.files.stat(tmp_path / "link", follow_symlinks=False)


async def test_a_large_file_goes_there_and_back_in_blocks(env: Environment, tmp_path: Path) -> None:
    data = hashlib.shake_128(b"seed").digest(MAX_WHOLE_BYTES + BLOCK_BYTES // 3)
    await env.files.write(tmp_path / "big", data)
    assert (tmp_path / "big").read_bytes() == data
    assert await env.files.read(tmp_path / "big") == data


async def test_streams_that_end_or_are_dropped_free_their_handles(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "BLOCK_BYTES", 4)
    (tmp_path / "file").write_bytes(b"12345")
    for _ in range(MAX_HANDLES + 2):
        assert [block async for block in env.files.open_blocks(tmp_path / "file")] == [b"1234", b"5"]
        async with contextlib.aclosing(env.files.open_blocks(tmp_path / "file")) as blocks:
            assert await anext(blocks) == b"1234"
    for _ in range(2):
        held = [env.files.open_blocks(tmp_path / "file") for _ in range(100)]
        for stream in held:
            await anext(stream)
        for stream in held:
            await stream.aclose()


async def test_a_policy_confines_files(env: Environment, tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / ".env").write_text("secret", "utf-8")
    policy = Policy.from_toml(PROFILE, root=tmp_path / "ws")
    files = env.files
    await files.write(tmp_path / "ws" / "in", b"1", policy=policy)
    await files.write_blocks(tmp_path / "ws" / "in2", [b"2"], policy=policy)
    assert await files.read(tmp_path / "ws" / "in", policy=policy) == b"1"
    assert [block async for block in files.open_blocks(tmp_path / "ws" / "in2", policy=policy)] == [b"2"]
    for attempt in (
        files.write(tmp_path / "out", b"x", policy=policy),
        files.write_blocks(tmp_path / "out", [b"x"], policy=policy),
        files.make_directory(tmp_path / "out", policy=policy),
        files.copy(tmp_path / "ws" / "in", tmp_path / "out", policy=policy),
        files.remove(tmp_path / "ws", recursive=True, policy=policy),
        files.read(tmp_path / "ws" / ".env", policy=policy),
        anext(files.open_blocks(tmp_path / "ws" / ".env", policy=policy)),
    ):
        with pytest.raises(HoldfastError):
            await attempt
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "ws" / ".env").exists()
    assert await files.read(tmp_path / "ws" / ".env", policy=Policy.full_access()) == b"secret"


async def test_a_policy_may_hide_the_directory_that_it_is_about(env: Environment, tmp_path: Path) -> None:
    for name in ("hidden", "shown"):
        (tmp_path / name).mkdir()
    policy = Policy.from_toml(
        f"[filesystem]\n':minimal' = 'read'\n'{tmp_path}/shown' = 'write'\n", root=tmp_path / "hidden"
    )
    await env.files.write(tmp_path / "shown" / "file", b"1", policy=policy)
    assert await env.files.read(tmp_path / "shown" / "file", policy=policy) == b"1"
    with pytest.raises(NotFound):
        await env.files.list(tmp_path / "hidden", policy=policy)


async def test_a_policy_confines_commands_and_full_access_does_not(env: Environment, tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / ".env").write_text("secret", "utf-8")
    policy = Policy.from_toml(PROFILE, root=tmp_path / "ws").deny(tmp_path / "hidden")
    script = "echo x > in; cat .env; echo x > ../out"
    command = ["/bin/sh", "-c", script]
    result = await env.run(command, cwd=tmp_path / "ws", policy=policy)
    assert result.code != 0
    assert b"secret" not in result.stdout
    assert (tmp_path / "ws" / "in").exists()
    assert not (tmp_path / "out").exists()
    assert result.enforcement is not None
    free = await env.start(command, cwd=tmp_path / "ws", policy=Policy.full_access())
    assert (await free.wait()).stdout == b"secret"
    assert free.sandbox_type == "none"


async def test_a_pattern_is_about_the_workspace_wherever_the_command_runs(
    env: Environment, tmp_path: Path
) -> None:
    (tmp_path / "ws" / "sub").mkdir(parents=True)
    (tmp_path / "ws" / ".env").write_text("secret", "utf-8")
    policy = Policy.workspace_write(tmp_path / "ws").deny("**/.env")
    result = await env.run(["/bin/cat", "../.env"], cwd=tmp_path / "ws" / "sub", policy=policy)
    assert (result.code, result.stdout) == (1, b"")


async def test_a_watch_fires_when_a_missing_file_appears(env: Environment, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("", "utf-8")
    with pytest.raises(InvalidRequest):
        await env.files.watch(tmp_path / "there")
    watch = await env.files.watch(tmp_path / "a" / "b")
    assert not watch.fired
    (tmp_path / "a").mkdir()
    async with asyncio.timeout(patient(30)):
        await watch.changed()


async def test_the_other_machine_makes_http_requests(env: Environment) -> None:
    async with httpd({"/gone": reply(410, b"no", ("X-A", "1"))}) as web:
        response = await env.http.request("POST", web.url("/x"), headers={"X-B": "2"}, content=b"body")
        assert (response.status, response.body) == (200, b"ok")
        gone = await env.http.request("GET", web.url("/gone"))
        assert (gone.status, gone.body, gone.header("x-a")) == (410, b"no", "1")
        assert (web.received[0].method, web.received[0].body) == ("POST", b"body")
        assert web.received[0].values("x-b") == ["2"]
    with pytest.raises(UsageError):
        await env.http.request("GET", "no url")
    with pytest.raises(OperationFailed):
        await env.http.request("GET", web.url())


async def test_a_body_is_streamed_as_it_comes(env: Environment) -> None:
    go_on = asyncio.Event()

    async def slowly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfirst")
        await writer.drain()
        await go_on.wait()
        writer.write(b"second")
        await writer.drain()

    async with httpd({"/slow": slowly}) as web, asyncio.timeout(patient(30)):
        async with env.http.stream("GET", web.url("/slow")) as response:
            body = aiter(response)
            assert await anext(body) == b"first"
            go_on.set()
            assert b"".join([piece async for piece in body]) == b"second"
        async with env.http.stream("GET", web.url("/other")) as response:
            assert b"".join([piece async for piece in response]) == b"ok"


async def test_a_lost_link_ends_streams_at_once_and_the_session_goes_on(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 3 * BLOCK_BYTES)
    stuck = asyncio.Event()

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nfirst")
        await writer.drain()
        await stuck.wait()

    async with httpd({"/": endless}) as web, interruptible() as (env, way), asyncio.timeout(patient(40)):
        blocks = env.files.open_blocks(tmp_path / "big")
        await anext(blocks)
        async with env.http.stream("GET", web.url("/")) as response:
            body = aiter(response)
            assert await anext(body) == b"first"
            way.cut()
            with pytest.raises(ConnectionLost):
                await anext(body)
        with pytest.raises(ConnectionLost):
            await anext(blocks)
        assert await env.files.read(tmp_path / "big") == b"x" * 3 * BLOCK_BYTES
        watch = await env.files.watch(tmp_path / "none")
        way.cut()
        await watch.changed()
        stuck.set()


async def test_closing_the_environment_ends_whoever_waits_for_it(tmp_path: Path) -> None:
    stuck = asyncio.Event()

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nfirst")
        await writer.drain()
        await stuck.wait()

    async with httpd({"/": endless}) as web, serving() as (url, _), asyncio.timeout(patient(40)):
        env = await Environment.open(url)
        try:
            watch = await env.files.watch(tmp_path / "none")
            async with env.http.stream("GET", web.url("/")) as response:
                body = aiter(response)
                assert await anext(body) == b"first"
                waiting = asyncio.ensure_future(anext(body))
                await asyncio.sleep(0)
                await env.aclose()
                with pytest.raises(SessionLost):
                    await waiting
        finally:
            await env.aclose()
        await watch.changed()
        stuck.set()
