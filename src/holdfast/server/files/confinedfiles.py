"""File methods under a policy: one confined, long-lived worker per policy, kept while its plan is valid.

The disk is inspected again for every call, because existing files determine the plan (a `.git` that appeared,
a new match of a deny pattern). A worker whose plan is out of date is replaced.
"""

import asyncio
import os
import select
import signal
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast import decoding
from holdfast.confine.guard import HeldNames
from holdfast.confine.launch import LauncherClient
from holdfast.confine.permissions import check_cwd
from holdfast.confine.sandboxes import Sandboxes, bound_of
from holdfast.confine.starts import Command, Exit
from holdfast.errors import HoldfastError, InvalidRequest, NotFound, OperationFailed, UsageError, from_kind
from holdfast.home import find_homes
from holdfast.light import replace
from holdfast.sandbox.plan import prerequisites
from holdfast.sandbox.plan.planner import DiskSnapshot, plan_for, settle
from holdfast.sandbox.plan.resolve import DiskEntry, glance, is_unchanged
from holdfast.sandbox.policy.narrowing import find_excess
from holdfast.sandbox.policy.paths import absolute, parent, within
from holdfast.sandbox.policy.policy import PLATFORM_ROOTS, Access, At, BoundPolicy, BoundRule, Rule, needs_of
from holdfast.sandbox.protocol.orders import receive_with_fds
from holdfast.server.files.fsworker import ERROR, FIRST_READ, FRAME, OPENED, REQUEST
from holdfast.server.files.mounts import Mounts
from holdfast.wire.files import OpenParams
from holdfast.wire.paths import PathUri
from holdfast.wire.permissions import SandboxContext
from holdfast.wire.rpc import MAX_MESSAGE_BYTES

MAX_WORKERS: Final = 8  # policies in use at the same time; the least recently used one's worker ends
HOMES_S: Final = 1.0  # how long the list of homes is cached, since finding them takes longer than a file call
MAX_BOUNDS: Final = 64  # policies whose bound form is cached
MAX_REPLANS: Final = 8  # attempts to plan while the file system changes
_AT_ONCE_S: Final = 0.0002  # how long an answer is polled for without a pause
_SOON_MS: Final = 1  # the loop may block for that long; a small file is written in a tenth of it
CALL_S: Final = 60.0  # a file call that takes longer hangs in a dead mount
_PASSED: Final = ("PATH", "TMPDIR", "TMP", "TEMP")  # the whole environment of a worker
# The worker imports from the same places as we do; never from a working directory.
_IMPORTS: Final = [place for place in sys.path if os.path.isabs(place)]
_BOOT: Final = (
    f"import sys; sys.path[:] = {_IMPORTS!r}; from holdfast.server.files.fsworker import main; main()"
)
_CWD: Final = "/"  # of a worker: the policy may hide its own directory
_READ_ONLY: Final = "Read-only file system (os error 30)"


def _to_wire(value: object) -> str:
    if isinstance(value, PathUri):
        return value.uri
    raise AssertionError(f"no file method has a member of type {type(value)}")


_encode = msgspec.json.Encoder(enc_hook=_to_wire).encode


@dataclass(slots=True, eq=False)
class _Worker:
    seen: DiskSnapshot
    names: Mapping[str, DiskEntry] | None  # all that was inspected, if it was only names
    held: HeldNames
    launch_id: int
    sock: socket.socket
    turn: asyncio.Lock
    under: BoundPolicy | None = None  # the ceiling that its plan was last compared with


class ConfinedFiles:
    """The workers of one executor."""

    def __init__(
        self, launcher: LauncherClient, sandboxes: Sandboxes, mounts: Mounts, environ: Mapping[str, str]
    ) -> None:
        self._launcher = launcher
        self._mounts = mounts
        self._sandboxes = sandboxes
        self._env = {name: environ[name] for name in _PASSED if name in environ}
        self._workers: OrderedDict[BoundPolicy, _Worker] = OrderedDict()
        self._starting = asyncio.Lock()
        self._homes: tuple[float, tuple[str, ...]] = -HOMES_S, ()
        self._environ = environ
        self._bounds: dict[tuple[bytes, tuple[str, ...]], BoundPolicy] = {}

    def bound(self, context: SandboxContext, homes: Sequence[str] | None = None) -> BoundPolicy:
        """The policy of a context with concrete paths; cached, because clients send the same one again.

        Holdfast's `homes` are hidden: by default all that exist.

        Raises:
            UsageError: it depends on a working directory and has none.
            InvalidRequest: it is invalid on this host.
        """
        homes = self._find_homes() if homes is None else tuple(homes)
        key = (_encode(context), homes)
        bound = self._bounds.get(key)
        if bound is None:
            check_cwd(context)
            try:
                bound = bound_of(context, cwd="/", environ=self._environ, homes=homes)
            except UsageError as exc:
                raise InvalidRequest(str(exc)) from None
            if len(self._bounds) >= MAX_BOUNDS:
                self._bounds.clear()
            self._bounds[key] = bound
        return bound

    def _find_homes(self) -> tuple[str, ...]:
        now = time.monotonic()
        if now > self._homes[0] + HOMES_S:
            self._homes = now, find_homes()
        return self._homes[1]

    async def call(
        self, bound: BoundPolicy, method: str, params: Any, ceiling: BoundPolicy | None = None
    ) -> msgspec.Raw:
        """Execute a file method inside the policy's view, which is nowhere wider than the ceiling.

        Raises:
            SandboxUnavailable: the policy cannot be enforced here; nothing was done.
            HoldfastError: the error of the method itself.
        """
        reply, _ = await self._carry_out(bound, method, params, ceiling)
        return msgspec.Raw(reply)

    async def open(self, bound: BoundPolicy, params: OpenParams, ceiling: BoundPolicy | None = None) -> int:
        """Open a file inside the policy's view and return its descriptor."""
        _, fd = await self._carry_out(bound, "fs/open", params, ceiling)
        if fd is None:
            raise OperationFailed("the confined file worker sent no descriptor")
        return fd

    def close(self) -> None:
        """End every worker."""
        for worker in self._workers.values():
            self._end(worker)
        self._workers.clear()

    async def _carry_out(
        self, bound: BoundPolicy, method: str, params: Any, ceiling: BoundPolicy | None
    ) -> tuple[bytes, int | None]:
        for _ in range(MAX_REPLANS):
            worker = self._workers.get(bound) or await self._replace(bound)
            if next(reversed(self._workers)) is not bound:
                self._workers.move_to_end(bound)
            async with worker.turn:
                if await self._fits(worker, bound):
                    if ceiling is not None:
                        _refuse_excess(worker, bound, ceiling)
                    try:
                        done = await exchange(worker.sock, method, params)
                    except HoldfastError:
                        raise
                    except BaseException as exc:
                        self._forget(worker)  # its next answer would be out of step
                        if isinstance(exc, OSError | EOFError):
                            raise OperationFailed("the confined file worker ended unexpectedly") from None
                        raise
                    if worker.held.have_appeared():
                        worker.held.set_aside()
                        if done[1] is not None:
                            os.close(done[1])
                        raise OperationFailed(_READ_ONLY)  # a protected name was created through another name
                    return done
            await self._replace(bound, worker)
        raise OperationFailed("what the policy names keeps changing")

    async def _fits(self, worker: _Worker, bound: BoundPolicy) -> bool:
        """Whether the disk still matches the worker's plan. Checked on the loop if that cannot hang."""
        if worker.names is None:
            return (await asyncio.to_thread(glance, with_worker_readable(bound), _CWD))[0] == worker.seen
        if self._mounts.all_local():
            return is_unchanged(worker.names)
        return await asyncio.to_thread(is_unchanged, worker.names)

    async def _replace(self, bound: BoundPolicy, stale: _Worker | None = None) -> _Worker:
        """Return a worker with a current plan; concurrent callers share it."""
        async with self._starting:
            worker = self._workers.get(bound)
            if worker is not None and worker is not stale:
                return worker
            if worker is not None:
                self._forget(worker)
            seen, names = await asyncio.to_thread(glance, with_worker_readable(bound), _CWD)
            worker = self._workers[bound] = await self._start(bound, seen, names)
            while len(self._workers) > MAX_WORKERS:
                self._forget(next(iter(self._workers.values())))
            return worker

    async def _start(
        self, bound: BoundPolicy, seen: DiskSnapshot, names: Mapping[str, DiskEntry] | None
    ) -> _Worker:
        plan = plan_for(with_worker_readable(bound), seen)
        held = HeldNames(plan.absent)
        _, confinement = await self._sandboxes.carried_out(needs_of(bound), plan)
        ours, theirs = socket.socketpair()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            started = await self._launcher.start(
                Command((sys.executable, "-I", "-c", _BOOT), sys.executable, _CWD, self._env),
                streams=(theirs.fileno(), null, null),
                on_exit=_ignore_exit,
                confinement=confinement,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(null)
        ours.setblocking(False)
        return _Worker(seen, names, held, started.id, ours, asyncio.Lock())

    def _forget(self, worker: _Worker) -> None:
        for bound, known in list(self._workers.items()):
            if known is worker:
                del self._workers[bound]
                self._end(worker)

    def _end(self, worker: _Worker) -> None:
        self._launcher.signal(worker.launch_id, signal.SIGKILL)
        worker.sock.close()
        worker.held.close()


def _refuse_excess(worker: _Worker, bound: BoundPolicy, ceiling: BoundPolicy) -> None:
    """Refuse a plan above the ceiling: a name may have become a link since it was compared with that."""
    if worker.under is not ceiling:
        if (excess := find_excess(settle(bound, worker.seen), ceiling)) is not None:
            raise OperationFailed(f"what the policy names keeps changing: {excess} is out of bounds")
        worker.under = ceiling


def _ignore_exit(_exit: Exit) -> None:
    """Do nothing: the next call notices that the worker has ended."""


async def exchange(sock: socket.socket, method: str, params: Any) -> tuple[bytes, int | None]:
    """Send one request and return its answer: the result's JSON, and a descriptor if one came.

    Raises:
        HoldfastError: the method failed.
        OSError, EOFError: the worker failed.
    """
    request = _encode((method, msgspec.structs.replace(params, sandbox=None)))
    request = FRAME.pack(REQUEST, len(request)) + request
    data, fds = await _ask(sock, request)
    if len(data) < FRAME.size or len(data) < FRAME.size + FRAME.unpack_from(data)[1]:
        async with asyncio.timeout(CALL_S):
            kind, reply = await _rest(sock, data)
    else:
        kind, reply = data[0], data[FRAME.size :]
    if kind == ERROR:
        name, message = decoding.decode(reply, tuple[str, str])
        raise from_kind(name, message, None)
    return reply, fds[0] if kind == OPENED and fds else None


async def _ask(sock: socket.socket, request: bytes) -> tuple[bytes, list[int]]:
    """Send a request; return the first part of the answer, or all of it."""
    try:
        sent = sock.send(request)
    except BlockingIOError:
        sent = 0
    # Most answers come so soon that sleeping, or even a turn of the event loop, would cost more than polling.
    until = time.perf_counter() + _AT_ONCE_S
    while time.perf_counter() < until:
        try:
            return _first_part(sock)
        except BlockingIOError:
            pass
    if sent < len(request) or not _readable_soon(sock):
        async with asyncio.timeout(CALL_S):
            await asyncio.get_running_loop().sock_sendall(sock, memoryview(request)[sent:])
            await _readable(sock)
    return _first_part(sock)


def _first_part(sock: socket.socket) -> tuple[bytes, list[int]]:
    data, fds = receive_with_fds(sock, FIRST_READ, 1)
    if not data:
        raise EOFError
    return data, fds


def _readable_soon(sock: socket.socket) -> bool:
    answered = select.poll()
    answered.register(sock, select.POLLIN)
    return bool(answered.poll(_SOON_MS))


async def _rest(sock: socket.socket, data: bytes) -> tuple[int, bytes]:
    """Read the rest of the answer that begins with `data`; return its kind and content."""
    if len(data) < FRAME.size:
        data += await _receive(sock, FRAME.size - len(data))
    kind, length = FRAME.unpack_from(data)
    if length > MAX_MESSAGE_BYTES * 2:
        raise EOFError  # our worker does not send this
    return kind, data[FRAME.size :] + await _receive(sock, FRAME.size + length - len(data))


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sock.fileno(), lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(sock.fileno())


async def _receive(sock: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        got = await asyncio.get_running_loop().sock_recv_into(sock, view)
        if not got:
            raise EOFError
        view = view[got:]
    return bytes(data)


def with_worker_readable(bound: BoundPolicy) -> BoundPolicy:
    """Extend the policy for the worker itself, which must be able to read its own program."""
    places: tuple[str, ...]
    if bound.access_at("/") is Access.DENY:
        places = (*PLATFORM_ROOTS, sys.prefix, sys.base_prefix, *_IMPORTS)
    else:  # paths below a denied one, never the denied one itself
        denied = ((path, bound.decide(path)) for path in prerequisites.of_ourselves())
        places = tuple(
            path
            for path, rule in denied
            if rule is not None and rule.access is Access.DENY and not within(rule.path, path)
        )
    own = tuple(BoundRule(path, Access.READ, Rule(At(path), Access.READ)) for path in dict.fromkeys(places))
    return replace(bound, rules=(*bound.rules, *own))


def refuse_early(bound: BoundPolicy, path: PathUri, *, writes: bool) -> None:
    """Refuse what the view alone would permit: the worker's own program, missing protected names.

    Raises:
        NotFound: the path is outside of the policy's view.
        InvalidRequest: the policy denies the path by name.
        OperationFailed: a protected name would be created, or a path that covers a denied one would be
            written.
    """
    if not bound.restricted:
        return
    name = absolute(path.native(), bound.cwd)
    rule = bound.decide(name)
    matched = bound.denied_by_pattern(name) is not None
    if rule is None and not matched:
        raise NotFound("No such file or directory (os error 2)")
    if matched or rule is None or rule.access is Access.DENY:
        itself = (
            bound.denied_by_pattern(parent(name)) is None if matched or rule is None else rule.path == name
        )
        if writes and itself:
            raise OperationFailed(_READ_ONLY)
        raise InvalidRequest("Permission denied (os error 13)")
    if writes and rule.protects is not None:
        raise OperationFailed(_READ_ONLY)
