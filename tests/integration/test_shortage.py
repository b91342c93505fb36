"""A machine that is short of descriptors for a moment: one start fails and says so, and no other is lost."""

import asyncio
import contextlib
import errno
import itertools
import os
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from holdfast.client.environment import Environment
from holdfast.client.policy import Policy
from holdfast.client.process import Process
from holdfast.confine.launch import LauncherClient
from holdfast.errors import HoldfastError, OperationFailed
from holdfast.sandbox.launcher.children import _SHUTDOWN_S
from tests.support.patience import patient
from tests.support.peer import serving

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted by Linux's means")]

WAIT_S = patient(15.0)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Environment, Any]]:
    async with asyncio.timeout(WAIT_S), serving() as (url, executor):
        environment = await Environment.open(url)
        try:
            yield environment, executor
        finally:
            await environment.aclose()


@contextmanager
def few_descriptors(launcher: LauncherClient, *, more: int) -> Iterator[None]:
    """A launcher that may open so many more than it has."""
    assert launcher._current is not None
    pid = launcher._current.process.pid
    held = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = [number for number in range(len(held) + more + 1) if number not in held]
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free[more], before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("size", [1, 60_000], ids=["inline", "in-memory"])
async def test_a_launcher_without_room_for_an_order_loses_no_command_that_runs(size: int) -> None:
    async with connected() as (environment, executor):
        running = await environment.start(["/bin/cat"], stdin=True)
        with (
            few_descriptors(executor.launcher, more=0),
            pytest.raises(OperationFailed, match="Too many open"),
        ):
            await environment.start(["/bin/echo", *["x" * size] * 2])
        assert (await environment.run(["/bin/echo", "again"])).stdout == b"again\n"
        await running.write(b"still here\n")
        await running.close_stdin()
        assert (await running.wait()).stdout == b"still here\n"


async def test_a_launcher_without_descriptors_ends_what_left_its_session(tmp_path: Path) -> None:
    script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000' & sleep 1000"
    async with connected() as (environment, executor):
        await environment.start(["/bin/sh", "-c", script])
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text("ascii"):
            await asyncio.sleep(0.01)
        pid = int((tmp_path / "pid").read_text("ascii"))
        current = executor.launcher._current
        with few_descriptors(executor.launcher, more=0):
            executor.launcher._drop(current)
            await asyncio.to_thread(current.process.wait, _SHUTDOWN_S + WAIT_S)
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


async def test_a_command_whose_watch_finds_no_descriptor_is_ended_and_its_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    policy = Policy.workspace_write(str(tmp_path))
    async with connected() as (environment, _):

        async def start(script: str) -> Process:
            argv = ["/bin/sh", "-c", script]
            return await environment.start(argv, cwd=str(tmp_path), policy=policy, watch=True)

        await (await start("true")).wait()
        before = set(os.listdir("/proc/self/fd"))
        with monkeypatch.context() as patched:
            patched.setattr(os, "memfd_create", none_left)
            with pytest.raises(OperationFailed, match="Too many open files"):
                await start(f"echo $$ > {tmp_path}/pid; mkdir /outside; sleep 1000")
        while len(set(os.listdir("/proc/self/fd")) - before) > 1:  # what lists them is one itself
            await asyncio.sleep(0.01)
        done = await start("echo hi")
        assert (await done.wait()).stdout == b"hi\n"


async def test_what_was_tried_without_descriptors_is_tried_again(tmp_path: Path) -> None:
    """Otherwise a moment of that would be a weaker sandbox, or none, for as long as the server lives."""
    policy = Policy.workspace_write(str(tmp_path))
    async with connected() as (environment, executor):
        executor.open()
        trials, more = executor.sandboxes._trials, itertools.count(4)  # more than an order needs
        while not trials:
            with few_descriptors(executor.launcher, more=next(more)), contextlib.suppress(HoldfastError):
                await environment.run(["/bin/true"], cwd=str(tmp_path), policy=policy)
        assert errno.EMFILE in {trial.errno for trial in trials.values()}
        assert not any(trial.works for trial in trials.values())
        done = await environment.start(["/bin/true"], cwd=str(tmp_path), policy=policy)
        assert (await done.wait()).code == 0
        assert any(trial.works for trial in trials.values())
