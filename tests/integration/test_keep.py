"""`holdfast serve --keep`: sessions that nobody holds, kept for days and within bounds."""

import asyncio
import subprocess
import sys

import pytest

from holdfast.server import executor as executors
from holdfast.server.executor import Clocks, Executor
from tests.support.patience import patient
from tests.support.peer import WAIT_S, Peer, connected, ready, serving

LONG = 3600.0
KEEPING = Clocks(detached_s=0.05, closed_s=LONG, kept_s=LONG)


async def until_sessions(executor: Executor, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(executor.sessions) != count or len(executor.sessions.list_detached()) != count:
            await asyncio.sleep(0.01)


async def left(url: str, script: str | None, *, closed: bool = False) -> str:
    """A session that ran this and was left."""
    async with ready(url) as peer:
        if script is not None:
            await peer.start("p", script)
            if closed:
                await peer.closed("p")
        return peer.session_id


async def test_what_ran_or_ended_in_a_session_is_found_again_and_an_empty_one_is_not_kept() -> None:
    async with serving(clocks=KEEPING) as (url, executor):
        ended = await left(url, "echo said; exit 7", closed=True)
        running = await left(url, "exec sleep 300")
        await left(url, None)
        await until_sessions(executor, 2)  # the empty one has expired, the others are older
        async with connected(url) as peer:
            await resumed(peer, ended)
            page = await peer.call("process/read", {"processId": "p"})
            assert (page["exitCode"], page["closed"], len(page["chunks"])) == (7, True, 1)
        async with connected(url) as peer:
            await resumed(peer, running)
            assert (await peer.call("process/read", {"processId": "p"}))["exited"] is False


async def resumed(peer: Peer, session: str) -> None:
    await peer.initialize(resume=session)


async def test_beyond_the_bound_the_oldest_session_ends_that_runs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executors, "MAX_KEPT", 2)
    async with serving(clocks=KEEPING) as (url, executor):
        running = await left(url, "exec sleep 300")
        await until_sessions(executor, 1)
        await left(url, "exit 0", closed=True)
        await until_sessions(executor, 2)
        newest = await left(url, "exit 0", closed=True)
        await until_sessions(executor, 2)
        assert {session.session_id for session in executor.sessions} == {running, newest}


async def test_output_that_is_kept_has_a_bound_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "MAX_KEPT_BYTES", 3000)
    async with serving(clocks=KEEPING) as (url, executor):
        await left(url, "head -c 2000 /dev/zero", closed=True)
        await until_sessions(executor, 1)
        newest = await left(url, "head -c 2000 /dev/zero", closed=True)
        await until_sessions(executor, 1)
        assert [session.session_id for session in executor.sessions] == [newest]


@pytest.mark.parametrize(
    ("arguments", "code"), [(("--listen", "stdio", "--keep", "7d"), 1), (("--keep", "soon"), 2)]
)
def test_where_keeping_makes_no_sense_it_is_refused(arguments: tuple[str, ...], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "serve", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=patient(30),
        check=False,
    )
    assert done.returncode == code
    assert b"--keep" in done.stderr
