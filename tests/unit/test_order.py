"""The order in which several processes share the tests."""

import random

from tests.support.order import deal

LONG = {"a", "b", "c"}
TESTS = random.Random(1).sample([f"{module}{number}" for module in "abcdefgh" for number in range(5)], 40)  # noqa: S311 - an order


def test_every_workers_tests_begin_with_long_modules_and_none_is_lost() -> None:
    for workers in (1, 2, 3, 5):
        dealt = deal(
            TESTS, workers, module_of=lambda test: test[0], is_long=lambda test: test in {"a0", "b1", "c4"}
        )
        assert sorted(dealt) == sorted(TESTS)
        for module in "abcdefgh":  # in the order they had among themselves
            assert [one for one in dealt if one[0] == module] == [one for one in TESTS if one[0] == module]
        firsts = {dealt[number * len(TESTS) // workers][0] for number in range(workers)}
        assert len(firsts & LONG) == min(workers, 3)


def test_more_long_tests_than_a_worker_has_are_all_there() -> None:
    dealt = deal(TESTS, 7, module_of=lambda test: test[0], is_long=lambda test: test[0] not in "gh")
    assert sorted(dealt) == sorted(TESTS)
