"""The Codex CLI, an exec server, and a recorder between them."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.codex import CodexClient, requires_codex
from tests.support.patience import patient
from tests.support.provider import Provider, Script, scripted
from tests.support.recorder import Fault, Recorder, broken_rules, recording
from tests.support.servers import ServerProcess, codex_server, holdfast_server

EVENT_LIMIT_S: Final = patient(30.0)
SERVERS: Final = ("ours", "theirs")


class ExamServer(NamedTuple):
    """A server under examination."""

    process: ServerProcess
    ours: bool


@asynccontextmanager
async def exam_server(which: str, folder: Path) -> AsyncIterator[ExamServer]:
    """One of `SERVERS`, with a home in this folder."""
    home, ours = folder / "server", which == "ours"
    async with holdfast_server(home) if ours else codex_server(requires_codex(), home) as process:
        yield ExamServer(process, ours)


class Stage:
    """A client, a server, and a recorder between them."""

    def __init__(self, client: CodexClient, server: ServerProcess, *, ours: bool) -> None:
        self.client = client
        self.server = server
        self.ours = ours
        self.workspace = client.workspace
        self._recorder: Recorder | None = None

    async def printed(self, text: bytes, *, stream: str = "stdout") -> None:
        """Wait until the server has pushed `text`."""
        recorder = self._recorder
        assert recorder is not None
        await recorder.until(lambda: text in recorder.output(stream))

    @asynccontextmanager
    async def connected(
        self,
        script: Script,
        *,
        connections: int | range = 1,
        features: Iterable[str] = (),
        config: str = "",
        fault: Fault | None = None,
        profile: str | None = None,
    ) -> AsyncIterator[tuple[Provider, Recorder]]:
        """The client configured for a block that runs it, and the recording judged afterwards."""
        async with scripted(script) as model, recording(lambda: self.server.url, fault) as recorder:
            self.client.configure(model.url, features=features, more=config, profile=profile)
            self._recorder = recorder
            yield model, recorder
        problems = broken_rules(recorder.entries, sorted_by_client=not self.ours)
        assert not problems, f"{len(problems)} broken rules, such as {problems[:3]}"[:2000]
        allowed = connections if isinstance(connections, range) else (connections,)
        begun = [e.message for e in recorder.entries if e.method == "initialize"]
        assert recorder.connections in allowed, f"{recorder.connections} connections, begun with {begun}"

    async def play(
        self,
        script: Script,
        *,
        features: Iterable[str] = (),
        config: str = "",
        fault: Fault | None = None,
        sandbox: str = "danger-full-access",
    ) -> tuple[Provider, Recorder]:
        """One `codex exec` to its end."""
        async with self.connected(script, features=features, config=config, fault=fault) as played:
            await self.client.execute(played[1].url, sandbox=sandbox)
        return played

    @asynccontextmanager
    async def playing(
        self, script: Script, *, connections: int, fault: Fault | None = None
    ) -> AsyncIterator[tuple[Provider, Recorder]]:
        """One `codex exec` at work while the block runs; after it the run has ended."""
        linked = self.connected(script, connections=connections, fault=fault)
        async with linked as played, asyncio.TaskGroup() as tasks:
            tasks.create_task(self.client.execute(played[1].url))
            yield played


async def readable(descriptor: int) -> None:
    """Wait for the event that a descriptor stands for, and close it."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, event.set)
    try:
        async with asyncio.timeout(EVENT_LIMIT_S):
            await event.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def files_below(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in found}


def write_below(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
