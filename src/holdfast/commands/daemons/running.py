"""The single process of `holdfast up`, from its start to the end of everything that it started.

`start_detached` starts such a process in the background, and returns once all parts are ready.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from holdfast.agents.supervisor import background, daemons
from holdfast.agents.worker.book import WorkerRecords, read_failure
from holdfast.board.store import open_store
from holdfast.commands.daemons.web import dashboard
from holdfast.commands.output import Answer
from holdfast.dispatch import demo as example
from holdfast.dispatch import dispatcher, homefiles, hostload
from holdfast.dispatch.context import worker_of
from holdfast.dispatch.dispatcher import DispatchOptions
from holdfast.dispatch.installed import find_installed
from holdfast.dispatch.rules import pressure
from holdfast.errors import Conflict, OperationFailed, StartupError
from holdfast.local.shown import count
from holdfast.sandbox.plan import prerequisites
from holdfast.server.edges.address import parse
from holdfast.server.edges.binding import ServeOptions as ServerOptions
from holdfast.server.edges.listen import Server
from holdfast.server.executor import Executor

if TYPE_CHECKING:
    from holdfast.board.rules.rows import Run
    from holdfast.dispatch.rules.pressure import HostLimits

Job: TypeAlias = "asyncio.Future[None]"

NOTIFY: Final = "NOTIFY_SOCKET"  # where systemd, or `up --detach`, is notified when all parts are ready
AGAIN: Final = "holdfast status"
READY_S: Final = 60.0  # to start four interpreters, on a machine that is busy with agents
LOOK_S: Final = 0.1  # between checks whether it has ended instead
LOG: Final = "up.log"
LOG_TAIL_BYTES: Final = 2000
_NO_DASHBOARD: Final = "dashboard    none:"


class Print(Protocol):
    """Prints one event: as lines for people, as members for programs."""

    def __call__(self, kind: str, text: list[str], **members: object) -> None: ...


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What to run."""

    home: Path
    address: str  # of the store
    board: str
    listen: str | None  # address of an exec server for clients such as codex; None: no such server
    most: int | None
    limits: "HostLimits"
    web_port: int | None  # None: the default, or else a free one
    with_web: bool
    demo: bool


def conflict(home: Path) -> Conflict | None:
    """Why nothing can be started here, and where the running instance is; None if a start is possible."""
    found = daemons.find(home)
    there = next((one for one in found if one.role in (daemons.UP, daemons.DISPATCHER)), None)
    if there is None:
        return None
    shown = [one.card.address for one in found if one.role == daemons.DASHBOARD and one.card is not None]
    where = f"; its dashboard is {shown[0]}" if shown else ""
    name = "up" if there.role == daemons.UP else "dispatch"
    differs, card = background.difference(there), there.card
    code = f"; it runs other code than this command: {differs}" if differs else ""
    if card is not None and not differs:
        code = f", version {card.origin.version} of {card.origin.place}"
    return Conflict(
        f"`holdfast {name}` runs for {home} already, pid {there.process.pid}{code}{where}", remedy=AGAIN
    )


async def run(wanted: UpOptions, print_: Print) -> None:
    """Run until a signal comes or a part fails; then end everything that was started.

    Raises:
        Conflict: it runs already; nothing was changed.
        HoldfastError: a part does not start.
    """
    WorkerRecords(wanted.home).prepare()
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(homefiles.only_one_up(wanted.home))
        except Conflict as exc:
            raise conflict(wanted.home) or exc from None
        await _Running(wanted, print_, stack).run()


class _Running:
    def __init__(self, wanted: UpOptions, print_: Print, stack: contextlib.AsyncExitStack) -> None:
        self._wanted = wanted
        self._print = print_
        self._stack = stack
        self._leaving, self._hasten = asyncio.Event(), asyncio.Event()
        self._serving, self._shown = asyncio.Event(), asyncio.Event()
        self._runs: dict[str, str] = {}  # active runs, and their workers
        self._mine: set[str] = set()  # the workers of all runs; ids of setups and checks begin with these
        self._ended = 0
        self._exec_job: Job | None = None
        self._starter = os.environ.pop(NOTIFY, "")  # removed, so that no child process notifies the starter

    async def run(self) -> None:
        wanted = self._wanted
        ids = self._prepare()
        boards = (wanted.board, *((example.BOARD,) if wanted.demo and wanted.board != example.BOARD else ()))
        most = wanted.most or pressure.most_here(hostload.look())
        plan = DispatchOptions(boards, most, held=hostload.watch_load(wanted.limits), leaving=self._leaving)
        server = None if wanted.listen is None else Server(ServerOptions(parse(wanted.listen)), Executor())
        with self._signals():
            self._introduce()
            dispatching = dispatcher.serve(wanted.home, wanted.address, plan, told=self._on_run)
            jobs: list[Job] = [asyncio.ensure_future(dispatching)]
            aside: list[Job] = [
                asyncio.ensure_future(self._say_ready(plan.began)),
                asyncio.ensure_future(self._show_demo(ids)),
            ]
            try:
                jobs += self._dashboard()
                jobs += self._exec_server(server)
                aside.append(asyncio.ensure_future(_wait_for(self._leaving)))
                await asyncio.wait([*jobs, aside[-1]], return_when=asyncio.FIRST_COMPLETED)
                done = [job for job in jobs if job.done()]
            finally:
                await self._leave(server, jobs, aside)
        for job in done:
            job.result()

    def _prepare(self) -> list[str]:
        """Create the board; with --demo return the ids of its tasks."""
        wanted = self._wanted
        with open_store(wanted.address) as store:
            if wanted.board not in {one.slug for one in store.boards()}:
                with contextlib.suppress(Conflict):  # another process created it meanwhile
                    store.create_board(wanted.board)
            return example.create_tasks(store, dispatcher.COMMAND) if wanted.demo else []

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """The first signal ends everything, the second hastens that; a closed terminal counts as a signal."""
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            (self._hasten if self._leaving.is_set() else self._leaving).set()

        heard = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            heard.append(signal.SIGHUP)
        for signum in heard:
            loop.add_signal_handler(signum, on_signal)
        try:
            yield
        finally:
            for signum in heard:
                loop.remove_signal_handler(signum)

    # --- output

    def _introduce(self) -> None:
        wanted = self._wanted
        profiles = sorted(find_installed(wanted.home, os.environ))
        created = (
            f"holdfast task create 'Say hello' --board {wanted.board} --assignee script --body 'echo hello'"
        )
        self._print(
            "board",
            [
                f"board        {wanted.board} in {wanted.address}",
                f"  try: {created}",
                f"workers for  {', '.join(profiles)}",
            ],
            board=wanted.board,
            store=wanted.address,
            profiles=profiles,
        )

    def _on_run(self, kind: str, run: "Run") -> None:
        if kind == "began":
            self._runs[run.id] = worker_of(run.id)
            self._mine.add(worker_of(run.id))
        elif self._runs.pop(run.id, None) is not None and self._leaving.is_set():
            self._ended += 1
        line = {"run": run.id, "task": run.task_id, "board": run.board, "profile": run.profile}
        self._print(kind, [f"{kind} {run.task_id} {run.id} {run.profile}"], **line)

    def _exec_server(self, server: Server | None) -> list[Job]:
        if server is None:
            self._serving.set()
            return []
        self._exec_job = asyncio.ensure_future(server.serve(self._announce))
        return [self._exec_job]

    def _announce(self, url: str) -> None:
        self._stack.enter_context(daemons.registered(self._wanted.home, daemons.EXEC, url))
        hint = f"  try: CODEX_EXEC_SERVER_URL={url} codex"
        self._print("serving", [f"exec server  {url}", hint], address=url)
        self._serving.set()

    def _dashboard(self) -> list[Job]:
        wanted = self._wanted
        if not wanted.with_web:
            self._shown.set()
            return []

        def note(words: str) -> None:
            self._print("web_port", [f"dashboard    {words}"], reason=words)

        def opened(url: str) -> None:
            text = [f"dashboard    {url}", "  try: holdfast open"]
            self._print("web", text, address=url)
            self._shown.set()

        try:
            serving = dashboard(
                wanted.address, wanted.home, opened, note=note, first=wanted.board, port=wanted.web_port
            )
        except StartupError as exc:
            self._print("web", [f"{_NO_DASHBOARD} {exc}; {exc.remedy}"], address=None)
            self._shown.set()
            return []
        return [asyncio.ensure_future(serving)]

    async def _say_ready(self, began: asyncio.Event) -> None:
        for event in (self._serving, self._shown, began):
            await event.wait()
        self._print("ready", ["Ctrl-C ends all of this, and its workers."], pid=os.getpid())
        notify(self._starter, "READY=1")

    async def _show_demo(self, ids: list[str]) -> None:
        """Print the outcome of the example, if there is one."""
        if ids:
            said = await example.wait_for_outcome(self._wanted.address, ids)
            self._print("demo", ["", *said, "", "Ctrl-C ends this."], tasks=ids)

    # --- the end

    async def _leave(self, server: Server | None, jobs: list[Job], aside: list[Job]) -> None:
        """Give the runs back to their board, end everything that was started, and report it."""
        self._leaving.set()
        if self._runs:
            words = f"ending {count(len(self._runs), 'worker')}; Ctrl-C again hastens"
            self._print("leaving", [words], workers=sorted(self._runs.values()))
        dispatching, hurry = jobs[0], asyncio.ensure_future(_wait_for(self._hasten))
        await asyncio.wait(
            [dispatching, hurry], timeout=background.LEAVE_S, return_when=asyncio.FIRST_COMPLETED
        )
        hurry.cancel()
        if server is not None:
            server.stop()
        for job in (*jobs, *aside):
            if job is not self._exec_job:  # it ends its commands first, and then itself
                job.cancel()
        await asyncio.gather(*jobs, *aside, hurry, return_exceptions=True)
        alive = daemons.list_living_workers(self._wanted.home)
        if cut := [id for id in alive if self._is_mine(id)]:
            await background.stop_workers(self._wanted.home, cut, grace_s=0.0)
        await self._end_background(self._ended + len(self._runs))

    def _is_mine(self, worker: str) -> bool:
        return any(worker == mine or worker.startswith(f"{mine}-") for mine in self._mine)

    async def _end_background(self, ended: int) -> None:
        others = [id for id in daemons.list_living_workers(self._wanted.home) if not self._is_mine(id)]
        if others:
            why = count(len(others), "other worker does", "other workers do")
            words = f"left running, because {why}: {', '.join(others)}"
            text = [words, "  to end them: holdfast down --workers"]
        else:
            await background.end_background(self._wanted.home, self._hasten)
            text = ["nothing is left running"]
        if ended:
            text.insert(
                0, f"ended {count(ended, 'worker')}; the next `holdfast up` takes their tasks on again"
            )
        self._print("left", text, ended=ended, left=others)


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


def notify(address: str, state: str) -> None:
    """Notify the process that started this one, if it asked for that (as sd_notify(3) does)."""
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        sock.send(state.encode())


def guard_output(print_: Callable[..., None]) -> Print:
    """Ignore a closed terminal, so that we still end what we started."""

    def print_safely(kind: str, text: list[str], **members: object) -> None:
        with contextlib.suppress(OSError):
            print_(kind, text, **members)

    return print_safely


# --- in the background


def start_detached(home: Path, typed: Sequence[str]) -> Answer:
    """Raises Conflict if it runs already, OperationFailed with the end of its log if it does not start."""
    WorkerRecords(home).prepare()
    if (running := conflict(home)) is not None:
        raise running
    argv = [*prerequisites.command(), "up", "--home", str(home), *typed]
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready,
    ):
        ready.bind(f"{folder}/ready")
        ready.settimeout(LOOK_S)
        process = _spawn(argv, home / LOG, f"{folder}/ready")
        _wait_until_ready(process, ready, home / LOG)
    shown = [
        one.card.address for one in daemons.find_by_role(home, daemons.DASHBOARD) if one.card is not None
    ]
    text = [f"holdfast runs in the background, pid {process.pid}; its log is {home / LOG}"]
    text += [line for address in shown for line in (f"dashboard    {address}", "  try: holdfast open")]
    if not shown and "--no-web" not in typed:
        said = (home / LOG).read_text("utf-8", "replace").splitlines()
        text += [line for line in said if line.startswith(_NO_DASHBOARD)]
    text.append("to end it: holdfast down")
    return {"kind": "detached", "pid": process.pid, "dashboard": shown, "log": str(home / LOG), "text": text}


def _spawn(argv: Sequence[str], log: Path, ready: str) -> "subprocess.Popen[bytes]":
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603 - our own interpreter, our own arguments
            argv,
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            env={**os.environ, NOTIFY: ready},
        )
    finally:
        os.close(fd)


def _wait_until_ready(process: "subprocess.Popen[bytes]", ready: socket.socket, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError):
            if b"READY=1" in ready.recv(4096).splitlines():
                return
        if process.poll() is not None:
            said, remedy = read_failure(log, LOG_TAIL_BYTES)
            raise OperationFailed(
                f"`holdfast up` does not start: {said or process.returncode}", remedy=remedy
            )
    process.terminate()
    raise OperationFailed(f"`holdfast up` is not ready within {READY_S:g} s", remedy=f"see {log}")
