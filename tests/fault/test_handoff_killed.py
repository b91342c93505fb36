"""Reports repeated over every channel while their service is killed: each counts once, and none is lost."""

import contextlib
import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from holdfast.board import claims, tasks
from holdfast.board.database import Transaction
from holdfast.board.rows import NewTask, Run
from holdfast.board.store import Store, open_store
from holdfast.board.transitions import Status
from holdfast.handoff import outbox
from holdfast.handoff.envelope import Answer
from holdfast.handoff.sender import Channel
from tests.support.boards import ROOT
from tests.support.handoff import grant_of
from tests.support.handoff_sender import Sending

REPORTS: Final = 1000
TIMES: Final = (1, 1, 1, 2, 3, 4, 5)  # that each is sent; what is sent once is what can be lost
SENDERS: Final = 4
WORKSPACES: Final = 8
CHANNELS: Final[tuple[Channel, ...]] = ("auto", "socket", "outbox", "outbox")
KILLS: Final = int(os.environ.get("HOLDFAST_TEST_KILLS", "4")) * 5
SEED: Final = 20261116
WAIT_S: Final = 120.0  # for anything, on a machine that does much else


def claimed(store: Store) -> list[Run]:
    """All runs at once, in one change: making them is not what is tested."""

    def change(tx: Transaction) -> list[Run]:
        found = []
        for number in range(REPORTS):
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
            wait_s = 5.0 if channel == "socket" else dice.choice((0.0, 0.0, 0.2))
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


class Heard:
    """What all senders say, as it comes."""

    def __init__(self, senders: list["subprocess.Popen[str]"]) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.said: Counter[str] = Counter()
        self.talking = len(senders)
        self._readers = [threading.Thread(target=self._read, args=(sender,)) for sender in senders]
        for reader in self._readers:
            reader.start()

    def _read(self, sender: "subprocess.Popen[str]") -> None:
        assert sender.stdout is not None
        for line in sender.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def some(self, most: int) -> None:
        """Wait for so many lines, or the end of all senders."""
        while most > 0 and self.talking:
            line = self._lines.get(timeout=WAIT_S)
            if line is None:
                self.talking -= 1
            else:
                self.said[line.split(maxsplit=1)[1].strip()] += 1
                most -= 1

    def end(self) -> None:
        for reader in self._readers:
            reader.join(WAIT_S)


def drained(workspaces: list[Path]) -> None:
    until = time.monotonic() + WAIT_S
    while left := [name for workspace in workspaces for name in os.listdir(outbox.place_of(workspace))]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def answers(workspaces: list[Path]) -> list[Answer]:
    return [
        msgspec.json.decode(file.read_bytes(), type=Answer)
        for workspace in workspaces
        for file in (workspace / ".holdfast" / "answers").iterdir()
        if file.suffix == ".json"
    ]


@pytest.mark.timeout(600)
def test_a_thousand_repeated_reports_count_once_each_while_the_service_is_killed(tmp_path: Path) -> None:
    dice = random.Random(SEED)  # noqa: S311 - a failure can be repeated
    address, socket = str(tmp_path / "board.db"), tmp_path / "s"
    workspaces = [tmp_path / f"ws{number}" for number in range(WORKSPACES)]
    with open_store(address) as store:
        store.create_board("b")
        found = claimed(store)
        before = store.stats("b").board.last_seq
    for workspace in workspaces:
        workspace.mkdir()
        outbox.lay_out(workspace, grant_of(found[0], workspace))
    planned = plans(found, workspaces, socket, dice)
    total = sum(map(len, planned))
    with contextlib.ExitStack() as started:
        senders = []
        for number, plan in enumerate(planned):
            file = tmp_path / f"plan{number}"
            file.write_bytes(msgspec.json.encode(plan))
            senders.append(started.enter_context(child("tests.support.handoff_sender", str(file))))
        heard = Heard(senders)
        started.callback(heard.end)
        killed = 0
        while heard.talking:
            with service(address, socket, workspaces):
                heard.some(dice.randint(1, 2 * total // KILLS))
                killed += bool(heard.talking)
        assert [sender.wait(WAIT_S) for sender in senders] == [0] * SENDERS
        with service(address, socket, workspaces):
            drained(workspaces)
    assert heard.said.keys() == {"answered", "accepted"}  # no repeat was refused
    assert heard.said.total() == total
    assert killed >= KILLS // 2
    assert [answer.error for answer in answers(workspaces) if answer.error] == []
    with open_store(address) as store:
        done = [store.task(run.task_id) for run in found]
        assert {task.status for task in done} == {Status.DONE}
        ended = [run for task in done for run in store.runs(task.id)]
        assert len(ended) == REPORTS
        assert {run.outcome for run in ended} == {"completed"}
        assert all(run.summary == f"work of {run.id}" for run in ended)
        assert store.stats("b").board.last_seq == before + REPORTS  # one event each
        assert store.faults() == []
