"""Every built-in fault with every real agent CLI, through the supervisor, its exec server and its sandbox.

What must be said is in tests/agents/cases.py. `make agents` runs all of it and writes down what was seen; the
quick ones run with all other tests.
"""

import asyncio
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
    SETTINGS,
    SITUATIONS,
    TTY,
    Expected,
    Fault,
)
from tests.agents.conftest import Results, first_request, note
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
    assert len(SITUATIONS) >= 25


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("cli", "name"), cases())
async def test_a_fault_is_told_as_it_is(
    stage: Arena, cli: str, name: str, results: Results, monkeypatch: pytest.MonkeyPatch
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
            began = time.monotonic()
            _signal(worker, fault.send)
        right = functools.partial(is_right, cli=cli, fault=fault)
        first = None if fault.send else functools.partial(first_request, stage, began)
        status = await stage.when(worker, right, limit_s=LIMIT_S)
        results.note(cli, name, note(status, began, first() if first else None))
        status = await stage.until(
            worker, ended=expected.state in ENDED, state=_wanted(expected), limit_s=LIMIT_S
        )
        _agree(status, expected, bench, worker)
    if name == "none":
        assert (bench.work / MADE).read_text("utf-8").strip() == CONTENT


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("cli", "mode", "name"), cells())
async def test_a_cell_of_the_confusion_table_is_right_in_time(
    stage: Arena, cli: str, mode: str, name: str, results: Results, tmp_path: Path
) -> None:
    requires_cli(cli)
    fault, bench = FAULTS[name], stage.bench()
    wish = dict(fault.wish)
    if fault.secure:
        secure = await stage.model.listen(tmp_path / "certificate")
        wish["base"] = stage.model.url(fault.scenario).replace(stage.model.base, secure)
    if fault.earlier:
        await stage.end(await _run_once(stage, cli, bench))
    if fault.locked or fault.unwritable or fault.broken:
        wish["writable"] = _granted(bench)
    if fault.unwritable:
        wish["readable"] = [str(path) for path in databases(bench)]
    if fault.broken:
        settings = bench.home / SETTINGS[cli]
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("{ what is this [", "utf-8")
        (bench.home / ".claude.json").write_text('{"hasCompletedOnboarding":true}', "utf-8")
    with contextlib.ExitStack() as held:
        for path in databases(bench) if fault.locked else ():
            held.enter_context(contextlib.closing(_hold(path)))
        began = time.monotonic()
        worker = await _start(stage, cli, bench, mode, fault, wish)
        try:
            if mode == TTY and not fault.broken:
                began = await _reach_prompt(stage, worker, fault, began)
            if fault.send is not None:
                await stage.until(
                    worker,
                    ended=False,
                    state="running(tool)" if fault.command else "running",
                    limit_s=LIMIT_S,
                )
                target = await _find_command(bench) if fault.command else None
                began = time.monotonic()
                _signal(worker, fault.send, target)
            right = functools.partial(is_right, cli=cli, fault=fault)
            if fault.scenario == "loop":  # whether it is noticed shows after a while
                await stage.when(worker, lambda status: False, limit_s=SOME_ROUNDS_S)
                began = time.monotonic()
            status = await stage.when(worker, right, limit_s=CELL_S)
            told = note(
                status,
                began,
                None if fault.send or fault.scenario == "loop" else first_request(stage, began),
            )
            results.note(cli, key_of(mode, name), told)
            late = (told["seconds"] if told["after"] is None else told["after"]) > IN_TIME_S
            excused = (cli, mode, name) in REASONS
            assert right(status) or excused, (status, worker.evidence()[-12:], worker.channel.shown())
            assert not late or excused, told
        finally:
            await stage.end(worker)


def is_right(status: WorkerStatus, cli: str, fault: Fault) -> bool:
    failure = status.failure.value if status.failure else None
    said = describe(status.state.value, status.detail, failure, sorted(status.flags))
    return any(fnmatch.fnmatchcase(said, pattern) for pattern in fault.truths(cli))


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


async def _find_command(bench: Bench) -> int:
    """The command that it runs, wherever that is run for it."""
    async with asyncio.timeout(SOME_ROUNDS_S):
        while True:
            for place in Path("/proc").glob("[1-9]*"):
                with contextlib.suppress(OSError):
                    if (place / "comm").read_text("utf-8") == "tail\n" and _is_in(place, bench):
                        return int(place.name)
            await asyncio.sleep(0.1)


def _is_in(place: Path, bench: Bench) -> bool:
    return (place / "cwd").readlink() == bench.work


def databases(bench: Bench) -> list[Path]:
    return [*bench.home.rglob("*.sqlite"), *bench.home.rglob("*.db")]


def _signal(worker: FollowedWorker, signum: signal.Signals, target: int | None = None) -> None:
    """To its program, behind the launcher that it may have; or to this process."""
    if target is not None:
        os.kill(target, signum)
        return
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


def _granted(bench: Bench) -> list[str]:
    """A `.codex` that is made where a worker may write counts as planted, unless it is granted by itself."""
    return [str(bench.home), str(bench.home / ".codex")]


async def _run_once(stage: Arena, cli: str, bench: Bench) -> FollowedWorker:
    """A run that leaves the CLI's state in the home."""
    worker = await stage.run(cli, bench, relocate=False, writable=_granted(bench))
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
