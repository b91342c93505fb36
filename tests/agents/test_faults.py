"""Every built-in fault with every real agent CLI, through the supervisor, its exec server and its sandbox.

What must be said is in tests/agents/cases.py. `make agents` runs all of it and writes down what was seen; the
quick ones run with all other tests.
"""

import fnmatch
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from holdfast.agents.evidence.evidence import Denied, Foreseen, WorkerState, WorkerStatus
from holdfast.agents.worker.worker import FollowedWorker
from holdfast.client.process import Process
from tests.agents.cases import EXPECTED, FAULTS, QUICK, Expected, Fault
from tests.support.agent_clis import CLIS, requires_cli
from tests.support.arena import Arena, Bench
from tests.support.model import CONTENT, MADE
from tests.support.patience import patient

LIMIT_S: Final = patient(100.0)  # opencode alone takes 20 s to start on a machine with much to do
ENDED: Final = {state.value for state in WorkerState if state.ended}


def cases() -> list[Any]:
    return [
        pytest.param(
            cli, fault, id=f"{cli}-{fault}", marks=[] if (cli, fault) in QUICK else pytest.mark.matrix
        )
        for cli in CLIS
        for fault in FAULTS
    ]


def test_every_fault_has_its_answer_for_every_cli() -> None:
    assert EXPECTED.keys() == {(cli, fault) for cli in CLIS for fault in FAULTS}
    assert EXPECTED.keys() >= QUICK


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("cli", "name"), cases())
async def test_a_fault_is_told_as_it_is(
    stage: Arena, cli: str, name: str, results: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    requires_cli(cli)
    fault, expected, bench = FAULTS[name], EXPECTED[cli, name], stage.bench()
    if fault.earlier:
        await stage.end(await _run_once(stage, cli, bench))
    if fault.stdin_open:
        monkeypatch.setattr(Process, "close_stdin", _leave_open)
    began = time.monotonic()
    async with _running(stage, cli, bench, fault) as worker:
        if fault.kill:
            await stage.until(worker, ended=False, state="running", limit_s=LIMIT_S)
            assert worker.record.pid is not None
            os.kill(worker.record.pid, signal.SIGKILL)
        status = await stage.until(
            worker, ended=expected.state in ENDED, state=_wanted(expected), limit_s=LIMIT_S
        )
        results.setdefault(cli, {})[name] = {
            "state": status.state.value,
            "detail": status.detail,
            "failure": status.failure.value if status.failure else None,
            "flags": sorted(status.flags),
            "rule": status.rule,
            "seconds": round(time.monotonic() - began, 1),
        }
        _agree(status, expected, bench, worker)
    if name == "none":
        assert (bench.work / MADE).read_text("utf-8").strip() == CONTENT


def _wanted(expected: Expected) -> str:
    return f"{expected.state}({expected.detail})"


def _agree(status: WorkerStatus, expected: Expected, bench: Bench, worker: FollowedWorker) -> None:
    failure = status.failure.value if status.failure else None
    said = Expected(status.state.value, status.detail, failure, status.flags, expected.path)
    told = f"{status.rule}: {status.about}\n" + "\n".join(
        f"{item.source.name} {item.claim}" for item in worker.evidence()[-20:]
    )
    assert said == expected, told
    pattern = expected.path.format(home=bench.home)
    assert not pattern or fnmatch.filter(_denied(worker), pattern), told


def _denied(worker: FollowedWorker) -> list[str]:
    """What it was refused, and what its provider is, if a probe in its sandbox was refused that."""
    claims = [item.claim for item in worker.evidence()]
    return [
        claim.path
        for claim in claims
        if isinstance(claim, Denied) or (isinstance(claim, Foreseen) and claim.access == "connect")
    ]


async def _run_once(stage: Arena, cli: str, bench: Bench) -> FollowedWorker:
    """A run that leaves the CLI's state in the home."""
    worker = await stage.run(cli, bench, relocate=False, writable=[str(bench.home)])
    await stage.until(worker, ended=True, limit_s=LIMIT_S)
    return worker


@asynccontextmanager
async def _running(stage: Arena, cli: str, bench: Bench, fault: Fault) -> AsyncIterator[FollowedWorker]:
    worker = await stage.run(cli, bench, scenario=fault.scenario, **fault.wish)
    try:
        yield worker
    finally:
        await stage.end(worker)


async def _leave_open(_process: Process) -> None:
    pass
