import pytest

from holdfast.agents.evidence.evidence import (
    Exited,
    Progress,
    Ready,
    Requested,
    Retrying,
    Source,
    Want,
    Wants,
    Work,
    WorkerState,
    Working,
)
from holdfast.agents.evidence.evidence import Failure as F
from holdfast.agents.evidence.policy import End, decide
from holdfast.agents.evidence.status import STORM_REQUESTS, WorkerLimits, classify
from tests.support.evidence import Row, story
from tests.support.rows import every_row


def act(rows: list[Row], now: float, limits: WorkerLimits = WorkerLimits()) -> End | None:  # noqa: B008 - a value
    status = classify(story(*rows), now, started_at=0.0, limits=limits)
    return decide(status, now, started_at=0.0, limits=limits)


def tries(*attempts: tuple[F | None, int | None]) -> list[Row]:
    return [(1.0 + n, Source.PROTOCOL, Retrying(n, 10, *cause)) for n, cause in enumerate(attempts, 1)]


@every_row(
    ("cause", "expected"),
    [
        ((F.AUTH, 401), F.AUTH),
        ((F.AUTH, 403), F.AUTH),
        ((None, 401), F.AUTH),
        ((None, 403), F.AUTH),
        ((None, 404), F.MODEL),
        ((F.MODEL, 404), F.MODEL),
        ((F.QUOTA, 429), F.QUOTA),
        ((F.AUTH, None), F.AUTH),
        ((F.PROVIDER, 404), F.PROVIDER),
    ],
)
def test_a_hopeless_retry_is_ended_at_the_second_identical_attempt(
    cause: tuple[F | None, int | None], expected: F
) -> None:
    assert act(tries(cause), 3) is None
    end = act(tries(cause, cause), 4)
    assert end is not None
    assert end.failure is expected


@pytest.mark.parametrize("cause", [(F.RATE_LIMIT, 429), (F.PROVIDER, 500), (F.NETWORK, None), (None, None)])
def test_what_may_get_better_is_left_to_try(cause: tuple[F | None, int | None]) -> None:
    assert act(tries(*[cause] * 9), 12) is None


def test_attempts_that_differ_are_not_identical() -> None:
    assert act(tries((F.PROVIDER, 500), (F.AUTH, 401)), 4) is None
    assert act(tries((F.AUTH, 401), (F.AUTH, 403)), 4) is None


def test_output_between_two_attempts_is_hope() -> None:
    first, second = tries((F.AUTH, 401), (F.AUTH, 401))
    assert act([first, (2.5, Source.PROTOCOL, Progress(Work.STREAMING)), second], 4) is None


def test_a_storm_of_requests_is_ended() -> None:
    rows: list[Row] = [(1.0, Source.SOCKET, Requested())] * (STORM_REQUESTS + 1)
    end = act(rows, 10)
    assert end is not None
    assert end.failure is F.PROVIDER
    assert end.why.startswith("retry loop")


def test_the_end_gives_the_verdict_its_words() -> None:
    end = act(tries((F.AUTH, 401), (F.AUTH, 401)), 4)
    assert end is not None
    items = story(*tries((F.AUTH, 401)), (5, Source.EXIT, Exited(None, 15, end.failure), end.why))
    status = classify(items, 6, started_at=0.0, limits=WorkerLimits())
    assert (status.state, status.failure, status.about) == (WorkerState.FAILED, F.AUTH, end.why)


def test_the_wall_limit_ends_whatever_it_does() -> None:
    rows: list[Row] = [(99.0, Source.PROTOCOL, Wants(Want.DECISION, request="1"))]
    assert act(rows, 100, WorkerLimits(wall_s=100)) is None
    end = act(rows, 101, WorkerLimits(wall_s=100))
    assert end is not None
    assert end.failure is F.TIMEOUT


def test_the_idle_limit_counts_from_the_last_sign_of_work() -> None:
    rows: list[Row] = [(10.0, Source.PROTOCOL, Progress(Work.TOOL))]
    assert act(rows, 70, WorkerLimits(idle_s=60)) is None
    end = act(rows, 71, WorkerLimits(idle_s=60))
    assert end is not None
    assert end.failure is F.TIMEOUT


def test_one_that_waits_for_its_owner_is_not_idle() -> None:
    assert act([(1.0, Source.ESCAPE, Wants(Want.DECISION))], 1e6, WorkerLimits(idle_s=60)) is None


def test_a_stall_is_advice_and_ends_nothing() -> None:
    assert act([(1.0, Source.PROTOCOL, Ready())], 1e6) is None
    assert act([(1.0, Source.SOCKET, Working(Work.NETWORK))], 1e6) is None


def test_nothing_is_done_about_one_that_ended() -> None:
    assert act([(1.0, Source.EXIT, Exited(0))], 1e6, WorkerLimits(wall_s=1, idle_s=1)) is None
