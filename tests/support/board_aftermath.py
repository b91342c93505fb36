"""What must hold of a board and its home after whatever was killed. Everything found wrong is a sentence."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.board.database.database import Transaction
from holdfast.board.rules.rows import Run, Task, TaskEvent
from holdfast.board.rules.transitions import TaskStatus
from holdfast.dispatch.dispatcher import host_name
from tests.support.dispatch import Yard

MAX_EVENTS: Final = 500
KEPT: Final = {"end.json", "diff.patch", "output"}
LOGS: Final = ("dispatch.log", "h/supervisor.log", "h/exec.log")
MAX_TRACE: Final = 3000  # characters of a log around what is wrong in it


def all_tasks(yard: Yard) -> list[Task]:
    found: list[Task] = []
    cursor = None
    while True:
        page = yard.store.page("b", limit=100, cursor=cursor)
        found += page.tasks
        cursor = page.cursor
        if cursor is None:
            return found


def all_events(yard: Yard) -> Iterator[TaskEvent]:
    after = 0
    while found := yard.store.events("b", after=after, limit=MAX_EVENTS):
        yield from found
        after = found[-1].seq


def nudge(yard: Yard) -> None:
    """Nobody waits for a pause to pass; and whatever workers create may be tried as often as the rest."""

    def sooner(tx: Transaction) -> None:
        tx.select("UPDATE tasks SET wake_ms = 1 WHERE status = 'waiting_system' AND wake_ms > 1", {})
        tx.select("UPDATE tasks SET max_attempts = 100 WHERE max_attempts < 100", {})

    yard.store.database.write(sooner)


def wrong(yard: Yard) -> list[str]:
    """Of the board, once nothing runs any more."""
    counted = Counter((event.kind, event.task_id) for event in all_events(yard))
    found = yard.store.faults()
    found += [f"{run.id} has no outcome" for run in yard.store.held_runs(host_name(yard.home))]
    marks = yard.home / "board" / "runs"
    found += [f"{mark.name} is owed its end" for mark in marks.iterdir()]
    for task in all_tasks(yard):
        found += _wrong_with(yard, task, counted["complete", task.id])
    return found


def _wrong_with(yard: Yard, task: Task, completions: int) -> Iterator[str]:
    name = f"{task.id} ({task.title})"
    if task.status is not TaskStatus.DONE:
        yield f"{name} is {task.status}: {task.reason}"
        return
    detail = yard.store.show(task.id)
    place = yard.home / "board" / task.id
    done = [run for run in detail.runs if run.outcome == "completed"]
    if len(done) != 1 or completions != 1:
        yield f"{name} was completed by {len(done)} runs, with {completions} events"
        return
    yield from (f"{run.id} of {name} has no outcome" for run in detail.runs if run.outcome is None)
    yield from (f"{run.id} of {name}: {run.error}" for run in detail.runs if run.outcome == "handoff_failed")
    started = Counter(_lines(place / "effects"))
    yield from (f"{run} of {name} was started {count} times" for run, count in started.items() if count > 1)
    if done[0].id not in started:
        yield f"{name} was completed by {done[0].id}, which did nothing"
    if not {file.name for file in yard.store.kept_files(done[0].id)} >= KEPT:
        yield f"{name}: what {done[0].id} left was not kept"
    if not task.title.startswith(("exit", "child")):
        yield from _misreported(name, done[0], Counter(comment.body for comment in detail.comments))
    left = [path.name for path in (place / ".holdfast" / "outbox").iterdir() if path.name[0] != "."]
    yield from (f"{name}: {letter} was not read" for letter in left)


def _misreported(name: str, done: Run, said: Counter[str]) -> Iterator[str]:
    if done.summary != done.id:
        yield f"{name}: {done.id} said {done.summary}"
    if said[done.id] != 1:
        yield f"{name}: {done.id} said something {said[done.id]} times"
    yield from (f"{name}: {run} said something {count} times" for run, count in said.items() if count > 1)


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def complaints(yard: Yard) -> list[str]:
    """Exceptions that nobody foresaw, from the logs of all three."""
    found = []
    for name in LOGS:
        path = yard.folder / name
        text = path.read_text("utf-8", "replace") if path.exists() else ""
        at = text.find("Traceback")
        if at >= 0:
            found.append(f"{name}: {text[max(0, at - 300) : at + MAX_TRACE]}")
    return found
