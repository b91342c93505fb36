"""A dispatcher put together: one for each home, with socket, store, supervisor and launchers."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from holdfast.agents.book import Book
from holdfast.board import assign, budget
from holdfast.board.assign import Assignment
from holdfast.board.lists import MAX_PAGE
from holdfast.board.rows import Run
from holdfast.board.store import Store, open_store
from holdfast.board.transitions import Status
from holdfast.dispatch import launchers
from holdfast.dispatch.desk import Desk
from holdfast.dispatch.dispatcher import Dispatcher, Plan
from holdfast.dispatch.fleet import Fleet
from holdfast.dispatch.house import SOCKET, House
from holdfast.dispatch.launchers import Launcher
from holdfast.errors import Conflict, StartupError
from holdfast.handoff import key
from holdfast.handoff.service import Service

COMMAND = (sys.executable, "-m", "holdfast")


def host_name(home: Path) -> str:
    """One name for each home of each machine, since a run belongs to the dispatcher of one home."""
    return f"{socket.gethostname()}-{hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:8]}"


@contextlib.contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Raises Conflict when this home has a dispatcher."""
    fd = os.open(home / "dispatcher.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"there is a dispatcher for {home}", remedy="give another one another --home"
            ) from None
        yield
    finally:
        os.close(fd)


def installed(home: Path, environ: Mapping[str, str]) -> dict[str, Launcher]:
    """The launchers whose program is there.

    Raises:
        UsageError: HOME/launchers.toml is wrong.
        StartupError: it cannot be read.
    """
    place, text = home / "launchers.toml", None
    try:
        with contextlib.suppress(FileNotFoundError):
            text = place.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise StartupError(f"cannot read {place}") from None
    search = environ.get("PATH", os.defpath)
    known = launchers.known(text, source=str(place))
    return {name: one for name, one in known.items() if shutil.which(one.binary, path=search)}


async def serve(
    home: Path,
    address: str,
    plan: Plan,
    *,
    told: Callable[[str, Run], None] = lambda _kind, _run: None,
    environ: Mapping[str, str] = os.environ,
    host: str | None = None,
) -> None:
    """Dispatch for some boards, as the plan says.

    Raises:
        Conflict: this home has a dispatcher.
        NotFound: there is no such board or store.
        HoldfastError: something that it needs does not start.
    """
    Book(home).prepare()
    with only_one(home):
        found = installed(home, environ)
        secret = key.load(home)
        async with contextlib.AsyncExitStack() as opened:
            desk = await opened.enter_async_context(Desk.open(address))
            for board in plan.boards:
                await desk.ask(lambda store, board=board: store.stats(board))  # type: ignore[misc]  # is it there?
            service = Service(lambda: open_store(address, create=False), secret)
            await opened.enter_async_context(service.listening(home / SOCKET))
            fleet = await opened.enter_async_context(Fleet.open(home))
            name = host or host_name(home)
            house = House(home, address, name, desk, fleet, found, COMMAND, secret, environ)
            await Dispatcher(house, plan, told).serve()


def foreseen(store: Store, board: str, host: str, profiles: frozenset[str]) -> Assignment:
    """What a round would claim now, and why every other ready task waits; of the newest tasks."""
    capacity, busy = store.capacity(board)
    ready = store.page(board, status=Status.READY, limit=MAX_PAGE).tasks
    spent = store.spent(ready)
    free = [task for task in ready if task.id not in spent]
    found = assign.assign(free, hosts={host: profiles}, capacity=capacity, busy=busy, now_ms=store.now_ms())
    waiting = {task: budget.question(words) for task, words in spent.items()}
    return Assignment(found.claims, {**found.waiting, **waiting})
