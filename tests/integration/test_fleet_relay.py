"""Workers on a machine that nobody can dial: through our relay, on a terminal, asked and answered."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.agents.sdk import Workers
from holdfast.agents.supervisor import background, messages
from tests.integration.test_remote_relay import box, environments
from tests.support import acp_agent, warm
from tests.support.arena import end_exec_server, end_listener
from tests.support.patience import patient
from tests.support.relays import RelayProcess, relay_process
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

pytestmark = [
    pytest.mark.deep,  # what it drives is driven by other tests over another link
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's"),
]

WAIT_S = patient(60.0)


@dataclass(frozen=True)
class Behind:
    home: Path
    work: Path
    relay: RelayProcess

    async def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "HOLDFAST_HOME": str(self.home)}
        return await asyncio.to_thread(warm.run, ["worker", *words], cwd=self.work, env=env, timeout=WAIT_S)

    async def until(self, worker: str, text: str, *words: str) -> None:
        said = ""
        try:
            async with asyncio.timeout(WAIT_S):
                while text not in said:
                    said = (await self.command(*(words or ("logs",)), worker)).stdout
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(said) from None


@asynccontextmanager
async def behind(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Behind]:
    """A home, a directory, and the environment `box` behind a relay, with a CLI that speaks ACP."""
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    for name in ("work", "bin"):
        (folder / name).mkdir(mode=0o700)
    agent = folder / "bin/qwen"
    agent.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, acp_agent.__file__])}\n", "utf-8")
    agent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    try:
        async with relay_process(folder / "relay") as relay, box(relay, folder / "box"):
            environments(relay, folder / "home")
            yield Behind(folder / "home", folder / "work", relay)
    finally:
        await end_listener(background.supervisor_socket(folder / "home"), signal.SIGTERM)
        await end_exec_server(folder / "home")
        shutil.rmtree(folder, ignore_errors=True)


async def test_workers_run_on_a_terminal_and_are_asked_and_answered_through_a_relay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with behind(monkeypatch) as there:
        (there.work / "a").write_text("a\n", "utf-8")
        plain = await there.command("run", "--env", "box", "--id", "one", "shell", "echo new > made; pwd")
        assert plain.returncode == 0, plain.stdout + plain.stderr
        diff = json.loads((await there.command("diff", "one", "--json")).stdout)
        assert diff["paths"] == ["A made"]

        script = "printf 'name? '; read x; echo hello-$x; echo $x > said"
        begun = await there.command(
            "run", "--env", "box", "--id", "two", "--tty", "--detach", "shell", script
        )
        assert begun.returncode == 0, begun.stdout + begun.stderr
        await there.until("two", "name?")
        await there.relay.stop(signal.SIGKILL)
        await there.relay.start()
        sent = await there.command("send", "two", "anna")
        assert sent.returncode == 1
        assert "nobody sees whether it reads its terminal" in sent.stderr
        assert "holdfast worker attach two" in sent.stderr
        async with Workers.connect(there.home) as workers:  # what somebody types who is attached
            await workers.call(messages.INPUT, messages.InputParams("two", b"anna\n"))
        ended = await there.command("wait", "two")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "hello-anna" in (await there.command("logs", "two")).stdout
        diff = json.loads((await there.command("diff", "two", "--json")).stdout)
        assert diff["paths"] == ["A said"]

        words = ("--env", "box", "--id", "three", "--acp", "--ask", "--detach", "qwen", "touch it")
        asked = await there.command("run", *words)
        assert asked.returncode == 0, asked.stdout + asked.stderr
        await there.until("three", "waiting", "status")
        given = await there.command("approve", "three", "--option", "once")
        assert given.returncode == 0, given.stdout + given.stderr
        ended = await there.command("wait", "three")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        diff = json.loads((await there.command("diff", "three", "--json")).stdout)
        assert "A done" in diff["paths"]
