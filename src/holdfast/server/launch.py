"""The server's end of the launcher: order a start, await its outcome, hear of every exit.

One launcher process serves the whole server. If it dies, every command it owned is over (the
kernel kills them) and is reported as lost; the next start makes a new launcher.
"""

import asyncio
import errno
import logging
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from holdfast.errors import OperationFailed
from holdfast.sandbox import launcher as protocol

log = logging.getLogger(__name__)

LOST_STATUS: Final = -1  # the exit code of a command whose launcher died: nobody can know the real one
_STOP_S: Final = 8.0  # longer than the launcher's own limit for killing what it owns


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command ended. `code` is its exit code, or 128 + n after signal n."""

    code: int
    user_ms: int = 0
    system_ms: int = 0
    peak_rss_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. Strings are file-system encoded; the caller has checked them for NUL."""

    argv: tuple[str, ...]
    program: str
    cwd: str
    env: dict[str, str]


@dataclass(slots=True)
class _Child:
    forked: asyncio.Future[int]
    on_exit: Callable[[Exit], None]
    pid: int = 0


@dataclass(slots=True)
class _Connection:
    """One launcher process and what it owns."""

    process: subprocess.Popen[bytes]
    sock: socket.socket
    children: dict[int, _Child] = field(default_factory=dict)


class Launcher:
    """Starts commands outside the server's own process."""

    def __init__(self) -> None:
        self._connection: _Connection | None = None
        self._last_id = 0

    def open(self) -> None:
        """Start the launcher process now, while the server is still small."""
        self._connect()

    async def start(
        self,
        command: Command,
        *,
        owner: int,
        streams: tuple[int, int, int],
        tty: bool,
        state: bytes | None,
        on_exit: Callable[[Exit], None],
    ) -> int:
        """Run `command` on these descriptors and return the id to signal it by.

        The descriptors stay the caller's to close. `on_exit` is called exactly once if this returns.

        Raises:
            OperationFailed: the program could not be started; nothing runs.
        """
        connection = self._connection or self._connect()
        self._last_id += 1
        id_ = self._last_id
        request = protocol.Request(
            protocol.START,
            id_,
            owner,
            flags=(protocol.TTY if tty else 0) | (protocol.HAS_STATE if state is not None else 0),
            cwd=os.fsencode(command.cwd),
            program=os.fsencode(command.program),
            argv=tuple(os.fsencode(arg) for arg in command.argv),
            env=tuple(os.fsencode(f"{name}={value}") for name, value in command.env.items()),
        )
        status_read, status_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        passed = [status_write, *streams]
        try:
            if state is not None:
                passed.append(_memfd(state))
            child = _Child(asyncio.get_running_loop().create_future(), on_exit)
            connection.children[id_] = child
            protocol.send_request(connection.sock, request, tuple(passed))
        except OSError as exc:
            connection.children.pop(id_, None)
            os.close(status_read)
            raise _start_failed(exc.errno or errno.EIO) from None
        finally:
            os.close(status_write)
            for fd in passed[4:]:
                os.close(fd)
        try:
            await child.forked
            failure = await _read_status(status_read)
        except asyncio.CancelledError:
            child.on_exit = _ignore
            self.signal(id_, 9)
            raise
        except OperationFailed:
            connection.children.pop(id_, None)
            raise
        finally:
            os.close(status_read)
        if failure:
            child.on_exit = _ignore
            raise _start_failed(failure)
        return id_

    def signal(self, id_: int, signum: int) -> None:
        """Signal the whole process group of a command, if any of it is left."""
        self._order(protocol.Request(protocol.SIGNAL, id_, signal=signum))

    def end_owner(self, owner: int) -> None:
        """Kill every process group of this owner, also those that outlived their command."""
        self._order(protocol.Request(protocol.END_OWNER, owner=owner))

    async def aclose(self) -> None:
        """End every command and the launcher itself."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._forget(connection)
        try:
            await asyncio.to_thread(connection.process.wait, _STOP_S)
        except subprocess.TimeoutExpired:
            log.error("the launcher did not end in time", extra={"pid": connection.process.pid})
            connection.process.kill()

    def _order(self, request: protocol.Request) -> None:
        if self._connection is not None:
            try:
                protocol.send_request(self._connection.sock, request)
            except OSError:
                self._lost(self._connection)

    def _connect(self) -> _Connection:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own file
                [sys.executable, "-I", "-S", protocol.__file__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={},
                cwd="/",
            )
        self._connection = connection = _Connection(process, ours)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear, connection)
        return connection

    def _hear(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost(connection)
            return
        event = protocol.unpack_event(data)
        child = connection.children.get(event.id)
        if child is None:
            return
        if event.op == protocol.FORKED:
            child.pid = event.pid
            if child.forked.cancelled():
                return
            if event.pid:
                child.forked.set_result(event.pid)
            else:
                child.forked.set_exception(_start_failed(event.errno))
        else:
            del connection.children[event.id]
            child.on_exit(_exit_of(event))

    def _lost(self, connection: _Connection) -> None:
        """The launcher is gone, and with it every command it owned."""
        if self._connection is connection:
            self._connection = None
            log.error("the launcher died; its commands are lost", extra={"pid": connection.process.pid})
        self._forget(connection)
        connection.process.poll()

    def _forget(self, connection: _Connection) -> None:
        if connection.sock.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(connection.sock.fileno())
            connection.sock.close()
        children, connection.children = connection.children, {}
        for child in children.values():
            if not child.forked.done():
                child.forked.set_exception(OperationFailed("the launcher died while starting the process"))
            elif not child.forked.cancelled() and child.forked.exception() is None:
                child.on_exit(Exit(LOST_STATUS))


def _ignore(_exit: Exit) -> None:
    """Nobody waits for this command."""


def _exit_of(event: protocol.Event) -> Exit:
    code = os.waitstatus_to_exitcode(event.status)
    return Exit(
        code if code >= 0 else 128 - code,
        event.user_us // 1000,
        event.system_us // 1000,
        event.peak_rss,
    )


def _start_failed(code: int) -> OperationFailed:
    return OperationFailed(f"{os.strerror(code)} (os error {code})")


def _memfd(data: bytes) -> int:
    fd = os.memfd_create("holdfast-shell-state", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd


async def _read_status(fd: int) -> int:
    """0 once exec happened, otherwise the errno that stopped it."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[int] = loop.create_future()

    def on_readable() -> None:
        data = os.read(fd, 4)
        loop.remove_reader(fd)
        if not ready.done():
            ready.set_result(struct.unpack("<i", data)[0] if data else 0)

    loop.add_reader(fd, on_readable)
    try:
        return await ready
    finally:
        loop.remove_reader(fd)
