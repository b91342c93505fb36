"""Worker, dispatcher, handoff service, supervisor and exec server killed with -9 at steps of runs, by a seed.

Hundreds of them: python -m tests.support.board_chaos --kills 300 --seed 1 (`make chaos`).
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support import faked_clock
from tests.support.board_chaos import MOMENTS, VICTIMS, Rampage
from tests.support.board_faults import FAULTS
from tests.support.dispatch import Yard, fresh_yard_fixture
from tests.support.tiers import sizes

__all__ = ["fresh_yard_fixture"]

SEED: Final = 153  # each victim is among the first five, each at another moment
RECORDED: Final = Path(__file__).parent / "board_chaos.json"


@pytest.mark.timeout(600)  # it ends when all is done; a machine with much to do takes its time
@sizes("kills", quick=5, deep=50)
async def test_whatever_is_killed_no_task_is_lost_none_done_twice_and_nothing_is_left(
    yard: Yard, kills: int, record_property: Callable[[str, object], None]
) -> None:
    rampage = Rampage(yard, SEED)
    await rampage.rage(kills)
    record_property("kills", rampage.kills.total())
    assert rampage.wrong == []
    assert {victim for victim, _ in rampage.kills} == VICTIMS.keys()


@pytest.mark.skipif(faked_clock.library() is None, reason="libfaketime is not installed")
@pytest.mark.timeout(900)
@sizes("kinds", quick=("clock ahead", "store full", "store read-only"), deep=FAULTS * 4)
def test_a_clock_that_jumps_and_disks_that_fail_double_no_run_and_lose_nothing(
    kinds: tuple[str, ...], record_property: Callable[[str, object], None]
) -> None:
    """In a process of its own, whose mounts only it can see: `python -m tests.support.board_faults`."""
    wanted = [word for kind in dict.fromkeys(kinds) for word in ("--kind", kind)]
    module = [sys.executable, "-m", "tests.support.board_faults", "--seed", str(SEED)]
    done = subprocess.run(
        [*module, "--faults", str(len(kinds)), *wanted], stdout=subprocess.PIPE, check=False
    )
    [found] = json.loads(done.stdout)["seeds"]
    record_property("faults", found["faults"])
    assert found["wrong"] == []
    assert found["kinds"].keys() == set(kinds)
    assert found["tasks"] >= 5


def test_the_recorded_rampage_was_long_enough_and_found_nothing_wrong() -> None:
    """`make chaos` writes it; docs/howto/run-tasks.md says what came of it."""
    seeds = json.loads(RECORDED.read_text("utf-8"))["seeds"]
    assert [seed["wrong"] for seed in seeds] == [[]] * len(seeds)
    assert sum(seed["kills"] for seed in seeds) >= 300
    for counted, known in (("victims", VICTIMS), ("moments", MOMENTS)):
        assert {name for seed in seeds for name in seed[counted]} == known.keys()
