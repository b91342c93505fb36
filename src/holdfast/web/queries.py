"""The dashboard's queries of a store, each one call. Nothing here changes anything."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from holdfast.board.asyncstore import AsyncStore
from holdfast.board.rules import transitions
from holdfast.board.rules.rows import Board, JsonObject, Run, Task, describe_asked
from holdfast.board.rules.transitions import Actor, TaskStatus
from holdfast.board.store import Store
from holdfast.dispatch import runview
from holdfast.errors import NotFound
from holdfast.web import cards
from holdfast.web.cards import CardFilter, TaskCard

MAX_SHOWN: Final = 256 * 1024  # bytes of an output or a diff on the page; the rest can be saved as a file
MAX_LIVE: Final = 64 * 1024  # bytes of a live worker's output, from the end: the page asks every second


def board(store: Store, name: str) -> Board:
    """The board of this name. Raises NotFound."""
    for one in store.boards():
        if one.slug == name:
            return one
    raise NotFound(f"there is no board {name[:80]}", remedy="holdfast board list")


def board_status(store: Store, name: str) -> JsonObject:
    """A board, how many tasks are in each of its columns, and where its work is done."""
    return {
        "board": board(store, name),
        "counts": store.counts(name),
        "asking": len(store.asking_tasks(name)),
        "places": store.places(name),
        "now_ms": store.now_ms(),
    }


def page(store: Store, board: str, asked: CardFilter, who: str) -> JsonObject:
    """A part of a column, the newest tasks first."""
    found = store.page(
        board,
        status=asked.status,
        assignee=asked.assignee,
        search=asked.search,
        limit=asked.limit,
        cursor=asked.cursor,
    )
    shown = _select(store, board, found.tasks, asked, who)
    return {"cards": _cards(store, board, shown), "cursor": found.cursor, "now_ms": store.now_ms()}


def list_some(store: Store, board: str, ids: Iterable[str], asked: CardFilter, who: str) -> JsonObject:
    """The cards of those of these tasks that are on the board and pass the filter, in no particular order."""
    found = []
    for id in ids:
        try:
            task = store.task(id)
        except NotFound:
            continue
        if task.board == board:
            found.append(task)
    shown = _select(store, board, found, asked, who)
    return {"cards": _cards(store, board, shown), "now_ms": store.now_ms()}


def _select(store: Store, board: str, found: list[Task], asked: CardFilter, who: str) -> list[Task]:
    """The tasks that pass the filter. With `mine`, a running task passes only if it asks about a host."""
    running = asked.mine and any(task.status is TaskStatus.RUNNING for task in found)
    asking = store.asking_tasks(board) if running else {}
    return [
        task
        for task in found
        if cards.matches(task, asked, who)
        and not (running and task.status is TaskStatus.RUNNING and task.id not in asking)
    ]


def detail(store: Store, id: str) -> JsonObject:
    """A task with all that belongs to it, the possible moves, and its neighbours by name."""
    shown = store.show(id)
    near = {link.parent for link in shown.parents} | {link.child for link in shown.children}
    tasks = {one: store.task(one) for one in near}
    names: JsonObject = {one: {"title": task.title, "status": task.status} for one, task in tasks.items()}
    return {
        **msgspec.to_builtins(shown),
        "kept": {run.id: store.kept_files(run.id) for run in shown.runs},
        "names": names,
        "why": store.why(id).reason,
        "moves": sorted(transitions.moves(shown.task.status, Actor.PERSON)),
        "now_ms": store.now_ms(),
    }


def _cards(store: Store, board: str, found: list[Task]) -> list[TaskCard]:
    reasons = store.reasons(board, found) if found else {}
    runs = {task.id: store.run(task.run_id) for task in found if task.run_id is not None}
    failed = (task.id for task in found if task.status is TaskStatus.FAILED)
    errors = {id: last[0].error or "" for id in failed if (last := store.runs(id)[-1:])}
    asked = {id: describe_asked(open_) for id, open_ in store.asking_tasks(board).items()} if runs else {}
    return [
        cards.card(
            *(task, reasons.get(task.id, ""), runs.get(task.id)),
            error=errors.get(task.id, ""),
            asked=asked.get(task.id, ""),
        )
        for task in found
    ]


async def run_output(store: AsyncStore, home: Path, id: str, run: str | None, mark: str) -> JsonObject:
    """The end of a run's output; without content if the page has it already, by its mark.

    Raises:
        NotFound: there is no output here.
    """
    found, data = await store.ask(_read_kept, id, run, "output")
    live = data is None
    if data is None:
        data = await runview.live_output(home, found, MAX_LIVE)
    if data is None:
        raise NotFound(f"no output of {found.id} is kept, and none of a worker is here")
    now = hashlib.sha256(data).hexdigest()[:16]
    answer: JsonObject = {"run": found.id, "live": live, "mark": now, "size": len(data)}
    if now == mark:
        return answer
    return answer | {"content": data[-MAX_SHOWN:].decode("utf-8", "replace")}


async def run_diff(store: AsyncStore, id: str, run: str | None) -> JsonObject:
    """The beginning of a run's diff. Raises NotFound."""
    found, data = await store.ask(_read_kept, id, run, "diff.patch")
    if data is None:
        raise NotFound(f"no diff is kept of {found.id}")
    return {"run": found.id, "size": len(data), "content": data[:MAX_SHOWN].decode("utf-8", "replace")}


def _read_kept(store: Store, id: str, run: str | None, name: str) -> tuple[Run, bytes | None]:
    found = runview.choose_run(store, id, run)
    return found, runview.read_kept(store, found, name)
