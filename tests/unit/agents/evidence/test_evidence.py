from holdfast.agents.evidence.evidence import Source, Usage, WorkerState
from tests.support.rows import every_row


@every_row("state", WorkerState)
def test_three_states_are_ends(state: WorkerState) -> None:
    assert state.ended == (state in {WorkerState.FAILED, WorkerState.COMPLETED, WorkerState.LOST})


def test_the_strongest_source_is_the_smallest() -> None:
    assert min(Source) is Source.EXIT
    assert max(Source) is Source.CLOCK


def test_usage_adds_up_and_a_price_is_unknown_until_somebody_says_one() -> None:
    assert Usage(1, 2, 3, turns=4) + Usage(10, 20, 30, turns=40) == Usage(11, 22, 33, None, 44)
    assert Usage(cost_usd=0.5) + Usage() == Usage(cost_usd=0.5)
    assert (Usage(cost_usd=0.5) + Usage(1, 2, cost_usd=0.25)) == Usage(1, 2, cost_usd=0.75)
    assert Usage(1, 2, 1).tokens == 3
