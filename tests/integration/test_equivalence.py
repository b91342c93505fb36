"""Where a worker really is: shell workers with and without a sandbox, by the SDK and by the command."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.agents.evidence.advice import Difference, EquivalenceReport
from holdfast.agents.sdk import Worker, Workers
from holdfast.agents.supervisor import background
from holdfast.agents.worker.book import WorkerRecords
from tests.support import warm
from tests.support.arena import end_exec_server, end_listener
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

WITHIN_S: Final = (
    60.0  # a supervisor, an exec server, a sandbox and four probes, on a machine with much to do
)
SECRET: Final = "hunter2-correct-horse"
SLEEP: Final = "exec sleep 1000"
_NO_NEW_PRIVILEGES: Final = "import ctypes, os, sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


@pytest.fixture
async def place() -> AsyncIterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="arena-", dir="/var/tmp"))
    (folder / "work" / ".git").mkdir(parents=True)
    try:
        yield folder
    finally:
        await end_listener(background.supervisor_socket(folder / "h"), signal.SIGTERM)
        await end_exec_server(folder / "h")
        shutil.rmtree(folder, ignore_errors=True)


async def run(workers: Workers, place: Path, script: str = SLEEP, **more: Any) -> Worker:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(place), "A_TOKEN": SECRET}
    return await workers.run("shell", cwd=str(place / "work"), prompt=script, env=env, id="w", **more)


async def answer(worker: Worker) -> EquivalenceReport:
    async with asyncio.timeout(WITHIN_S):
        return await worker.equivalence()


def rows(report: EquivalenceReport) -> dict[tuple[str, str], Difference]:
    return {(row.group, row.field): row for row in report.rows}


@pytest.mark.parametrize("tty", [False, True])
async def test_a_confined_worker_is_not_where_the_host_is_and_the_report_says_why(
    place: Path, tty: bool
) -> None:
    async with Workers.connect(place / "h") as workers:
        report = await answer(await run(workers, place, tty=tty, network=False))
    assert report.host_equivalent == "no"
    assert "seccomp" in report.why
    seen = rows(report)
    assert seen["confinement", "no new privileges"].worker == "1"
    assert seen["confinement", "mnt namespace"].verdict == "different"
    assert seen["network", "loopback of the host"].worker == "no"
    assert seen["files", str(place)].verdict == "weaker"
    assert seen["files", str(place / "work")].verdict == "same"
    assert seen["files", str(place / "work" / ".git")].matters
    assert seen["terminal", "streams"].verdict == "same"
    assert seen["identity", "user"].verdict == "same"


@pytest.mark.parametrize("tty", [False, True])
async def test_an_unconfined_worker_is_where_the_host_is(place: Path, tty: bool) -> None:
    async with Workers.connect(place / "h") as workers:
        report = await answer(await run(workers, place, tty=tty, unconfined=True))
    assert report.host_equivalent == "yes", report
    differing = {field for (group, field), row in rows(report).items() if row.verdict != "same"}
    assert "TMPDIR" in differing
    assert not differing & {"seccomp", "no new privileges", "streams", "open descriptors", "user"}


async def test_what_is_still_on_without_a_sandbox_is_named(place: Path) -> None:
    """It is the process that is looked at, not what was asked for: its exec server passes something on."""
    WorkerRecords(place / "h").prepare()
    serve = [
        "-m",
        "holdfast",
        "serve",
        "--listen",
        background.exec_address(place / "h"),
        "--keep",
        "1h",
        "--no-hint",
    ]
    program = f"{_NO_NEW_PRIVILEGES}; os.execv(sys.executable, [sys.executable, *{serve!r}])"
    async with Workers.connect(place / "h") as workers:  # which ends a server of other code when it begins
        server = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
        try:
            async with asyncio.timeout(WITHIN_S):
                while not (place / "h" / "exec.sock").exists():
                    await asyncio.sleep(0.02)
            report = await answer(await run(workers, place, unconfined=True))
        finally:
            await end_exec_server(place / "h")
            await server.wait()
    assert report.host_equivalent == "no"
    assert report.why.endswith(": no new privileges")


async def test_the_command_prints_the_answer_first_and_exits_with_it(place: Path) -> None:
    async with Workers.connect(place / "h") as workers:
        await answer(await run(workers, place))
    done = await command(place, "equivalence", "w")
    assert done[0] == 1
    assert done[1].startswith("host-equivalent: no (")
    assert SECRET not in done[1]
    assert json.loads((await command(place, "equivalence", "w", "--json"))[1])["schemaVersion"] == 1


async def test_no_value_of_a_variable_that_may_be_secret_is_kept(place: Path) -> None:
    async with Workers.connect(place / "h") as workers:
        report = await answer(await run(workers, place))
    assert rows(report)["environment", "A_TOKEN"].worker == "set"
    assert SECRET not in (place / "h" / "workers" / "w" / "equivalence.json").read_text("utf-8")


async def test_a_worker_that_ended_has_its_report_and_nothing_of_the_probe_is_left(place: Path) -> None:
    async with Workers.connect(place / "h") as workers:
        worker = await run(workers, place, "sleep 0.3")
        async with asyncio.timeout(WITHIN_S):
            assert (await worker.wait()).state == "completed"
        report = await answer(worker)
    assert report.host_equivalent == "no"
    assert rows(report)["files", str(place / "work")].verdict == "same"
    assert [path.name for path in (place / "work").iterdir()] == [".git"]


async def test_a_worker_that_nobody_looked_at_is_unknown_and_says_so(place: Path) -> None:
    async with Workers.connect(place / "h") as workers:
        worker = await run(workers, place, "true")
        async with asyncio.timeout(WITHIN_S):
            await worker.wait()
            await worker.equivalence()
        (place / "h" / "workers" / "w" / "equivalence.json").unlink()
        report = await answer(worker)
    assert (report.host_equivalent, report.rows) == ("unknown", [])


async def command(place: Path, *args: str) -> tuple[int, str]:
    words = ("worker", *args, "--home", str(place / "h"))
    done = await asyncio.to_thread(warm.run, words, env=os.environ, cwd=place, timeout=WITHIN_S)
    return done.returncode, done.stdout
