"""Open a database by its address. A dialect's modules are imported only when it is used."""

from typing import Final

from holdfast.board.database.database import BOARD, Clock, Database, Schema, steady_clock
from holdfast.errors import Unreachable

_POSTGRES: Final = ("postgresql://", "postgres://")


def is_shared(address: str) -> bool:
    """Whether several hosts can use the store at this address."""
    return address.startswith(_POSTGRES)


def open_database(
    address: str,
    *,
    create: bool = True,
    clock: Clock | None = None,
    steady: Clock = steady_clock,
    schema: Schema = BOARD,
) -> Database:
    """Open the database at a path or a postgresql:// URL.

    Raises:
        NotFound: there is none, and `create` is false.
        Unreachable: the server does not answer.
        StoreDamaged: the file is broken.
    """
    if is_shared(address):
        try:
            from holdfast.board.database.postgres import PostgresDatabase
        except ImportError:
            raise Unreachable(
                "psycopg is not installed", remedy="pip install 'holdfast-agents[postgres]'"
            ) from None
        return PostgresDatabase(address, create=create, clock=clock, steady=steady, schema=schema)
    from holdfast.board.database.sqlite import SqliteDatabase, wall_clock

    return SqliteDatabase(address, create=create, clock=clock or wall_clock, steady=steady, schema=schema)
