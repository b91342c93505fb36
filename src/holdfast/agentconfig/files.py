"""Change a configuration file that other programs write too: atomically, and without losing their changes.

Our own writers use a lock. Codex does not, so we compare the content again right before the new file replaces
the old one; the moment between that and the rename cannot be closed.
"""

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.agentconfig.removal import strip
from holdfast.errors import InvalidRequest, NotFound, OperationFailed
from holdfast.local.atomicfile import write_new
from holdfast.local.lock import wait_for_lock

NAME: Final = "config.toml"
LOCK: Final = ".holdfast.lock"
LOCK_WAIT_S: Final = 30.0  # enough for ten writers that run Codex on a slow machine; after that, one hangs
MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024  # a thousand times a usual file; a larger one is no configuration
MAX_TRIES: Final = 5  # for a Codex that writes again and again between our reading and our renaming
BACKUPS_KEPT: Final = 3  # enough to go back; each may contain a token

_DIGEST_CHARS: Final = 12
_MODE: Final = 0o600  # the file may hold tokens
_BACKUP: Final = re.compile(rf"\.[0-9a-f]{{{_DIGEST_CHARS}}}\.bak")


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of an edit; `backup` is the file with the previous content."""

    path: Path
    before: str
    after: str
    backup: Path | None = None

    @property
    def changed(self) -> bool:
        return self.before != self.after


def read(home: Path, *, follow: bool, name: str = NAME) -> str:
    """The text of the file, empty if there is no file; `follow` as for `edit`.

    Raises:
        NotFound: the home does not exist.
        InvalidRequest: it is not a file in the home, too large, or not text.
    """
    with _opened(home / name, follow=follow) as (folder, where):
        return _text(_bytes(folder, where.name), where)


def edit(
    home: Path,
    change: Callable[[str], str],
    *,
    follow: bool,
    validate: Callable[[str], None] = lambda _text: None,
    name: str = NAME,
    wait_s: float = LOCK_WAIT_S,
) -> Edited:
    """Replace the file's text by `change` of it, with mode 0600; unchanged text is not written.

    `follow` is for an operator's own home, where the file may be a link to its real place: the link is kept
    and its target is written. In a task's home no link is followed, because an earlier task could have made
    it. If `change` or `validate` raises, the file is unchanged.

    Raises:
        NotFound: the home does not exist.
        InvalidRequest: it is not a file in the home, too large, or not text.
        OperationFailed: another writer does not end, or the file system refuses.
    """
    with _opened(home / name, follow=follow) as (folder, where), _locked(folder, where, wait_s):
        for _ in range(MAX_TRIES):
            seen = _bytes(folder, where.name)
            before = _text(seen, where)
            after = change(before)
            if after == before:
                if seen is not None:
                    _restrict(folder, where.name)
                return Edited(where, before, after)
            validate(after)
            users = name != NAME or _is_users(before)
            backup = _keep(folder, where, name, seen) if seen and users else None
            if _put(folder, where, after.encode(), seen):
                return Edited(where, before, after, backup)
    raise OperationFailed(
        f"{where} was changed by another process {MAX_TRIES} times while it was being written",
        remedy="end the Codex processes that use this home, then try again",
    )


def delete(home: Path, name: str, allowed: Callable[[str], None], *, follow: bool) -> Edited:
    """Delete a file that is wholly ours, unless `allowed` raises because of its content.

    Raises:
        As `edit`.
    """
    with _opened(home / name, follow=follow) as (folder, where), _locked(folder, where, LOCK_WAIT_S):
        seen = _bytes(folder, where.name)
        before = _text(seen, where)
        if seen is not None:
            allowed(before)
            try:
                os.unlink(where.name, dir_fd=folder)
                os.fsync(folder)
            except OSError as exc:
                raise _make_refusal(where, exc) from None
        return Edited(where, before, "")


@contextlib.contextmanager
def _opened(file: Path, *, follow: bool) -> Iterator[tuple[int, Path]]:
    """Open the directory of the file; yield its descriptor and the file's path."""
    where = Path(os.path.realpath(file)) if follow else file
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        folder = os.open(where.parent, flags)
    except FileNotFoundError:
        raise NotFound(
            f"{where.parent} is not there", remedy=f"mkdir -m 700 -p {str(where.parent)!r}"
        ) from None
    except NotADirectoryError:
        raise InvalidRequest(
            f"{where.parent} is no directory, or a link", remedy="name the directory itself"
        ) from None
    except OSError as exc:
        raise _make_refusal(where, exc) from None
    try:
        yield folder, where
    finally:
        os.close(folder)


@contextlib.contextmanager
def _locked(folder: int, where: Path, wait_s: float) -> Iterator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        lock = os.open(LOCK, flags, _MODE, dir_fd=folder)
    except OSError as exc:
        raise _make_refusal(where, exc) from None
    try:
        if not wait_for_lock(lock, within_s=wait_s):
            raise OperationFailed(
                f"another writer has held {where.parent / LOCK} for {wait_s:.0f} s",
                remedy=f"see who: fuser {str(where.parent / LOCK)!r}",
            )
        yield
    finally:
        os.close(lock)


def _bytes(folder: int, name: str) -> bytes | None:
    """The content of the file; None if there is none. A link, a pipe or a device is not read."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise InvalidRequest(
                f"{name} is a link, and none is followed in the home of a task",
                remedy="look where it leads, and delete it; for a home of your own use --home",
            ) from None
        raise _make_refusal(Path(name), exc) from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise InvalidRequest(f"{name} is not a regular file", remedy="move it away, then try again")
    with open(file, "rb") as opened:
        data = opened.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise InvalidRequest(f"{name} is larger than {MAX_CONFIG_BYTES} bytes", remedy="look what is in it")
    return data


def _text(data: bytes | None, where: Path) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError as exc:
        raise InvalidRequest(
            f"{where} is not UTF-8 at byte {exc.start}", remedy="correct the file by hand, then try again"
        ) from None


def _is_users(text: str) -> bool:
    """Whether it contains more than what we wrote."""
    return bool(strip(text).text.strip())


def _restrict(folder: int, name: str) -> None:
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if stat.S_IMODE(os.fstat(file).st_mode) != _MODE:
            os.fchmod(file, _MODE)
    except OSError as exc:
        raise _make_refusal(Path(name), exc) from None
    finally:
        os.close(file)


def _keep(folder: int, where: Path, file: str, data: bytes) -> Path:
    """Keep a backup named after the digest of its content; delete all but the newest older ones."""
    name = f"{file}.{hashlib.sha256(data).hexdigest()[:_DIGEST_CHARS]}.bak"
    temporary = _write_new(folder, where, data)
    now = time.time_ns()  # finer than the time stamps of the file system
    try:
        os.utime(temporary, ns=(now, now), dir_fd=folder)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        kept = [entry for entry in os.listdir(folder) if _is_backup(entry, file) and entry != name]
        kept.sort(key=lambda entry: os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mtime_ns)
        for entry in kept[: max(0, len(kept) - BACKUPS_KEPT + 1)]:
            os.unlink(entry, dir_fd=folder)
    except OSError as exc:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise _make_refusal(where, exc) from None
    return where.parent / name


def _is_backup(entry: str, file: str) -> bool:
    return entry.startswith(file) and _BACKUP.fullmatch(entry, len(file)) is not None


def _put(folder: int, where: Path, data: bytes, seen: bytes | None) -> bool:
    """Replace the content that was read by the new one; False if it has been changed since."""
    temporary = _write_new(folder, where, data)
    try:
        if _bytes(folder, where.name) != seen:
            os.unlink(temporary, dir_fd=folder)
            return False
        os.replace(temporary, where.name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError as exc:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise _make_refusal(where, exc) from None
    return True


def _write_new(folder: int, where: Path, data: bytes) -> str:
    """Write a new file with this content to the disk; return its name."""
    try:
        return write_new(folder, data)
    except OSError as exc:
        raise _make_refusal(where, exc) from None


def _make_refusal(where: Path, exc: OSError) -> OperationFailed:
    return OperationFailed(
        f"cannot write {where}: {exc.strerror}",
        remedy=f"see who may: ls -ld {str(where.parent)!r}; do not launch before it is written",
    )
