"""One session over a series of links: calls, events, recovery.

Calls made while no link is up wait for the next one. A call that was under way when its link died fails and
is not repeated, unless the caller permits it (`call_again`). Processes are routes: events are routed to them
by id on any link. After a link was lost their missed events are read by sequence number before anything else
is sent. A route whose buffer is full stops the link from being read, except while the session cleans up or
recovers.
"""

import asyncio
import contextlib
import copy
import itertools
import logging
import random
import secrets
from collections.abc import Callable, Coroutine
from typing import Final, Protocol

from holdfast.client.connection import ClientConnection, Dialer, NotSent
from holdfast.client.events.ordering import Pushed, ReadPage, decode_page
from holdfast.client.networkfilter import Deciders, Reply
from holdfast.client.recovery import Action, Dial, GiveUp, LinkState, Recovery, WakeAt, worth_retrying
from holdfast.errors import (
    ConnectionLost,
    HoldfastError,
    InvalidRequest,
    OutputLost,
    SessionLost,
)
from holdfast.local.tasks import TaskSet
from holdfast.wire.environment import EnvironmentInfo
from holdfast.wire.processes import ProcessParams, ReadParams
from holdfast.wire.rpc import JsonValue

log = logging.getLogger(__name__)

CLEANUP_S: Final = 5.0  # to answer a terminate; a serial server may be stuck in another call until dropped
FAREWELL_S: Final = 2.0  # for pending work at the end
CATCH_UP_AT_ONCE: Final = 16  # reads under way after a resume: a slow link, hundreds of processes, 25 s

_RESTART: Final = "connect again; what ran in the old session has been ended"


class SessionCaller(Protocol):
    """The part of a session that the facets of an environment use."""

    async def call(
        self, method: str, params: object, *, timeout_s: float | None = None, cleanup: bool = False
    ) -> JsonValue:
        """Send one request; waits while the session recovers.

        Raises:
            ConnectionLost: the link died during the call. The request may or may not have been executed, and
                is not repeated.
            SessionLost: the session is over.
            TimeoutError: no answer within `timeout_s`.
            HoldfastError: the error that the server answered.
        """

    def on(self, method: str, handle: Callable[[JsonValue], None]) -> Callable[[], None]:
        """Call `handle` with every notification of a method; call the returned function to stop."""

    def on_lost(self, handle: Callable[[HoldfastError], None]) -> Callable[[], None]:
        """Call `handle` when a link died or the session ended; call the returned function to stop."""


class Route(Protocol):
    """A process as seen by its session."""

    process_id: str
    recoverable: bool

    @property
    def last_published(self) -> int: ...

    def take(self, pushed: Pushed) -> None:
        """Take one event."""

    def catch_up(self, page: ReadPage) -> None:
        """Take the missed events. Raises: OutputLost."""

    def fail(self, error: HoldfastError) -> None:
        """End the route with an error; no more events come."""


class ClientSession:
    """A session. Connect it with `open`; `info` is what the server reports about itself."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self.session_id: str | None = None
        self.info: EnvironmentInfo
        self._recovery = Recovery(resumable=dialer.target.resumable, now=self._now(), random=random.random)
        self._connection = ClientConnection(self, self._recovery.generation)
        self._failure: SessionLost | None = None
        self._changed = asyncio.Event()
        self._routes: dict[str, Route] = {}
        self._prefix = "p"  # longer if others may have started processes in the session before
        self._numbers = itertools.count(1)
        self._orphans: set[str] = set()
        self._ending: set[str] = set()  # those whose termination is under way
        self._full: set[str] = set()
        self._cleanups = 0
        self._held = False
        self._hearers: dict[str, list[Callable[[JsonValue], None]]] = {}
        self._loss_handlers: list[Callable[[HoldfastError], None]] = []
        self._tasks = TaskSet()
        self._deciders: Deciders | None = None
        self._driver: asyncio.Task[None] | None = None

    # --- life

    async def open(self, resume: str | None = None) -> None:
        """Open the first link, of a new session or of one that another process has left.

        Raises:
            Unreachable, TokenRefused, ProtocolMismatch: there is no session.
            InvalidRequest: the session to resume does not exist or has ended.
            SessionAttached: another connection holds it; try again shortly.
        """
        hello = await self._dialer.enter(self._connection, resume, introduce=True)
        if resume is not None:
            self._prefix = f"p{secrets.token_hex(4)}-"
        if hello.environment_info is None:
            raise AssertionError("the handshake asks for it")
        self.info = hello.environment_info
        self.session_id = hello.session_id

    @property
    def deciders(self) -> Deciders:
        """Deciders about hosts; created for the first process with a callback, or at the first question."""
        if self._deciders is None:
            self._deciders = Deciders(self.spawn)
            self.on("network/policyDecision", self._deciders.hear)
        return self._deciders

    @property
    def state(self) -> LinkState:
        return self._recovery.state

    @property
    def failure(self) -> SessionLost | None:
        """Why the session is over, once it is."""
        return self._failure

    @property
    def holding(self) -> bool:
        """Whether reading the link is paused because the output of a process is not read."""
        return self._held

    async def aclose(self, *, leave: bool = False) -> None:
        """End all running processes, within FAREWELL_S, and the link; with `leave` they keep running."""
        routes = list(self._routes.values())
        for route in routes if not leave else ():
            self.abandon(route.process_id)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_S):
                    while self._tasks and self.state is LinkState.CONNECTED:
                        await asyncio.wait(self._tasks)
        finally:
            self._recovery.give_up()
            self._fail(SessionLost("the environment was closed"))
            for route in routes:
                route.fail(SessionLost("the environment was closed"))
            leftover = [*self._tasks, *([self._driver] if self._driver else [])]
            for task in leftover:
                task.cancel()
            await asyncio.gather(*leftover, return_exceptions=True)
            if self._connection.link is not None:
                await self._connection.link.aclose()

    def _fail(self, error: SessionLost) -> None:
        if self._failure is not None:
            return
        self._failure = error
        routes, self._routes = self._routes, {}
        if self._deciders is not None:
            self._deciders.clear()
        self._full.clear()
        self._orphans.clear()
        for route in routes.values():
            route.fail(copy.copy(error))
        for handle in list(self._loss_handlers):
            handle(copy.copy(error))
        self._wake()

    # --- calls

    async def call(
        self, method: str, params: object, *, timeout_s: float | None = None, cleanup: bool = False
    ) -> JsonValue:
        async with asyncio.timeout(timeout_s):
            return await self._call_when_connected(method, params, cleanup=cleanup)

    async def _call_when_connected(self, method: str, params: object, *, cleanup: bool) -> JsonValue:
        if cleanup:
            self._cleanups += 1
            self._throttle()
        try:
            while True:
                while self._recovery.state is not LinkState.CONNECTED:
                    await self._until_changed()
                with contextlib.suppress(NotSent):
                    return await self._connection.call(method, params, cleanup=cleanup)
        finally:
            if cleanup:
                self._cleanups -= 1
                self._throttle()

    async def call_again(self, method: str, params: object) -> JsonValue:
        """Like `call` for requests that may be repeated: a lost link only delays it."""
        while True:
            try:
                return await self.call(method, params)
            except ConnectionLost:
                continue

    async def call_now(self, method: str, params: object, *, timeout_s: float) -> JsonValue:
        """Like `call`, but fails at once with ConnectionLost when no link is up."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self.state is not LinkState.CONNECTED:
            raise ConnectionLost("the session is recovering")
        return await self._connection.call(method, params, timeout_s=timeout_s)

    async def _until_changed(self) -> None:
        if self._failure is not None:
            raise copy.copy(self._failure)
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- notifications

    def on(self, method: str, handle: Callable[[JsonValue], None]) -> Callable[[], None]:
        hearers = self._hearers.setdefault(method, [])
        hearers.append(handle)
        return lambda: hearers.remove(handle) if handle in hearers else None

    def on_lost(self, handle: Callable[[HoldfastError], None]) -> Callable[[], None]:
        self._loss_handlers.append(handle)
        return lambda: self._loss_handlers.remove(handle) if handle in self._loss_handlers else None

    def take(self, pushed: Pushed) -> None:
        route = self._routes.get(pushed.process_id)
        if route is not None:
            route.take(pushed)

    def note(self, method: str, params: JsonValue) -> None:
        for hear in list(self._hearers.get(method, ())):
            hear(params)

    def ask(self, params: JsonValue, reply: Reply) -> None:
        self.deciders.ask(params, reply)

    # --- processes

    def new_process_id(self) -> str:
        return f"{self._prefix}{next(self._numbers)}"

    def add_route(self, route: Route) -> None:
        """Register a process before its start is sent: events may overtake the answer."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        if route.process_id in self._routes:
            raise InvalidRequest(f"process {route.process_id} already exists")
        self._routes[route.process_id] = route

    def remove_route(self, process_id: str) -> None:
        self._routes.pop(process_id, None)
        if self._deciders is not None:
            self._deciders.remove(process_id)
        self.make_room(process_id)

    def abandon(self, process_id: str) -> None:
        """End a process that no caller waits for, now or on the next link."""
        self.remove_route(process_id)
        if self._failure is None:
            self._orphans.add(process_id)  # at once: its name may be reused
            self.spawn(self._terminate(process_id))

    async def until_ended(self, process_id: str) -> None:
        """Wait until no process of this name is to be ended, so that a new one cannot be ended in its place.

        Raises:
            SessionLost: the session is over.
        """
        while process_id in self._orphans:
            await self._until_changed()

    async def _terminate(self, process_id: str) -> None:
        if self.state is not LinkState.CONNECTED or process_id in self._ending:
            return  # done when the session resumes, or under way already
        connection = self._connection
        self._ending.add(process_id)
        try:
            await self.call("process/terminate", ProcessParams(process_id), timeout_s=CLEANUP_S, cleanup=True)
        except ConnectionLost:
            return
        except TimeoutError:
            connection.drop("the server does not answer")  # then it abandons the call that it is stuck in
            return
        except HoldfastError:
            log.debug("a process could not be ended", extra={"process_id": process_id})
        finally:
            self._ending.discard(process_id)
        self._orphans.discard(process_id)
        self._wake()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run work that belongs to the session and ends with it."""
        self._tasks.start(work)

    # --- flow

    def mark_full(self, process_id: str) -> None:
        """Stop reading the link: this process has more unread events than its bound."""
        self._full.add(process_id)
        self._throttle()

    def make_room(self, process_id: str) -> None:
        if process_id in self._full:
            self._full.discard(process_id)
            self._throttle()

    def _throttle(self) -> None:
        connection = self._connection
        hold = bool(self._full) and not self._cleanups and self.state is LinkState.CONNECTED
        if hold == self._held or connection.link is None or connection.lost is not None:
            return
        self._held = hold
        (connection.link.pause_reading if hold else connection.link.resume_reading)()

    # --- recovery

    def connection_lost(self, connection: ClientConnection, error: HoldfastError) -> None:
        if connection is not self._connection or self.session_id is None:
            return  # an old link, or one being dialled, whose dialler gets an exception
        action = self._recovery.link_lost(connection.generation, self._now(), str(error))
        if action is None:
            return
        self._held = False
        for handle in list(self._loss_handlers):
            handle(ConnectionLost(str(error)))
        self._wake()
        self._driver = asyncio.get_running_loop().create_task(self._drive(action, str(error)))

    async def _drive(self, first: Action, loss: str) -> None:
        """Carry out actions until the session is resumed or lost."""
        action: Action | None = first
        try:
            while action is not None:
                match action:
                    case Dial(generation, until):
                        action = await self._attempt(generation, until)
                    case WakeAt(when):
                        await asyncio.sleep(when - self._now())
                        action = self._recovery.tick(self._now())
                    case GiveUp(reason):
                        text = loss if reason == loss else f"{loss}; the session cannot be resumed: {reason}"
                        self._fail(SessionLost(text, remedy=_RESTART))
                        return
        except Exception:
            log.exception("recovery failed")
            self._recovery.give_up()
            self._fail(SessionLost(f"{loss}; recovery failed", remedy=_RESTART))
            return
        self._throttle()
        self._wake()
        for process_id in sorted(self._orphans):
            self.spawn(self._terminate(process_id))

    async def _attempt(self, generation: int, until: float) -> Action | None:
        connection = ClientConnection(self, generation)
        try:
            async with asyncio.timeout_at(until):
                self._connection = connection
                await self._dialer.enter(connection, self.session_id)
                await self._catch_up(connection)
        except (HoldfastError, TimeoutError) as exc:
            connection.drop("the attempt failed")
            reason = str(exc) or "it took too long"
            return self._recovery.dial_failed(self._now(), retry=worth_retrying(exc), reason=reason)
        return self._recovery.resumed(self._now())

    async def _catch_up(self, connection: ClientConnection) -> None:
        """Read the events that every process missed."""
        routes = [route for route in self._routes.values() if route.recoverable]
        for batch in (routes[at : at + CATCH_UP_AT_ONCE] for at in range(0, len(routes), CATCH_UP_AT_ONCE)):
            await asyncio.gather(*(self._read_missed(connection, route) for route in batch))

    async def _read_missed(self, connection: ClientConnection, route: Route) -> None:
        """Read the events of one process; if it cannot be continued, it fails alone."""
        try:
            params = ReadParams(route.process_id, route.last_published, None, 0)
            route.catch_up(decode_page(await connection.call("process/read", params, cleanup=True)))
        except ConnectionLost:
            raise
        except HoldfastError as exc:
            self.abandon(route.process_id)
            route.fail(OutputLost(f"the process cannot be continued: {exc}"))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
