"""What must hold of a status whatever the evidence is."""

from dataclasses import replace
from itertools import accumulate, groupby
from random import Random

from hypothesis import assume, example, given
from hypothesis import strategies as st

from holdfast.agents.evidence.digest import Window
from holdfast.agents.evidence.evidence import (
    Answered,
    Claim,
    Denied,
    Evidence,
    Exited,
    Failure,
    Idle,
    Obstacle,
    Obstructed,
    Progress,
    Ready,
    Requested,
    Result,
    Retrying,
    Source,
    ToolFailed,
    Trouble,
    Vanished,
    Want,
    Wants,
    Work,
    WorkerState,
    WorkerStatus,
    Working,
)
from holdfast.agents.evidence.status import WorkerLimits, classify, decide_end, why
from holdfast.agents.evidence.verdict import ExitRules

IDS = st.sampled_from(["", "1", "2"])
HTTP = st.none() | st.sampled_from([200, 401, 404, 429, 500])
FAILURES = st.none() | st.sampled_from(Failure)
PATHS = st.sampled_from(["/a", "/b"])
CODES = st.none() | st.integers(0, 255)

REPORTS: st.SearchStrategy[Claim] = st.one_of(
    st.builds(Working, st.sampled_from(Work)),
    st.just(Idle()),
    st.builds(Wants, st.sampled_from(Want), st.just("?"), st.just(()), IDS),
    st.builds(Obstructed, st.sampled_from(Obstacle)),
    st.builds(Result, st.booleans(), FAILURES, st.just(""), HTTP),
)
EVENTS: st.SearchStrategy[Claim] = st.one_of(
    st.just(Ready()),
    st.builds(Progress, st.sampled_from(Work)),
    st.builds(Answered, IDS),
    st.builds(Retrying, st.integers(1, 3), st.none() | st.just(10), FAILURES, HTTP),
    st.builds(
        Denied, st.sampled_from(["write", "connect"]), PATHS, st.just("EROFS"), st.just("open"), st.booleans()
    ),
    st.just(Requested()),
    st.builds(ToolFailed, st.just("sh"), CODES),
    st.builds(Trouble, st.sampled_from(Failure), HTTP),
)
EXITS: st.SearchStrategy[Claim] = st.builds(Exited, CODES, st.none() | st.integers(1, 15), FAILURES)
LIVING = REPORTS | EVENTS
ANY = LIVING | EXITS | st.just(Vanished("?"))

SOURCES = st.sampled_from(Source)
STEPS = st.sampled_from([0.0, 0.1, 0.5, 1.0, 4.0, 30.0, 100.0])
RULES = st.builds(
    ExitRules,
    st.booleans(),
    st.dictionaries(st.integers(0, 255), st.sampled_from(Failure), max_size=2),
    st.booleans(),
)


# What watchers really say, so that it meets often.
TYPICAL: list[tuple[Source, Claim]] = [
    (Source.PROTOCOL, Progress(Work.TOOL)),
    (Source.PROTOCOL, Retrying(1, 10, Failure.AUTH, 401)),
    (Source.DENIAL, Denied("write", "/a", "EROFS", "open")),
    (Source.TITLE, Working(Work.THINKING)),
    (Source.CHILDREN, Working(Work.TOOL)),
    (Source.FILE, Wants(Want.DECISION)),
    (Source.SCREEN, Wants(Want.DECISION)),
    (Source.STABILITY, Working(Work.STREAMING)),
    (Source.STABILITY, Idle()),
]


@st.composite
def histories(draw: st.DrawFn, claims: st.SearchStrategy[Claim], least: int = 0) -> list[Evidence]:
    """A few voices that speak again and again: so they meet, repeat and contradict each other."""
    voice = st.sampled_from(TYPICAL) | st.tuples(SOURCES, claims)
    voices = draw(st.lists(voice, min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(STEPS, st.sampled_from(voices)), min_size=least, max_size=12))
    times = accumulate(step for step, _ in rows)
    return [Evidence(source, at, claim) for at, (_, (source, claim)) in zip(times, rows, strict=True)]


def look(items: list[Evidence], now: float) -> WorkerStatus:
    return classify(items, now, started_at=0.0, limits=WorkerLimits())


def told(status: WorkerStatus) -> tuple[WorkerState, str, str]:
    return status.state, status.detail, status.rule


@given(histories(ANY), st.randoms(use_true_random=False), st.floats(-1e9, 1e9) | STEPS, STEPS, RULES)
def test_it_always_knows_says_the_same_again_and_can_be_explained(
    items: list[Evidence], random: Random, now: float, started_at: float, rules: ExitRules
) -> None:
    if now < 0.1:
        random.shuffle(items)  # clocks go wrong, and watchers are late
    limits = WorkerLimits(wall_s=100, idle_s=10)
    status = classify(items, now, started_at=started_at, limits=limits, exits=rules)
    assert classify(tuple(items), now, started_at=started_at, limits=limits, exits=rules) == status
    assert len(why(status, now)) >= 4
    decide_end(status, now, started_at=started_at, limits=limits)


@example([], Exited(0), [Evidence(Source.CLOCK, 2.0, Vanished("?"))], 1.0, ExitRules())
@given(histories(ANY), EXITS, histories(ANY), STEPS, RULES)
def test_an_exit_always_wins(
    before: list[Evidence], exited: Claim, after: list[Evidence], step: float, rules: ExitRules
) -> None:
    items = [*before, Evidence(Source.EXIT, 1.0, exited), *after]
    status = classify(items, 1.0 + step, started_at=0.0, limits=WorkerLimits(), exits=rules)
    assert status.state.ended
    assert status.rule.startswith("exit-")


@given(histories(ANY), RULES)
def test_success_is_never_plain_where_something_was_refused(items: list[Evidence], rules: ExitRules) -> None:
    status = classify(
        [*items, Evidence(Source.EXIT, 1e4, Exited(0))],
        1e4,
        started_at=0.0,
        limits=WorkerLimits(),
        exits=rules,
    )
    if status.state is WorkerState.COMPLETED and any(isinstance(item.claim, Denied) for item in items):
        assert "with-denials" in status.flags


FIRM: st.SearchStrategy[Claim] = st.builds(Working, st.sampled_from(Work)) | st.builds(
    Wants, st.sampled_from([want for want in Want if want is not Want.PROMPT])
)
FIRM_SOURCES = st.sampled_from([Source.PROTOCOL, Source.ESCAPE, Source.TITLE])
SOFT = st.one_of(
    st.builds(Working, st.sampled_from(Work)), st.just(Idle()), st.builds(Wants, st.sampled_from(Want))
)


@given(st.lists(st.tuples(SOURCES, SOFT), max_size=12), FIRM_SOURCES, FIRM)
def test_what_a_weaker_source_said_before_changes_nothing(
    said: list[tuple[Source, Claim]], source: Source, claim: Claim
) -> None:
    older = [Evidence(other, 1.0, word) for other, word in said if other > source]
    firm = Evidence(source, 2.0, claim)
    assert look([*older, firm], 3.0).state is look([firm], 3.0).state


@given(FIRM_SOURCES, FIRM, st.lists(st.tuples(SOURCES, SOFT), max_size=12))
def test_a_fresher_weaker_report_overturns_a_standing_one_only_if_the_kernel_proves_it(
    source: Source, claim: Claim, said: list[tuple[Source, Claim]]
) -> None:
    newer = [Evidence(other, 2.0, word) for other, word in said if other > source]
    firm = Evidence(source, 1.0, claim)
    status, alone = look([firm, *newer], 3.0), look([firm], 3.0)
    if status.state is not alone.state:
        assert status.rule == "proof"
        assert status.evidence[0].source in (Source.SYSCALL, Source.TTY)
        assert status.contradictions


@example([], Source.FILE, [Evidence(Source.STABILITY, 100.0, Working(Work.STREAMING))], [30.0])
@given(histories(LIVING), SOURCES, histories(LIVING), st.lists(STEPS, min_size=1, max_size=8))
def test_a_decision_is_not_answered_by_time(
    before: list[Evidence], source: Source, after: list[Evidence], steps: list[float]
) -> None:
    end = before[-1].at if before else 0.0
    asked = Evidence(source, end, Wants(Want.DECISION))
    items = [*before, asked, *(replace(item, at=item.at + end) for item in after[:3])]
    states = [look(items, items[-1].at + passed).state for passed in accumulate(steps, initial=0.0)]
    if WorkerState.WAITING in states:
        assert WorkerState.RUNNING not in states[states.index(WorkerState.WAITING) :]


def changes(statuses: list[WorkerStatus]) -> list[tuple[WorkerState, str]]:
    return [key for key, _ in groupby((status.state, status.detail) for status in statuses)]


COUNTED = (Denied, Requested)


@given(histories(LIVING, 1), STEPS, st.integers(1, 5))
def test_the_same_item_twice_says_the_same(items: list[Evidence], step: float, times: int) -> None:
    last = items[-1]
    assume(not isinstance(last.claim, COUNTED))
    assume(not (last.source is Source.STABILITY and isinstance(last.claim, Working)))  # each look counts
    now = last.at + step
    assert told(look([*items, *[last] * times], now)) == told(look(items, now))


@given(histories(LIVING, 1), st.floats(0.1, 5.0))
def test_a_state_does_not_come_back_while_a_watcher_repeats_itself(
    items: list[Evidence], beat: float
) -> None:
    assume(not isinstance(items[-1].claim, COUNTED))  # each one is news
    seen = []
    for _ in range(40):
        seen.append(look(items, items[-1].at))
        items = [*items, replace(items[-1], at=items[-1].at + beat)]
    passed = changes(seen)
    assert len(passed) == len(set(passed))


@given(histories(LIVING, 1), st.lists(STEPS, min_size=1, max_size=12))
def test_a_state_does_not_come_back_while_nothing_happens(items: list[Evidence], steps: list[float]) -> None:
    now, seen = items[-1].at, []
    for step in steps:
        seen.append(look(items, now))
        now += step
    passed = changes(seen)
    assert len(passed) == len(set(passed))


MOVES = Evidence(Source.STABILITY, 1.0, Working(Work.STREAMING))


@example([MOVES, Evidence(Source.SCREEN, 1.0, Wants(Want.DECISION)), MOVES], 3, 1.0)
@given(histories(LIVING, 1), st.integers(1, 6), STEPS)
def test_what_is_kept_says_the_same_as_everything(items: list[Evidence], times: int, step: float) -> None:
    repeated = [again for item in items for again in [item] * times]
    now = items[-1].at + step
    kept = Window(repeated, max_items=len(repeated)).items
    assert told(look(kept, now)) == told(look(repeated, now))
