"""The verbs on boards: create, bound, pause and archive."""

import re
from typing import Final

import msgspec

from holdfast.board.database.database import Transaction, row_of
from holdfast.board.rules.rows import Board, check_text
from holdfast.errors import Conflict, InvalidRequest, NotFound, UsageError

SLUG: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def create(tx: Transaction, slug: str, title: str = "") -> Board:
    """Create a board. Raises UsageError for a bad name, Conflict when there is one of this name."""
    if not SLUG.fullmatch(slug):
        raise UsageError(
            "the name of a board is 1 to 64 of a-z, 0-9, - and _, and begins with a letter or digit"
        )
    row = tx.one("board_add", slug=slug, title=check_text("title", title), now=tx.now_ms)
    if row is None:
        raise Conflict(f"there is a board {slug} already")
    tx.log(slug, "board_created", "person", task=None)
    return row_of(Board, row)


def get(tx: Transaction, slug: str, *, lock: bool = False) -> Board:
    """The board; with `lock`, no other change can claim on it or change it until this one is over.

    Raises:
        NotFound: there is none.
    """
    row = tx.one("board_lock" if lock else "board_get", slug=slug)
    if row is None:
        raise NotFound(f"there is no board {slug}", remedy="holdfast board list")
    return row_of(Board, row)


def list_boards(tx: Transaction) -> list[Board]:
    return [row_of(Board, row) for row in tx.all("board_list")]


def get_unarchived(tx: Transaction, slug: str) -> Board:
    """The board. Raises NotFound when there is none, InvalidRequest when it is archived."""
    found = get(tx, slug)
    if found.archived:
        raise InvalidRequest(f"the board {slug} is archived", remedy=f"holdfast board archive {slug} --undo")
    return found


def pause(tx: Transaction, slug: str, on: bool, *, who: str = "person") -> Board:
    """Pause or resume a board: while it is paused nothing is claimed. Current runs continue."""
    return _stand(tx, msgspec.structs.replace(get(tx, slug, lock=True), paused=on), who=who)


def archive(tx: Transaction, slug: str, on: bool = True, *, who: str = "person") -> Board:
    """Archive a board, or undo that: while archived, nothing is claimed or created; nothing is deleted.

    Raises:
        InvalidRequest: tasks of it are running.
    """
    found = get(tx, slug, lock=True)
    if on and tx.row("runs_open", board=slug)["count"]:
        raise InvalidRequest(
            f"tasks of {slug} are running", remedy=f"holdfast board pause {slug}, then wait or cancel them"
        )
    return _stand(tx, msgspec.structs.replace(found, archived=on), who=who)


def set_cap(tx: Transaction, slug: str, scope: str, name: str, most: int, *, who: str = "person") -> None:
    """Bound the runs of this board at once: in total (no name), of a profile, a host or a pool.

    Raises:
        UsageError: the scope or the number is invalid.
    """
    if scope not in ("board", "profile", "host", "pool") or most < 0 or (scope == "board") == bool(name):
        raise UsageError("a cap is of the board, of a profile, of a host or of a pool, and not negative")
    get(tx, slug, lock=True)
    tx.all("cap_set", board=slug, scope=scope, name=name, most=most)
    tx.log(slug, "cap_set", who, task=None, scope=scope, name=name, most=most)


def _stand(tx: Transaction, wanted: Board, *, who: str) -> Board:
    before = get(tx, wanted.slug)
    if (wanted.paused, wanted.archived) == (before.paused, before.archived):
        return before
    row = tx.row("board_stand", slug=wanted.slug, paused=int(wanted.paused), archived=int(wanted.archived))
    tx.log(*(wanted.slug, "board_changed", who), task=None, paused=wanted.paused, archived=wanted.archived)
    return row_of(Board, row)
