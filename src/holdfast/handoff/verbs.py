"""What a worker may say about its run, and nothing else. Pure module.

Every verb has a struct of arguments that bounds them before they are sent and again before they are
carried out. A member nobody knows is refused: what a worker misspells would otherwise be lost silently.
"""

from typing import Final, NamedTuple

import msgspec

from holdfast.board.rules.retry import DEFAULT_MAX_ATTEMPTS
from holdfast.board.rules.rows import MAX_TITLE, JsonObject, NewTask, bounded, file_name, metadata_text
from holdfast.errors import MethodNotFound, UsageError

MAX_DATA: Final = 360 * 1024  # bytes of an attachment: as base64 it still fits into an envelope
MAX_OPTIONS: Final = 20  # possible answers to one question; nobody reads more


class Args(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of any verb. Making one raises UsageError when a value is out of its bounds."""


class Show(Args, frozen=True, kw_only=True):
    """The worker's own task with what belongs to it, or one that it waited for or made."""

    task: str | None = None

    def __post_init__(self) -> None:
        _lines(self.task or "")


class Heartbeat(Args, frozen=True, kw_only=True):
    note: str = ""

    def __post_init__(self) -> None:
        bounded("note", self.note)


class Comment(Args, frozen=True, kw_only=True):
    body: str

    def __post_init__(self) -> None:
        if not bounded("comment", self.body).strip():
            raise UsageError("a comment says something")


class Create(Args, frozen=True, kw_only=True):
    """A task that waits for the worker's own, and for the parents it names.

    Where it is worked on is not for a worker to say: it could name any directory of the host.
    """

    title: str
    body: str = ""
    assignee: str = ""
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    parents: tuple[str, ...] = ()
    triage: bool = False

    def __post_init__(self) -> None:
        _lines(self.title, self.assignee, *self.parents)
        self.task()

    def task(self) -> NewTask:
        """As the store is asked for it."""
        return NewTask(**msgspec.structs.asdict(self))


class Link(Args, frozen=True, kw_only=True):
    """A task that this run made waits for another one of its board."""

    parent: str
    child: str

    def __post_init__(self) -> None:
        _lines(self.parent, self.child)


class Attach(Args, frozen=True, kw_only=True):
    """A file for whoever works on the task or reads its result; as base64 in JSON."""

    name: str
    data: bytes

    def __post_init__(self) -> None:
        file_name(self.name)
        if len(self.data) > MAX_DATA:
            raise UsageError(f"a worker attaches files of at most {MAX_DATA} bytes")


class Complete(Args, frozen=True, kw_only=True):
    summary: str
    metadata: JsonObject = {}

    def __post_init__(self) -> None:
        bounded("summary", self.summary)
        metadata_text(self.metadata)


class Block(Args, frozen=True, kw_only=True):
    question: str
    options: tuple[str, ...] = ()
    waiting_for: str = ""

    def __post_init__(self) -> None:
        bounded("question", self.question)
        _lines(*self.options, self.waiting_for)
        if len(self.options) > MAX_OPTIONS:
            raise UsageError(f"a question has at most {MAX_OPTIONS} options")


class RequestReview(Complete, frozen=True, kw_only=True):
    """As `complete`, but a person is to look at it first."""


class Verb(NamedTuple):
    args: type[Args]
    terminal: bool = False  # the run is over after it


VERBS: Final[dict[str, Verb]] = {
    "show": Verb(Show),
    "heartbeat": Verb(Heartbeat),
    "comment": Verb(Comment),
    "create": Verb(Create),
    "link": Verb(Link),
    "attach": Verb(Attach),
    "complete": Verb(Complete, terminal=True),
    "block": Verb(Block, terminal=True),
    "request_review": Verb(RequestReview, terminal=True),
}


def named(verb: str) -> Verb:
    """Raises MethodNotFound when a worker has no such verb."""
    if verb not in VERBS:
        raise MethodNotFound(f"a worker has no verb {verb[:40]!r}", remedy=f"one of {', '.join(VERBS)}")
    return VERBS[verb]


def decode(verb: str, args: bytes | msgspec.Raw) -> Args:
    """Arguments as they came, as the verb's own struct.

    Raises:
        MethodNotFound: there is no such verb.
        UsageError: they are not its arguments.
    """
    kind = named(verb).args
    try:
        return msgspec.json.decode(args, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise _not_arguments(verb, exc) from None


def convert(verb: str, args: JsonObject) -> Args:
    """The same for arguments that are values already. Raises as `decode` does."""
    kind = named(verb).args
    try:
        return msgspec.convert(args, kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise _not_arguments(verb, exc) from None


def _lines(*texts: str) -> None:
    for text in texts:
        if len(text) > MAX_TITLE or "\0" in text:
            raise UsageError(f"a name or an option has at most {MAX_TITLE} characters, and no zero byte")


def _not_arguments(verb: str, exc: Exception) -> UsageError:
    detail = str(exc) if isinstance(exc, msgspec.ValidationError) else "they are not JSON"
    return UsageError(f"these are no arguments of {verb}: {detail}")
