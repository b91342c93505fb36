"""The client's files, HTTP and policies mean the same on the Codex CLI's server as on ours."""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.client.environment import Environment, connect
from holdfast.client.files import BLOCK_BYTES, MAX_WHOLE_BYTES, Found
from holdfast.client.policy import Policy
from holdfast.errors import HoldfastError, InvalidRequest, NotFound, OperationFailed, UsageError
from tests.support.codex import requires_codex
from tests.support.httpd import httpd, reply
from tests.support.patience import patient
from tests.support.servers import codex_server, holdfast_server

PROFILE = """
[filesystem]
":root" = "read"
":workspace" = "write"
"**/.env" = "deny"
"""


@pytest.fixture(scope="module", params=["ours", "theirs"])
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    # Not below /tmp: there the Codex CLI makes no links to itself, and its sandbox needs them.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="holdfast-") as folder:
        home = Path(folder) / "home"
        ours = request.param == "ours"
        async with holdfast_server(home) if ours else codex_server(requires_codex(), home) as server:
            yield server.url


@pytest.fixture
async def env(url: str) -> AsyncIterator[Environment]:
    async with connect(url) as env:
        yield env


async def test_files_are_written_seen_and_removed(env: Environment, tmp_path: Path) -> None:
    files, folder = env.files, tmp_path / "new dir"
    await files.make_directory(folder)
    await files.write(folder / "é", "text")
    assert await files.read_text(folder / "é") == "text"
    found = await files.stat(folder / "é")
    assert (found.is_file, found.is_directory, found.is_symlink, found.size) == (True, False, False, 4)
    assert [entry.file_name for entry in await files.list(tmp_path)] == ["new dir"]
    await files.copy(folder, tmp_path / "copy", recursive=True)
    assert (await files.walk(tmp_path / "copy")).entries == (Found(str(tmp_path / "copy" / "é"), False),)
    (tmp_path / "link").symlink_to("copy")
    assert await files.canonical(tmp_path / "link") == str((tmp_path / "copy").resolve())
    with pytest.raises(InvalidRequest):
        await files.stat(tmp_path / "link", follow_symlinks=False)
    with pytest.raises(OperationFailed):
        await files.remove(tmp_path / "copy")
    await files.remove(tmp_path / "copy", recursive=True)
    assert not await files.exists(tmp_path / "copy")
    await files.remove(tmp_path / "copy", missing_ok=True)
    with pytest.raises(NotFound):
        await files.remove(tmp_path / "copy")
    with pytest.raises(InvalidRequest):
        await files.read(tmp_path)


@pytest.mark.parametrize("size", [0, MAX_WHOLE_BYTES, MAX_WHOLE_BYTES + 1])
async def test_whole_files_of_every_size_go_there_and_back(
    env: Environment, tmp_path: Path, size: int
) -> None:
    data = hashlib.shake_128(b"seed").digest(size)
    await env.files.write(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == data
    assert await env.files.read(tmp_path / "file") == data


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES, BLOCK_BYTES + 1])
async def test_blocks_of_every_size_go_there_and_back(env: Environment, tmp_path: Path, size: int) -> None:
    data = hashlib.shake_128(b"seed").digest(size)
    (tmp_path / "file").write_bytes(b"older and longer than nothing")
    await env.files.write_blocks(tmp_path / "file", [data])
    assert (tmp_path / "file").read_bytes() == data
    assert b"".join([block async for block in env.files.open_blocks(tmp_path / "file")]) == data


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
        files.read(tmp_path / "ws" / ".env", policy=policy),
        anext(files.open_blocks(tmp_path / "ws" / ".env", policy=policy)),
    ):
        with pytest.raises(HoldfastError):
            await attempt
    assert not (tmp_path / "out").exists()
    assert await files.read(tmp_path / "ws" / ".env", policy=Policy.full_access()) == b"secret"


async def test_a_policy_confines_commands(env: Environment, tmp_path: Path) -> None:
    (tmp_path / "ws" / "sub").mkdir(parents=True)
    (tmp_path / "ws" / ".env").write_text("secret", "utf-8")
    policy = Policy.from_toml(PROFILE, root=tmp_path / "ws")
    command = ["/bin/sh", "-c", "echo x > ../in; cat ../.env; echo x > ../../out"]
    result = await env.run(command, cwd=tmp_path / "ws" / "sub", policy=policy)
    assert result.code != 0
    assert b"secret" not in result.stdout
    assert (tmp_path / "ws" / "in").exists()
    assert not (tmp_path / "out").exists()
    free = await env.start(command, cwd=tmp_path / "ws" / "sub", policy=Policy.full_access())
    assert free.sandbox_type == "none"
    assert (await free.wait()).stdout == b"secret"


async def test_a_watch_fires_when_a_missing_file_appears(env: Environment, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(InvalidRequest):
        await env.files.watch(tmp_path / "there")
    watch = await env.files.watch(tmp_path / "absent")
    (tmp_path / "absent").touch()
    async with asyncio.timeout(patient(30)):
        await watch.changed()


async def test_http_is_buffered_and_streamed(env: Environment) -> None:
    body = hashlib.shake_128(b"seed").digest(3 * 1024 * 1024)
    moved = reply(302, b"", ("Location", "/big"))
    async with (
        httpd({"/big": reply(200, body, ("X-A", "1")), "/moved": moved}) as web,
        asyncio.timeout(patient(30)),
    ):
        response = await env.http.request("POST", web.url("/x"), headers={"X-B": "2"}, content=b"body")
        assert (response.status, response.body) == (200, b"ok")
        assert (web.received[0].method, web.received[0].body) == ("POST", b"body")
        assert web.received[0].values("x-b") == ["2"]
        assert (await env.http.request("GET", web.url("/moved"))).body == body
        stopped = await env.http.request("GET", web.url("/moved"), follow_redirects=False)
        assert (stopped.status, stopped.header("Location")) == (302, "/big")
        async with env.http.stream("GET", web.url("/big")) as streamed:
            assert (streamed.status, streamed.header("x-a")) == (200, "1")
            assert b"".join([piece async for piece in streamed]) == body
        async with env.http.stream("GET", web.url("/big")) as dropped:
            await anext(aiter(dropped))
        assert (await env.http.request("GET", web.url("/x"))).body == b"ok"
    with pytest.raises(UsageError):
        await env.http.request("GET", "no url")
    with pytest.raises(OperationFailed):
        await env.http.request("GET", web.url(), timeout_s=5)


async def test_a_body_that_breaks_off_is_an_error_after_what_came(env: Environment) -> None:
    async def short(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        await writer.drain()

    async with httpd({"/": short}) as web, env.http.stream("GET", web.url("/")) as response:
        body = aiter(response)
        async with asyncio.timeout(patient(30)):
            assert await anext(body) == b"first"
            with pytest.raises(OperationFailed):
                await anext(body)
