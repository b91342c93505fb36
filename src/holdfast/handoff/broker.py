"""The end of every channel: carry out an envelope as a verb of the store, if its signature is right.

The token is computed again from the run's own row, so a run can only speak for itself. Whether the run still
holds its task is decided by the store, in the same transaction as the requested change.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec

from holdfast.board.asyncstore import AsyncStore
from holdfast.board.rules.rows import Detail, Run, RunRef, TaskMessage
from holdfast.board.store import Store
from holdfast.errors import (
    HoldfastError,
    NotFound,
    OperationFailed,
    StoreDamaged,
    TokenRefused,
    Unreachable,
)
from holdfast.handoff import envelope
from holdfast.handoff.envelope import HAND_IN, MAX_LINE, VERBS, Envelope, HandoffAnswer
from holdfast.unixrpc.server import Peer, RpcLimits, RpcServer

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_SHOWN: Final = 4 * 1024 * 1024  # bytes of a task with its comments and runs; the oldest are left out
MAX_CLIENTS: Final = 16  # at once, of one run; a further one is refused, and still has its outbox
MAX_UNSENT: Final = 1024 * 1024  # bytes that a client may leave unread and still get answers
IDLE_S: Final = 60.0  # a client that is silent for this long may be dropped to admit others
_NO_ANSWER: Final = (Unreachable, StoreDamaged, OperationFailed)  # whether the change happened is unknown


# From the profiles of a run and of a task that its worker makes: the question for a person, or "".
JudgeChild: TypeAlias = Callable[[str, str], str]


def ask_unless_same(parent: str, child: str) -> str:
    """The question when the contents of the profiles are unknown."""
    return "" if child in ("", parent) else f"A worker of {parent} made this task for {child}: may it run?"


class Broker:
    """Carries out envelopes on one store, in the thread that the store belongs to."""

    def __init__(
        self, store: Store, key: bytes, task: str | None = None, judge: JudgeChild = ask_unless_same
    ) -> None:
        """With `task`, accept only its runs: the channel of one task is not for another."""
        self._store = store
        self._key = key
        self._task = task
        self._judge = judge

    def carry_out(self, letter: Envelope) -> HandoffAnswer:
        """Carry out an envelope and return the answer.

        Repeating it returns the same answer and changes nothing.

        Raises:
            Unreachable, StoreDamaged, OperationFailed: the store cannot be used. This is no answer: the
                envelope must be kept, and carried out when the store is back.
        """
        told: list[TaskMessage] = []
        try:
            run = self._check(letter)
            # Messages are read before the verb, so that every promised message is recorded. An envelope that
            # gets no answer is sent again, and then gets the same messages.
            told = self._messages(letter)
            return HandoffAnswer(id=letter.id, result=self._carry_out(letter, run), messages=told)
        except _NO_ANSWER:
            raise
        except HoldfastError as exc:
            log.info("an envelope was refused", extra={"run_id": letter.run[:64], "method": letter.verb[:64]})
            return msgspec.structs.replace(envelope.refusal(letter.id, exc), messages=told)
        except Exception:
            log.exception("an envelope could not be carried out", extra={"run_id": letter.run[:64]})
            return envelope.refusal(letter.id, OperationFailed("internal error"))

    def _check(self, letter: Envelope) -> Run:
        """The run that signed the envelope.

        Raises TokenRefused both for an unknown run and for a wrong mac.
        """
        try:
            run = self._store.run(letter.run)
        except NotFound:
            run = None
        if run is None or not envelope.check(
            letter, envelope.mint(self._key, run.board, run.task_id, run.id, run.generation)
        ):
            raise TokenRefused("the envelope is not signed by this run")
        if self._task not in (None, run.task_id):
            raise TokenRefused("the envelope is about another task than this channel")
        return run

    def _messages(self, letter: Envelope) -> list[TaskMessage]:
        verb = VERBS.get(letter.verb)
        ends = verb is not None and verb.terminal
        return self._store.hand_out(RunRef(letter.run, letter.generation), letter.id, ends=ends)

    def _carry_out(self, letter: Envelope, run: Run) -> dict[str, object]:
        args = envelope.read_args(letter.verb, letter.args)
        row, ref = VERBS[letter.verb], RunRef(letter.run, letter.generation)
        who = (ref,) if row.anew else (ref, letter.id)
        more = {"question": self._judge(run.profile, args.assignee)} if row.method == "create_child" else {}
        found = getattr(self._store, row.method)(*who, **row.words(args), **more)
        return {row.answers: msgspec.to_builtins(trim(found) if isinstance(found, Detail) else found)}


def trim(detail: Detail) -> Detail:
    """As much of it as fits: drop events, then older comments and runs, then results of parents."""
    detail = msgspec.structs.replace(detail, events=[])
    while len(msgspec.json.encode(detail)) > MAX_SHOWN and (detail.comments or detail.runs or detail.results):
        if detail.comments or detail.runs:
            less = {"comments": _newer_half(detail.comments), "runs": _newer_half(detail.runs)}
            detail = msgspec.structs.replace(detail, **less)
        else:
            detail = msgspec.structs.replace(detail, results=_newer_half(detail.results))
    return detail


def _newer_half(rows: list[T]) -> list[T]:
    return rows[(len(rows) + 1) // 2 :]


@contextlib.asynccontextmanager
async def listen(
    store: AsyncStore,
    key: bytes,
    path: Path,
    task: str | None = None,
    judge: JudgeChild = ask_unless_same,
) -> AsyncIterator[None]:
    """Answer envelopes about one task on a socket; an earlier listener on that path is replaced.

    Clients are confined workers: their token permits only the verbs of their own run.

    A call carries an envelope, its result is the answer. If the store could neither carry out nor refuse an
    envelope, the call fails, which is no answer: the sender then uses the outbox.

    Raises:
        StartupError: it cannot listen there.
    """

    async def answer(letter: Envelope, _peer: Peer) -> HandoffAnswer:
        envelope.check_shape(letter)
        try:
            return await store.ask(lambda store: Broker(store, key, task, judge).carry_out(letter))
        except HoldfastError as exc:
            log.warning("the store does not answer", extra={"reason": type(exc).__name__})
            raise

    server = RpcServer(RpcLimits(MAX_LINE, MAX_UNSENT, MAX_CLIENTS, calls=1, idle_s=IDLE_S))
    server.answer(HAND_IN, answer)
    async with server.listening(path):
        yield
