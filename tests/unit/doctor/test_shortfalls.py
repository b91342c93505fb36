from holdfast.doctor.attempts import ATTEMPTS, Guarantee
from holdfast.doctor.shortfalls import ALONE, Shortfall, shortfalls


def test_only_attempts_that_exist_fall_short_and_every_reason_is_used() -> None:
    assert set(ALONE) <= {attempt.id for attempt in ATTEMPTS}
    assert {reason for reasons in ALONE.values() for reason in reasons} == set(Shortfall)


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
