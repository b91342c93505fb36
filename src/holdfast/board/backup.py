"""Back up and restore a store: a copy that SQLite can open, or lines of JSON that any store can read.

The name of the file decides: `.jsonl` means lines. Every copy is checked by recounting before it is used, and
existing data is never discarded: what a restore replaces is kept beside it under another name.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.board.database.sqlite import SqliteDatabase, wall_clock
from holdfast.board.store import Store, open_store
from holdfast.board.verbs import transfer
from holdfast.errors import Conflict, InvalidRequest, NotFound, OperationFailed, StoreDamaged

LINES: Final = ".jsonl"
_BESIDE: Final = ("", "-wal", "-shm")


def backup(store: Store, path: Path) -> None:
    """Write a copy while other processes use the store.

    It is either complete, checked and on disk, or absent.

    Raises:
        InvalidRequest: a store that is not a file can be kept as lines only.
        StoreDamaged: the copy is inconsistent, and so is the store.
    """
    database = store.database
    if path.suffix != LINES and not isinstance(database, SqliteDatabase):
        raise InvalidRequest(
            "a PostgreSQL store is kept as lines", remedy=f"name a file that ends in {LINES}"
        )
    part = path.with_name(f".{path.name}.part")
    try:
        _remove(part)
        if isinstance(database, SqliteDatabase) and path.suffix != LINES:
            database.copy_to(str(part))
            _check_copy(part)
        else:
            with open(part, "xb") as file:
                os.chmod(part, 0o600)
                database.read(lambda tx: transfer.export_lines(tx, file.write))
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
        _sync(path.parent)
    except OSError as exc:
        raise OperationFailed(f"cannot write {path}: {exc.strerror}") from exc
    finally:
        _remove(part)


def restore(path: Path, address: str, *, replace: bool = False) -> str | None:
    """Replace the store at `address` with the file's content; return where the old store is now, if any.

    Raises:
        NotFound: there is no such file.
        Conflict: there is a sound store with boards, and it is not to be replaced.
        InvalidRequest, StoreDamaged: the file is not sound; the store is as it was.
    """
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    if path.suffix == LINES:
        aside = _put_aside(address, replace=replace) if _is_file(address) else None
        try:
            with open_store(address) as store, open(path, "rb") as file:
                store.database.write(lambda tx: transfer.import_lines(tx, _read_lines(file)))
        except BaseException:
            if aside is not None:
                _rename(aside, address)
            raise
        return aside
    if not _is_file(address):
        raise InvalidRequest("a copy of a SQLite store becomes a SQLite store", remedy=f"use a {LINES} file")
    _check_copy(path)
    aside = _put_aside(address, replace=replace)
    with contextlib.closing(SqliteDatabase(str(path), create=False)) as source:
        source.copy_to(address)
    Store(SqliteDatabase(address, create=False)).close()
    return aside


def _is_file(address: str) -> bool:
    return "://" not in address


def _put_aside(address: str, *, replace: bool) -> str | None:
    """Rename the files of a store; return the new name.

    They are not opened for this, because other processes may have them open.
    """
    if not os.path.exists(address):
        return None
    try:
        with open_store(address, create=False) as store:
            sound = isinstance(store.database, SqliteDatabase) and not store.database.damaged
            if sound and store.boards() and not replace:
                raise Conflict(
                    f"there are boards at {address}", remedy="--replace keeps them beside the new ones"
                )
    except StoreDamaged:
        pass
    aside = f"{address}.before-{wall_clock()}"
    _rename(address, aside)
    _remove(Path(f"{address}.damaged"))
    return aside


def _rename(source: str, target: str) -> None:
    for suffix in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            os.replace(source + suffix, target + suffix)
    _sync(Path(target).parent)


def _check_copy(path: Path) -> None:
    """Raises StoreDamaged when a copy is not sound."""
    try:
        with open_store(str(path), create=False) as copy:
            wrong = copy.faults()
    except StoreDamaged:
        wrong = ["it is no SQLite file"]
    finally:
        for suffix in ("-wal", "-shm", ".damaged"):
            _remove(Path(f"{path}{suffix}"))
    if wrong:
        raise StoreDamaged(f"{path} is not sound: {wrong[0]}", remedy="use another backup")


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(transfer.MAX_LINE + 1):
        if len(line) > transfer.MAX_LINE:
            raise InvalidRequest("the export has a line that is too long", remedy="use another copy")
        yield line


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
