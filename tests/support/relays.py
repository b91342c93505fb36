"""A relay of ours as a child process, and the Codex CLI's executor behind it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from tests.support.patience import patient
from tests.support.servers import isolated_environment

START_LIMIT_S: Final = patient(40.0)
STOP_LIMIT_S: Final = patient(20.0)


class RelayProcess:
    """`holdfast relay serve`; `url` is where it is now, also after a restart."""

    def __init__(self, home: Path, store: str, *options: str) -> None:
        self.url = ""
        self.store = store
        self.audit = home / "audit.jsonl"
        self._home = home
        self._options = [*options, "--store", store, "--audit-log", str(self.audit)]
        self._process: asyncio.subprocess.Process | None = None
        home.mkdir(parents=True, exist_ok=True)

    def call(self, *words: str) -> str:
        """`holdfast relay …` on its store; what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "relay", *words, "--store", self.store],
            env=isolated_environment(self._home), capture_output=True, text=True, timeout=START_LIMIT_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def log(self) -> str:
        """What it wrote to standard error."""
        return (self._home / "relay.log").read_text("utf-8")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        listen = self.url or "http://127.0.0.1:0"
        with (self._home / "relay.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "holdfast", "relay", "serve", "--listen", listen, *self._options,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log,
                env=isolated_environment(self._home), start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        async with asyncio.timeout(START_LIMIT_S):
            line = (await self._process.stdout.readline()).decode().strip()
        assert line.startswith("http"), f"no address: {self.log}"
        self.url = line

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            await end(process, number)

    def events(self, kind: str) -> int:
        """How often that is in the audit log."""
        return self.audit.read_text("utf-8").count(f'"{kind}"') if self.audit.exists() else 0

    async def until(self, kind: str, count: int = 1) -> None:
        """Wait until it has happened so often."""
        async with asyncio.timeout(START_LIMIT_S):
            while self.events(kind) < count:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def relay_process(home: Path, *options: str, store: str | None = None) -> AsyncIterator[RelayProcess]:
    relay = RelayProcess(home, store or str(home / "relay.db"), *options)
    try:
        await relay.start()
        yield relay
    finally:
        await relay.stop()


@asynccontextmanager
async def remote_executor(
    argv: Sequence[str], home: Path, relay_url: str, environment: str, token: str, **more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`codex exec-server --remote`, or ours; registered once the relay says so."""
    (home / ".codex").mkdir(parents=True)
    env = isolated_environment(home) | {"CODEX_API_KEY": token, "RUST_LOG": "codex_exec_server=debug"} | more
    with (home / "executor.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *argv, "--remote", relay_url, "--environment-id", environment,
            stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=home,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    except BaseException as exc:
        exc.add_note(f"the executor says: {(home / 'executor.log').read_text('utf-8')[-2000:]}")
        raise
    finally:
        await end(process, signal.SIGTERM)


async def end(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """A process group that we started; what does not heed the signal is killed."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    try:
        async with asyncio.timeout(STOP_LIMIT_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.stdout is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_LIMIT_S):
                await process.stdout.read()
