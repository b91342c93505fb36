"""One command through a launcher: nothing to read, a limit on its time, and its output kept within bounds."""

import asyncio
import contextlib
import hashlib
import os
from dataclasses import dataclass
from typing import Final

from holdfast.confine.launch import LauncherClient
from holdfast.confine.starts import Command, Confinement, Exit
from holdfast.doctor.compare.equivalence import Stream

KILL_S: Final = 5.0  # from SIGKILL to the news of the end; longer only where it hangs in the kernel
LINGER_S: Final = 2.0  # for output of whoever outlived the command; what is under way arrives at once
_READ_BYTES: Final = 64 * 1024  # one pipe's worth


@dataclass(frozen=True, slots=True)
class Captured:
    """How it went. Without an `end` its time was over and it was killed."""

    end: Exit | None
    stdout: Stream
    stderr: Stream


async def capture(
    launcher: LauncherClient,
    command: Command,
    *,
    owner: int,
    confinement: Confinement | None,
    limit_s: float,
    keep: int,
    tty: bool = False,
    joined: bool = False,
) -> Captured:
    """Run a command to its end or its limit; when this returns or raises, its process group is gone.

    `owner` must be of this command alone. With `tty` it has a terminal of its own. That, and
    `joined`, make both outputs one, which is `stdout` then.

    Raises:
        StartFailed, SetupFailed: as `Launcher.start` does.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Exit] = loop.create_future()
    started = False
    end: Exit | None = None
    ours, theirs = _terminal() if tty else _pipes(joined=joined)
    sinks = [_Sink(loop, fd, keep) for fd in ours]
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                try:
                    await launcher.start(
                        command,
                        owner=owner,
                        streams=theirs,
                        tty=tty,
                        on_exit=lambda told: None if ended.done() else ended.set_result(told),
                        confinement=confinement,
                    )
                    started = True
                finally:
                    for fd in set(theirs):
                        os.close(fd)
                end = await asyncio.shield(ended)
    finally:
        await _clear(launcher, owner, ended, sinks, started=started)
    streams = [sink.stream() for sink in sinks]
    return Captured(end, streams[0], streams[1] if len(streams) > 1 else Stream())


async def _clear(
    launcher: LauncherClient,
    owner: int,
    ended: "asyncio.Future[Exit]",
    sinks: "list[_Sink]",
    *,
    started: bool,
) -> None:
    if started:
        launcher.end_owner(owner)  # the command, or whoever outlived it
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                await asyncio.shield(ended)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                for sink in sinks:
                    await sink.ended.wait()
    for sink in sinks:
        sink.close()


class _Sink:
    """Reads one stream; keeps its beginning, and counts and digests the rest."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, keep: int) -> None:
        self.ended = asyncio.Event()
        self._loop, self._fd, self._keep = loop, fd, keep
        self._kept, self._size, self._digest = bytearray(), 0, hashlib.blake2b(digest_size=16)
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._hear)

    def _hear(self) -> None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # how a terminal says that its other end is gone
        if not data:
            self.close()
            return
        self._size += len(data)
        self._digest.update(data)
        self._kept += data[: max(0, self._keep - len(self._kept))]

    def close(self) -> None:
        if not self.ended.is_set():
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self.ended.set()

    def stream(self) -> Stream:
        return Stream(bytes(self._kept), self._size, self._digest.digest() if self._size else b"")


def _pipes(*, joined: bool) -> tuple[list[int], tuple[int, int, int]]:
    pairs = [os.pipe2(os.O_CLOEXEC) for _ in range(1 if joined else 2)]
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return [ours for ours, _ in pairs], (null, pairs[0][1], pairs[-1][1])


def _terminal() -> tuple[list[int], tuple[int, int, int]]:
    ours, theirs = os.openpty()
    return [ours], (theirs, theirs, theirs)
