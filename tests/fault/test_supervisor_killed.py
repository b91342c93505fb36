"""The supervisor killed with -9, in every state of a worker and at every point of a start.

Whoever comes next finds each worker in its true state, and none was started twice: every start appends a line
to a file.
"""

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast import HoldfastError
from holdfast.agents.sdk import Worker, Workers
from holdfast.agents.supervisor import background
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.worker.book import WorkerRecords
from tests.support.arena import end_exec_server, end_listener
from tests.support.dying_supervisor import POINTS
from tests.support.patience import patient
from tests.support.tiers import DEEP

WITHIN_S: Final = patient(
    20.0
)  # a supervisor, an exec server and a sandbox are started, on a machine with much to do
# Not below /tmp, where the exec server puts what is its own and every sandbox may write.
PLACE: Final = "/var/tmp"
SLEEP: Final = "until [ -e go ]; do sleep 0.05; done"
WORK: Final = "n=0; until [ -e go ]; do n=$((n+1)); echo $n; sleep 0.05; done"

# What a worker does, on a terminal or not, and how that must be called before and after.
STATES: Final[dict[str, tuple[str, bool, str]]] = {
    "starting": (SLEEP, False, "starting()"),
    "running": (WORK, False, "running(streaming)"),
    "waiting": (f"read answer; {SLEEP}", True, "waiting(prompt)"),
    "blocked": (f"kill -STOP $$; {SLEEP}", False, "blocked(stopped)"),
    "ended": ("echo some words; exit 3", False, "failed(crash)"),
}


class Place:
    """A home of workers, and a directory to work in."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work, self.bin = folder / "h", folder / "work", folder / "bin"
        self.work.mkdir()
        self.bin.mkdir()

    def starts(self, name: str = "w") -> int:
        found = self.work / f"starts-{name}"
        return len(found.read_text("utf-8").splitlines()) if found.exists() else 0

    async def run(self, workers: Workers, script: str, *, name: str = "w", **more: Any) -> Worker:
        counted = f"echo started >> starts-{name}; {script}"
        env = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.work)}
        wish: dict[str, Any] = {"agent": "shell", "prompt": counted, "id": name, **more}
        return await workers.run(cwd=str(self.work), env=env, **wish)

    async def kill_supervisor(self) -> None:
        await end_listener(background.supervisor_socket(self.home), signal.SIGKILL)

    def go(self) -> None:
        (self.work / "go").touch()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="arena-", dir=PLACE))
    made = Place(folder)
    try:
        yield made
    finally:
        await end_listener(background.supervisor_socket(made.home), signal.SIGTERM)
        await end_exec_server(made.home)
        shutil.rmtree(folder, ignore_errors=True)


def shown(report: WorkerReport) -> str:
    return f"{report.state}({report.failure or report.detail})"


async def until(worker: Worker, wanted: str) -> WorkerReport:
    """Its report once it says so."""
    seen = ""
    try:
        async with asyncio.timeout(WITHIN_S):
            while (seen := shown(await worker.status())) != wanted:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{seen} instead of {wanted}: {worker.report}") from None
    return worker.report


async def test_every_worker_is_found_again_in_its_state(place: Place) -> None:
    fake = place.bin / "aider"
    fake.write_text(
        "#!/bin/sh\necho started >> starts-retrying\necho 'Retrying in 600 seconds'\nexec sleep 1000\n",
        "utf-8",
    )
    fake.chmod(0o755)
    wanted = {name: row[2] for name, row in STATES.items()} | {"retrying": "running(retrying)"}
    async with Workers.connect(place.home) as workers:
        await place.run(workers, "", name="retrying", agent="aider")
        for name, (script, tty, _) in STATES.items():
            await place.run(workers, script, name=name, tty=tty)
        before = {name: await until(await workers.find(name), wanted[name]) for name in wanted}
        await place.kill_supervisor()
    async with Workers.connect(place.home) as workers:
        after = {name: await until(await workers.find(name), wanted[name]) for name in wanted}
        for name in wanted:
            assert after[name].pid == before[name].pid
        assert after["ended"].about == before["ended"].about
        assert {report.id for report in await workers.list()} == wanted.keys() - {"ended"}
        for name in wanted.keys() - {"ended"}:
            assert shown(await (await workers.find(name)).stop(grace_s=0.0)) == "failed(killed)"
    assert {name: place.starts(name) for name in wanted} == dict.fromkeys(wanted, 1)


async def test_a_worker_that_ended_meanwhile_has_its_verdict_and_all_its_output(place: Place) -> None:
    said = place.home / "workers" / "w" / "output.log"
    async with Workers.connect(place.home) as workers:
        await until(await place.run(workers, f"{WORK}; echo the end; exit 3"), "running(streaming)")
        async with asyncio.timeout(WITHIN_S):
            while len(said.read_text("utf-8").splitlines()) < 10:
                await asyncio.sleep(0.02)
        await place.kill_supervisor()
    place.go()
    async with Workers.connect(place.home) as workers:
        worker = await workers.find("w")
        async with asyncio.timeout(WITHIN_S):
            assert shown(await worker.wait()) == "failed(crash)"
    lines = said.read_text("utf-8").splitlines()
    assert lines == [*map(str, range(1, len(lines))), "the end"], "nothing is missing, nothing is there twice"
    assert place.starts() == 1


async def test_a_worker_told_to_stop_is_stopped_although_its_supervisor_dies(place: Place) -> None:
    """The order is in the record before it is carried out."""
    script = f"trap '' TERM; echo ready; {SLEEP}"
    async with Workers.connect(place.home) as workers:
        worker = await place.run(workers, script)
        await until(worker, "running(streaming)")
        stopping = asyncio.ensure_future(worker.stop(grace_s=1000.0))
        async with asyncio.timeout(WITHIN_S):
            while WorkerRecords(place.home).read("w").ended_by is None:
                await asyncio.sleep(0.02)
        await place.kill_supervisor()
        await asyncio.gather(stopping, return_exceptions=True)
    async with Workers.connect(place.home) as workers:
        async with asyncio.timeout(WITHIN_S):
            assert shown(await (await workers.find("w")).wait()) == "failed(killed)"
    assert place.starts() == 1


EVERY_DAY: Final = {"before-record", "before-start", "after-start"}  # one for each answer
FOUND: Final = {
    "before-record": None,
    "after-record": "failed(launch)",
    "after-session": "failed(launch)",
    "before-preflight": "failed(launch)",
    "after-preflight": "failed(launch)",
    "before-start": "failed(launch)",
    "after-start": "running(streaming)",
}


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if point in EVERY_DAY else DEEP) for point in POINTS]
)
async def test_a_start_that_was_cut_short_is_told_as_it_is(place: Place, point: str) -> None:
    argv = [sys.executable, "-m", "tests.support.dying_supervisor", point, str(place.home)]
    WorkerRecords(place.home).prepare()
    dying = subprocess.Popen(argv)  # noqa: ASYNC220
    try:
        async with asyncio.timeout(WITHIN_S):
            while not background.supervisor_socket(place.home).exists():
                await asyncio.sleep(0.02)
        async with Workers.connect(place.home) as workers:
            with pytest.raises(HoldfastError):
                await place.run(workers, WORK)
    finally:
        dying.kill()
        await asyncio.to_thread(dying.wait)
    async with Workers.connect(place.home) as workers:
        wanted = FOUND[point]
        if wanted is None:
            assert await workers.list(ended=True) == []
        else:
            await until(await workers.find("w"), wanted)
    assert place.starts() == (point == "after-start")


async def test_when_the_exec_server_dies_its_workers_are_lost_at_once_and_the_next_one_starts(
    place: Place,
) -> None:
    """Sooner than a session is looked for: nobody listens any more, so there is nothing to find."""
    async with Workers.connect(place.home) as workers:
        worker = await place.run(workers, WORK)
        await until(worker, "running(streaming)")
        await end_listener(place.home / "exec.sock", signal.SIGKILL)
        async with asyncio.timeout(WITHIN_S):
            report = await worker.wait()
        assert report.state == "lost"
        assert "exec server is gone" in report.about
        again = await place.run(workers, "true", name="again")
        async with asyncio.timeout(WITHIN_S):
            assert shown(await again.wait()) == "completed()"
