import pytest

from holdfast.agents.evidence import Source, State


@pytest.mark.parametrize("state", State)
def test_three_states_are_ends(state: State) -> None:
    assert state.ended == (state in {State.FAILED, State.COMPLETED, State.LOST})


def test_the_strongest_source_is_the_smallest() -> None:
    assert min(Source) is Source.EXIT
    assert max(Source) is Source.CLOCK
