"""A worked example on a board: a worker that completes, one that is denied, one that needs a person."""

import asyncio
import json
import shlex
from collections.abc import Sequence
from typing import Final

from holdfast.board.asyncstore import AsyncStore
from holdfast.board.rules.rows import NewTask, Task
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.store import Store
from holdfast.board.verbs.lists import MAX_PAGE
from holdfast.dispatch.rules.prompts import ANSWER
from holdfast.errors import HoldfastError, NotFound

BOARD: Final = "demo"
SETTLED: Final = frozenset(
    {
        TaskStatus.DONE,
        TaskStatus.FAILED,
        TaskStatus.WAITING_HUMAN,
        TaskStatus.HANDOFF_FAILED,
        TaskStatus.CANCELLED,
    }
)
GIVEN_UP: Final = frozenset({TaskStatus.CANCELLED, TaskStatus.ARCHIVED})
WHO: Final = "demo"  # creator of the demo's tasks
FORBIDDEN: Final = "/etc/written-by-a-worker"
LOOK_S: Final = 0.5
_ASKING: Final = f"""\
if [ -s {ANSWER} ]; then
    {{handoff}} complete "The sail is $(cat {ANSWER})"
else
    {{handoff}} block 'Which colour shall the sail have?' --option red --option white
fi"""


def tasks(command: Sequence[str]) -> list[NewTask]:
    """`command` is the beginning of a command line that runs `holdfast`."""
    handoff = f"{shlex.join(command)} handoff"
    bodies = {
        "Write a file and report": f"echo made > made.txt\n{handoff} complete 'made.txt is there'",
        "Write where it is not allowed": f"echo x > {FORBIDDEN}",
        "Ask a person": _ASKING.format(handoff=handoff),
    }
    return [
        NewTask(title=title, body=body, assignee="script", max_attempts=1) for title, body in bodies.items()
    ]


def create_tasks(store: Store, command: Sequence[str]) -> list[str]:
    """Create the example tasks on the demo board, and the board if needed; return the ids of the tasks.

    Tasks of an earlier call are kept as they are. A second call thus shows the outcome of the first instead
    of adding more cards, and an open question still waits for its answer. To run the example again, a person
    cancels or archives its tasks. An unfinished task with a command that names another installation is
    cancelled and created again, because that installation may be gone.
    """
    if BOARD not in {board.slug for board in store.boards()}:
        store.create_board(BOARD, "a worked example")
    kept = {
        task.title: task
        for task in reversed(store.page(BOARD, limit=MAX_PAGE).tasks)
        if task.created_by == WHO and task.status not in GIVEN_UP
    }
    return [_keep_or_create(store, new, kept.get(new.title)).id for new in tasks(command)]


def _keep_or_create(store: Store, new: NewTask, kept: Task | None) -> Task:
    if kept is not None and (kept.status in SETTLED or kept.body == new.body):
        return kept
    if kept is not None:
        store.move(kept.id, Move.CANCEL, who=WHO)
    return store.create(BOARD, new, who=WHO)


async def wait_for_outcome(address: str, ids: Sequence[str]) -> list[str]:
    """Wait until no task moves without a person, then return lines that describe what happened."""
    async with AsyncStore.open(address) as store:
        while True:
            store.news.clear()
            found = [await store.ask(Store.task, id) for id in ids]
            if all(task.status in SETTLED for task in found):
                break
            try:
                async with asyncio.timeout(LOOK_S):
                    await store.news.wait()
            except TimeoutError:
                continue
        return await store.ask(lambda store: [line for task in found for line in describe(store, task)])


def describe(store: Store, task: Task) -> list[str]:
    """The outcome of a task, the reason, and the next command to type."""
    lines = [f"{task.id}  {task.status}  {task.title}"]
    match task.status:
        case TaskStatus.DONE:
            lines += [f"    {task.result}", f"    see what changed: holdfast task diff {task.id}"]
        case TaskStatus.WAITING_HUMAN:
            lines.append(f"    {task.question} ({' or '.join(task.options)})")
            answer = shlex.quote(task.options[0])
            lines.append(f"    answer it: holdfast task unblock {task.id} --reason {answer}")
        case _:
            lines += [f"    {task.reason}", *(f"    {line}" for line in denials(store, task))]
            lines.append(f"    see all of it: holdfast task show {task.id}")
    return lines


def denials(store: Store, task: Task) -> list[str]:
    """What the sandbox denied the task's last run, by which rule, and what would allow it."""
    try:
        run = store.runs(task.id)[-1]
        end = json.loads(store.file(task.id, run.id, "end.json"))
    except (NotFound, IndexError):
        return []
    except (HoldfastError, ValueError):
        return ["what is kept of its end cannot be read"]
    return [
        f"denied: {one['access']} {one['path']} ({one['errno']}): {one['rule']}; to allow it: {one['grant']}"
        for one in end["worker"]["denials"]
    ]
