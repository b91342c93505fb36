"""A session left by one process is taken over by another, with everything that runs in it."""

import asyncio

import pytest

from holdfast.client.environment import Environment
from holdfast.client.events.ordering import Closed, Exited, Output
from holdfast.client.process import Process
from holdfast.errors import HoldfastError, InvalidRequest, SessionAttached
from tests.support.patience import patient
from tests.support.peer import serving

WAIT_S = patient(30.0)
ECHO = "echo up; while read line; do echo got $line; done; exit 5"


async def _text(process: Process, wanted: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(WAIT_S):
        async for chunk in process.stdout:
            seen += chunk
            if wanted in seen:
                break
    return seen


async def _taken_over(url: str, session_id: str) -> Environment:
    """As after a crash: the server may not have noticed yet that nobody holds the session."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await Environment.open(url, resume=session_id)
            except SessionAttached:
                await asyncio.sleep(0.01)


async def test_a_process_that_was_left_is_found_with_what_it_said_and_goes_on() -> None:
    async with serving() as (url, _):
        first = await Environment.open(url)
        process = await first.start(["/bin/sh", "-c", ECHO], stdin=True, process_id="worker")
        assert process.pid
        await process.write(b"one\n")
        await _text(process, b"got one")
        await first.leave()
        second = await _taken_over(url, first.session_id)
        adopted = await second.adopt("worker")
        await adopted.write(b"two\n")
        assert await _text(adopted, b"got two") == b"up\ngot one\ngot two\n"
        await adopted.close_stdin()
        assert (await adopted.wait()).code == 5
        await second.aclose()


async def test_an_end_that_nobody_saw_is_told() -> None:
    async with serving() as (url, _):
        first = await Environment.open(url)
        process = await first.start(
            ["/bin/sh", "-c", "echo said; read x; exit 3"], stdin=True, process_id="w"
        )
        await process.write(b"go\n")
        await first.leave()
        second = await _taken_over(url, first.session_id)
        async with asyncio.timeout(WAIT_S):
            result = await (await second.adopt("w")).wait()
        assert (result.code, result.stdout) == (3, b"said\n")
        await second.aclose()


@pytest.mark.parametrize("script", ["exit 4", "sleep 0.2; exit 4"])
async def test_what_was_said_before_the_oldest_kept_byte_is_gone_and_the_rest_is_not(script: str) -> None:
    flood = "head -c 3000000 /dev/zero; echo last; "
    async with serving() as (url, _):
        first = await Environment.open(url)
        await first.start(["/bin/sh", "-c", flood + script], process_id="w")
        await first.leave()
        second = await _taken_over(url, first.session_id)
        adopted = await second.adopt("w")
        async with asyncio.timeout(WAIT_S):
            events = [event async for event in adopted]
        output = b"".join(event.data for event in events if isinstance(event, Output))
        assert output.endswith(b"last\n")
        assert [event.code for event in events if isinstance(event, Exited)] == [4]
        assert isinstance(events[-1], Closed)
        await second.aclose()


async def test_nobody_takes_over_what_is_not_there() -> None:
    async with serving() as (url, _):
        with pytest.raises(InvalidRequest):
            await Environment.open(url, resume="no-such-session")
        env = await Environment.open(url)
        with pytest.raises(HoldfastError):
            await env.adopt("nobody")
        await env.aclose()


async def test_one_name_is_never_started_twice() -> None:
    async with serving() as (url, _):
        env = await Environment.open(url)
        running = await env.start(["/bin/cat"], stdin=True, process_id="w")
        with pytest.raises(InvalidRequest):
            await env.start(["/bin/cat"], process_id="w")
        await running.write(b"still here\n")
        assert await _text(running, b"here") == b"still here\n"
        await env.leave()
        again = await _taken_over(url, env.session_id)
        with pytest.raises(InvalidRequest):
            await again.start(["/bin/cat"], process_id="w")
        await again.aclose()
