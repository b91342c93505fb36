"""What tests of the board share."""

from dataclasses import dataclass

from holdfast.board.rows import NewTask, Run, Task
from holdfast.board.store import Store


@dataclass
class SettableClock:
    """Stands still until it is moved."""

    now_ms: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def made(store: Store, title: str = "do it", *parents: str, **wishes: object) -> Task:
    wish = {"title": title, "parents": parents, "assignee": "coder", **wishes}
    return store.create("b", NewTask(**wish))  # type: ignore[arg-type]  # a test that errs here fails here


def claimed(store: Store, task: str | None = None) -> tuple[Task, Run]:
    won = store.claim("b", worker="w", host="h", task=task)
    assert won is not None
    return won
