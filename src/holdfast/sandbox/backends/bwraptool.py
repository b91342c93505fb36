"""The system's bubblewrap: where it is, and whether it can do what we need.

bubblewrap is a part of the sandbox, so it is taken only from places where no command can have put or changed
it. The caller keeps the answer, which is a real path: a server asks once, before its first confined command.
"""

import errno
import os
import select
import signal
import stat
import subprocess
import time
from typing import IO, Final

from holdfast.local.programs import find_program
from holdfast.sandbox.backends import bwrapped
from holdfast.sandbox.backends.bubblewrap import OPTIONS

HELP_S: Final = 2.0  # it prints one page; a program that takes longer is not bubblewrap
MAX_HELP: Final = 64 * 1024  # ten times the real help; bounds the output of a program that prints without end


class Unusable(Exception):
    """There is no usable bubblewrap; `stage` is the fingerprint, `lacking` the missing options."""

    def __init__(self, stage: str, code: int, lacking: tuple[str, ...] = ()) -> None:
        super().__init__(stage)
        self.stage, self.errno, self.lacking = stage, code, lacking


def find(path: str) -> str:
    """The bubblewrap to use, from the directories of a PATH.

    Skips any that lies below the current directory, or that a user other than root could replace: a user who
    can write the files there could provide the sandbox.

    Raises:
        Unusable: there is none, or the first one is too old or set-user-id.
    """
    tool = find_program("bwrap", path, _here(), before=())
    if tool is None:
        raise Unusable("bwrap.missing", errno.ENOENT)
    if os.geteuid() != 0 and os.stat(tool).st_mode & stat.S_ISUID:
        raise Unusable("bwrap.setuid", errno.EPERM)
    text = _help(tool)
    words = set(text.decode("utf-8", "replace").split())
    lacking = tuple(option for option in OPTIONS if option not in words)
    if not lacking:
        return tool
    failure = bwrapped.explain(text)  # on some hosts it fails before it prints the help
    if failure.stage != bwrapped.UNKNOWN:
        raise Unusable(failure.stage, failure.errno)
    raise Unusable("bwrap.option", errno.ENOSYS, lacking)


def _here() -> tuple[str, ...]:
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:
        return ()  # the directory was removed: nothing can be below it
    return () if here == "/" else (here,)


def _help(tool: str) -> bytes:
    try:
        process = subprocess.Popen(  # noqa: S603 - the program that the user asked to be confined with
            [tool, "--help"],
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as exc:
        raise Unusable("bwrap.missing", exc.errno or errno.EIO) from None
    with process:
        try:
            return _read(process.stdout)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _read(stream: IO[bytes] | None) -> bytes:
    """The program's output within the time limit, up to `MAX_HELP`."""
    if stream is None:
        raise AssertionError("it was started with a pipe")
    deadline = time.monotonic() + HELP_S
    waiting = select.poll()
    waiting.register(stream, select.POLLIN)
    text = b""
    while len(text) < MAX_HELP and waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
        data = os.read(stream.fileno(), MAX_HELP)
        if not data:
            break
        text += data
    return text
