"""The server's end of the launcher: order a start, await its outcome, receive every exit.

One launcher process serves the whole server. If it dies, the commands it owned are killed and reported as
lost, and the next start makes a new launcher. If it hangs (on a program or directory on a dead network
mount), it keeps the commands it owns, and further starts go to a new launcher.
"""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import holdfast
from holdfast.confine import starts
from holdfast.confine.loopback import Loopback, Services, refuse
from holdfast.confine.names import NameBrokers
from holdfast.confine.starts import Command, Confinement, Exit, StartedCommand, StartFailed
from holdfast.egress.traffic import Traffic
from holdfast.errors import OperationFailed
from holdfast.light import replace
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.policy.hostwish import HostWish, find_loopback_ports
from holdfast.sandbox.protocol import orders
from holdfast.sandbox.protocol.loopback import MAX_LISTENERS
from holdfast.sandbox.protocol.names import count_handed

if TYPE_CHECKING:  # loaded only for a command that has keys, or for one with hosts to ask about
    from holdfast.confine.keysprocess import KeysProcess
    from holdfast.egress.asking.asker import Ask

log = logging.getLogger(__name__)

LOST_CODE: Final = -1  # the exit code of a command whose launcher died: the real one cannot be known
STUCK_S: Final = 5.0  # a start unanswered for this long hangs in the kernel; others must not wait for it
_NO_SERVICES: Final[Services] = {}
_STOP_S: Final = 8.0  # longer than the launcher's own limit for killing what it owns
# Isolated and without site-packages of its own: a small process, whatever is installed or configured.
_BOOT: Final = (
    f"import sys; sys.path.append({str(Path(holdfast.__file__).parent.parent)!r}); "
    "from holdfast.sandbox.launcher.launcher import main; main()"
)


@dataclass(slots=True)
class _Child:
    id: int
    connection: "_Connection"
    started: asyncio.Future[orders.Event]
    on_exit: Callable[[Exit], None]
    services: Services
    served: bool = False  # whether its listening sockets are ours to accept on
    hosts: HostWish | None = None  # that the command reaches by name
    ask: "Ask | None" = None  # called about other hosts
    traffic: Traffic | None = None  # where its traffic is counted
    keys: "KeysProcess | None" = None  # serves the hosts, when keys are put into requests


@dataclass(slots=True, eq=False)
class _Connection:
    """One launcher process and what it owns."""

    process: subprocess.Popen[bytes]
    sock: socket.socket
    children: dict[int, _Child] = field(default_factory=dict)
    owners: set[int] = field(default_factory=set)  # it started something for them; not ended yet


class LauncherClient:
    """Starts commands outside the server's own process."""

    def __init__(self) -> None:
        self._current: _Connection | None = None
        self._connections: set[_Connection] = set()
        self._loopback = Loopback()
        self._names = NameBrokers()
        self._ending: set[asyncio.Task[None]] = set()
        self._last_id = 0

    def open(self) -> None:
        """Start the launcher process now, while the server is still small."""
        self._connect()

    async def start(
        self,
        command: Command,
        *,
        streams: tuple[int, int, int],
        on_exit: Callable[[Exit], None],
        owner: int = 0,
        tty: bool = False,
        state: bytes | None = None,
        confinement: Confinement | None = None,
        watch: socket.socket | None = None,
        limits: Limits | None = None,
        run: int | None = None,
        services: Services | None = None,
        ask: "Ask | None" = None,
        traffic: Traffic | None = None,
        keys: "KeysProcess | None" = None,
    ) -> StartedCommand:
        """Run `command` on these descriptors.

        A confined command sends its seccomp listener out through `watch`. All descriptors stay the caller's
        to close. `on_exit` is called exactly once if this returns. `services` answer at the inner ports of
        the confinement. `run` names the run that shares the limits. `keys` serves the hosts that the command
        reaches by name; it is ended with the command, or if this raises. Traffic to hosts reached by name is
        counted in `traffic`; `ask` is called about hosts that no rule decides on.

        Raises:
            StartFailed: the program could not be executed; nothing runs.
            SetupFailed: the sandbox could not be set up; nothing runs.
        """
        try:
            child = self._send_start(
                command, streams, on_exit, owner, tty, state, confinement, watch, limits, run, services
            )
        except BaseException as exc:
            if keys is not None:
                self._end_keys(keys)
            if isinstance(exc, OSError):
                raise StartFailed(exc.errno or errno.EIO) from None
            raise
        child.hosts = None if confinement is None else confinement.plan.hosts
        child.traffic, child.keys, child.ask = traffic, keys, ask
        return await self._outcome(child)

    def _send_start(
        self,
        command: Command,
        streams: tuple[int, int, int],
        on_exit: Callable[[Exit], None],
        owner: int,
        tty: bool,
        state: bytes | None,
        confinement: Confinement | None,
        watch: socket.socket | None,
        limits: Limits | None,
        run: int | None,
        services: Services | None,
    ) -> _Child:
        """Raises OSError."""
        flags = (orders.TTY if tty else 0) | (orders.WATCH if watch else 0)
        flags |= 0 if state is None else orders.HAS_STATE
        request = starts.request_of(command, confinement, flags=flags, owner=owner, limits=limits, run=run)
        inner = () if confinement is None else confinement.inner_ports
        memfd = () if state is None else (orders.in_memory("holdfast-shell-state", state),)
        try:
            return self._send(
                request,
                (*streams, *memfd, *(() if watch is None else (watch.fileno(),))),
                on_exit,
                {port: (services or {}).get(port, refuse) for port in inner},
            )
        finally:
            for fd in memfd:
                os.close(fd)

    async def start_watcher(
        self, sock: socket.socket, *, owner: int, on_exit: Callable[[Exit], None]
    ) -> StartedCommand:
        """Start a watcher process on this socket, which stays the caller's to close; otherwise as `start`."""
        try:
            child = self._send(orders.Order(orders.BE_WATCHER, owner=owner), (sock.fileno(),), on_exit)
        except OSError as exc:
            raise StartFailed(exc.errno or errno.EIO) from None
        return await self._outcome(child)

    def _send(
        self,
        request: orders.Order,
        fds: tuple[int, ...],
        on_exit: Callable[[Exit], None],
        services: Services = _NO_SERVICES,
    ) -> _Child:
        """Raises OSError."""
        connection = self._current or self._connect()
        self._last_id += 1
        started = asyncio.get_running_loop().create_future()
        child = _Child(self._last_id, connection, started, on_exit, services)
        connection.children[child.id] = child
        if request.owner:
            connection.owners.add(request.owner)
        try:
            orders.send_request(connection.sock, request._replace(id=child.id), fds)
        except OSError:
            del connection.children[child.id]
            raise
        return child

    async def _outcome(self, child: _Child) -> StartedCommand:
        alarm = asyncio.get_running_loop().call_later(STUCK_S, self._replace, child.connection)
        try:
            event = await child.started
        except asyncio.CancelledError:
            child.on_exit = _ignore
            self.signal(child.id, signal.SIGKILL)  # obeyed after the start: orders are sequential
            raise
        finally:
            alarm.cancel()
        return starts.started_of(event)

    def signal(self, id_: int, signum: int) -> None:
        """Signal the whole process group of a command, if any of it is left."""
        self._order(orders.Order(orders.SIGNAL, id_, signal=signum))

    def end_owner(self, owner: int) -> None:
        """Kill every process group of this owner, including groups that outlived their command."""
        self._order(orders.Order(orders.END_OWNER, owner=owner))
        for connection in list(self._connections):
            connection.owners.discard(owner)
            self._retire(connection)

    async def aclose(self) -> None:
        """End every command and every launcher."""
        for connection in list(self._connections):
            self._drop(connection)
            await _wait_for(connection.process)
        await self._loopback.aclose()
        await self._names.aclose()
        if self._ending:
            await asyncio.wait(self._ending)

    def _order(self, request: orders.Order) -> None:
        """Send the order to every launcher: ids and owners are unique among them."""
        for connection in list(self._connections):
            try:
                orders.send_request(connection.sock, request)
            except OSError:
                self._on_lost(connection)

    def _connect(self) -> _Connection:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own code
                [sys.executable, "-I", "-S", "-c", _BOOT, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={},
                cwd="/",
            )
        self._current = connection = _Connection(process, ours)
        self._connections.add(connection)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read_event, connection)
        return connection

    def _replace(self, stuck: _Connection) -> None:
        if self._current is stuck:
            log.error("the launcher hangs; further starts use a new one", extra={"pid": stuck.process.pid})
            self._current = None

    def _retire(self, connection: _Connection) -> None:
        """End a launcher that hung once, when it owns nothing any more: it gets no further starts."""
        if connection is self._current or connection.children or connection.owners:
            return
        if connection in self._connections:
            self._drop(connection)
            self._finish(_wait_for(connection.process))

    def _finish(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _read_event(self, connection: _Connection) -> None:
        try:
            received = orders.receive_event(connection.sock, MAX_LISTENERS)
        except BlockingIOError:
            return
        except OSError:
            received = None
        if received is None:
            self._on_lost(connection)
            return
        event, listeners = received
        child = connection.children.get(event.id)
        if child is None:
            for fd in listeners:
                os.close(fd)
            return
        child.served |= bool(listeners)
        if listeners and child.keys is not None and child.hosts is not None:
            handed, listeners = _divide(listeners, find_loopback_ports(child.hosts))
            child.keys.serve(handed, child.ask)
            for fd in handed:
                os.close(fd)
        elif listeners and child.hosts is not None:
            listeners = self._names.open(event.id, child.hosts, listeners, child.traffic, child.ask)
        if listeners:
            self._loopback.open(event.id, listeners, {**self._names.services(event.id), **child.services})
        if event.op == orders.EXITED:
            traffic = self._end_served(child)
            del connection.children[event.id]
            if child.started.done() and child.keys is None:
                child.on_exit(replace(starts.exit_of(event), traffic=traffic))
            elif child.keys is not None:
                self._end_keys(child.keys, child, starts.exit_of(event))
            if not child.started.done():
                child.started.set_exception(OperationFailed("the process ended before it was started"))
        elif event.pid:
            if not child.started.done():
                child.started.set_result(event)
        else:
            del connection.children[event.id]
            if child.keys is not None:
                self._end_keys(child.keys)
            if not child.started.done():
                child.started.set_exception(starts.failure_of(event))
        self._retire(connection)

    def _end_served(self, child: _Child) -> "Mapping[str, Any] | None":
        """Stop accepting for a command that has ended. Return its traffic, if it reached hosts by name."""
        if not child.served:
            return None
        self._loopback.end(child.id)
        return self._names.end(child.id)

    def _end_keys(self, keys: "KeysProcess", child: _Child | None = None, end: Exit | None = None) -> None:
        """End the keys process of a command that has ended or did not start; then report `end`."""
        told = child is not None and child.started.done()

        async def hear_out() -> None:
            if child is None or end is None or not told:
                await keys.aclose()
                return
            traffic = await keys.end()
            if traffic is not None and child.traffic is not None:
                child.traffic.take(traffic)
            child.on_exit(replace(end, traffic=traffic))

        self._finish(hear_out())

    def _on_lost(self, connection: _Connection) -> None:
        """A launcher died: its commands have no owner any more, so they are killed."""
        log.error("the launcher died; its commands are lost", extra={"pid": connection.process.pid})
        for child in connection.children.values():
            if child.started.done() and not child.started.cancelled() and child.started.exception() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.started.result().pid, signal.SIGKILL)
        self._drop(connection)
        self._finish(_wait_for(connection.process))  # its socket may close a moment before it ends

    def _drop(self, connection: _Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        if self._current is connection:
            self._current = None
        asyncio.get_running_loop().remove_reader(connection.sock.fileno())
        connection.sock.close()
        children, connection.children = connection.children, {}
        for child in children.values():
            self._end_served(child)
            if child.keys is not None:
                self._end_keys(child.keys)
            if not child.started.done():
                child.started.set_exception(OperationFailed("the launcher died while starting the process"))
            elif not child.started.cancelled():
                child.on_exit(Exit(LOST_CODE))


async def _wait_for(launcher: "subprocess.Popen[bytes]") -> None:
    """Wait for the end of a launcher whose socket is closed, and kill it if it takes too long."""
    if not await _has_ended(launcher):
        log.error("the launcher did not end in time", extra={"pid": launcher.pid})
        launcher.kill()
        await _has_ended(launcher)


async def _has_ended(launcher: "subprocess.Popen[bytes]") -> bool:
    """Whether it ends within `_STOP_S`. Takes no thread and no descriptor: there may be none left."""
    loop = asyncio.get_running_loop()
    until, pause_s = loop.time() + _STOP_S, 0.001
    while launcher.poll() is None:
        if loop.time() > until:
            return False
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)
    return True


def _divide(fds: list[int], ports: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Split the sockets of a command into those for names or for these ports, and the others."""
    count = count_handed(fds)
    named = fds[:count]
    others: list[int] = []
    for fd in fds[count:]:
        with socket.socket(fileno=os.dup(fd)) as sock:
            (named if sock.getsockname()[1] in ports else others).append(fd)
    return named, others


def _ignore(_exit: Exit) -> None:
    """No caller waits for this command."""
