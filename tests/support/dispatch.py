"""What tests of the dispatcher share."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.agents.catalog.hostfiles import write_settings
from holdfast.agents.sdk import Workers
from holdfast.agents.supervisor import background
from holdfast.board.database.database import Transaction
from holdfast.board.rules.rows import Comment, Detail, NewTask, ParentResult, Run, Task
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import open_store
from holdfast.board.verbs import runs
from holdfast.dispatch.context import DispatchContext
from holdfast.dispatch.dispatcher import DispatchOptions, serve
from holdfast.dispatch.installed import InstalledProfiles
from holdfast.dispatch.rules.dispatcherstatus import DispatcherStatus
from tests.support import proc
from tests.support.arena import GONE_S, end_exec_server, end_listener
from tests.support.patience import patient


def a_task(*, body: str = "", **more: object) -> Task:
    values: dict[str, object] = {
        **{"id": "t_1", "board": "b", "title": "do it", "body": body, "assignee": "script"},
        **{
            "status": TaskStatus.RUNNING,
            "priority": 0,
            "created_by": "me",
            "created_by_run": None,
            "created_ms": 0,
        },
        **{
            "status_ms": 0,
            "ended_ms": None,
            "open_parents": 0,
            "run_id": "r_1",
            "generation": 1,
            "attempts": 1,
        },
        **{
            "max_attempts": 3,
            "wake_ms": None,
            "question": None,
            "options": [],
            "waiting_for": "",
            "reason": "",
        },
        **{"result": None, "version": 1},
    }
    return Task(**{**values, **more})  # type: ignore[arg-type]  # a test that errs here fails here


def a_run(*, error: str | None = None, generation: int = 1) -> Run:
    return Run(
        id=f"r_{generation}",
        task_id="t_1",
        board="b",
        generation=generation,
        worker="w",
        host="h",
        profile="script",
        lease_until_ms=0,
        heartbeat_ms=0,
        note="",
        started_ms=0,
        ended_ms=None,
        outcome=None,
        failure=None,
        summary=None,
        metadata={},
        error=error,
    )


def a_detail(
    *,
    body: str = "",
    comments: Sequence[Comment] = (),
    results: Sequence[ParentResult] = (),
    errors: Sequence[str] = (),
) -> Detail:
    return Detail(
        task=a_task(body=body),
        parents=[],
        children=[],
        comments=list(comments),
        runs=[a_run(error=error, generation=number) for number, error in enumerate(errors, 1)],
        events=[],
        results=list(results),
        files=[],
        messages=[],
    )


WITHIN_S: Final = patient(
    20.0
)  # a supervisor, an exec server and a sandbox are started, on a machine with much to do
OVER_S: Final = patient(60.0)  # a run with all that, to its end
# Not below /tmp, which no worker of the board can see.
PLACE: Final = "/var/tmp"
DAEMONS_OWN: Final = frozenset({".sock", ".lock", ".log"})  # files in a home that its daemons hold on to


def processes_in(folder: Path) -> list[int]:
    """Those whose working directory it is."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if Path(os.readlink(entry / "cwd")) == folder:
                found.append(int(entry.name))
    return found


class Yard:
    """A board with a home for its dispatcher, and a person's home.

    `home` may be one whose supervisor and exec server are there already; it is as new otherwise.
    """

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        self.folder = folder
        self.home, self.user, self.address = home or folder / "h", folder / "user", str(folder / "board.db")
        self.bin = folder / "bin"
        self.environ: dict[str, str] = {}  # what the dispatcher has besides
        for made in (self.home, self.user, self.bin):
            made.mkdir(mode=0o700, exist_ok=True)
        self.store = open_store(self.address)
        self.store.create_board("b")

    def create(self, body: str = "", **wishes: object) -> Task:
        wish = {"title": "do it", "body": body, "assignee": "script", **wishes}
        return self.store.create("b", NewTask(**wish))  # type: ignore[arg-type]  # a test that errs here fails here

    def profile(self, name: str, **members: object) -> None:
        """Another profile of the user."""
        with open(self.home / "worker-profiles.toml", "a", encoding="utf-8") as file:
            lines = [f"{key}{write_settings('x.toml', {'x': value})[1:]}" for key, value in members.items()]
            file.write("".join([f"[{name}]\n", *lines]))

    def program(self, name: str, script: str) -> None:
        """Something on the PATH of workers."""
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        (self.bin / name).chmod(0o755)

    @contextlib.asynccontextmanager
    async def dispatching(self, **wishes: Any) -> AsyncIterator["asyncio.Task[None]"]:
        """A dispatcher for as long as the block lasts; what it started stays."""
        plan = DispatchOptions(("b",), **wishes)
        environ = {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.user), **self.environ}
        serving = asyncio.get_running_loop().create_task(
            serve(self.home, self.address, plan, environ=environ)
        )
        try:
            yield serving
        finally:
            if not serving.done():
                serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving

    def context(self) -> DispatchContext:
        """What a dispatcher of this home knows, without one."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.user)}
        nobody: Any = None
        status = DispatcherStatus("here", 1, ("b",), 0.0)
        return DispatchContext(
            self.home,
            self.address,
            "here",
            nobody,
            nobody,
            InstalledProfiles(self.home, environ),
            ("holdfast",),
            b"k" * 32,
            environ,
            status,
        )

    async def until(self, task: Task, *wanted: TaskStatus) -> Task:
        """The task once it has one of these statuses."""
        seen = task
        try:
            async with asyncio.timeout(WITHIN_S):
                while (seen := self.store.task(task.id)).status not in wanted:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{seen.status} instead of {wanted}: {self.store.show(task.id)}") from None
        return seen

    def told(self, kind: str) -> dict[str, object]:
        """What events of this kind say, by task."""
        return {str(e.task_id): e.payload for e in self.store.events("b", limit=500) if e.kind == kind}

    def lose(self, run: Run) -> None:
        """End its lease, as time would, and have the task due again at once."""

        def lost(tx: Transaction) -> None:
            tx.select("UPDATE runs SET lease_until_ms = 1 WHERE id = :id", {"id": run.id})
            runs.expire(tx, run.board, jitter=0.0)
            tx.select("UPDATE tasks SET wake_ms = 1 WHERE id = :id", {"id": run.task_id})

        self.store.database.write(lost)

    def living(self, task: Task) -> list[int]:
        """The processes that are in the task's workspace."""
        return processes_in(self.home / "board" / task.id)

    async def over(self, serving: "asyncio.Task[None]") -> None:
        """Until a dispatcher has nothing to do any more."""
        async with asyncio.timeout(OVER_S):
            await serving

    async def gone(self, task: Task) -> None:
        """Until nothing is in its workspace any more: probes of the supervisor's own end by themselves."""
        async with asyncio.timeout(GONE_S):
            while self.living(task):
                await asyncio.sleep(0.02)

    def repository(self, files: dict[str, str]) -> Path:
        """A git repository with one commit."""
        place = self.folder / "repository"
        place.mkdir()
        for name, text in files.items():
            (place / name).write_text(text, "utf-8")
        who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
        for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "first"]):
            subprocess.run(["git", "-C", str(place), *words], check=True, timeout=patient(30))
        return place

    async def when(self, met: Callable[[], object]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not met():
                await asyncio.sleep(0.02)

    async def clear(self) -> None:
        """Nothing of it is left but the two daemons of its home, without workers."""
        self.store.close()
        if background.supervisor_socket(self.home).exists():
            async with Workers.connect(self.home) as workers:
                for report in await workers.list():
                    if not report.state.ended:
                        await (await workers.find(report.id)).stop(grace_s=0.0)
        shutil.rmtree(self.home / "board", ignore_errors=True)
        for path in self.home.iterdir():
            if path.is_file() and path.suffix not in DAEMONS_OWN:
                path.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)


async def end_daemons(home: Path) -> None:
    await end_listener(background.supervisor_socket(home), signal.SIGTERM)
    await end_exec_server(home)
    beginning = proc.started_with(str(home))  # whose starter was killed; they do not listen yet
    for one in beginning:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    async with asyncio.timeout(WITHIN_S):
        while proc.living(beginning):
            await asyncio.sleep(0.01)


class Process:
    """`holdfast dispatch` as a process of its own."""

    def __init__(self, yard: Yard, *words: str, home: Path | None = None) -> None:
        argv = [sys.executable, "-m", "holdfast", "dispatch", "--board", "b", "--store", yard.address]
        self._process = subprocess.Popen(
            [*argv, "--home", str(home or yard.home), "--max-load", "0", "--min-free-memory", "0", *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(yard.user),
                "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def tell(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    async def end(self, number: int = signal.SIGKILL) -> int:
        self._process.send_signal(number)
        return await asyncio.to_thread(self._process.wait, WITHIN_S)

    async def left(self, within_s: float = WITHIN_S) -> int:
        return await asyncio.to_thread(self._process.wait, within_s)


@contextlib.asynccontextmanager
async def dispatcher(yard: Yard, *words: str, home: Path | None = None) -> AsyncIterator[Process]:
    process = Process(yard, *words, home=home)
    try:
        yield process
    finally:
        await process.end()


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="yard-", dir=PLACE))


@pytest.fixture(scope="module", name="home_with_daemons")
def home_fixture() -> Iterator[Path]:
    """One supervisor and one exec server for all tests of a module; they do not harm them."""
    folder = _folder()
    yield folder
    asyncio.run(end_daemons(folder))
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def own_yard() -> AsyncIterator[Yard]:
    """With daemons of its own, which may be killed and are ended with it."""
    made = Yard(_folder())
    try:
        yield made
    finally:
        made.store.close()
        await end_daemons(made.home)
        shutil.rmtree(made.folder, ignore_errors=True)


@pytest.fixture(name="yard")
async def yard_fixture(home_with_daemons: Path) -> AsyncIterator[Yard]:
    made = Yard(_folder(), home_with_daemons)
    try:
        yield made
    finally:
        await made.clear()


@pytest.fixture(name="yard")
async def fresh_yard_fixture() -> AsyncIterator[Yard]:
    async with own_yard() as made:
        yield made
