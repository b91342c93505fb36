"""Writers killed at any moment: nothing they were told is lost, and the file stays whole."""

import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import Store, open_store
from tests.support.boards import Crowd
from tests.support.patience import patient
from tests.support.tiers import sizes

WRITERS = 6
LINES_BEFORE_A_KILL = 40  # of all writers together: each round gets somewhere, then everybody dies


def killed_round(address: str, seed: int) -> list[str]:
    """Writers at work, each killed after a random number of acknowledgements; all that was acknowledged."""
    dice = random.Random(seed)  # noqa: S311 - a failure names its seed
    acknowledged: list[str] = []

    def listen(number: int, most: int) -> None:
        member = crowd.members[number]
        assert member.stdout is not None
        for count, line in enumerate(member.stdout, 1):
            acknowledged.append(line.strip())
            if count == most:
                member.send_signal(signal.SIGKILL)

    with Crowd("work", address, [f"w{seed}.{n}" for n in range(WRITERS)]) as crowd:
        readers = [
            threading.Thread(target=listen, args=(number, dice.randint(1, LINES_BEFORE_A_KILL)))
            for number in range(WRITERS)
        ]
        for reader in readers:
            reader.start()
        crowd.begin()
        for reader in readers:
            reader.join(patient(120))
            assert not reader.is_alive()
    return acknowledged


def check(store: Store, acknowledged: list[str]) -> None:
    for line in acknowledged:
        verb, task_id, *rest = line.split()
        task = store.task(task_id)
        if verb == "completed":
            assert task.status is TaskStatus.DONE
        elif verb == "attached":
            assert store.file(task_id, None, "name") == rest[0].encode()
        elif verb == "claimed":
            assert task.status in (TaskStatus.RUNNING, TaskStatus.DONE)
    assert store.faults() == []


@pytest.mark.timeout(300)
@sizes("rounds", quick=1, deep=40)
def test_nothing_acknowledged_is_lost_when_writers_are_killed(
    tmp_path: Path, rounds: int, record_property: Callable[[str, object], None]
) -> None:
    address = str(tmp_path / "board.db")
    with open_store(address) as store:
        store.create_board("b")
    acknowledged: list[str] = []
    for seed in range(rounds):
        acknowledged += killed_round(address, seed)
        with open_store(address) as store:
            check(store, acknowledged)
    assert len(acknowledged) >= rounds * WRITERS
    record_property("kills", rounds * WRITERS)
