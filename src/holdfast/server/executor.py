"""What all connections of one server share: the launcher, the sessions, the file threads, the clock."""

import asyncio
import contextlib
import functools
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import msgspec

from holdfast.errors import InvalidRequest, SessionAttached
from holdfast.sandbox.plan.select import ANY, Backend, Choice
from holdfast.server.environment import environment_info, login_shell
from holdfast.wire.environment import EnvironmentInfo
from holdfast.wire.rpc import JsonValue

if TYPE_CHECKING:  # loaded when used: the first answer of a server needs none of them
    from concurrent.futures import ThreadPoolExecutor

    from holdfast.confine.launch import LauncherClient
    from holdfast.confine.sandboxes import Sandboxes
    from holdfast.server.files.confinedfiles import ConfinedFiles
    from holdfast.server.files.mounts import Mounts
    from holdfast.server.processes.commands import CommandCeiling, OpenCommands
    from holdfast.server.processes.processes import Processes

log = logging.getLogger(__name__)

T = TypeVar("T")
C = TypeVar("C")

CLOSED_RETENTION_S: Final = 30.0  # a client that reconnects in time still gets its process's end
DETACHED_S: Final = 30.0  # long enough to reconnect, short enough that nothing runs unattended for long
LEFT_S: Final = 0.5  # for a session whose link has ended, if a busy machine has not processed that yet
MAX_KEPT: Final = 256  # detached sessions with processes; beyond it the oldest idle one ends
MAX_KEPT_BYTES: Final = 512 * 1024 * 1024  # output that those hold
LINGER_S: Final = 0.0001  # covers a client's turn-around on the same machine; longer has no benefit
FILE_THREADS: Final = 4  # file calls that may block at the same time; more are queued


@dataclass(slots=True)
class _Entry(Generic[T, C]):
    value: T
    owner: C | None
    expires: float = 0.0


class Sessions(Generic[T, C]):
    """Sessions of type T by id, each owned by at most one connection of type C, with their deadlines.

    A session is made by a connection, survives it, and is either attached to exactly one connection
    or detached with a deadline. Nothing here has a clock: `now` is an argument.
    """

    def __init__(self, *, detached_s: float = DETACHED_S) -> None:
        self._detached_s = detached_s
        self._entries: dict[str, _Entry[T, C]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[T]:
        return iter([entry.value for entry in self._entries.values()])

    def add(self, session_id: str, value: T, owner: C) -> None:
        """Add a new session, attached to the connection that requested it."""
        if session_id in self._entries:
            raise AssertionError("session ids are random and do not repeat")
        self._entries[session_id] = _Entry(value, owner)

    def resume(self, session_id: str, owner: C, now: float) -> T:
        """Attach a detached session to a new connection.

        Raises:
            InvalidRequest: there is no such session, or it has ended.
            SessionAttached: another connection has it.
        """
        entry = self._entries.get(session_id)
        if entry is None or (entry.owner is None and now >= entry.expires):
            raise InvalidRequest(f"unknown session id {session_id}")
        if entry.owner is not None:
            raise SessionAttached(f"session {session_id} is already attached to another connection")
        entry.owner = owner
        return entry.value

    def is_attached(self, session_id: str) -> bool:
        entry = self._entries.get(session_id)
        return entry is not None and entry.owner is not None

    def detach(self, session_id: str, owner: C, now: float, *, keep_s: float | None = None) -> bool:
        """Detach a session from a lost connection; False if the session was not its own any more.

        The session waits for another connection, for `keep_s` if that is given.
        """
        entry = self._entries.get(session_id)
        if entry is None or entry.owner is not owner:
            return False
        entry.owner = None
        entry.expires = now + (self._detached_s if keep_s is None else keep_s)
        return True

    def remove(self, session_id: str) -> T | None:
        """Forget a session, attached or not."""
        entry = self._entries.pop(session_id, None)
        return None if entry is None else entry.value

    def expire(self, now: float) -> list[T]:
        """Remove and return the sessions whose time is over."""
        over = [key for key, entry in self._entries.items() if entry.owner is None and now >= entry.expires]
        return [self._entries.pop(key).value for key in over]

    def list_detached(self) -> list[T]:
        """The detached sessions, ordered by the end of their time."""
        waiting = [entry for entry in self._entries.values() if entry.owner is None]
        return [entry.value for entry in sorted(waiting, key=lambda entry: entry.expires)]

    def next_expiry(self) -> float | None:
        """When to call `expire` next; None while every session is attached."""
        return min((e.expires for e in self._entries.values() if e.owner is None), default=None)


class Linger:
    """Keeps the loop polling for a moment after each message from a client, for which `touch` is called.

    A client that talks in round trips sends its next request within some tens of microseconds. By then an
    idle processor sleeps, and waking it costs more than the whole request (measured: half of a round trip).
    Idle connections cost nothing. A busy one costs at most LINGER_S per message, and only if we may use more
    than one processor.
    """

    def __init__(self) -> None:
        self._able = len(os.sched_getaffinity(0)) > 1
        self._until = 0.0
        self._running = False

    def touch(self) -> None:
        if self._able:
            self._until = time.perf_counter() + LINGER_S
            if not self._running:
                self._running = True
                asyncio.get_running_loop().call_soon(self._spin)

    def _spin(self) -> None:
        if time.perf_counter() < self._until:
            asyncio.get_running_loop().call_soon(self._spin)
        else:
            self._running = False


class EventSink(Protocol):
    """A connection as seen by the session: it takes events and answers questions."""

    def push(self, message: bytes) -> None: ...

    def offer(self, message: bytes) -> None: ...

    async def ask(self, method: str, params: msgspec.Struct, timeout_s: float) -> JsonValue: ...


@dataclass(frozen=True, slots=True)
class Clocks:
    """The retention times; tests use shorter ones."""

    detached_s: float = DETACHED_S
    closed_s: float = CLOSED_RETENTION_S
    kept_s: float | None = None  # instead of `detached_s`, for a session with processes

    @classmethod
    def keeping(cls, seconds: float | None) -> "Clocks":
        """Keep sessions and their ended processes for this long; None: the defaults."""
        return cls() if seconds is None else cls(closed_s=seconds, kept_s=seconds)


_CLOCKS: Final = Clocks()


class ServerSession:
    """A session and its processes; events go to the attached connection, if there is one."""

    def __init__(self, session_id: str, owner: int, *, extended: bool, executor: "Executor"):
        self.session_id = session_id
        self.listener: EventSink | None = None
        self._owner = owner
        self._extended = extended
        self._executor = executor

    @functools.cached_property
    def processes(self) -> "Processes":
        from holdfast.server.processes.processes import NetworkSide, Processes

        return Processes(
            self._executor.launcher,
            self._executor.sandboxes,
            owner=self._owner,
            push=self._push,
            server_env=self._executor.environ,
            shell=self._executor.shell,
            extended=self._extended,
            closed_retention_s=self._executor.clocks.closed_s,
            ceiling=self._executor.ceiling,
            open_commands=self._executor.open_commands,
            spooled=self._executor.clocks.kept_s is not None,  # kept sessions need all output
            on_closed=self._executor.on_process_closed,
            network=NetworkSide(
                self._ask, self._offer, private_via_upstream=self._executor.private_via_upstream
            ),
        )

    def _push(self, message: bytes) -> None:
        if self.listener is not None:
            self.listener.push(message)

    def _offer(self, message: bytes) -> None:
        if self.listener is not None:
            self.listener.offer(message)

    async def _ask(self, method: str, params: msgspec.Struct, timeout_s: float) -> JsonValue:
        return None if self.listener is None else await self.listener.ask(method, params, timeout_s)


class Executor:
    """The server without its listeners."""

    methods: frozenset[str] | None = None  # the methods that are answered; None: all
    ceiling: "CommandCeiling | None" = None
    open_commands: "OpenCommands | None" = None  # opens a listener for a process's commands
    on_process_closed: "Callable[[int, float], None] | None" = None  # metrics: exit code and seconds

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        clocks: Clocks = _CLOCKS,
        choice: Choice = ANY,
        *,
        private_via_upstream: bool = False,
    ) -> None:
        """`private_via_upstream`: a command's proxy reaches private hosts through ours, if there is one."""
        self.environ = dict(environ)
        self.private_via_upstream = private_via_upstream
        self.clocks = clocks
        self._choice = choice
        self.sessions: Sessions[ServerSession, EventSink] = Sessions(detached_s=clocks.detached_s)
        self._left = asyncio.Event()  # set whenever a connection has left its session
        self.linger = Linger()
        self._owners = 0
        self._timer: asyncio.TimerHandle | None = None
        self._info: EnvironmentInfo | None = None
        self._opened = self._closed = False

    # Created on first use.

    @functools.cached_property
    def shell(self) -> str:
        return login_shell() or "/bin/sh"

    @functools.cached_property
    def launcher(self) -> "LauncherClient":
        from holdfast.confine.launch import LauncherClient

        return LauncherClient()

    @functools.cached_property
    def files(self) -> "ThreadPoolExecutor":
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="holdfast-files")

    @functools.cached_property
    def mounts(self) -> "Mounts":
        from holdfast.server.files.mounts import Mounts

        return Mounts()

    @functools.cached_property
    def sandboxes(self) -> "Sandboxes":
        from holdfast.confine.sandboxes import Sandboxes

        path = self.environ.get("PATH", os.defpath)
        return Sandboxes(self.launcher, self.files, path=path, choice=self._choice)

    @functools.cached_property
    def confined(self) -> "ConfinedFiles":
        from holdfast.server.files.confinedfiles import ConfinedFiles

        return ConfinedFiles(self.launcher, self.sandboxes, self.mounts, self.environ)

    def open(self) -> None:
        """Start the launcher while this process is small, and load what a command needs; only once."""
        if self._opened or self._closed:
            return
        self._opened = True
        self.launcher.open()
        import holdfast.server.processes.processes  # noqa: F401

    def info(self) -> EnvironmentInfo:
        """The description of this executor, which is collected once."""
        if self._info is None:
            proxied = self._choice.backend is not Backend.LANDLOCK
            self._info = environment_info(self.environ, proxied=proxied)
        return self._info

    def new_owner(self) -> int:
        """Return a new number by which the launcher knows the commands of one session."""
        self._owners += 1
        return self._owners

    def attach(self, listener: EventSink, resume: str | None, *, extended: bool) -> ServerSession:
        """Create or resume a session; its events go to `listener` from now on.

        Raises:
            InvalidRequest: there is no session to resume.
            SessionAttached: another connection has it.
        """
        if resume is None:
            session = ServerSession(str(uuid.uuid4()), self.new_owner(), extended=extended, executor=self)
            self.sessions.add(session.session_id, session, listener)
        else:
            session = self.sessions.resume(resume, listener, self._now())
        session.listener = listener
        log.info(
            "session attached" if resume is None else "session resumed",
            extra={"session_id": session.session_id},
        )
        return session

    async def wait_left(self, session_id: str) -> None:
        """Wait until no connection has this session, or for LEFT_S."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEFT_S):
                while self.sessions.is_attached(session_id):
                    await self._left.wait()

    def detach(self, session: ServerSession, listener: EventSink) -> None:
        """Detach a session from a lost connection; it waits for another one for a while."""
        keep_s = self.clocks.kept_s if session.processes.any else None
        if self.sessions.detach(session.session_id, listener, self._now(), keep_s=keep_s):
            self._left.set()
            self._left = asyncio.Event()
            session.listener = None
            session.processes.resume()
            log.info("session detached", extra={"session_id": session.session_id})
            if keep_s is not None:
                self._make_room()
            self._schedule()

    def _make_room(self) -> None:
        """End the oldest detached sessions until the rest is within bounds, those that run nothing first."""
        kept = self.sessions.list_detached()
        held = {session: session.processes.held_bytes() for session in kept}
        for session in sorted(kept, key=lambda session: session.processes.live() > 0):
            if len(held) <= MAX_KEPT and sum(held.values()) <= MAX_KEPT_BYTES:
                return
            log.warning("too many sessions are kept; one ends", extra={"session_id": session.session_id})
            del held[session]
            self.end(session)

    def end(self, session: ServerSession) -> None:
        """End a session at once, with all its processes."""
        self.sessions.remove(session.session_id)
        session.listener = None
        session.processes.end()
        log.info("session ended", extra={"session_id": session.session_id})

    async def aclose(self) -> None:
        """End every session and every process."""
        if self._timer is not None:
            self._timer.cancel()
        for session in self.sessions:
            self.end(session)
        self._closed = True
        made = vars(self)
        if "confined" in made:
            self.confined.close()
        if "launcher" in made:
            await self.launcher.aclose()
        if "mounts" in made:
            self.mounts.close()
        if "files" in made:
            self.files.shutdown(wait=False, cancel_futures=True)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        when = self.sessions.next_expiry()
        if when is not None:
            self._timer = asyncio.get_running_loop().call_at(when, self._expire)

    def _expire(self) -> None:
        for session in self.sessions.expire(self._now()):
            self.end(session)
        self._schedule()
