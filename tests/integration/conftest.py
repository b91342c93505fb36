"""A real PostgreSQL server for each worker of the test run that asks for one, stores on it and on SQLite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.board.store import Store, open_store
from tests.support import postgres
from tests.support.board_command import Board
from tests.support.boards import SettableClock
from tests.support.tiers import uvloop_first

__all__ = ["uvloop_first"]  # most of these tests have the exec server in their own loop


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    binaries = postgres.programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: install its server package")
    with postgres.server(binaries) as address:
        yield address


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty store, one after the other in both databases."""
    if request.param == "sqlite":
        return str(tmp_path / "board.db")
    return postgres.fresh(request.getfixturevalue("postgres_server"))


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def store(address: str, clock: SettableClock) -> Iterator[Store]:
    """A store with an empty board `b`, and a clock that stands still."""
    with open_store(address, clock=clock) as opened:
        opened.create_board("b")
        yield opened


@pytest.fixture
def board(address: str, tmp_path: Path) -> Board:
    """Commands on an empty store."""
    return Board(address, tmp_path / "home")


@pytest.fixture
def sqlite_board(tmp_path: Path) -> Board:
    """Likewise on SQLite alone, for what the database has no part in."""
    return Board(str(tmp_path / "board.db"), tmp_path / "home")
