"""A launcher that hangs for a moment: it keeps what it owns, others start elsewhere; it ends with that."""

import asyncio
import os
import signal
import sys

import pytest

from holdfast.client.environment import Environment
from holdfast.confine import launch
from tests.support.patience import patient
from tests.support.peer import serving

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="the launcher is Linux's")]

WAIT_S = patient(30.0)


async def test_a_launcher_that_hung_ends_with_what_it_owns_and_is_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with asyncio.timeout(WAIT_S), serving() as (url, executor):
        launcher = executor.launcher
        first, second = [await Environment.open(url) for _ in range(2)]
        # What it leaves in the background is its session's, also when it has ended itself.
        left = await first.run(["/bin/sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"])
        hung = launcher._current
        assert hung is not None
        os.kill(hung.process.pid, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(launch, "STUCK_S", 0.01)
            starting = asyncio.create_task(first.start(["/bin/cat"], stdin=True))
            while launcher._current is not None:
                await asyncio.sleep(0.01)
        assert (await second.run(["/bin/echo", "elsewhere"])).stdout == b"elsewhere\n"
        os.kill(hung.process.pid, signal.SIGCONT)
        cat = await starting
        await cat.close_stdin()
        assert (await cat.wait()).code == 0
        os.kill(int(left.stdout), 0)
        assert hung.process.poll() is None
        await first.aclose()
        executor.end(next(one for one in executor.sessions if one.session_id == first.session_id))
        while hung.process.poll() is None:
            await asyncio.sleep(0.01)
        assert launcher._connections == {launcher._current}
        assert (await second.run(["/bin/echo", "again"])).stdout == b"again\n"
        await second.aclose()
