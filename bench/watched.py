"""What a watcher costs a command that does little else than write files."""

import asyncio
import contextlib
import os
import shutil
import time
from pathlib import Path

from bench.client import Failed
from bench.confined import workspace
from bench.measures import Contest
from holdfast.sandbox.policy import bind
from holdfast.sandbox.presets import workspace_write
from holdfast.sandbox.resolve import locate
from holdfast.server.executor import Executor
from holdfast.server.launch import Command, Exit
from holdfast.server.sandboxes import Sandbox
from holdfast.server.watching import begin

# A repository of three hundred files: about three thousand calls that want to change something.
_SCRIPT = """set -e
git init -q r && cd r && git config user.email a@example.org && git config user.name a
n=0; while [ $n -lt 300 ]; do n=$((n + 1)); echo $n > f$n; done
git add . && git commit -qm one && git gc -q
"""


def watch_ratio(contest: Contest) -> list[float]:
    """Watched by unwatched, in pairs."""
    return asyncio.run(_ratios(contest))


async def _ratios(contest: Contest) -> list[float]:
    folder = workspace(contest)
    executor = Executor()
    executor.open()
    try:
        bound = bind(workspace_write(), locate(str(folder), [str(folder)], os.environ))
        sandbox = await executor.sandboxes.confine(bound, cwd=str(folder))
        pairs = [
            (
                await _life(executor, sandbox, folder, watch=False),
                await _life(executor, sandbox, folder, watch=True),
            )
            for _ in range(contest.plan.launches + 1)
        ]
    finally:
        await executor.aclose()
    return [watched / plain for plain, watched in pairs[1:]]


async def _life(executor: Executor, sandbox: Sandbox, folder: Path, *, watch: bool) -> float:
    shutil.rmtree(folder / "r", ignore_errors=True)
    ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)}
    began = time.perf_counter()
    watching = None
    try:
        if watch:
            watching, report = await begin(executor.launcher, 1, sandbox, "bench", lambda _: None)
            if report is not None:
                raise Failed(f"not watched: {report.why}")
        with watching.channel() if watching else contextlib.nullcontext() as channel:
            await executor.launcher.start(
                Command(("/bin/sh", "-c", _SCRIPT), "/bin/sh", str(folder), env),
                owner=1,
                streams=(null, null, null),
                tty=False,
                state=None,
                on_exit=ended.set_result,
                confinement=sandbox.confinement,
                watch=channel,
            )
        if (await ended).code != 0:
            raise Failed("the script failed")
        return time.perf_counter() - began
    finally:
        os.close(null)
        if watching is not None:
            watching.close()
