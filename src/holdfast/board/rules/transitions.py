"""The statuses of a task and its legal moves, as one table. Pure module.

    triage          a person must specify what is to be done
    todo            waits for other tasks: it has open parents, and a task without them never is here
    scheduled       parked by a person until a time
    ready           any host with room may claim it
    running         one run holds it; only a claim leads here
    waiting_human   a person must act; only a person moves it on
    waiting_system  the clock must pass: a back-off, the reset of a quota, a wait that a worker asked for
    review          the work is reported; its checks run first, if any; a person approves or asks for changes
    handoff_failed  the work may exist, but its report is missing; a person accepts it, or reruns it
    done, failed, cancelled, archived   the ends; a failed task can be tried again, the others are final

"Blocked" is two statuses, because a clock must never do what a person has to, nor the other way round. There
is no "paused": a board is paused, not a task. A task that is released becomes `ready`, or `todo` while it has
open parents: `settle` decides that in one place. Only `done` satisfies the tasks that depend on a task.
"""

from enum import StrEnum
from typing import Final

from holdfast.errors import IllegalTransition


class TaskStatus(StrEnum):
    TRIAGE = "triage"
    TODO = "todo"
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    WAITING_HUMAN = "waiting_human"
    WAITING_SYSTEM = "waiting_system"
    REVIEW = "review"
    HANDOFF_FAILED = "handoff_failed"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ARCHIVED = "archived"


class Move(StrEnum):
    SPECIFY = "specify"
    RETHINK = "rethink"
    PROMOTE = "promote"
    HOLD = "hold"
    SCHEDULE = "schedule"
    WAKE = "wake"
    CLAIM = "claim"
    BLOCK = "block"
    UNBLOCK = "unblock"
    WAIT = "wait"
    REQUEST_REVIEW = "request_review"
    REQUEST_CHANGES = "request_changes"
    CONFIRM = "confirm"
    MISS_HANDOFF = "miss_handoff"
    COMPLETE = "complete"
    FAIL = "fail"
    RETRY = "retry"
    CANCEL = "cancel"
    ARCHIVE = "archive"


class Actor(StrEnum):
    """Who makes a move: a caller with authority over the board, the run that holds the task, or the board."""

    PERSON = "person"
    WORKER = "worker"
    SYSTEM = "system"


ENDS: Final = frozenset({TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.ARCHIVED})
OPEN: Final = frozenset(TaskStatus) - ENDS
RELEASED: Final = frozenset(
    {TaskStatus.READY, TaskStatus.TODO}
)  # free to run as soon as its parents are done
TIMED: Final = frozenset({TaskStatus.SCHEDULED, TaskStatus.WAITING_SYSTEM})  # left when the clock says so

_S = TaskStatus
_P, _W, _Y = Actor.PERSON, Actor.WORKER, Actor.SYSTEM
# For each move: the statuses it starts from, the one it leads to, and the actors that may make it.
_MOVES: Final[dict[Move, tuple[frozenset[TaskStatus], TaskStatus, frozenset[Actor]]]] = {
    Move.SPECIFY: (frozenset({_S.TRIAGE}), _S.READY, frozenset({_P})),
    Move.RETHINK: (
        frozenset({_S.TODO, _S.READY, _S.SCHEDULED, _S.WAITING_HUMAN}),
        *(_S.TRIAGE, frozenset({_P})),
    ),
    Move.PROMOTE: (frozenset({_S.TODO}), _S.READY, frozenset({_Y})),
    Move.HOLD: (frozenset({_S.READY}), _S.TODO, frozenset({_Y})),
    Move.SCHEDULE: (
        frozenset({_S.TODO, _S.READY, _S.WAITING_HUMAN, _S.WAITING_SYSTEM}),
        *(_S.SCHEDULED, frozenset({_P})),
    ),
    Move.WAKE: (TIMED, _S.READY, frozenset({_Y})),
    Move.CLAIM: (frozenset({_S.READY}), _S.RUNNING, frozenset({_Y})),
    Move.BLOCK: (
        frozenset({_S.TODO, _S.READY, _S.SCHEDULED, _S.RUNNING, _S.WAITING_SYSTEM, _S.REVIEW}),
        *(_S.WAITING_HUMAN, frozenset({_P, _W, _Y})),
    ),
    Move.UNBLOCK: (TIMED | {_S.WAITING_HUMAN}, _S.READY, frozenset({_P})),
    Move.WAIT: (frozenset({_S.RUNNING}), _S.WAITING_SYSTEM, frozenset({_W, _Y})),
    Move.REQUEST_REVIEW: (frozenset({_S.RUNNING}), _S.REVIEW, frozenset({_W})),
    Move.REQUEST_CHANGES: (frozenset({_S.REVIEW}), _S.READY, frozenset({_P, _Y})),
    Move.CONFIRM: (frozenset({_S.REVIEW}), _S.DONE, frozenset({_Y})),
    Move.MISS_HANDOFF: (frozenset({_S.RUNNING}), _S.HANDOFF_FAILED, frozenset({_Y})),
    Move.COMPLETE: (OPEN | {_S.FAILED}, _S.DONE, frozenset({_P, _W})),
    Move.FAIL: (frozenset({_S.RUNNING}), _S.FAILED, frozenset({_Y})),
    Move.RETRY: (frozenset({_S.FAILED, _S.HANDOFF_FAILED}), _S.READY, frozenset({_P})),
    Move.CANCEL: (OPEN, _S.CANCELLED, frozenset({_P})),
    Move.ARCHIVE: (ENDS - {_S.ARCHIVED}, _S.ARCHIVED, frozenset({_P})),
}
TABLE: Final[dict[tuple[TaskStatus, Move], TaskStatus]] = {
    (before, move): after for move, (sources, after, _) in _MOVES.items() for before in sorted(sources)
}
WHO: Final[dict[Move, frozenset[Actor]]] = {move: actors for move, (_, _, actors) in _MOVES.items()}


def apply(status: TaskStatus, move: Move, by: Actor) -> TaskStatus:
    """Return the status that the move leads to.

    Raises:
        IllegalTransition: the move is not possible from this status, or not for this actor.
    """
    if by not in WHO[move]:
        raise IllegalTransition(f"a {by} may not {move.replace('_', ' ')} a task")
    if by is Actor.WORKER and status is not TaskStatus.RUNNING:
        raise IllegalTransition(f"the task is {status}: no worker holds it")
    try:
        return TABLE[status, move]
    except KeyError:
        possible = ", ".join(sorted(moves(status, by))) or "none"
        raise IllegalTransition(
            f"cannot {move.replace('_', ' ')} a task that is {status}", remedy=f"moves from here: {possible}"
        ) from None


def moves(status: TaskStatus, by: Actor) -> set[Move]:
    """The moves that this actor may make from this status."""
    return {move for before, move in TABLE if before is status and by in WHO[move]}


def settle(status: TaskStatus, open_parents: int) -> TaskStatus:
    """The status of a released task: `todo` while it has open parents, else `ready`; others stay the same."""
    if status not in RELEASED:
        return status
    return TaskStatus.TODO if open_parents else TaskStatus.READY


def pairs() -> set[tuple[TaskStatus, TaskStatus]]:
    """Every change of status that can happen. The stores repeat these in their own constraints."""
    direct = set(TABLE.items())
    changes = {(before, after) for (before, _), after in direct}
    return changes | {(before, TaskStatus.TODO) for before, after in changes if after is TaskStatus.READY} - {
        (TaskStatus.TODO, TaskStatus.TODO)
    }
