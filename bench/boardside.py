"""One process at a board, ours or Hermes', run by the interpreter of its side.

    python -P boardside.py SIDE FILE VERB COUNT

It says "here" when its connection is open and waits for a line, so that several begin at once. Then it
carries out the verb and says what was acknowledged as one line of JSON. Both sides keep one connection open,
and both have `synchronous=FULL`.
"""

import json
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

PAGE: Final = 50


class Side(Protocol):
    """What both can do. A claim answers what completing it needs, or None when somebody else has it."""

    def create(self, title: str, *parents: str) -> str: ...
    def claim(self, task: str) -> Any: ...
    def claim_next(self) -> Any: ...
    def complete(self, claimed: Any) -> None: ...
    def block(self, task: str) -> None: ...
    def page(self) -> int: ...
    def look(self) -> tuple[bool, dict[str, str]]: ...


class Ours:
    def __init__(self, address: str) -> None:
        from holdfast.board.store import open_store

        self.store = open_store(address)
        if not self.store.boards():
            self.store.create_board("b")

    def create(self, title: str, *parents: str) -> str:
        from holdfast.board.rules.rows import NewTask

        return self.store.create("b", NewTask(title=title, assignee="coder", parents=parents)).id

    def claim(self, task: str) -> Any:
        return self.store.claim("b", worker="w", task=task)

    def claim_next(self) -> Any:
        return self.store.claim("b", worker="w")

    def complete(self, claimed: Any) -> None:
        self.store.complete(claimed[1].ref, "e", "ok")

    def block(self, task: str) -> None:
        from holdfast.board.rules.transitions import Move

        self.store.move(task, Move.BLOCK, question="what now?")

    def page(self) -> int:
        return len(self.store.page("b", limit=PAGE).tasks)

    def look(self) -> tuple[bool, dict[str, str]]:
        found: dict[str, str] = {}
        cursor = None
        while True:
            page = self.store.page("b", limit=500, cursor=cursor)
            found |= {task.id: str(task.status) for task in page.tasks}
            if (cursor := page.cursor) is None:
                return not self.store.faults(), found


class Hermes:
    """Through its own functions; a claim is given the task, which saves it the search."""

    def __init__(self, file: str) -> None:
        from pathlib import Path

        from hermes_cli import kanban_db  # type: ignore[import-not-found]  # is in its environment only

        self.kanban, self.file = kanban_db, file
        self.prepare()
        self.db = kanban_db.connect(Path(file))
        self.ready: list[str] = []

    def prepare(self) -> None:
        """As it is shipped."""

    def create(self, title: str, *parents: str) -> str:
        task = self.kanban.create_task(self.db, title=title, assignee="coder", parents=parents)
        self.ready.append(task)
        return str(task)

    def claim(self, task: str) -> Any:
        return self.kanban.claim_task(self.db, task)

    def claim_next(self) -> Any:
        return self.claim(self.ready.pop(0))

    def complete(self, claimed: Any) -> None:
        if not self.kanban.complete_task(self.db, claimed.id, summary="ok"):
            raise ValueError("refused")

    def block(self, task: str) -> None:
        self.kanban.block_task(self.db, task, reason="what now?", kind="needs_input")

    def page(self) -> int:
        return len(self.kanban.list_tasks(self.db, limit=PAGE))

    def look(self) -> tuple[bool, dict[str, str]]:
        db = sqlite3.connect(self.file)
        sound = db.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
        return sound, dict(db.execute("SELECT id, status FROM tasks").fetchall())


class Mended(Hermes):
    """Without the check that opens the file beside SQLite and so drops SQLite's locks."""

    def prepare(self) -> None:
        self.kanban._check_file_length_invariant = lambda _: None


SIDES: Final[dict[str, Callable[[str], Side]]] = {"holdfast": Ours, "hermes": Hermes, "hermes-mended": Mended}


class Tally:
    """What was acknowledged, how long each took, and what went wrong."""

    def __init__(self) -> None:
        self.ids: dict[str, list[str]] = {"create": [], "claim": [], "complete": []}
        self.ms: dict[str, list[float]] = {"create": [], "claim": [], "complete": [], "page": []}
        self.errors: Counter[str] = Counter()

    def timed(self, verb: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            answer = call()
        except Exception as exc:  # noqa: BLE001, RUF100 - whatever the peer raises is a result
            self.errors[f"{verb}: {type(exc).__name__}"] += 1
            return None
        self.ms[verb].append((time.perf_counter() - began) * 1e3)
        return answer


def each(side: Side, count: int, tally: Tally) -> None:
    """So many of everything, one after the other."""
    for number in range(count):
        tally.timed("create", lambda number=number: side.create(f"new {number}"))  # type: ignore[misc]
    won = [claimed for _ in range(count) if (claimed := tally.timed("claim", side.claim_next)) is not None]
    for claimed in won:
        tally.timed("complete", lambda claimed=claimed: side.complete(claimed))  # type: ignore[misc]
    for _ in range(count):
        tally.timed("page", side.page)


def write(side: Side, count: int, tally: Tally) -> None:
    """Create a task, claim it and complete it, again and again."""
    for number in range(count):
        task = tally.timed("create", lambda number=number: side.create(f"new {number}"))  # type: ignore[misc]
        if task is None:
            continue
        tally.ids["create"].append(task)
        claimed = tally.timed("claim", lambda task=task: side.claim(task))  # type: ignore[misc]
        if claimed is None:
            continue
        tally.ids["claim"].append(task)
        before = len(tally.ms["complete"])
        tally.timed("complete", lambda claimed=claimed: side.complete(claimed))  # type: ignore[misc]
        if len(tally.ms["complete"]) > before:
            tally.ids["complete"].append(task)


def race(side: Side, _: int, tally: Tally) -> None:
    """Try to win every task that is ready; others try the same."""
    for task, status in sorted(side.look()[1].items()):
        if status == "ready" and tally.timed("claim", lambda task=task: side.claim(task)):  # type: ignore[misc]
            tally.ids["claim"].append(task)


def ready(side: Side, count: int, _: Tally) -> None:
    for number in range(count):
        side.create(f"ready {number}")


def fill(side: Side, count: int, _: Tally) -> None:
    """Four of ten done, two that wait for one, three ready, one blocked."""
    for number in range(count // 10):
        made = [side.create(f"task {number}.{place}") for place in range(8)]
        for task in made[:4]:
            side.complete(side.claim(task))
        for place in range(2):
            side.create(f"task {number} waits {place}", made[5])
        side.block(made[4])


VERBS: Final[dict[str, Callable[[Side, int, Tally], None]]] = {
    "each": each,
    "write": write,
    "race": race,
    "ready": ready,
    "fill": fill,
}


def main(name: str, file: str, verb: str, count: str) -> None:
    said: dict[str, object]
    side = SIDES[name](file)
    print("here", flush=True)
    sys.stdin.readline()
    if verb == "look":
        sound, tasks = side.look()
        said = {"sound": sound, "tasks": tasks}
    else:
        tally = Tally()
        began = time.monotonic()
        VERBS[verb](side, int(count), tally)
        said = {"ids": tally.ids, "ms": tally.ms, "errors": tally.errors}
        said |= {"began": began, "ended": time.monotonic()}
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
