"""Attempts to a table of guarantees by backend, and to an exit code."""

import itertools

import pytest

from holdfast.doctor.escape.attempts import ATTEMPTS, Guarantee
from holdfast.doctor.escape.scorecard import (
    ALONE,
    LINES,
    CheckState,
    Column,
    ScoredAttempt,
    Shortfall,
    cell,
    choose_attempts,
    exit_code,
    find_excuses,
    find_shortfalls,
    lines,
    report,
)
from holdfast.errors import UsageError
from holdfast.sandbox.plan.grants import NEWEST_KNOWN_ABI
from holdfast.sandbox.plan.select import Way
from tests.support.rows import every_row

EVERY_WORD = ("landlock", "proc", "loopback", "sockets")
LINE = next(line for line in LINES if line.id == "write-outside")
UNSHOWN = next(line for line in LINES if line.id == "resources")
ONE, OTHER = sorted(LINE.attempts)[:2]


def test_only_attempts_that_exist_fall_short_and_every_reason_is_used() -> None:
    assert set(ALONE) <= {attempt.id for attempt in ATTEMPTS}
    used = {
        reason
        for attempt, way in itertools.product(ATTEMPTS, Way)
        for reason in find_excuses(attempt.id, way, privileged=False, abi=0, weakened=EVERY_WORD)
    }
    assert used == set(Shortfall)


def test_what_only_hinders_lets_nothing_out() -> None:
    hindering = {Shortfall.CLOSED, Shortfall.SOCKETS, Shortfall.TERMINALS, Shortfall.SYSTEM_V}
    everyday = {attempt.id for attempt in ATTEMPTS if attempt.guarantee is Guarantee.USABLE}
    assert {id_ for id_, reasons in ALONE.items() if reasons & hindering} == everyday & set(ALONE)


def test_a_reason_counts_only_where_it_applies() -> None:
    assert find_shortfalls("use-node", privileged=True, closed=True) == {Shortfall.CLOSED, Shortfall.SOCKETS}
    assert find_shortfalls("use-node", privileged=True, closed=False) == {Shortfall.SOCKETS}
    assert find_shortfalls("use-git", privileged=False, closed=False) == frozenset()
    assert find_shortfalls("none-left", privileged=False, closed=True) == {Shortfall.BOUNDING_SET}
    assert find_shortfalls("none-left", privileged=True, closed=True) == frozenset()
    assert find_shortfalls("git-write", privileged=False, closed=True) == frozenset()


@pytest.mark.parametrize("way", [Way.USER_NAMESPACE, Way.AS_ROOT])
def test_namespaces_on_the_newest_kernel_have_no_excuse(way: Way) -> None:
    for attempt in ATTEMPTS:
        assert not find_excuses(attempt.id, way, privileged=False, abi=NEWEST_KNOWN_ABI)


@every_row(
    ("attempt", "way", "abi", "weakened", "excused"),
    [
        ("pipe-of-host", Way.USER_NAMESPACE, 0, (), True),
        ("pipe-of-host", Way.USER_NAMESPACE, 7, ("landlock",), True),
        ("pipe-of-host", Way.USER_NAMESPACE, 7, (), False),
        ("use-multiprocessing-forkserver", Way.USER_NAMESPACE, 7, (), False),
        ("use-multiprocessing-forkserver", Way.BWRAP, 7, ("sockets",), True),
        ("use-unix-server", Way.USER_NAMESPACE, 7, (), False),
        ("use-unix-server", Way.BWRAP, 7, ("sockets",), True),
        ("environ-of-first", Way.BWRAP, 7, ("landlock",), True),
        ("environ-of-first", Way.USER_NAMESPACE, 7, (), False),
        ("process-list", Way.USER_NAMESPACE, 7, ("proc",), True),
        ("process-list", Way.USER_NAMESPACE, 7, ("loopback",), False),
        ("use-loopback", Way.AS_ROOT, 7, ("loopback",), True),
        ("create-outside", Way.LANDLOCK, 0, EVERY_WORD, False),
        ("process-list", Way.LANDLOCK, 9, (), True),
    ],
)
def test_what_a_host_lacks_excuses_exactly_what_needs_it(
    attempt: str, way: Way, abi: int, weakened: tuple[str, ...], excused: bool
) -> None:
    found = find_excuses(attempt, way, privileged=True, abi=abi, weakened=weakened)
    assert bool(found) is excused


def column(*tried: ScoredAttempt, reason: str = "", wanted: bool = False) -> Column:
    return Column("root", "namespaces", tried=tried, reason=reason, wanted=wanted)


def held(id_: str = ONE) -> ScoredAttempt:
    return ScoredAttempt(id_, "held", "")


def escaped(id_: str = OTHER) -> ScoredAttempt:
    return ScoredAttempt(id_, "broken", f"{id_}: done")


def excused(id_: str = OTHER) -> ScoredAttempt:
    return ScoredAttempt(id_, "broken", "", ("this host lacks it",))


def skipped(id_: str = ONE) -> ScoredAttempt:
    return ScoredAttempt(id_, "skipped", f"{id_}: node is not installed")


@every_row(
    ("tried", "state", "reason"),
    [
        ((held(),), CheckState.HELD, ""),
        ((held(), excused()), CheckState.PARTLY, "this host lacks it"),
        ((excused(),), CheckState.NOT_HELD, "this host lacks it"),
        ((held(), escaped()), CheckState.BROKEN, OTHER),
        ((excused(ONE), escaped()), CheckState.BROKEN, OTHER),
        ((skipped(),), CheckState.UNTRIED, f"{ONE}: node is not installed"),
        ((skipped(), held(OTHER)), CheckState.HELD, f"{ONE}: node is not installed"),
        ((), CheckState.UNTRIED, "left out"),
    ],
)
def test_the_worst_attempt_decides_about_a_guarantee(
    tried: tuple[ScoredAttempt, ...], state: CheckState, reason: str
) -> None:
    found = cell(LINE, column(*tried))
    assert (found.state, found.reason) == (state, reason)


def test_what_could_not_run_or_has_no_attempt_says_so() -> None:
    assert cell(LINE, column(reason="userns: ENOSPC")).reason == "userns: ENOSPC"
    assert cell(UNSHOWN, column(held())).state is CheckState.UNTRIED


@every_row(
    ("columns", "code"),
    [
        ([column(held())], 0),
        ([column(held(), excused())], 0),
        ([column(held(), escaped())], 1),
        ([column(held()), column(reason="no")], 0),
        ([column(held()), column(reason="no", wanted=True)], 2),
        ([column(escaped()), column(reason="no", wanted=True)], 1),
        ([column(reason="no")], 2),
        ([column(skipped())], 2),
        ([], 2),
    ],
)
def test_the_exit_code_is_about_what_was_not_declared(columns: list[Column], code: int) -> None:
    assert exit_code(columns) == code


def test_every_attempt_is_in_exactly_one_line() -> None:
    for attempt in ATTEMPTS:
        assert sum(attempt.id in line.attempts for line in LINES) == 1
    assert len({line.id for line in LINES}) == len(LINES)


def test_a_pattern_names_attempts_or_guarantees() -> None:
    assert choose_attempts(()) == ATTEMPTS
    assert {one.id for one in choose_attempts(("write-outside",))} == LINE.attempts
    assert {one.id for one in choose_attempts((ONE, OTHER))} == {ONE, OTHER}
    assert all(one.id.startswith("use-") for one in choose_attempts(("use-*",)))


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        choose_attempts((ONE, "nonsense"))
    assert caught.value.remedy


def test_the_text_names_what_escaped_and_why_the_rest_is_not_held() -> None:
    text = "\n".join(
        lines([column(held(), escaped()), Column("nobody", "landlock", tried=(held(), excused()))])
    )
    assert "BROKEN" in text
    assert f"namespaces as root: {OTHER}: done" in text
    assert "write-outside (landlock as nobody): this host lacks it" in text
    assert "protected-parent" not in text, "it was left out"


def test_a_remedy_is_told_once() -> None:
    broken = Column("root", "bwrap", reason="bwrap.missing: ENOENT", remedy="apt-get install bubblewrap")
    text = "\n".join(lines([broken, broken]))
    assert text.count("apt-get") == 1
    assert "nothing could be tried" in text


def test_a_report_has_a_cell_for_every_guarantee_and_column() -> None:
    tree = report([column(held(), escaped()), column(reason="no")])
    guarantees = tree["guarantees"]
    assert isinstance(guarantees, list)
    assert {len(row["cells"]) for row in guarantees} == {2}
    assert tree["escapes"] == [
        {"user": "root", "backend": "namespaces", "attempt": OTHER, "text": f"{OTHER}: done"}
    ]
