"""The client without `await`, for scripts and notebooks.

    with holdfast.sync.connect("ws://127.0.0.1:8765") as env:
        print(env.run(["make", "test"]).code)

Everything is as in `holdfast.client`, but blocks. Every environment has its own thread with an event loop, so
it does not matter whether the caller's thread has one running. Ctrl-C in a call cancels it, ends the process
that the call concerned, and raises `KeyboardInterrupt`.
"""

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from holdfast.client import environment, files, http, process
from holdfast.client.environment import CONNECT_S, INITIALIZE_S
from holdfast.client.events.ordering import Event
from holdfast.client.http import ResponseHead
from holdfast.client.policy import Policy
from holdfast.errors import SessionLost, UsageError
from holdfast.wire.environment import EnvironmentInfo
from holdfast.wire.paths import RemotePath
from holdfast.wire.processes import EnforcementReport

INTERRUPT_S: Final = 5.0  # for the work that Ctrl-C cancelled to end; a second Ctrl-C does not wait

A = TypeVar("A")
B = TypeVar("B")
F = TypeVar("F")
T = TypeVar("T")
P = ParamSpec("P")


class Portal:
    """A thread with an event loop that runs coroutines for other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # work is begun before the loop is stopped
        running: Future[asyncio.AbstractEventLoop] = Future()
        # A daemon thread, so that a script that did not close its environment can end.
        self._thread = threading.Thread(target=_run_loop, args=(running,), name="holdfast.sync", daemon=True)
        self._thread.start()
        self._loop: asyncio.AbstractEventLoop | None = running.result()

    @property
    def closed(self) -> bool:
        return self._loop is None

    def stop(self) -> None:
        """Cancel the running work, and wait until it has ended."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
        self._thread.join()

    def call(
        self, work: Coroutine[Any, Any, T], interrupted: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> T:
        """Run the coroutine; return or raise its outcome. After Ctrl-C, `interrupted` is run as well.

        Raises:
            UsageError: the environment is closed, or this is called from its own thread.
        """
        begun = _Begun(work)
        try:
            self._begin(begun)
            return begun.outcome.result()
        except KeyboardInterrupt:
            self._cancel(begun)
            if interrupted is not None:
                self._clean_up(interrupted())
            raise

    def _begin(self, begun: "_Begun[T]") -> None:
        with self._lock:
            if self._loop is None or threading.current_thread() is self._thread:
                begun.work.close()
                raise UsageError(
                    "there is no running event loop to wait in",
                    remedy="connect again, or use `await` in asynchronous code",
                )
            self._loop.call_soon_threadsafe(begun.begin)

    def _cancel(self, begun: "_Begun[T]") -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(begun.cancel)
        with contextlib.suppress(Exception):
            begun.outcome.result(INTERRUPT_S)

    def _clean_up(self, work: Coroutine[Any, Any, None]) -> None:
        begun = _Begun(work)
        with contextlib.suppress(Exception):  # the caller must see the interrupt
            self._begin(begun)
            begun.outcome.result(INTERRUPT_S)


class _Begun(Generic[T]):
    """One coroutine that runs on the loop."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.work = work
        self.outcome: Future[T] = Future()
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self.work)
        self._task.add_done_callback(self._settle)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self.work.close()
            self.outcome.cancel()

    def _settle(self, task: "asyncio.Task[T]") -> None:
        if task.cancelled():
            self.outcome.set_exception(SessionLost("the environment was closed meanwhile"))
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


def _run_loop(running: "Future[asyncio.AbstractEventLoop]") -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.call_soon(running.set_result, loop)
        loop.run_forever()


class _Facade(Generic[A]):
    """An asynchronous object, and the thread on which it lives."""

    def __init__(self, portal: Portal, inner: A) -> None:
        self._portal = portal
        self._inner = inner

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._portal.call(work)

    def _iterate(self, make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Create the iterator at once, in the loop.

        If the iteration is abandoned, its finalizer ends it there.
        """
        source = self._call(_make(make))

        def items() -> Iterator[T]:
            while (item := self._call(_step(source))) is not None:
                yield item[0]

        return items()


async def _make(make: Callable[[], T]) -> T:
    return make()


async def _step(source: AsyncIterator[T]) -> tuple[T] | None:
    try:
        return (await anext(source),)
    except StopAsyncIteration:
        return None


def _wrap(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Facade[A], P], T]:
    """The method of the same name, blocking."""

    @functools.wraps(method)
    def call(self: _Facade[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(method(self._inner, *args, **kwargs))

    return call


def _wrap_maker(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, B]], facade: Callable[[Portal, B], F]
) -> Callable[Concatenate[_Facade[A], P], F]:
    """The method of the same name, blocking, whose result is wrapped in a blocking facade too."""

    @functools.wraps(method)
    def call(self: _Facade[A], /, *args: P.args, **kwargs: P.kwargs) -> F:
        return facade(self._portal, self._call(method(self._inner, *args, **kwargs)))

    return call


class Process(_Facade[process.Process]):
    """A process. Ctrl-C while waiting for it, reading or writing ends it."""

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._portal.call(work, self._inner.terminate)

    @property
    def sandbox_type(self) -> str | None:
        return self._inner.sandbox_type

    @property
    def enforcement(self) -> EnforcementReport | None:
        return self._inner.enforcement

    def __iter__(self) -> Iterator[Event]:
        return self._iterate(lambda: aiter(self._inner))

    @property
    def stdout(self) -> Iterator[bytes]:
        return self._iterate(lambda: self._inner.stdout)

    @property
    def stderr(self) -> Iterator[bytes]:
        return self._iterate(lambda: self._inner.stderr)

    wait = _wrap(process.Process.wait)
    write = _wrap(process.Process.write)
    close_stdin = _wrap(process.Process.close_stdin)
    signal = _wrap(process.Process.signal)
    resize = _wrap(process.Process.resize)
    terminate = _wrap(process.Process.terminate)


class Watch(_Facade[files.Watch]):
    """A one-shot watch."""

    @property
    def fired(self) -> bool:
        return self._inner.fired

    def changed(self, *, timeout_s: float | None = None) -> None:
        """Wait until it has fired.

        Raises:
            TimeoutError: it has not fired in this time.
        """
        self._call(self._changed(timeout_s))

    async def _changed(self, timeout_s: float | None) -> None:
        async with asyncio.timeout(timeout_s):
            await self._inner.changed()


class Files(_Facade[files.Files]):
    """The other machine's files."""

    read = _wrap(files.Files.read)
    read_text = _wrap(files.Files.read_text)
    write = _wrap(files.Files.write)
    stat = _wrap(files.Files.stat)
    exists = _wrap(files.Files.exists)
    list = _wrap(files.Files.list)
    walk = _wrap(files.Files.walk)
    canonical = _wrap(files.Files.canonical)
    make_directory = _wrap(files.Files.make_directory)
    copy = _wrap(files.Files.copy)
    remove = _wrap(files.Files.remove)
    watch = _wrap_maker(files.Files.watch, Watch)

    def open_blocks(self, path: RemotePath, *, policy: Policy | None = None) -> Iterator[bytes]:
        return self._iterate(lambda: self._inner.open_blocks(path, policy=policy))

    def write_blocks(
        self, path: RemotePath, blocks: Iterable[bytes], *, policy: Policy | None = None
    ) -> None:
        """Like the asynchronous method.

        `blocks` is iterated in another thread, and may use this environment itself.
        """
        self._call(self._inner.write_blocks(path, _iterate_in_thread(blocks), policy=policy))


async def _iterate_in_thread(blocks: Iterable[bytes]) -> AsyncIterator[bytes]:
    source = iter(blocks)
    while (block := await asyncio.to_thread(next, source, None)) is not None:
        yield block


@dataclass(frozen=True, slots=True)
class StreamedResponse(ResponseHead):
    """A response whose body is still coming: iterate over it, once."""

    _pieces: Iterator[bytes] = field(repr=False)

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces


def _wrap_stream(
    method: Callable[Concatenate[http.Http, P], AbstractAsyncContextManager[http.StreamedResponse]],
) -> Callable[Concatenate["Http", P], contextlib.AbstractContextManager[StreamedResponse]]:
    @functools.wraps(method)
    @contextlib.contextmanager
    def stream(self: "Http", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[StreamedResponse]:
        block = method(self._inner, *args, **kwargs)
        response = self._call(block.__aenter__())
        try:
            yield StreamedResponse(response.status, response.headers, self._iterate(lambda: aiter(response)))
        finally:
            self._call(block.__aexit__(None, None, None))

    return stream


class Http(_Facade[http.Http]):
    """HTTP requests made from the other machine."""

    request = _wrap(http.Http.request)
    stream = _wrap_stream(http.Http.stream)


class Environment(_Facade[environment.Environment]):
    """A session with a server, created by `connect`. Use it in `with`, or `close` it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process that still runs here, the session and its thread; idempotent."""
        if self._portal.closed:
            return
        try:
            self._call(self._inner.aclose())
        finally:
            self._portal.stop()

    @property
    def info(self) -> EnvironmentInfo:
        return self._inner.info

    @functools.cached_property
    def files(self) -> Files:
        return Files(self._portal, self._call(_make(lambda: self._inner.files)))

    @functools.cached_property
    def http(self) -> Http:
        return Http(self._portal, self._call(_make(lambda: self._inner.http)))

    status = _wrap(environment.Environment.status)
    run = _wrap(environment.Environment.run)
    start = _wrap_maker(environment.Environment.start, Process)


def connect(
    address: str | Sequence[str],
    *,
    token: str | None = None,
    connect_timeout_s: float = CONNECT_S,
    initialize_timeout_s: float = INITIALIZE_S,
) -> Environment:
    """Connect now; see `holdfast.connect` for the addresses and what it raises."""
    portal = Portal()
    opening = environment.Environment.open(
        address,
        token=token,
        connect_timeout_s=connect_timeout_s,
        initialize_timeout_s=initialize_timeout_s,
    )
    try:
        return Environment(portal, portal.call(opening))
    except BaseException:
        portal.stop()
        raise
