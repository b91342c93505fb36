"""An agent led over ACP by supervisors that are killed: nothing is said to it twice, and nothing left out."""

import asyncio
import contextlib
import json
import shlex
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError, InvalidRequest, UsageError
from holdfast.agents.sdk import Worker, Workers
from holdfast.agents.supervisor import background
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.worker.book import WorkerRecords
from tests.fault.test_supervisor_killed import WITHIN_S, Place, place, until
from tests.support import acp_agent
from tests.support.dying_supervisor import WRITES
from tests.support.tiers import DEEP

__all__ = ["place"]

# The first write, the last, and one between; the rest is tried in `make deep`.
EVERY_DAY = {("after-write", 1), ("before-write", 3), ("after-write", 5)}
ONCE = {"initialize": 1, "session/new": 1, "session/prompt": 1, "answer": 1, "error": 1}


@pytest.fixture
def agent(place: Place) -> Place:
    _program(
        place.bin / "qwen",
        f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(acp_agent.__file__)}\n",
    )
    return place


def _program(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(0o755)


async def run(place: Place, workers: Workers, **more: Any) -> Worker:
    wish: dict[str, Any] = {"agent": "qwen", "prompt": "touch it", "acp": True, "unattended": False, **more}
    return await workers.run(cwd=str(place.work), id="w", env=_env(place), **wish)


def _env(place: Place) -> dict[str, str]:
    return {"PATH": f"{place.bin}:/usr/bin:/bin", "HOME": str(place.work)}


def heard(place: Place) -> dict[str, int]:
    lines = [json.loads(line) for line in (place.work / "heard").read_text("utf-8").splitlines()]
    return Counter(line.get("method") or ("error" if "error" in line else "answer") for line in lines)


def done(place: Place) -> str | None:
    found = place.work / "done"
    return found.read_text("utf-8") if found.exists() else None


async def ended(worker: Worker) -> WorkerReport:
    async with asyncio.timeout(WITHIN_S):
        return await worker.wait()


async def test_a_request_is_shown_with_its_options_and_answered_once(agent: Place) -> None:
    async with Workers.connect(agent.home) as workers:
        worker = await run(agent, workers)
        asks = (await until(worker, "waiting(decision)")).asks
        assert asks is not None
        assert (asks.question, asks.request) == ("touch done", "7")
        assert [(one.id, one.kind) for one in asks.options] == [
            (one["optionId"], one["kind"]) for one in acp_agent.OPTIONS
        ]
        assert (agent.home / "workers" / "w" / "errand.json").stat().st_mode & 0o777 == 0o600
        with pytest.raises(InvalidRequest):
            await worker.approve(request="8")
        with pytest.raises(UsageError):
            await worker.approve("for ever")
        given = await worker.approve(request="7")
        assert (given.option, given.denied) == ("once", False)
        assert (await ended(worker)).state == "completed"
        with pytest.raises(InvalidRequest):
            await worker.approve()
    assert done(agent) == "once"
    assert heard(agent) == ONCE


async def test_a_permanent_option_is_taken_by_its_name_only(agent: Place) -> None:
    async with Workers.connect(agent.home) as workers:
        worker = await run(agent, workers)
        await until(worker, "waiting(decision)")
        assert (await worker.approve("always")).kind == "allow_always"
        assert (await ended(worker)).state == "completed"
    assert done(agent) == "always"


async def test_a_denial_is_the_reason_of_a_run_that_did_nothing_else(agent: Place) -> None:
    async with Workers.connect(agent.home) as workers:
        worker = await run(agent, workers)
        await until(worker, "waiting(decision)")
        assert (await worker.deny()).denied is True
        last = await ended(worker)
    assert (last.state, last.failure) == ("failed", "permission")
    assert done(agent) is None


async def test_an_unattended_run_allows_single_calls_and_asks_nobody(agent: Place) -> None:
    async with Workers.connect(agent.home) as workers:
        worker = await run(agent, workers, unattended=True)
        assert (await ended(worker)).state == "completed"
    assert done(agent) == "once"


async def test_a_run_without_a_structured_channel_cannot_be_answered(agent: Place) -> None:
    async with Workers.connect(agent.home) as workers:
        worker = await agent.run(workers, "until [ -e go ]; do sleep 0.05; done")
        with pytest.raises(InvalidRequest):
            await worker.approve()
        with pytest.raises(UsageError):
            await workers.run("shell", cwd=str(agent.work), prompt="true", env=_env(agent), acp=True)
        agent.go()
        await ended(worker)


DIALOG = """#!/bin/sh
printf '  Would you like to run the following command?\\r\\n'
yes='\u203a 1. Yes, proceed (y)'
[ -e unknown ] && yes='> Yes'
printf '%s\\r\\n  3. No (esc)\\r\\n' "$yes"
printf '  Press enter to confirm or esc to cancel\\r\\n'
stty raw -echo
head -c 1 > pressed
"""


@pytest.mark.parametrize(("deny", "key"), [(False, "y"), (True, "\x1b")])
async def test_a_dialog_on_a_terminal_is_answered_by_its_key(place: Place, deny: bool, key: str) -> None:
    _program(place.bin / "codex", DIALOG)
    async with Workers.connect(place.home) as workers:
        worker = await run(place, workers, agent="codex", prompt=None, acp=False)
        await until(worker, "waiting(decision)")
        given = await (worker.deny if deny else worker.approve)()
        assert given.denied is deny
        await ended(worker)
    assert (place.work / "pressed").read_text("utf-8") == key


async def test_a_dialog_that_nobody_has_described_is_left_to_a_person(place: Place) -> None:
    _program(place.bin / "codex", DIALOG)
    (place.work / "unknown").touch()
    async with Workers.connect(place.home) as workers:
        worker = await run(place, workers, agent="codex", prompt=None, acp=False)
        await until(worker, "waiting(decision)")
        with pytest.raises(InvalidRequest):
            await worker.approve()
        with pytest.raises(UsageError):
            await worker.approve("once")
        await worker.stop(grace_s=0.0)
    assert (place.work / "pressed").read_text("utf-8") == ""


async def test_a_question_outlives_its_supervisor(agent: Place) -> None:
    async with Workers.connect(agent.home) as workers:
        before = await until(await run(agent, workers), "waiting(decision)")
        await agent.kill_supervisor()
    async with Workers.connect(agent.home) as workers:
        worker = await workers.find("w")
        after = await until(worker, "waiting(decision)")
        assert after.asks == before.asks
        await worker.approve()
        assert (await ended(worker)).state == "completed"
    assert heard(agent) == ONCE


@pytest.mark.parametrize(
    ("point", "number"),
    [
        pytest.param(point, number, marks=() if (point, number) in EVERY_DAY else DEEP)
        for point in WRITES
        for number in range(1, 6)
    ],
)
async def test_what_a_dead_supervisor_had_to_say_is_said_once(agent: Place, point: str, number: int) -> None:
    """The writes: initialize, session/new, session/prompt, the refusal to offer files, the answer."""
    argv = [sys.executable, "-m", "tests.support.dying_supervisor", point, str(agent.home), str(number)]
    WorkerRecords(agent.home).prepare()
    dying = subprocess.Popen(argv)  # noqa: ASYNC220
    try:
        async with asyncio.timeout(WITHIN_S):
            while not background.supervisor_socket(agent.home).exists():
                await asyncio.sleep(0.02)
        with contextlib.suppress(HoldfastError):
            async with Workers.connect(agent.home) as workers:
                worker = await run(agent, workers)
                if number == 5:
                    await until(worker, "waiting(decision)")
                    await worker.approve()
        assert await asyncio.to_thread(dying.wait, WITHIN_S) == -signal.SIGKILL
    finally:
        dying.kill()
        await asyncio.to_thread(dying.wait)
    async with Workers.connect(agent.home) as workers:
        worker = await workers.find("w")
        if (point, number) != ("after-write", 5):
            await until(worker, "waiting(decision)")
            await worker.approve()
        assert (await ended(worker)).state == "completed"
    assert done(agent) == "once"
    assert heard(agent) == ONCE
