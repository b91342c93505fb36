"""That somebody writes to the file of a store, as the kernel tells it: so nobody has to look all the time.

A commit is seen by others a moment after it was written: when it is on the disk. So whoever heard of a write
looks again and again for a while. Where the kernel tells nothing (no watch left, another file system, no
Linux), that is what is done all the time.
"""

import os
import select
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.sandbox.kernel.inotify import Inotify

POLL_S: Final = 0.05  # between looks at the number of the newest commit, which is a read of shared memory
SETTLE_S: Final = 0.5  # after a write, in which it becomes a commit; the next look sees a slower one


class FileWrites:
    """Of one store; it belongs to the thread that waits. It watches from the first wait on."""

    def __init__(self, path: str) -> None:
        self._folder, name = os.path.split(os.path.realpath(path))
        self._names = {os.fsencode(name), os.fsencode(f"{name}-wal")}
        self._inotify: Inotify | None = None
        self._tried = False
        self._until = 0.0  # look often

    def wait(self, timeout_s: float) -> None:
        """Until there may be something to see, or for this long."""
        now, watched = time.monotonic(), self._watch()
        if watched is None:
            time.sleep(min(POLL_S, timeout_s))
        elif now < self._until:
            self._hear(watched, min(POLL_S, timeout_s))
        else:
            until = now + timeout_s
            while time.monotonic() >= self._until and (left := until - time.monotonic()) > 0:
                self._hear(watched, left)

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def _watch(self) -> "Inotify | None":
        if not self._tried:
            self._tried = True
            self._until = time.monotonic() + SETTLE_S  # what was written before is not heard of
            if sys.platform == "linux":
                self._inotify = _open_watch(self._folder)
        return self._inotify

    def _hear(self, watched: "Inotify", timeout_s: float) -> None:
        poll = select.poll()  # any number of a descriptor
        poll.register(watched.fd, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return
        found, lost = watched.read()
        if lost or any(name in self._names for _, name in found):
            self._until = time.monotonic() + SETTLE_S


def _open_watch(folder: str) -> "Inotify | None":
    from holdfast.sandbox.kernel.inotify import Inotify

    made = None
    try:
        made = Inotify(blocking=False)
        made.watch(folder, written=True)
    except OSError:
        if made is not None:
            made.close()
        return None
    return made
