"""One-shot watches on paths that do not exist, so that a client may cache their absence.

A path stays absent as long as no directory entry along it changes. So every directory from the root down to
the first missing name is watched for the next name of the path: a rename far above can make a path appear
too. Watches are set before absence is checked a second time, so every later change causes an event. Watching
the directories themselves is not enough: one that is removed while a process is in it sends no event until
that process leaves. Links could be retargeted anywhere and cannot be watched.

This uses inotify(7). Closing an instance takes the kernel tens of milliseconds, so a connection keeps one,
removes single watches, and closes the instance in a thread.
"""

import asyncio
import contextlib
import functools
import os
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_char_p, c_int, c_uint32
from typing import Final, NamedTuple, TypeAlias

from holdfast.sandbox.kernel.kernel import named
from holdfast.wire.files import WatchMissingParams, WatchResult
from holdfast.wire.paths import ForeignPath

MAX_MISSING: Final = 64
MAX_NAMES: Final = 4096  # over all paths, so that absurdly deep paths cannot stall the loop

# <sys/inotify.h>
_IN_MODIFY: Final = 0x002
_IN_ATTRIB: Final = 0x004
_IN_MOVED_FROM: Final = 0x040
_IN_MOVED_TO: Final = 0x080
_IN_CREATE: Final = 0x100
_IN_DELETE: Final = 0x200
_IN_DELETE_SELF: Final = 0x400
_IN_MOVE_SELF: Final = 0x800
_IN_Q_OVERFLOW: Final = 0x4000
_IN_DONT_FOLLOW: Final = 0x0200_0000
_IN_MASK_ADD: Final = 0x2000_0000
_EVENT: Final = struct.Struct("=iIII")  # wd, mask, cookie, length of the name that follows

_SELF: Final = _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_DONT_FOLLOW | _IN_MASK_ADD
_ENTRIES: Final = _SELF | _IN_CREATE | _IN_DELETE | _IN_MOVED_FROM | _IN_MOVED_TO
_READ_BYTES: Final = 64 * 1024  # some thousand events per read; the kernel bounds the number it keeps

_inotify_init = named("inotify_init1", c_int)
_inotify_add_watch = named("inotify_add_watch", c_int, c_char_p, c_uint32)
_inotify_rm_watch = named("inotify_rm_watch", c_int, c_int)

_Survey: TypeAlias = dict[bytes, set[bytes]]  # directory → the names in it that matter, parents first


class _Event(NamedTuple):
    wd: int
    mask: int
    name: bytes  # empty if it concerns the watched object itself


def is_supported() -> bool:
    """Whether this host supports watches."""
    try:
        os.close(_inotify_init(os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


class MissingWatch:
    """The watch of one connection. It may be used on the thread of its event loop only."""

    def __init__(self, notify: Callable[[int], None]) -> None:
        """`notify` is called from the loop with the watch id, at most once per successful watch."""
        self._notify = notify
        self._last_id = 0
        self._fd = -1
        self._watched: dict[int, set[bytes]] = {}  # watch descriptor → names that matter in it

    def watch(self, params: WatchMissingParams) -> WatchResult:
        """Replace the current watch, unless the id is not new.

        Never raises for paths that cannot be watched.
        """
        if params.watch_id <= self._last_id:
            return WatchResult(watching=False)
        self._last_id = params.watch_id
        self._disarm()
        try:
            armed = self._arm(params)
        except (ForeignPath, OSError):
            armed = False
        if not armed:
            self._disarm()
        return WatchResult(watching=armed)

    def close(self) -> None:
        """Remove the watch; it will not fire any more."""
        fd, self._fd = self._fd, -1
        self._watched = {}
        if fd >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(fd)
            loop.run_in_executor(None, os.close, fd)

    def _arm(self, params: WatchMissingParams) -> bool:
        if not 1 <= len(params.missing) <= MAX_MISSING:
            return False
        missing = [os.fsencode(path.native()) for path in params.missing]
        present = os.fsencode(params.present.native()) if params.present is not None else None
        before = survey(missing, present)
        if before is None:
            return False
        for directory, names in before.items():
            self._add(directory, _ENTRIES, names)
        if present is not None:
            # A write to a file in a directory is not a change of the directory.
            contents = 0 if stat.S_ISDIR(os.lstat(present).st_mode) else _IN_MODIFY
            self._add(present, _SELF | _IN_ATTRIB | contents, set())
        return survey(missing, present) == before

    def _add(self, path: bytes, mask: int, names: set[bytes]) -> None:
        if self._fd < 0:
            self._fd = _inotify_init(os.O_NONBLOCK | os.O_CLOEXEC)
            asyncio.get_running_loop().add_reader(self._fd, self._on_events)
        self._watched.setdefault(_inotify_add_watch(self._fd, path, mask), set()).update(names)

    def _disarm(self) -> None:
        watched, self._watched = self._watched, {}
        for wd in watched:
            with contextlib.suppress(OSError):  # a watch whose directory is gone was removed by the kernel
                _inotify_rm_watch(self._fd, wd)

    def _on_events(self) -> None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        if any(map(self._matters, _events(data))):
            self._disarm()
            self._notify(self._last_id)

    def _matters(self, event: _Event) -> bool:
        if event.mask & _IN_Q_OVERFLOW:
            return bool(self._watched)  # events were lost, and any of them may have concerned us
        names = self._watched.get(event.wd)  # None: an event of an earlier watch
        return names is not None and (not event.name or event.name in names)


def survey(missing: Sequence[bytes], present: bytes | None) -> _Survey | None:
    """Return which names in which directories determine these absolute paths, parents first.

    None if a path of `missing` exists, `present` does not, or one of them cannot be watched.
    """
    mode = functools.cache(_mode)
    found: _Survey = {}
    budget = MAX_NAMES
    wishes = [(path, False) for path in missing] + ([(present, True)] if present is not None else [])
    for path, wanted in wishes:
        at = b"/"
        for name in filter(None, path.split(b"/")):
            kind = mode(at)
            if kind is None:
                break  # no name below the first missing one can be watched
            budget -= 1
            if not stat.S_ISDIR(kind) or budget < 0:
                return None
            found.setdefault(at, set()).add(name)
            at = os.path.join(at, name)
        kind = mode(at)
        if (kind is not None) != wanted or (kind is not None and stat.S_ISLNK(kind)):
            return None
    return found


def _mode(path: bytes) -> int | None:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return None


def _events(data: bytes) -> Iterator[_Event]:
    at = 0
    while at < len(data):
        wd, mask, _cookie, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size + length
        yield _Event(wd, mask, data[at - length : at].rstrip(b"\0"))
