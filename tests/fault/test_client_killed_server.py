"""A server killed with -9, restarted or not: every handle of the client ends with one clear error, in time.

The server is stopped before it is killed, so that every call is certainly under way and none is answered.
"""

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

import holdfast
from holdfast import ConnectionLost, Environment, HoldfastError, SessionLost, Unreachable, sync
from holdfast.client import recovery
from holdfast.client.recovery import LinkState
from tests.support.codex import requires_codex
from tests.support.httpd import httpd
from tests.support.patience import patient
from tests.support.servers import ServerProcess, codex_server, holdfast_server

AT_ONCE_S: Final = patient(30.0)  # a loaded machine needs a while for nothing
WITHIN_S: Final = patient(30.0)  # after the restart: the longest pause between two attempts is 2 s
CAT: Final = ["/bin/cat"]  # ends with its input: a killed reference leaves its commands behind


@pytest.fixture(params=["ours-ws", "ours-unix", "theirs"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ServerProcess]:
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        home = Path(folder) / "home"
        match request.param:
            case "ours-ws":
                launch = holdfast_server(home)
            case "ours-unix":
                launch = holdfast_server(home, listen=f"unix://{folder}/socket")
            case _:
                launch = codex_server(requires_codex(), home)
        async with launch as running:
            yield running


async def first(body: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(AT_ONCE_S):
        return await anext(body)


def begun(works: Mapping[str, Awaitable[object]]) -> dict[str, asyncio.Future[object]]:
    return {name: asyncio.ensure_future(work) for name, work in works.items()}


async def errors_of(begun: Mapping[str, asyncio.Future[object]], within_s: float) -> dict[str, HoldfastError]:
    """How each ended; none may be left, and none may have succeeded."""
    async with asyncio.timeout(within_s):
        ends = await asyncio.gather(*begun.values(), return_exceptions=True)
    errors: dict[str, HoldfastError] = {}
    for name, end in zip(begun, ends, strict=True):
        assert isinstance(end, HoldfastError), f"{name}: {end!r}"
        errors[name] = end
    return errors


async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\nfirst")
    await writer.drain()
    await asyncio.Event().wait()


async def test_every_handle_ends_with_one_clear_error_and_the_restarted_server_is_usable(
    server: ServerProcess, tmp_path: Path
) -> None:
    async with httpd({"/": endless}) as web, holdfast.connect(server.url) as env:
        process = await env.start(CAT, stdin=True)
        other = await env.start(CAT, stdin=True)
        async with env.http.stream("GET", web.url("/")) as response:
            body = aiter(response)
            assert await first(body) == b"first"
            await server.freeze()
            handles = begun(
                {
                    "wait": process.wait(),
                    "a second wait": process.wait(),
                    "another process": other.wait(),
                    "events": anext(aiter(process)),
                    "stdout": anext(process.stdout),
                    "stderr": anext(process.stderr),
                    "write": process.write(b"x"),
                }
            )
            calls = begun(
                {
                    "run": env.run(["/bin/true"]),
                    "start": env.start(CAT, stdin=True),
                    "signal": process.signal("SIGINT"),
                    "terminate": other.terminate(),
                    "read": env.files.read(tmp_path / "file"),
                    "file": env.files.write(tmp_path / "file", b"x"),
                    "status": env.status(),
                    "http": env.http.request("GET", web.url("/")),
                    "http stream": anext(body),
                }
            )
            await asyncio.sleep(0)  # every call is sent when its task has run once
            await server.crash()
            for name, error in (await errors_of(calls, AT_ONCE_S)).items():
                assert type(error) is ConnectionLost, f"{name}: {error!r}"
            later = begun({"later": env.run(["/bin/true"]), "later write": process.write(b"y")})
            await server.start()
            for name, error in (await errors_of({**handles, **later}, WITHIN_S)).items():
                assert type(error) is SessionLost, f"{name}: {error!r}"
                assert error.remedy, name
        assert env.state is LinkState.FAILED
        afterwards = begun(
            {
                "wait": process.wait(),
                "events": anext(aiter(process)),
                "write": process.write(b"z"),
                "run": env.run(["/bin/true"]),
                "read": env.files.read(tmp_path / "file"),
                "status": env.status(),
            }
        )
        for name, error in (await errors_of(afterwards, AT_ONCE_S)).items():
            assert type(error) is SessionLost, f"{name}: {error!r}"
            assert error.remedy, name
        await process.terminate()  # nothing to end, so no error
    async with asyncio.timeout(WITHIN_S), holdfast.connect(server.url) as again:
        assert (await again.run(["/bin/echo", "back"])).stdout == b"back\n"


async def test_a_server_that_stays_away_is_given_up_when_the_window_is_over(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "WINDOW_S", 1.0)
    async with holdfast.connect(server.url) as env:
        process = await env.start(CAT, stdin=True)
        await server.freeze()
        handles = begun(
            {"wait": process.wait(), "events": anext(aiter(process)), "write": process.write(b"x")}
        )
        await asyncio.sleep(0)
        await server.crash()
        for name, error in (await errors_of(handles, WITHIN_S)).items():
            assert type(error) is SessionLost, f"{name}: {error!r}"
            assert error.remedy, name
    with pytest.raises(Unreachable):
        await Environment.open(server.url)


def failing(call: Callable[[], object], ended: dict[str, BaseException], name: str) -> threading.Thread:
    """A thread that keeps how `call` ended."""

    def run() -> None:
        try:
            call()
        except BaseException as exc:
            ended[name] = exc

    thread = threading.Thread(target=run)
    thread.start()
    return thread


async def test_whoever_waits_in_the_blocking_facade_is_told_too(server: ServerProcess) -> None:
    env = await asyncio.to_thread(sync.connect, server.url)
    try:
        process = await asyncio.to_thread(env.start, CAT, stdin=True)
        await server.freeze()
        ended: dict[str, BaseException] = {}
        works: dict[str, Callable[[], object]] = {
            "wait": process.wait,
            "events": lambda: list(process),
            "stdout": lambda: list(process.stdout),
            "write": lambda: process.write(b"x"),
        }
        threads = [failing(work, ended, name) for name, work in works.items()]
        await server.crash()
        await server.start()
        async with asyncio.timeout(WITHIN_S):
            for thread in threads:
                await asyncio.to_thread(thread.join, WITHIN_S)
        assert {name: type(error) for name, error in ended.items()} == dict.fromkeys(works, SessionLost)
        with pytest.raises(SessionLost):
            await asyncio.to_thread(env.run, ["/bin/true"])
    finally:
        await asyncio.to_thread(env.close)
    with await asyncio.to_thread(sync.connect, server.url) as again:
        assert (await asyncio.to_thread(again.run, ["/bin/echo", "back"])).stdout == b"back\n"
