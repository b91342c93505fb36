"""The watch over one confined command: its watcher process, and what that process has seen.

The listener (the descriptor of seccomp notifications) comes from inside the sandbox to us. We pass it on to
the watcher and keep a duplicate. A watcher that dies is replaced by one that goes on where it was. The
command waits meanwhile. If no process held its listener any more, its calls would fail.

    launcher ── command ──(listener)──▶ here ──(scene, listener, root, memory)──▶ watcher
                                          ◀──────────(denials)─────────────────────
"""

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from holdfast import decoding
from holdfast.confine.deniedlog import Counted, DenialNotice, DeniedLog, Rules
from holdfast.confine.launch import LOST_CODE, LauncherClient
from holdfast.confine.starts import Confinement, Exit, Sandbox
from holdfast.errors import HoldfastError
from holdfast.local.loop import AnyLoop, Cancellable, Loop
from holdfast.local.tasks import TaskSet
from holdfast.sandbox.plan.select import Way
from holdfast.sandbox.protocol.orders import DescriptorsLost
from holdfast.sandbox.watcher import foresight, listener, watcher
from holdfast.wire.processes import WatchedCall, WatchReport

log = logging.getLogger(__name__)

FINISH_S: Final = 1.0  # from a command's end to its last denial's report, if some process of it lives on
LAST_S: Final = 20.0  # the same if none does: the watcher ends by itself, however busy the machine is
FIRST_RETRY_S: Final = 0.05  # delay before a dead watcher is replaced for the second time; doubled each time
MAX_RETRY_S: Final = 1.0
MAX_REPORT: Final = 64 * 1024  # bytes of one report: a few words and two paths, escaped
_PTRACE_SCOPE: Final = "/proc/sys/kernel/yama/ptrace_scope"

_seen = decoding.decoder(DenialNotice)
_counted = decoding.decoder(Counted)


def unwatchable(sandbox: Sandbox) -> str | None:
    """The reason why a command in this sandbox cannot be watched; None if it can."""
    confinement = sandbox.confinement
    if confinement is None:
        return "the command is not confined"
    if confinement.way is Way.BWRAP:
        return "bubblewrap does not let its calls be watched"
    if len(_scene(confinement)) > watcher.MAX_SCENE:
        return "the policy has too many paths"
    # With namespaces the user owns the command's namespace; without, this switch protects its memory from
    # us.
    if confinement.way is Way.LANDLOCK and os.geteuid() != 0 and _restricted_ptrace():
        return f"{_PTRACE_SCOPE} does not let us see what a command asks for"
    return None


def _restricted_ptrace() -> bool:
    try:
        return Path(_PTRACE_SCOPE).read_text("ascii").strip() != "0"
    except OSError:
        return False


def _scene(confinement: Confinement) -> bytes:
    alone = confinement.way is Way.LANDLOCK
    scene = foresight.scene_of(confinement.plan, alone=alone, degraded=confinement.degraded)
    return foresight.encode(scene)


async def begin(
    launcher: LauncherClient,
    owner: int,
    sandbox: Sandbox,
    process_id: str,
    tell: Callable[[WatchedCall], None],
) -> "tuple[CommandWatch, None] | tuple[None, WatchReport]":
    """Make a watch for a command about to be started in this sandbox, or return why there is none."""
    why = unwatchable(sandbox)
    if why is None:
        watch = CommandWatch(launcher, owner, sandbox, process_id, tell)
        try:
            await watch.open()
        except (HoldfastError, OSError) as exc:
            why = f"the watcher cannot be started: {exc}"
        else:
            return watch, None
    return None, WatchReport(False, why)


class WatcherOwner(Protocol):
    """The owner of the command of `holdfast exec`, which forks the command's watcher."""

    loop: Loop

    def start_watcher(self, fd: int, on_exit: Callable[[Exit], None]) -> int: ...
    def signal(self, id_: int, signum: int) -> None: ...


class CommandWatch:
    """The watch over one command that is about to be started."""

    def __init__(
        self,
        launcher: LauncherClient | WatcherOwner,
        owner: int,
        sandbox: Sandbox,
        process_id: str,
        tell: Callable[[WatchedCall], None],
        loop: AnyLoop | None = None,
    ) -> None:
        if sandbox.confinement is None or sandbox.bound is None:
            raise AssertionError("only a confined command is watched")
        self.denials = DeniedLog(
            process_id,
            Rules(
                sandbox.bound.explain,
                os.path.exists,
                sandbox.closed,
                os.path.expanduser("~"),
                sandbox.bound.by_name,
            ),
        )
        self._launcher, self._owner, self._tell = launcher, owner, tell
        self._scene = _scene(sandbox.confinement)
        plan = sandbox.confinement.plan
        self._replaceable = [path for path in plan.sockets if plan.may_replace(path)]
        self._loop: AnyLoop = loop or asyncio.get_running_loop()
        self._report = self._new_report()
        self._inside: socket.socket | None = None
        self._handed: tuple[int, ...] = ()  # listener, root, memory, and granted sockets
        self._pinned: tuple[int, ...] = ()
        self._mounts = -1  # keeps the root's mounts as they are while the last calls are judged
        self._sock: socket.socket | None = None
        self._watcher = 0
        self._deaths = 0
        self._told = Counted(0, 0)
        self._tasks = TaskSet()
        self._timers: list[Cancellable] = []
        self._then: Callable[[], None] | None = None
        self._closed = False

    def _new_report(self) -> Any:
        """A future of the loop that we run on."""
        return asyncio.get_running_loop().create_future()

    # --- the command's side

    async def open(self) -> None:
        """Start the watcher.

        Raises:
            HoldfastError, OSError: it cannot be started.
        """
        await self._start()

    def channel(self) -> socket.socket:
        """The socket to send with the command's order; the caller must close it. Raises OSError."""
        self._pinned = tuple(listener.pin(path) for path in self._replaceable)
        self._inside, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._inside.setblocking(False)
        self._loop.add_reader(self._inside.fileno(), self._take_listener)
        return theirs

    async def report(self) -> WatchReport:
        """Whether the command, which runs by now, is watched.

        Raises:
            OSError: its listener is lost. It must be ended: its calls fail.
        """
        answered: WatchReport = await self._report
        return answered

    def _take_listener(self) -> None:
        if self._inside is None:
            return
        try:
            received = listener.take(self._inside.fileno())
        except BlockingIOError:
            return
        except DescriptorsLost as exc:
            self._lose(exc)
            return
        except OSError as exc:
            self._report.set_result(WatchReport(False, f"the kernel gives no listener: {exc.strerror}"))
            self._drop_inside()
            self._drop_watcher()
            return
        self._drop_inside()
        try:
            memory = os.memfd_create("holdfast-watch", os.MFD_CLOEXEC)
        except OSError as exc:
            for fd in received:
                os.close(fd)
            self._lose(exc)
            return
        os.ftruncate(memory, watcher.MEMORY_BYTES)
        *handed, self._mounts = received
        self._handed = (*handed, memory, *self._pinned)
        self._pinned = ()
        self._hand_on()
        self._report.set_result(WatchReport(True))

    def _lose(self, exc: OSError) -> None:
        self._drop_inside()
        self._drop_watcher()
        self._report.set_exception(exc)

    def _drop_inside(self) -> None:
        if self._inside is not None:
            self._loop.remove_reader(self._inside.fileno())
            self._inside.close()
            self._inside = None

    # --- the watcher's side

    async def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        launcher = self._launcher
        if not isinstance(launcher, LauncherClient):
            raise AssertionError("whoever has no launcher starts its watcher itself")
        try:
            with theirs:
                started = await launcher.start_watcher(theirs, owner=self._owner, on_exit=self._on_died)
        except BaseException:
            ours.close()
            raise
        self._on_joined(started.id, ours)

    def _on_joined(self, watcher_id: int, ours: socket.socket) -> None:
        """A watcher runs at the other end of this socket."""
        self._watcher = watcher_id
        if self._closed:
            ours.close()  # and with it the watcher ends
            return
        ours.setblocking(False)
        self._sock = ours
        self._loop.add_reader(ours.fileno(), self._read_reports, ours)
        self._hand_on()

    def _hand_on(self) -> None:
        if self._handed and self._sock is not None:
            with contextlib.suppress(OSError):  # the watcher is dead, and its exit is about to be reported
                socket.send_fds(self._sock, [self._scene], self._handed)

    def _read_reports(self, sock: socket.socket) -> None:
        while True:
            try:
                data = sock.recv(MAX_REPORT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                break
            self._take(data)
        self._loop.remove_reader(sock.fileno())
        sock.close()
        if self._sock is sock:
            self._sock = None
            if self._then is not None:
                self._over()

    def _take(self, data: bytes) -> None:
        try:
            seen = _seen.decode(data)
        except msgspec.DecodeError:
            counted = _counted.decode(data)
            self.denials.dropped += counted.dropped - self._told.dropped
            self.denials.unread += counted.unread - self._told.unread
            self._told = counted
            return
        entry = self.denials.add(seen, at_ms=time.time_ns() // 1_000_000)
        if entry is not None:
            self._tell(entry)

    def _on_died(self, end: Exit) -> None:
        # A watcher exits by itself only when all is over; its exit may be reported before the command's own.
        if not self._watcher or self._then is not None or end.code in (0, LOST_CODE):
            return
        delay = min(FIRST_RETRY_S * 2**self._deaths, MAX_RETRY_S) if self._deaths else 0.0
        self._deaths += 1
        log.warning("a watcher died and is replaced", extra={"process_id": self.denials.process_id})
        self._timers = [self._loop.call_later(delay, self._replace)]

    def _replace(self) -> None:
        if self._watcher and self._then is None:
            self._told = Counted(0, 0)
            self._restart()

    def _restart(self) -> None:
        self._tasks.start(self._start_again())

    async def _start_again(self) -> None:
        try:
            await self._start()
        except (HoldfastError, OSError):
            self._on_died(Exit(1))

    def _drop_watcher(self) -> None:
        if self._sock is not None:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None
        if self._watcher:
            watcher_id, self._watcher = self._watcher, 0
            self._launcher.signal(watcher_id, signal.SIGKILL)

    # --- the end

    def finish(self, then: Callable[[], None]) -> None:
        """The command has ended: receive the remaining reports, then call `then`."""
        self._then = then
        self._take_listener()  # sent before the command began, but its end may arrive first
        if self._sock is None or not self._handed:
            self._over()
        else:
            self._timers.append(self._loop.call_later(FINISH_S, self._wait_longer))

    def _wait_longer(self) -> None:
        """If every process that could make calls has ended, wait until the watcher finishes by itself."""
        poll = select.poll()
        poll.register(self._handed[0], 0)
        if any(event & select.POLLHUP for _, event in poll.poll(0)):
            self._timers.append(self._loop.call_later(LAST_S - FINISH_S, self._over))
        else:
            self._over()

    def _over(self) -> None:
        then, self._then = self._then, None
        self.close()
        if then is not None:
            then()

    def close(self) -> None:
        """Release everything. If the command still runs it must be ended: its calls fail from now on."""
        if self._closed:
            return
        self._closed = True
        self._drop_inside()
        for timer in self._timers:
            timer.cancel()
        self._tasks.cancel()
        self._drop_watcher()
        for fd in (*self._pinned, *((*self._handed, self._mounts) if self._handed else ())):
            os.close(fd)
        self._handed = self._pinned = ()
        if not self._report.done():
            self._report.set_result(WatchReport(False, "the command was not started"))


def begin_local(
    owner: WatcherOwner, sandbox: Sandbox, name: str
) -> "tuple[LocalWatch, None] | tuple[None, WatchReport]":
    """Make a watch for a command about to be started in this sandbox, or return why there is none."""
    why = unwatchable(sandbox)
    if why is None:
        try:
            return LocalWatch(owner, sandbox, name), None
        except OSError as exc:
            why = f"the watcher cannot be started: {exc}"
    return None, WatchReport(False, why)


class LocalWatch(CommandWatch):
    """A watch for `holdfast exec`: on a loop without coroutines; its watcher is a fork of this process."""

    def __init__(self, owner: WatcherOwner, sandbox: Sandbox, name: str) -> None:
        """Raises OSError."""
        self._owned = owner
        super().__init__(owner, 0, sandbox, name, lambda _: None, loop=owner.loop)
        self._fork()

    def await_report(self) -> WatchReport:
        """Whether the command, whose start has been answered, is watched."""
        self._owned.loop.run_until(self._report.done)
        try:
            report: WatchReport = self._report.result()
        except OSError as exc:
            return WatchReport(False, f"its listener is lost: {exc.strerror}")
        return report

    def _new_report(self) -> Any:
        return Future()

    def _fork(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._on_joined(self._owned.start_watcher(theirs.fileno(), self._on_died), ours)

    def _restart(self) -> None:
        try:
            self._fork()
        except OSError:
            self._on_died(Exit(1))
