"""Questions about hosts: put a worker's questions on the board, and pass people's answers on to the worker.

The supervisor has the questions and their outcomes; the board has the answers. Each look compares the two, so
after a crash the next process continues from there, and nothing is asked or answered twice.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.agents.evidence.evidence import AskedHost
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.worker.answering import ALLOWED, REFUSED
from holdfast.board.rules.rows import HostQuestion, Run
from holdfast.board.store import Store
from holdfast.board.verbs.hostquestions import LATE
from holdfast.dispatch.context import DispatchContext, worker_of
from holdfast.errors import InvalidRequest, StaleRun
from holdfast.local.shown import show_text

GONE: Final = "the connection does not wait any more"
_OPTIONS: Final = {"yes": "host", "pattern": "pattern", "no": "no"}  # the supervisor's names for the answers


@dataclass(frozen=True, slots=True)
class PutQuestion:
    """Put the question on the board."""

    asked: AskedHost


@dataclass(frozen=True, slots=True)
class PassAnswer:
    """Pass the answer to the supervisor."""

    request: str
    option: str


@dataclass(frozen=True, slots=True)
class NoteOutcome:
    """Record the outcome of a question on the board."""

    request: str
    outcome: str


HostStep: TypeAlias = PutQuestion | PassAnswer | NoteOutcome


def plan_steps(
    asked: Sequence[AskedHost], kept: Sequence[HostQuestion], *, ended: bool = False
) -> list[HostStep]:
    """The steps that bring a worker's questions (`asked`) and those on the board (`kept`) into agreement.

    While a question on the board is open, it stands for all connections that ask about its host. Once the
    worker has `ended`, no connection waits for an answer.
    """
    waiting = [one for one in asked if not one.told and not ended]
    told = {one.request: one.told for one in asked}
    steps: list[HostStep] = []
    open_ = {one.host: one for one in kept if not one.outcome}
    for one in open_.values():
        same = [other.request for other in waiting if other.target == one.host]
        if not same:
            steps.append(NoteOutcome(one.request, _describe_outcome(one, told.get(one.request, ""))))
        elif one.answer:
            steps += [PassAnswer(request, _OPTIONS[one.answer]) for request in same]
    new = {one.target: one for one in reversed(waiting) if one.target not in open_}
    return steps + [PutQuestion(one) for one in reversed(new.values())]


def _describe_outcome(question: HostQuestion, told: str) -> str:
    if told in (ALLOWED, REFUSED):
        return told
    return LATE if question.answer else told or GONE


class HostDesk:
    """The questions of one run. `waits` is whether any of them is open or was a moment ago."""

    def __init__(self, context: DispatchContext, run: Run) -> None:
        self._context = context
        self._run = run
        self._worker = worker_of(run.id)
        self.waits = True  # until the first look, as a predecessor may have put some

    async def take(self, report: WorkerReport) -> None:
        """Bring board and worker into agreement, from a report of the worker.

        Raises:
            HoldfastError: the store or the supervisor does not answer.
        """
        waits = any(not one.told for one in report.asked_hosts) and not report.state.ended
        if not waits and not self.waits:
            return
        self.waits = True
        kept = await self._context.store.ask(Store.host_questions, self._run.id)
        for step in plan_steps(report.asked_hosts, kept, ended=report.state.ended):
            with contextlib.suppress(StaleRun):  # the run is over, and so are its questions soon
                await self._carry_out(step)
        self.waits = waits

    async def _carry_out(self, step: HostStep) -> None:
        match step:
            case PutQuestion(asked):
                words = {name: show_text(getattr(asked, name)) for name in ("program", "pattern")}
                made = await self._context.store.ask(
                    Store.ask_host, self._run.ref, request=asked.request, host=asked.target, **words
                )
                if made is None:
                    await self._pass(asked.request, "no")
            case PassAnswer(request, option):
                await self._pass(request, option)
            case NoteOutcome(request, outcome):
                await self._context.store.ask(Store.settle_host, self._run.ref, request, outcome)

    async def _pass(self, request: str, option: str) -> None:
        with contextlib.suppress(InvalidRequest):  # answered otherwise, or too late: its report tells
            await self._context.supervisor.answer_host(self._worker, request, option)
