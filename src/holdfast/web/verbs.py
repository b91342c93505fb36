"""What a person may do through the dashboard: bodies of requests as words for the store. Pure module."""

from collections.abc import Mapping
from typing import Final, TypeAlias, TypeVar

import msgspec

from holdfast.board.rules.rows import JsonObject, NewTask, WorkspaceKind
from holdfast.board.rules.transitions import Move
from holdfast.errors import UsageError

T = TypeVar("T")

MAX_BODY: Final = 2 << 20  # bytes: the longest text of a task, with every character escaped


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A member nobody knows is a mistake of whoever wrote it."""


class Create(Strict, frozen=True):
    title: str
    body: str = ""
    assignee: str = ""
    priority: int = 0
    max_attempts: int = 3
    parents: tuple[str, ...] = ()
    triage: bool = False
    workspace_kind: WorkspaceKind = WorkspaceKind.SCRATCH
    workspace: str = ""
    max_runtime_s: int | None = None
    key: str | None = None  # made once for this key

    def task(self) -> NewTask:
        """Raises UsageError when a value is out of its bounds."""
        if self.workspace and not self.workspace.startswith("/"):
            raise UsageError("a workspace is an absolute path")
        return NewTask(**{name: getattr(self, name) for name in self.__struct_fields__ if name != "key"})


class Say(Strict, frozen=True):
    body: str


class Assign(Strict, frozen=True):
    assignee: str


class Because(Strict, frozen=True):
    reason: str = ""


class Block(Strict, frozen=True):
    question: str
    options: tuple[str, ...] = ()
    waiting_for: str = ""


class Complete(Strict, frozen=True):
    result: str | None = None


class Retry(Strict, frozen=True):
    reason: str = ""
    report_only: bool = False


class Schedule(Strict, frozen=True):
    in_s: int
    reason: str = ""


Moving: TypeAlias = Because | Block | Complete | Retry | Schedule
MOVES: Final[Mapping[Move, type[Moving]]] = {
    Move.ARCHIVE: Because,
    Move.BLOCK: Block,
    Move.CANCEL: Because,
    Move.COMPLETE: Complete,
    Move.REQUEST_CHANGES: Because,
    Move.RETHINK: Because,
    Move.RETRY: Retry,
    Move.SCHEDULE: Schedule,
    Move.SPECIFY: Because,
    Move.UNBLOCK: Because,
}


def read(data: bytes, kind: type[T]) -> T:
    """Raises UsageError when it is not what was asked for."""
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.MsgspecError as exc:
        raise UsageError(f"the body of the request is wrong: {exc}") from None


def words(asked: Moving, now_ms: int) -> JsonObject:
    """As `Store.move` takes them; times are of the store's clock."""
    given: JsonObject = {name: getattr(asked, name) for name in asked.__struct_fields__}
    if isinstance(asked, Schedule):
        if asked.in_s <= 0:
            raise UsageError("a task is scheduled for later")
        del given["in_s"]
        given["wake_ms"] = now_ms + asked.in_s * 1000
    return given
