"""A dispatcher's surroundings without a process: a store in memory, a supervisor that only pretends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec

from holdfast.agents.evidence.evidence import AskedHost, WorkerState
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.board.rules.rows import NewTask, Task
from holdfast.board.store import Store, open_store
from holdfast.dispatch.context import DispatchContext
from holdfast.dispatch.dispatcher import Dispatcher, DispatchOptions
from holdfast.dispatch.installed import InstalledProfiles
from holdfast.dispatch.rules.dispatcherstatus import DispatcherStatus
from holdfast.errors import InvalidRequest, NotFound
from tests.support.patience import patient

P = ParamSpec("P")
T = TypeVar("T")

HOST: Final = "here"
EPOCH_MS: Final = 1_700_000_000_000


class FakeAsyncStore:
    """As `AsyncStore`, on a store in memory. `fail` is raised by the next questions instead of an answer."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.news = asyncio.Event()
        self.fail: list[Exception] = []

    async def ask(self, question: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(0)
        if self.fail:
            raise self.fail.pop(0)
        return question(self.store, *args, **kwargs)


@dataclass
class Act:
    """What a worker does: after so many seconds, this, and then it ends so. Without seconds it goes on."""

    seconds: float | None = 1.0
    exit_code: int = 0
    said: bytes = b""
    does: Callable[[WorkerSpec], None] = lambda _wish: None
    state: str = "completed"
    failure: str | None = None
    unreturned: str = ""  # of one on another machine: why its work did not come back


@dataclass
class FakeWorker:
    wish: WorkerSpec
    act: Act
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: bool = False
    away: bool = False  # its machine is not reached
    asked: dict[str, AskedHost] = field(default_factory=dict)  # hosts, by their request
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for_news(self) -> None:
        things = [asyncio.ensure_future(event.wait()) for event in (self.ended, self.news)]
        try:
            await asyncio.wait(things, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for thing in things:
                thing.cancel()

    def report(self) -> WorkerReport:
        over = self.ended.is_set()
        if self.away and not over:
            stalled, detail = WorkerState.STALLED, "unreachable"
            return WorkerReport(id=self.wish.id or "", state=stalled, detail=detail, about="no route")
        failed = self.act.state if self.act.failure or self.act.exit_code == 0 else "failed"
        return WorkerReport(
            id=self.wish.id or "",
            state=WorkerState(("failed" if self.stopped else failed) if over else "running"),
            failure=self.act.failure,
            exit_code=self.act.exit_code if over and not self.stopped else None,
            host=self.wish.host if self.act.unreturned else None,
            unreturned=self.act.unreturned or None,
            asked_hosts=list(self.asked.values()),
        )


class FakeSupervisor:
    """As `SupervisorClient`. `cast` says what each worker will do; `started` and `stopped` name them."""

    def __init__(self, cast: Callable[[WorkerSpec], Act]) -> None:
        self.cast = cast
        self.workers: dict[str, FakeWorker] = {}
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.fail: list[Exception] = []  # of the next starts
        self.answered: list[tuple[str, str]] = []  # requests about hosts, with what was said
        self.fail_answers: list[Exception] = []  # of the next of those
        self._playing: set[asyncio.Task[None]] = set()

    def running(self) -> list[str]:
        return [name for name, worker in self.workers.items() if not worker.ended.is_set()]

    async def find(self, worker: str) -> WorkerReport | None:
        found = self.workers.get(worker)
        return None if found is None else found.report()

    async def start(self, wish: WorkerSpec) -> WorkerReport:
        if self.fail:
            raise self.fail.pop(0)
        name = wish.id or ""
        made = self.workers[name] = FakeWorker(wish, self.cast(wish))
        self.started.append(name)
        task = asyncio.get_running_loop().create_task(self._play(made))
        self._playing.add(task)
        task.add_done_callback(self._playing.discard)
        return made.report()

    async def _play(self, worker: FakeWorker) -> None:
        if worker.act.seconds is None:
            return
        await asyncio.sleep(worker.act.seconds)
        while worker.away:  # nobody hears of its end
            await asyncio.sleep(1.0)
        if not worker.ended.is_set():
            worker.act.does(worker.wish)
            worker.ended.set()

    async def wait_ended(
        self, worker: str, seen: Callable[[WorkerReport], Awaitable[None]] | None = None
    ) -> WorkerReport:
        while True:
            if (found := self.workers.get(worker)) is None:
                raise NotFound(f"there is no worker {worker}")
            found.news.clear()
            if found.ended.is_set():
                return found.report()
            if seen is not None:
                await seen(found.report())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patient(5.0)):
                    await found.wait_for_news()

    def look_again(self, worker: str) -> None:
        if worker in self.workers:
            self.workers[worker].news.set()

    def ask_host(self, worker: str, request: str, host: str, **more: Any) -> None:
        """Its connection waits from now on."""
        about = AskedHost(request=request, host=host, port=443, program="/usr/bin/curl", **more)
        self.workers[worker].asked[request] = about
        self.look_again(worker)

    def tell_host(self, worker: str, request: str, told: str) -> None:
        """What became of that."""
        asked = self.workers[worker].asked
        asked[request] = msgspec.structs.replace(asked[request], told=told)
        self.look_again(worker)

    async def answer_host(self, worker: str, request: str, option: str) -> None:
        if self.fail_answers:
            raise self.fail_answers.pop(0)
        if self.workers[worker].asked[request].told:
            raise InvalidRequest("nobody waits for that any more")
        self.answered.append((request, option))
        self.tell_host(worker, request, "refused" if option == "no" else "allowed")

    async def stop(self, worker: str, *, grace_s: float) -> WorkerReport:
        found = self.workers[worker]
        if not found.report().state.ended:
            self.stopped.append(worker)
            found.stopped = True
            found.ended.set()
        return found.report()

    async def output(self, worker: str, most: int) -> bytes:
        return self.workers[worker].act.said[-most:]


class Scene:
    """A board `b`, a dispatcher for it, and workers that do as `cast` says; on a loop that jumps."""

    def __init__(self, home: Path, cast: Callable[[WorkerSpec], Act] = lambda _wish: Act()) -> None:
        self.loop = asyncio.get_running_loop()
        self.home = home
        self.begun = self.loop.time()
        self.jumped_ms = 0
        self.store = open_store(":memory:", clock=self.now_ms, steady=self.steady_ms)
        self.store.create_board("b")
        self.async_store, self.supervisor = FakeAsyncStore(self.store), FakeSupervisor(cast)
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
        self.told: list[tuple[str, str]] = []
        self.context = DispatchContext(
            home,
            ":memory:",
            HOST,
            self.async_store,  # type: ignore[arg-type]  # stands in for it
            self.supervisor,  # type: ignore[arg-type]  # likewise
            InstalledProfiles(home, environ),
            ("holdfast",),
            b"k" * 32,
            environ,
            DispatcherStatus(HOST, 1, ("b",), 0.0),
            clock=self.loop.time,
            wall_clock=self.loop.time,
        )

    def now_ms(self) -> int:
        """The store's clock; set `jumped_ms` to have somebody set it."""
        return EPOCH_MS + self.steady_ms() + self.jumped_ms

    def steady_ms(self) -> int:
        return round((self.loop.time() - self.begun) * 1000)

    def create(self, body: str = "true", **wishes: Any) -> Task:
        task = self.store.create(
            "b", NewTask(**{"title": "do it", "body": body, "assignee": "script", **wishes})
        )
        self.async_store.news.set()
        return task

    def task(self, task: Task) -> Task:
        return self.store.task(task.id)

    async def dispatch(self, **wishes: Any) -> None:
        """To its end."""
        dispatcher = Dispatcher(
            self.context,
            DispatchOptions(("b",), **wishes),
            lambda kind, run: self.told.append((kind, run.task_id)),
            asyncio.Event(),
        )
        await dispatcher.serve()

    async def until(self, met: Callable[[], object], within_s: float = 3600.0) -> None:
        """In the time of the loop."""
        async with asyncio.timeout(within_s):
            while not met():
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def dispatching(scene: Scene, **wishes: object) -> AsyncIterator[None]:
    """A dispatcher for as long as the block lasts."""
    serving = asyncio.get_running_loop().create_task(scene.dispatch(**wishes))
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
