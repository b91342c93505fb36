"""Worker, dispatcher, handoff service, supervisor and exec server killed with -9 at steps of runs, by a seed.

Hundreds of them: python -m tests.support.board_chaos --kills 300 --seed 1 (`make chaos`).
"""

import os
from typing import Final

import pytest

from tests.support.board_chaos import VICTIMS, Rampage
from tests.support.dispatch import Yard, yard_fixture

__all__ = ["yard_fixture"]

KILLS: Final = int(os.environ.get("HOLDFAST_TEST_KILLS", "25"))
SEED: Final = 7


@pytest.mark.timeout(600)  # it ends when all is done; a machine with much to do takes its time
async def test_whatever_is_killed_no_task_is_lost_none_done_twice_and_nothing_is_left(yard: Yard) -> None:
    rampage = Rampage(yard, SEED)
    await rampage.rage(KILLS)
    assert rampage.wrong == []
    assert {victim for victim, _ in rampage.kills} == VICTIMS.keys()
