"""The directory walk: everything below a directory, breadth first, within three bounds.

Inside a directory names are taken in code point order. A link to a file is never listed, one to a directory
only when links are followed; then each real directory is entered once, under the name that came first. The
listing includes the kinds, so an ordinary entry needs no extra system call.
"""

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from holdfast.errors import InvalidRequest, from_os_error
from holdfast.server.files.files import lossy, protocol_errors
from holdfast.wire.files import WalkEntry, WalkError, WalkOptions, WalkParams, WalkResult
from holdfast.wire.paths import uri_of

MAX_DEPTH: Final = 64
MAX_DIRECTORIES: Final = 10_000
MAX_ENTRIES: Final = 50_000
MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024  # of paths and messages, so the answer fits a frame
ITEM_BYTES: Final = 64  # added for each entry or error beside its text

_LISTED_AT_ONCE: Final = 2 * MAX_ENTRIES  # names held of one directory; beyond it the last ones are dropped

# Names that equal their URI spelling; others, which are rare, take the slower way.
_is_plain: Final = re.compile(r"[A-Za-z0-9!$&'()*+,\-.;=@\[\]^_|~]+").fullmatch

_Kind: TypeAlias = Literal["directory", "file", "link to directory", "other"]


def _never() -> bool:
    return False


@protocol_errors
def walk(params: WalkParams, cancelled: Callable[[], bool] = _never) -> WalkResult:
    """Walk the tree below `params.path`; cut short, and marked so, once `cancelled` returns True."""
    options = params.options
    _check(options)
    root = params.path.native()
    if not stat.S_ISDIR(os.stat(root).st_mode):
        return WalkResult([], [], truncated=False)
    if os.path.islink(root) and not options.follow_directory_symlinks:
        return WalkResult([], [], truncated=False)
    return _Walk(options, root).run(cancelled)


def _check(options: WalkOptions) -> None:
    if not options.max_directories or not options.max_entries:
        raise InvalidRequest("filesystem walk limits must be greater than zero")
    if (
        options.max_depth > MAX_DEPTH
        or options.max_directories > MAX_DIRECTORIES
        or options.max_entries > MAX_ENTRIES
    ):
        raise InvalidRequest(
            "filesystem walk limits exceed maximums: "
            f"depth={MAX_DEPTH}, directories={MAX_DIRECTORIES}, entries={MAX_ENTRIES}"
        )


@dataclass(frozen=True, slots=True)
class _Directory:
    path: str
    real: str  # identity when links are followed, otherwise unused
    depth: int


class _OutOfBudget(Exception):
    """No further entry fits."""


class _Walk:
    def __init__(self, options: WalkOptions, root: str) -> None:
        self._options = options
        self._follow = options.follow_directory_symlinks
        real = os.path.realpath(root) if self._follow else ""
        self._queue = [_Directory(root, real, 0)]
        self._claimed = {real}
        self._entries: list[WalkEntry] = []
        self._errors: list[WalkError] = []
        self._room = options.max_entries
        self._bytes_left = MAX_RESPONSE_BYTES
        self._truncated = False

    def run(self, cancelled: Callable[[], bool]) -> WalkResult:
        try:
            for directory in self._queue:  # grows during the loop
                if cancelled():
                    raise _OutOfBudget
                try:
                    kinds = _list(directory.path, keep=self._room + 1)
                except OSError as exc:
                    self._fail(uri_of(directory.path), str(from_os_error(exc)))
                else:
                    self._take(directory, kinds)
        except _OutOfBudget:
            self._truncated = True
        return WalkResult(self._entries, self._errors, self._truncated)

    def _take(self, directory: _Directory, kinds: dict[str, _Kind]) -> None:
        own = uri_of(directory.path)
        prefix = own if own.endswith("/") else own + "/"
        ordinary = "%00" not in own  # the children of an opaque URI do not begin with it
        append = self._entries.append
        for name in sorted(kinds):
            if not self._room:
                raise _OutOfBudget
            self._room -= 1
            kind = kinds[name]
            if ordinary and _is_plain(name):
                uri = prefix + name
            elif (text := lossy(name)) != name:
                self._fail(uri_of(os.path.join(directory.path, text)), "file name is not valid UTF-8")
                continue
            else:
                uri = uri_of(os.path.join(directory.path, name))
            if kind == "file":
                self._charge(len(uri))
                append(WalkEntry(uri, "file"))
            elif kind == "directory" or (kind == "link to directory" and self._follow):
                self._charge(len(uri))
                append(WalkEntry(uri, "directory"))
                self._queue_up(directory, name, is_link=kind != "directory")

    def _queue_up(self, outer: _Directory, name: str, *, is_link: bool) -> None:
        if outer.depth >= self._options.max_depth:
            return
        if self._options.prune_hidden_directories and name.startswith("."):
            return  # unclaimed: a visible alias of it may still be entered
        path = os.path.join(outer.path, name)
        real = ""
        if self._follow:
            real = os.path.realpath(path) if is_link else os.path.join(outer.real, name)
            if real in self._claimed:
                return
            self._claimed.add(real)
        if len(self._queue) >= self._options.max_directories:
            self._truncated = True
            return
        self._queue.append(_Directory(path, real, outer.depth + 1))

    def _fail(self, uri: str, message: str) -> None:
        self._charge(len(uri) + len(message))
        self._errors.append(WalkError(uri, message))

    def _charge(self, length: int) -> None:
        cost = ITEM_BYTES + length
        if cost > self._bytes_left:
            raise _OutOfBudget
        self._bytes_left -= cost


def _list(path: str, *, keep: int) -> dict[str, _Kind]:
    """List a directory, at least its first `keep` names; dangling links are left out."""
    kinds: dict[str, _Kind] = {}
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                kinds[entry.name] = "file"
            elif entry.is_dir(follow_symlinks=False):
                kinds[entry.name] = "directory"
            elif not entry.is_symlink():
                kinds[entry.name] = "other"
            else:
                try:
                    mode = os.stat(entry.path).st_mode
                except OSError:
                    continue
                kinds[entry.name] = "link to directory" if stat.S_ISDIR(mode) else "other"
            if len(kinds) > _LISTED_AT_ONCE:
                kinds = dict(sorted(kinds.items())[:keep])
    return kinds
