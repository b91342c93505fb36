"""The order of the tests where several processes share them: what takes long is begun first, by each of them.

xdist gives each worker as many of the tests as any other, in their order, and whoever is done takes over from
the end of what another still has. So the tests of every worker begin with modules that hold long tests: one
that is begun at the end is waited for by all. Pure module.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def deal(
    tests: Sequence[T], workers: int, *, module_of: Callable[[T], object], is_long: Callable[[T], bool]
) -> list[T]:
    """All of them, in an order for so many workers; those of a module stay in theirs."""
    modules: dict[object, list[T]] = {}
    for test in tests:
        modules.setdefault(module_of(test), []).append(test)
    long = [module for module in modules.values() if any(map(is_long, module))]
    short = iter([test for module in modules.values() if module not in long for test in module])
    dealt: list[T] = []
    for number, size in enumerate(_sizes(len(tests), workers)):
        hand = [test for module in long[number::workers] for test in module]
        dealt += hand
        dealt += [test for _, test in zip(range(size - len(hand)), short, strict=False)]
    return [*dealt, *short]


def _sizes(tests: int, workers: int) -> Iterator[int]:
    for left in range(workers, 0, -1):
        yield tests // left
        tests -= tests // left
