"""Connections from confined commands to ports of this host's loopback.

A command's network namespace has listening sockets at the addresses of the services
(`sandbox/protocol/loopback.py`). This module accepts connections on them and joins each one to the service
at the same port. Bytes and end-of-file pass both ways. A listening socket belongs to one command: no other
process can be at the other end. No other port can be reached through it, and no Holdfast daemon at this
port.

Some ports lead to no service of the host but to our own code (`services`): a proxy that belongs to this
command alone has no address on the host at all.

A service that listens on only one of 127.0.0.1 and ::1 is reached through both: a client that resolved
`localhost` does not try the second address once the first has accepted.

For a command of `holdfast exec` a separate process does all this, a fork of ours (`Ports`).
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Final, NoReturn, TypeAlias

from holdfast.egress.splice import reset, splice
from holdfast.local.listeners import is_ours
from holdfast.sandbox.kernel import kernel

MAX_CONNECTIONS: Final = 224  # per command; more wait in the backlog, and other commands keep some room
MAX_TOTAL: Final = 256  # of all commands: two descriptors each, half of the usual limit of 1024
DIAL_S: Final = 10.0  # loopback answers at once, unless the service's queue is full
DRAIN_S: Final = 2.0  # data that a command sent right before its end still arrives
_STOP_S: Final = DRAIN_S + 3.0  # for the process of one command: its data arrives, or is cut off
RETRY_S: Final = 0.1  # delay before accepting again after running out of descriptors
Service: TypeAlias = Callable[[socket.socket], Coroutine[None, None, None]]
Services: TypeAlias = Mapping[int, Service]  # by port
_NO_SERVICES: Final[Services] = {}
_ADDRESSES: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


class Loopback:
    """Serves the listening sockets of every command. A number identifies the command."""

    def __init__(self) -> None:
        self._commands: dict[int, _Command] = {}

    def open(self, id_: int, listeners: Iterable[int], services: Services = _NO_SERVICES) -> None:
        """Accept for this command from now on; the descriptors become ours.

        A connection to a port in `services` is passed to that service, and closed once the service returns.
        """
        sockets = [socket.socket(fileno=fd) for fd in listeners]
        self._commands[id_] = _Command(
            sockets, services, has_room=self._has_room, freed=lambda: self._on_freed(id_)
        )

    def end(self, id_: int) -> None:
        """After the command's end: accept nothing more, and give what it sent a moment to arrive."""
        if id_ in self._commands:
            self._commands[id_].end()
            self._on_freed(id_)

    async def aclose(self) -> None:
        """End all and wait until nothing is open."""
        for id_ in list(self._commands):
            self.end(id_)
        for command in list(self._commands.values()):
            await command.wait()

    def _has_room(self) -> bool:
        return sum(len(command.connections) for command in self._commands.values()) < MAX_TOTAL

    def _on_freed(self, id_: int) -> None:
        if id_ in self._commands and self._commands[id_].over:
            del self._commands[id_]
        for command in self._commands.values():
            command.listen()


class _Command:
    """The listening sockets of one command, and the connections accepted on them."""

    def __init__(
        self,
        listeners: list[socket.socket],
        services: Services,
        *,
        has_room: Callable[[], bool],
        freed: Callable[[], None],
    ) -> None:
        self.connections: set[asyncio.Task[None]] = set()
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._listeners = listeners
        self._has_room, self._on_freed = has_room, freed
        self._listening = self._ended = False
        for listener in listeners:
            listener.setblocking(False)
        self.listen()

    @property
    def over(self) -> bool:
        return self._ended and not self.connections

    def listen(self) -> None:
        """Start accepting, unless the command has ended."""
        if not self._listening and not self._ended:
            self._listening = True
            for listener in self._listeners:
                self._loop.add_reader(listener, self._accept, listener)

    def end(self) -> None:
        """Accept what waits, then close the listening sockets; close the connections a moment later."""
        if self._ended:
            return
        for listener in self._listeners:
            while self._accept(listener):
                pass
        self._pause()
        self._ended = True
        for listener in self._listeners:
            listener.close()
        if self.connections:
            self._loop.call_later(DRAIN_S, self._cut)

    async def wait(self) -> None:
        """Wait until the last connection is closed."""
        if self.connections:
            await asyncio.wait(self.connections)

    def _cut(self) -> None:
        for connection in self.connections:
            connection.cancel()

    def _pause(self) -> None:
        if self._listening:
            self._listening = False
            for listener in self._listeners:
                self._loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> bool:
        """Take one connection; False when there is none, or no room for it."""
        if len(self.connections) >= MAX_CONNECTIONS or not self._has_room():
            self._pause()
            return False
        try:
            inner, _ = listener.accept()
        except BlockingIOError:
            return False
        except OSError:  # no descriptors left, or memory; the connection keeps waiting
            self._pause()
            self._loop.call_later(RETRY_S, self.listen)
            return False
        inner.setblocking(False)
        port = listener.getsockname()[1]
        service = self._services.get(port)
        join = _serve(inner, listener.family, port) if service is None else _lend(inner, service)
        connection = self._loop.create_task(join)
        self.connections.add(connection)
        connection.add_done_callback(self._on_closed)
        return True

    def _on_closed(self, connection: "asyncio.Task[None]") -> None:
        self.connections.discard(connection)
        self._on_freed()


async def _lend(inner: socket.socket, service: Service) -> None:
    """Have one of our own services answer a connection from inside."""
    with inner:
        await service(inner)


async def refuse(inner: socket.socket) -> None:
    """The service of a port that has none: reset the connection."""
    reset(inner)


async def _serve(inner: socket.socket, family: int, port: int) -> None:
    """Join a connection from inside to the service, until both directions have ended."""
    with inner:
        try:
            outer = await _dial(family, port)
            if await asyncio.to_thread(
                is_ours, port
            ):  # asked once we are connected, so the answer is about this very listener
                outer.close()
                raise ConnectionRefusedError
        except OSError:
            reset(inner)
            return
        with outer:
            await splice(inner, outer)


async def _dial(family: int, port: int) -> socket.socket:
    """Connect to the service, at the address that was dialled inside if the service listens there."""
    problem = OSError()
    for kind, address in sorted(_ADDRESSES.items(), key=lambda item: item[0] != family):
        try:
            return await _connect(kind, address, port)
        except OSError as exc:
            problem = exc
    raise problem


async def _connect(family: int, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        async with asyncio.timeout(DIAL_S):
            await asyncio.get_running_loop().sock_connect(sock, (address, port))
        if sock.getsockname() == sock.getpeername():
            raise ConnectionRefusedError  # no listener: by chance the kernel gave us that very port
    except BaseException:
        sock.close()
        raise
    return sock


class Ports:
    """The process that accepts on the listening sockets of one command."""

    def __init__(self, listeners: Sequence[int]) -> None:
        """Take over the sockets. Raises OSError."""
        self._sock, theirs = socket.socketpair()
        parent = os.getpid()
        try:
            if os.fork() == 0:
                _be(parent, theirs, listeners)
        finally:
            theirs.close()
            for fd in listeners:
                os.close(fd)

    def end(self) -> None:
        """After the command's end: wait until what it sent has arrived."""
        with self._sock:
            self._sock.settimeout(_STOP_S)
            try:
                self._sock.shutdown(socket.SHUT_WR)
                self._sock.recv(1)
            except OSError:
                return  # it is late, or gone; either way it is killed with the other processes


def _be(parent: int, told: socket.socket, listeners: Sequence[int]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kernel.die_with_parent(signal.SIGKILL)
        kept = {told.fileno(), *listeners}
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd not in kept:
                _close(fd)  # if we held a pipe of the command, its reader would never see the end
        if os.getppid() == parent:
            asyncio.run(_serve_until_told(told, listeners))
            code = 0
    finally:
        os._exit(code)


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return  # the descriptor that os.listdir used


async def _serve_until_told(told: socket.socket, listeners: Sequence[int]) -> None:
    served = Loopback()
    served.open(0, listeners)
    told.setblocking(False)
    await asyncio.get_running_loop().sock_recv(told, 1)
    await served.aclose()
