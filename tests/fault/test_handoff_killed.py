"""Reports repeated over every channel while their service is killed: each counts once, and none is lost."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal

import msgspec
import pytest

from holdfast.board.database.database import Transaction
from holdfast.board.rules.rows import NewTask, Run
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import Store, open_store
from holdfast.board.verbs import claims, tasks
from holdfast.handoff import outbox
from holdfast.handoff.envelope import HandoffAnswer
from holdfast.handoff.sender import Channel
from tests.support.boards import ROOT
from tests.support.handoff import grant_of
from tests.support.handoff_sender import Sending
from tests.support.patience import patient
from tests.support.tiers import sizes

TIMES: Final = (1, 1, 1, 2, 3, 4, 5)  # that each is sent; what is sent once is what can be lost
SENDERS: Final = 4
WORKSPACES: Final = 8
CHANNELS: Final[tuple[Channel | Literal["mcp"], ...]] = ("auto", "socket", "outbox", "outbox", "mcp")
SEED: Final = 20261116
WAIT_S: Final = patient(120.0)  # for anything, on a machine that does much else


def claimed(store: Store, reports: int) -> list[Run]:
    """All runs at once, in one change: making them is not what is tested."""

    def change(tx: Transaction) -> list[Run]:
        found = []
        for number in range(reports):
            task = tasks.add(tx, "b", NewTask(title=f"task {number}"), who="person")
            won = claims.claim(
                tx, "b", worker="w", host="h", lease_ms=3_600_000, assignees=None, task=task.id
            )
            assert won is not None
            found.append(won[1])
        return found

    return store.database.write(change)


def plans(found: list[Run], workspaces: list[Path], socket: Path, dice: random.Random) -> list[list[Sending]]:
    """Each report 1 to 5 times, by any channel, mixed among senders."""
    sendings = []
    for number, run in enumerate(found):
        grant = grant_of(run, workspaces[number % WORKSPACES], socket)
        for _ in range(dice.choice(TIMES)):
            channel = dice.choice(CHANNELS)
            wait_s = 5.0 if channel == "socket" else dice.choice((0.0, 0.0, 0.0, 0.05))
            sendings.append(Sending(grant=grant, channel=channel, wait_s=wait_s))
    dice.shuffle(sendings)
    return [sendings[number::SENDERS] for number in range(SENDERS)]


@contextlib.contextmanager
def child(*args: str) -> Iterator["subprocess.Popen[str]"]:
    """It does not outlive the block."""
    process = subprocess.Popen([sys.executable, "-m", *args], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextlib.contextmanager
def service(address: str, socket: Path, workspaces: list[Path]) -> Iterator[None]:
    """Killed with -9 at the end of the block, whatever it is doing."""
    with child("tests.support.handoff_service", address, str(socket), *map(str, workspaces)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield


def until(happened: Callable[[], bool]) -> None:
    """Bounded, and often enough that a kill comes in the middle of something."""
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def drained(workspaces: list[Path]) -> bool:
    return not any(os.listdir(outbox.place_of(workspace)) for workspace in workspaces)


def answers(workspaces: list[Path]) -> list[HandoffAnswer]:
    return [
        msgspec.json.decode(file.read_bytes(), type=HandoffAnswer)
        for workspace in workspaces
        for file in (workspace / ".holdfast" / "answers").iterdir()
        if file.suffix == ".json"
    ]


@pytest.mark.timeout(600)
@sizes("size", quick=(100, 4), deep=(2000, 100))
def test_repeated_reports_count_once_each_while_the_service_is_killed(
    tmp_path: Path, size: tuple[int, int], record_property: Callable[[str, object], None]
) -> None:
    reports, kills = size
    dice = random.Random(SEED)  # noqa: S311 - a failure can be repeated
    address, socket = str(tmp_path / "board.db"), tmp_path / "s"
    workspaces = [tmp_path / f"ws{number}" for number in range(WORKSPACES)]
    with open_store(address) as store:
        store.create_board("b")
        found = claimed(store, reports)
        before = store.stats("b").board.last_seq
    for workspace in workspaces:
        workspace.mkdir()
        outbox.lay_out(workspace, grant_of(found[0], workspace))
    planned = plans(found, workspaces, socket, dice)
    killed = 0
    with contextlib.ExitStack() as started, open_store(address) as store:

        def reported() -> int:
            [board] = store.boards()
            return board.last_seq - before

        def reported_at_least(count: int) -> Callable[[], bool]:
            return lambda: reported() >= count

        senders = []
        for number, plan in enumerate(planned):
            file = tmp_path / f"plan{number}"
            file.write_bytes(msgspec.json.encode(plan))
            senders.append(started.enter_context(child("tests.support.handoff_sender", str(file))))
        listeners = started.enter_context(ThreadPoolExecutor(SENDERS))
        spoken = [listeners.submit(sender.communicate, timeout=WAIT_S) for sender in senders]
        while (so_far := reported()) < reports:
            enough = min(so_far + dice.randint(1, 2 * reports // kills), reports)
            with service(address, socket, workspaces):
                until(reported_at_least(enough))
            killed += 1
        with service(address, socket, workspaces):
            said = Counter(
                line.split(maxsplit=1)[1] for each in spoken for line in each.result()[0].splitlines()
            )
            until(lambda: drained(workspaces))
        assert [sender.returncode for sender in senders] == [0] * SENDERS
    assert said.keys() == {"answered", "accepted"}  # no repeat was refused
    assert said.total() == sum(map(len, planned))
    assert killed >= kills // 2
    record_property("kills", killed)
    assert [answer.error for answer in answers(workspaces) if answer.error] == []
    with open_store(address) as store:
        done = [store.task(run.task_id) for run in found]
        assert {task.status for task in done} == {TaskStatus.DONE}
        ended = [run for task in done for run in store.runs(task.id)]
        assert len(ended) == reports
        assert {run.outcome for run in ended} == {"completed"}
        assert all(run.summary == f"work of {run.id}" for run in ended)
        assert store.stats("b").board.last_seq == before + reports  # one event each
        assert store.faults() == []
