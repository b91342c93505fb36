"""Run a helper command and take its standard output: no input, a time limit, a size limit."""

import asyncio
import os
import signal

from holdfast.confine.launch import Command, Confinement, Exit, Launcher
from holdfast.errors import HoldfastError


class Capture:
    """Callable: argv in, output out, or None for any failure."""

    def __init__(self, launcher: Launcher, owner: int, confinement: Confinement | None = None) -> None:
        self._launcher = launcher
        self._owner = owner
        self._confinement = confinement

    async def __call__(
        self, argv: list[str], cwd: str, env: dict[str, str], stdout_limit: int, timeout_s: float
    ) -> bytes | None:
        ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        read, write = os.pipe2(os.O_CLOEXEC)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        launch_id = 0
        try:
            async with asyncio.timeout(timeout_s):
                started = await self._launcher.start(
                    Command(tuple(argv), argv[0], cwd, env),
                    owner=self._owner,
                    streams=(null, write, null),
                    tty=False,
                    state=None,
                    on_exit=lambda end: None if ended.done() else ended.set_result(end),
                    confinement=self._confinement,
                )
                launch_id = started.id
                os.close(write)
                write = -1
                output = await _read_all(read, stdout_limit)
                if output is not None and (await ended).code == 0:
                    return output
        except (HoldfastError, TimeoutError, OSError):
            pass  # whatever went wrong, the caller goes on without
        finally:
            if launch_id and not ended.done():
                self._launcher.signal(launch_id, signal.SIGKILL)
            for fd in (read, write, null):
                if fd >= 0:
                    os.close(fd)
        return None


async def _read_all(fd: int, limit: int) -> bytes | None:
    """Everything until end of file, or None once it is more than `limit` bytes."""
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    done: asyncio.Future[bytes | None] = loop.create_future()
    parts: list[bytes] = []

    def on_readable() -> None:
        data = os.read(fd, 64 * 1024)
        parts.append(data)
        if not done.done() and (not data or sum(map(len, parts)) > limit):
            done.set_result(None if data else b"".join(parts))

    loop.add_reader(fd, on_readable)
    try:
        return await done
    finally:
        loop.remove_reader(fd)
