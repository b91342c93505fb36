"""What every run of the tests tries once, and what `make deep` repeats.

A promise is tried once by default. What only tries it again, more often or on the other event loop, is marked
`deep`, which pyproject.toml leaves out.
"""

import sys
from typing import Any, Final, TypeAlias

import pytest

from tests.support.loops import SettlingLoop

DEEP: Final = pytest.mark.deep
Backend: TypeAlias = tuple[str, dict[str, object]]
ASYNCIO: Final[Backend] = ("asyncio", {"loop_factory": SettlingLoop})


def sizes(name: str, *, quick: object, deep: object) -> pytest.MarkDecorator:
    """The test gets `name` twice: as much as every run can afford, and as much as finds what is rare."""
    return pytest.mark.parametrize(
        name, [pytest.param(quick, id="quick"), pytest.param(deep, id="deep", marks=DEEP)]
    )


def _loops(*, first: str) -> list[Any]:
    order = [first, *({"asyncio", "uvloop"} - {first})]
    return [pytest.param(name, marks=() if name == first else DEEP) for name in order]


def _backend(name: str) -> Backend:
    # Who has taken Linux away has not taken it from uvloop, which is built for it.
    if name == "uvloop" and sys.platform == "linux":
        return "asyncio", {"use_uvloop": True}
    return ASYNCIO


@pytest.fixture(name="anyio_backend", params=_loops(first="asyncio"))
def asyncio_first(request: pytest.FixtureRequest) -> Backend:
    """For code that users run in a loop of their own, and for our commands, which take asyncio's."""
    return _backend(request.param)


@pytest.fixture(name="anyio_backend", params=_loops(first="uvloop"))
def uvloop_first(request: pytest.FixtureRequest) -> Backend:
    """For the exec server, which runs on uvloop where that is installed."""
    return _backend(request.param)


@pytest.fixture(name="anyio_backend", params=["asyncio", "uvloop"])
def both_loops(request: pytest.FixtureRequest) -> Backend:
    """For what leans on the loop itself: sockets, pipes and children differ between the two."""
    return _backend(request.param)
