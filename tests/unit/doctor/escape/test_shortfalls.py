import itertools

import pytest

from holdfast.doctor.escape.attempts import ATTEMPTS, Guarantee
from holdfast.doctor.escape.shortfalls import ALONE, Shortfall, declared, shortfalls
from holdfast.sandbox.plan import rights
from holdfast.sandbox.plan.select import Way
from tests.support.rows import every_row

EVERY_WORD = ("landlock", "proc", "loopback")


def test_only_attempts_that_exist_fall_short_and_every_reason_is_used() -> None:
    assert set(ALONE) <= {attempt.id for attempt in ATTEMPTS}
    used = {
        reason
        for attempt, way in itertools.product(ATTEMPTS, Way)
        for reason in declared(attempt.id, way, privileged=False, abi=0, weakened=EVERY_WORD)
    }
    assert used == set(Shortfall)


def test_what_only_hinders_lets_nothing_out() -> None:
    hindering = {Shortfall.CLOSED, Shortfall.SOCKETS, Shortfall.TERMINALS, Shortfall.SYSTEM_V}
    everyday = {attempt.id for attempt in ATTEMPTS if attempt.guarantee is Guarantee.USABLE}
    assert {id_ for id_, reasons in ALONE.items() if reasons & hindering} == everyday & set(ALONE)


def test_a_reason_counts_only_where_it_applies() -> None:
    assert shortfalls("use-node", privileged=True, closed=True) == {Shortfall.CLOSED, Shortfall.SOCKETS}
    assert shortfalls("use-node", privileged=True, closed=False) == {Shortfall.SOCKETS}
    assert shortfalls("use-git", privileged=False, closed=False) == frozenset()
    assert shortfalls("none-left", privileged=False, closed=True) == {Shortfall.BOUNDING_SET}
    assert shortfalls("none-left", privileged=True, closed=True) == frozenset()
    assert shortfalls("git-write", privileged=False, closed=True) == frozenset()


@pytest.mark.parametrize("way", [Way.USER_NAMESPACE, Way.AS_ROOT])
def test_namespaces_on_the_newest_kernel_have_no_excuse(way: Way) -> None:
    for attempt in ATTEMPTS:
        assert not declared(attempt.id, way, privileged=False, abi=rights.NEWEST_KNOWN_ABI)


@every_row(
    ("attempt", "way", "abi", "weakened", "excused"),
    [
        ("pipe-of-host", Way.USER_NAMESPACE, 0, (), True),
        ("pipe-of-host", Way.USER_NAMESPACE, 7, ("landlock",), True),
        ("pipe-of-host", Way.USER_NAMESPACE, 7, (), False),
        ("use-multiprocessing-forkserver", Way.USER_NAMESPACE, rights.UNIX_ABI - 1, (), True),
        ("use-multiprocessing-forkserver", Way.USER_NAMESPACE, rights.UNIX_ABI, (), False),
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
    found = declared(attempt, way, privileged=True, abi=abi, weakened=weakened)
    assert bool(found) is excused
