"""What a watcher costs: a command that does little else than write files, and a whole run of an agent."""

import asyncio
import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Final, NamedTuple

from bench.client import Failed
from bench.confined import workspace
from bench.measures import ROUND_WITHIN_S, Contest
from bench.servers import find_codex
from holdfast.agents.worker.launching import WorkerSpec, prepare
from holdfast.confine.starts import Command, Exit, Sandbox
from holdfast.confine.watching import begin
from holdfast.sandbox.plan.resolve import locate
from holdfast.sandbox.policy.policy import Policy, bind, workspace_write
from holdfast.server.executor import Executor
from tests.support.model import MADE, scripted_model

# A repository of three hundred files: about three thousand calls that want to change something.
_SCRIPT = """set -e
git init -q r && cd r && git config user.email a@example.org && git config user.name a
n=0; while [ $n -lt 300 ]; do n=$((n + 1)); echo $n > f$n; done
git add . && git commit -qm one && git gc -q
"""


KEY: Final = "scripted-key-0123456789"


class Task(NamedTuple):
    """A command, what it is run with, and what it must leave behind."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    policy: Policy
    made: str
    stdin: bytes = b""


def watch_ratio(contest: Contest) -> list[float]:
    """Watched by unwatched writing, in pairs."""
    folder = workspace(contest)
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)}
    task = Task(("/bin/sh", "-c", _SCRIPT), env, folder, workspace_write(), "r")
    return asyncio.run(_ratios(task, contest.plan.launches))


def watch_run(contest: Contest) -> list[float]:
    """The same for `codex exec` with one command, and a model that answers at once."""
    return asyncio.run(_agent_ratios(contest))


async def _agent_ratios(contest: Contest) -> list[float]:
    folder = workspace(contest)
    state = folder.parent / "state"
    (state / "tmp").mkdir(parents=True, exist_ok=True)
    path = f"{os.path.dirname(find_codex(None))}:{os.environ.get('PATH', os.defpath)}"
    async with scripted_model() as model:
        wish = WorkerSpec(
            agent="codex",
            cwd=str(folder),
            env={"PATH": path, "HOME": str(folder)},
            prompt="Do what the script says.",
            model="scripted-model",
            base=model.url("write"),
            key=KEY,
        )
        ready = prepare(wish, state=str(state))
        if ready.files:
            raise Failed("codex wants files of its own now")
        return await _ratios(
            Task(ready.argv, ready.environment, folder, ready.policy.wish, MADE, ready.stdin or b""),
            contest.plan.launches,
        )


async def _ratios(task: Task, count: int) -> list[float]:
    executor = Executor()
    executor.open()
    try:
        bound = bind(task.policy, locate(str(task.cwd), [str(task.cwd)], task.env))
        sandbox = await executor.sandboxes.confine(bound, cwd=str(task.cwd))
        pairs = [
            (
                await _life(executor, sandbox, task, watch=False),
                await _life(executor, sandbox, task, watch=True),
            )
            for _ in range(count + 1)
        ]
    finally:
        await executor.aclose()
    return [watched / plain for plain, watched in pairs[1:]]


async def _life(executor: Executor, sandbox: Sandbox, task: Task, *, watch: bool) -> float:
    made = task.cwd / task.made
    shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
    ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    stdin = os.memfd_create("stdin")
    os.pwrite(stdin, task.stdin, 0)
    began = time.perf_counter()
    watching = None
    try:
        if watch:
            watching, report = await begin(executor.launcher, 1, sandbox, "bench", lambda _: None)
            if report is not None:
                raise Failed(f"not watched: {report.why}")
        with watching.channel() if watching else contextlib.nullcontext() as channel:
            await executor.launcher.start(
                Command(task.argv, task.argv[0], str(task.cwd), task.env),
                owner=1,
                streams=(stdin, null, null),
                tty=False,
                state=None,
                on_exit=ended.set_result,
                confinement=sandbox.confinement,
                watch=channel,
            )
        async with asyncio.timeout(ROUND_WITHIN_S):
            code = (await ended).code
        if code != 0 or not made.exists():
            raise Failed(f"{task.argv[0]} ended with {code} and did not do its work")
        return time.perf_counter() - began
    finally:
        os.close(null)
        os.close(stdin)
        if watching is not None:
            watching.close()
