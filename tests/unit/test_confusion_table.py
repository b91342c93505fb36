"""The recorded confusion table: every cell is right in time, or listed with its reason."""

import json

from tests.agents.cases import CELLS, REASONS
from tests.support.rows import every_row
from tools.agent_pages import RECORDED, is_in_time, is_right, key_of

TOLD = json.loads(RECORDED.read_text("utf-8"))["agents"]
FOUND = [(cell, TOLD[cell[0]]["told"].get(key_of(*cell[1:]))) for cell in CELLS]


def test_every_cell_is_recorded() -> None:
    assert not [cell for cell, note in FOUND if note is None]


@every_row(("cell", "note"), [(cell, note) for cell, note in FOUND if note is not None])
def test_a_recorded_cell_is_right_in_time_or_listed(
    cell: tuple[str, str, str], note: dict[str, object]
) -> None:
    assert (is_right(*cell, note) and is_in_time(note)) or cell in REASONS, (cell, note)


def test_a_reason_is_of_a_cell_that_there_is() -> None:
    assert REASONS.keys() <= set(CELLS)
    assert all(REASONS.values())
