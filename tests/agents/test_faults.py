"""Every built-in fault with every real agent CLI, through the supervisor, its exec server and its sandbox.

What must be said is in tests/agents/cases.py. `make agents` runs all of it and writes down what was seen; the
quick ones run with all other tests.
"""

import contextlib
import fnmatch
import functools
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.agents.evidence.evidence import Denied, Foreseen, WorkerState, WorkerStatus
from holdfast.agents.worker import procwatch
from holdfast.agents.worker.worker import FollowedWorker
from holdfast.client.process import Process
from tests.agents.cases import (
    ACP,
    CELLS,
    EXPECTED,
    FAULTS,
    IN_TIME_S,
    PIPE,
    QUICK,
    REASONS,
    SITUATIONS,
    TTY,
    Expected,
    Fault,
)
from tests.support.agent_clis import CLIS, requires_cli
from tests.support.arena import PROMPT, Arena, Bench
from tests.support.model import CONTENT, MADE
from tests.support.patience import patient
from tools.agent_pages import describe, key_of

LIMIT_S: Final = patient(100.0)  # opencode alone takes 20 s to start on a machine with much to do
CELL_S: Final = patient(40.0)  # what is right is so sooner, whatever the machine has to do besides
SOME_ROUNDS_S: Final = patient(20.0)
ENDED: Final = {state.value for state in WorkerState if state.ended}


def cases() -> list[Any]:
    return [
        pytest.param(
            cli, fault, id=f"{cli}-{fault}", marks=[] if (cli, fault) in QUICK else pytest.mark.matrix
        )
        for cli in CLIS
        for fault in FAULTS
        if (cli, fault) in EXPECTED
    ]


def cells() -> list[Any]:
    """Those of the confusion table for which no more is demanded than that they are right."""
    return [
        pytest.param(cli, mode, name, id=f"{cli}-{mode}-{name}", marks=pytest.mark.matrix)
        for cli, mode, name in CELLS
        if name in FAULTS and not (mode == PIPE and (cli, name) in EXPECTED)
    ]


def test_what_must_be_said_is_said_of_faults_and_clis_that_there_are() -> None:
    assert EXPECTED.keys() <= {(cli, fault) for cli in CLIS for fault in FAULTS}
    assert EXPECTED.keys() >= QUICK
    assert {(cli, mode) for cli, mode, _ in CELLS} >= {(cli, mode) for cli in CLIS for mode in (PIPE, TTY)}
    assert len(SITUATIONS) == 25


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
        if fault.send is not None:
            await stage.until(worker, ended=False, state="running", limit_s=LIMIT_S)
            _signal(worker, fault.send)
        status = await stage.until(
            worker, ended=expected.state in ENDED, state=_wanted(expected), limit_s=LIMIT_S
        )
        results.setdefault(cli, {})[name] = _note(status, began, _first_request(stage, began))
        _agree(status, expected, bench, worker)
    if name == "none":
        assert (bench.work / MADE).read_text("utf-8").strip() == CONTENT


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("cli", "mode", "name"), cells())
async def test_a_cell_of_the_confusion_table_is_right_in_time(
    stage: Arena, cli: str, mode: str, name: str, results: dict[str, Any], tmp_path: Path
) -> None:
    requires_cli(cli)
    fault, bench = FAULTS[name], stage.bench()
    wish = dict(fault.wish)
    if fault.secure:
        secure = await stage.model.listen(tmp_path / "certificate")
        wish["base"] = stage.model.url(fault.scenario).replace(stage.model.base, secure)
    if fault.earlier:
        await stage.end(await _run_once(stage, cli, bench))
    if fault.locked:
        wish["writable"] = [str(bench.home)]
    with contextlib.ExitStack() as held:
        for path in [*bench.home.rglob("*.sqlite"), *bench.home.rglob("*.db")] if fault.locked else ():
            held.enter_context(contextlib.closing(_hold(path)))
        began = time.monotonic()
        worker = await _start(stage, cli, bench, mode, fault, wish)
        try:
            if mode == TTY:
                began = await _reach_prompt(stage, worker, fault, began)
            if fault.send is not None:
                await stage.until(worker, ended=False, state="running", limit_s=LIMIT_S)
                began = time.monotonic()
                _signal(worker, fault.send)
            right = functools.partial(is_right, fault=fault)
            if fault.scenario == "loop":  # whether it is noticed shows after a while
                await stage.when(worker, lambda status: False, limit_s=SOME_ROUNDS_S)
                began = time.monotonic()
            status = await stage.when(worker, right, limit_s=CELL_S)
            told = _note(
                status,
                began,
                None if fault.send or fault.scenario == "loop" else _first_request(stage, began),
            )
            results.setdefault(cli, {})[key_of(mode, name)] = told
            late = (told["seconds"] if told["after"] is None else told["after"]) > IN_TIME_S
            excused = (cli, mode, name) in REASONS
            assert right(status) or excused, (status, worker.evidence()[-12:], worker.channel.shown())
            assert not late or excused, told
        finally:
            await stage.end(worker)


def is_right(status: WorkerStatus, fault: Fault) -> bool:
    failure = status.failure.value if status.failure else None
    said = describe(status.state.value, status.detail, failure, sorted(status.flags))
    return any(fnmatch.fnmatchcase(said, pattern) for pattern in fault.right)


def _note(status: WorkerStatus, began: float, first: float | None) -> dict[str, Any]:
    now = time.monotonic()
    return {
        "state": status.state.value,
        "detail": status.detail,
        "failure": status.failure.value if status.failure else None,
        "flags": sorted(status.flags),
        "rule": status.rule,
        "seconds": round(now - began, 1),
        "after": None if first is None else round(now - first, 1),  # since the provider was first asked
    }


def _first_request(stage: Arena, began: float) -> float | None:
    return next((one.at for one in stage.model.requests if one.at >= began), None)


async def _start(
    stage: Arena, cli: str, bench: Bench, mode: str, fault: Fault, wish: dict[str, Any]
) -> FollowedWorker:
    how: dict[str, dict[str, Any]] = {PIPE: {}, TTY: {"tty": True, "prompt": None}, ACP: {"acp": True}}
    return await stage.run(cli, bench, scenario=fault.scenario, **wish, **how[mode])


async def _reach_prompt(stage: Arena, worker: FollowedWorker, fault: Fault, began: float) -> float:
    """Past the dialogs of its start, which are answered by rule, to a prompt that it takes; when that was."""
    await stage.until(worker, ended=False, state="waiting(prompt)", limit_s=LIMIT_S)
    if fault is FAULTS["idle"]:
        return began
    asked = time.monotonic()
    assert await worker.send(PROMPT) == "submitted", worker.channel.shown()
    if "waiting(prompt)" in fault.right:  # the prompt that counts is the one after its work
        await stage.when(worker, lambda status: status.state.value == "running", limit_s=SOME_ROUNDS_S)
    return asked


def _signal(worker: FollowedWorker, signum: signal.Signals) -> None:
    """To its program, behind the launcher that it may have."""
    assert worker.record.pid is not None
    seen = procwatch.look(worker.record.pid)
    assert seen.main is not None
    if signum is signal.SIGKILL:
        os.kill(worker.record.pid, signum)
        return
    own = [one for one in seen.processes if one.session == seen.main.session and one not in seen.commands]
    os.kill(max(own, key=_size).pid, signum)


def _size(process: procwatch.ObservedProcess) -> int:
    """Pages in memory: a launcher and passing helpers have few."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process.pid}/statm").read_text("ascii").split()[1])
    return 0


def _hold(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


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
