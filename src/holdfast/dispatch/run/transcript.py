"""What a CLI writes down while it goes on: how many tokens its session has used so far.

The file is in a directory that the worker writes: nothing there is followed, waited for or read whole.
"""

import fnmatch
import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.agents.catalog.agent import Agent

MAX_ENTRIES: Final = 2_000  # looked at to find the file; a worker can make any number of them
MAX_TAIL: Final = 256 * 1024  # bytes from the end: some of the largest lines


def tokens(state: Path, agent: Agent, session: str) -> int:
    """Of this session, or without a name of the largest there is.

    0 when that is not known: no such file, or nothing about it in its end.
    """
    if agent.transcript is None:
        return 0
    name = glob.escape(session) or "*"
    parts = [part.replace("{session}", name) for part in agent.transcript.place.split("/")]
    ends = (agent.transcript.tokens.findall(_tail(path)) for path in _found(str(state), parts, [MAX_ENTRIES]))
    return max((sum(map(int, counts[-1])) for counts in ends if counts), default=0)


def _found(folder: str, parts: list[str], left: list[int]) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                left[0] -= 1
                if left[0] < 0:
                    return
                if not fnmatch.fnmatchcase(entry.name, parts[0]):
                    continue
                if len(parts) == 1:
                    yield entry.path
                elif entry.is_dir(follow_symlinks=False):
                    yield from _found(entry.path, parts[1:], left)
    except OSError:
        return


def _tail(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return b""
        return os.pread(fd, MAX_TAIL, max(0, about.st_size - MAX_TAIL))
    except OSError:
        return b""
    finally:
        os.close(fd)
