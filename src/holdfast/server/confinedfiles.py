"""File methods under a policy: one confined, long-lived worker per policy, kept while it fits.

The plan is made anew for every call, because what exists decides it (a `.git` that appeared, a new
match of a deny pattern). A worker whose plan is no longer the right one is replaced.
"""

import asyncio
import functools
import os
import signal
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

import holdfast
from holdfast.errors import HoldfastError, InvalidRequest, NotFound, OperationFailed, UsageError
from holdfast.sandbox import plan as plans
from holdfast.sandbox.policy import PLATFORM_ROOTS, Access, At, Bound, BoundRule, Rule
from holdfast.sandbox.select import select
from holdfast.server.confine import needs_of
from holdfast.server.fsworker import ERROR, FRAME, OPENED, REQUEST, receive, send
from holdfast.server.launch import Command, Confinement, Exit, Launcher
from holdfast.server.quarantine import set_aside
from holdfast.server.sandboxes import Sandboxes, plan_of
from holdfast.wire.files import OpenParams
from holdfast.wire.paths import PathUri
from holdfast.wire.rpc import MAX_MESSAGE_BYTES

MAX_WORKERS: Final = 8  # policies in use at once; the least recently used one's worker ends
CALL_S: Final = 60.0  # a file call that takes longer hangs in a dead mount
_PASSED: Final = ("PATH", "TMPDIR", "TMP", "TEMP")  # all of the environment that a worker sees
_BOOT: Final = "from holdfast.server.fsworker import main; main()"
_CLASSES: Final[dict[int, type[HoldfastError]]] = {
    -32004: NotFound,
    -32600: InvalidRequest,
    -32602: UsageError,
}


_READ_ONLY: Final = OperationFailed("Read-only file system (os error 30)")


def _to_wire(value: object) -> str:
    if isinstance(value, PathUri):
        return value.uri
    raise AssertionError(f"no file method has a member of type {type(value)}")


_encode = msgspec.json.Encoder(enc_hook=_to_wire).encode


@dataclass(slots=True, eq=False)
class _Worker:
    plan: bytes
    launch_id: int
    sock: socket.socket
    lock: threading.Lock


class ConfinedFiles:
    """The workers of one executor."""

    def __init__(self, launcher: Launcher, sandboxes: Sandboxes, environ: Mapping[str, str]) -> None:
        self._launcher = launcher
        self._sandboxes = sandboxes
        self._env = {name: environ[name] for name in _PASSED if name in environ}
        self._workers: OrderedDict[Bound, _Worker] = OrderedDict()
        self._starting = asyncio.Lock()

    async def call(self, bound: Bound, method: str, params: Any) -> msgspec.Raw:
        """Carry out a file method inside the policy's view.

        Raises:
            SandboxUnavailable: the policy can not be enforced here; nothing was done.
            HoldfastError: what the method itself answers.
        """
        worker = await self._worker(bound)
        try:
            reply, _ = await asyncio.to_thread(exchange, worker, method, params)
        except (OSError, EOFError):
            self._forget(worker)
            raise OperationFailed("the confined file worker ended unexpectedly") from None
        if await asyncio.to_thread(set_aside, plans.decode(worker.plan).absent):
            raise _READ_ONLY  # created through another name, and moved aside
        return msgspec.Raw(reply)

    async def opener(self, bound: Bound) -> Callable[[OpenParams], int]:
        """Opens files inside the policy's view; the result is to be called in a thread."""
        return functools.partial(_open, await self._worker(bound))

    def close(self) -> None:
        """End every worker."""
        for worker in self._workers.values():
            self._end(worker)
        self._workers.clear()

    async def _worker(self, bound: Bound) -> _Worker:
        plan, _ = await asyncio.to_thread(plan_of, with_worker_readable(bound), bound.cwd)
        encoded = plans.encode(plan)
        async with self._starting:
            worker = self._workers.get(bound)
            if worker is not None and worker.plan == encoded:
                self._workers.move_to_end(bound)
                return worker
            if worker is not None:
                self._forget(worker)
            worker = await self._start(bound, encoded)
            self._workers[bound] = worker
            while len(self._workers) > MAX_WORKERS:
                self._forget(next(iter(self._workers.values())))
            return worker

    async def _start(self, bound: Bound, plan: bytes) -> _Worker:
        enforcement = select(needs_of(bound), await self._sandboxes.facts())
        ours, theirs = socket.socketpair()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            started = await self._launcher.start(
                Command((sys.executable, "-I", "-c", _BOOT), sys.executable, "/", self._env),
                owner=0,
                streams=(theirs.fileno(), null, null),
                tty=False,
                state=None,
                on_exit=_unnoticed,
                confinement=Confinement(plan, enforcement.user_namespace),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(null)
        ours.settimeout(CALL_S)
        return _Worker(plan, started.id, ours, threading.Lock())

    def _forget(self, worker: _Worker) -> None:
        for bound, known in list(self._workers.items()):
            if known is worker:
                del self._workers[bound]
                self._end(worker)

    def _end(self, worker: _Worker) -> None:
        self._launcher.signal(worker.launch_id, signal.SIGKILL)
        worker.sock.close()


def _open(worker: _Worker, params: OpenParams) -> int:
    """The worker opens, the descriptor comes to us."""
    try:
        _, fd = exchange(worker, "fs/open", params)
    except (OSError, EOFError):
        raise OperationFailed("the confined file worker ended unexpectedly") from None
    if fd is None:
        raise OperationFailed("the confined file worker sent no descriptor")
    return fd


def _unnoticed(_exit: Exit) -> None:
    """A worker that ends is noticed by whoever calls it next."""


def exchange(worker: _Worker, method: str, params: Any) -> tuple[bytes, int | None]:
    """One request and its answer, in a thread: the result's JSON, and a descriptor if one came."""
    request = _encode((method, msgspec.structs.replace(params, sandbox=None)))
    with worker.lock:
        send(worker.sock, REQUEST, request)
        head, fds, _, _ = socket.recv_fds(worker.sock, FRAME.size, 1, socket.MSG_CMSG_CLOEXEC)
        if len(head) < FRAME.size:
            head += receive(worker.sock, FRAME.size - len(head))
        kind, length = FRAME.unpack(head)
        if length > MAX_MESSAGE_BYTES * 2:
            raise EOFError  # not ours any more
        reply = receive(worker.sock, length)
    if kind == ERROR:
        code, message = msgspec.json.decode(reply, type=tuple[int, str])
        raise _CLASSES.get(code, OperationFailed)(message)
    return reply, fds[0] if kind == OPENED and fds else None


def with_worker_readable(bound: Bound) -> Bound:
    """The policy for the worker itself: it must be able to read its own program."""
    if bound.access_at("/") is not Access.DENY:
        return bound
    places = (*PLATFORM_ROOTS, sys.prefix, sys.base_prefix, str(Path(holdfast.__file__).parent.parent))
    own = tuple(BoundRule(path, Access.READ, Rule(At(path), Access.READ)) for path in dict.fromkeys(places))
    return replace(bound, rules=(*bound.rules, *own))


def refuse_early(bound: Bound, paths: Iterable[PathUri], *, writes: bool) -> None:
    """What the view alone would let through: the worker's own program, protected names that do not exist.

    Raises:
        NotFound: a path lies outside of what the policy makes visible.
        OperationFailed: a protected name would be created.
    """
    for path in paths:
        name = path.native()
        if not bound.explain(name, Access.READ).allowed:
            raise NotFound("No such file or directory (os error 2)")
        rule = bound.decide(name)
        if writes and rule is not None and rule.protects is not None:
            raise _READ_ONLY
