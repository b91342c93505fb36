"""Worker, dispatcher, handoff service, supervisor and exec server killed with -9 at steps of runs, by a seed.

Hundreds of them: python -m tests.support.board_chaos --kills 300 --seed 1 (`make chaos`).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support.board_chaos import MOMENTS, VICTIMS, Rampage
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


def test_the_recorded_rampage_was_long_enough_and_found_nothing_wrong() -> None:
    """`make chaos` writes it; docs/howto/run-tasks.md says what came of it."""
    seeds = json.loads(RECORDED.read_text("utf-8"))["seeds"]
    assert [seed["wrong"] for seed in seeds] == [[]] * len(seeds)
    assert sum(seed["kills"] for seed in seeds) >= 300
    for counted, known in (("victims", VICTIMS), ("moments", MOMENTS)):
        assert {name for seed in seeds for name in seed[counted]} == known.keys()
