"""Connections to hosts that no rule decides about wait here for an answer.

The questions and the meaning of an answer are in `questions.py`. This module sends each question, waits for
the answer within its time limit, and wakes up the connections that wait for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

from holdfast.egress.asking.questions import (
    MAX_WAITING,
    Answer,
    HostQuestion,
    NotAllowed,
    QuestionBook,
    StaleAnswer,
    explain,
)
from holdfast.egress.hosts import Host, HostRules

# Sends a question; cancelling it withdraws the question.
Ask: TypeAlias = Callable[[HostQuestion], Awaitable[Answer]]


async def ask_nobody(_question: HostQuestion) -> Answer:
    return Answer.NOBODY


class Asker:
    """The questions of one command, on the running loop, until `close`."""

    def __init__(self, rules: HostRules, ask: Ask = ask_nobody, limit_s: float = 0.0) -> None:
        self.book = QuestionBook(rules, limit_s)
        self._ask = ask
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._waiting = 0

    @property
    def rules(self) -> HostRules:
        return self.book.rules

    async def admit(
        self, host: Host, port: int, find_program: Callable[[], str | None] = lambda: None
    ) -> None:
        """Return once the host is allowed; `find_program` names the program that connects, for the question.

        Raises:
            NotAllowed: it is not allowed, or no answer allowed it in time.
        """
        question = self.book.ask(host, port)
        if question is None:
            return
        if self._waiting >= MAX_WAITING:
            raise NotAllowed("no rule allows it, and too many connections wait for an answer")
        if question.id not in self._answers:
            loop = asyncio.get_running_loop()
            self._answers[question.id] = loop.create_future()
            self._asking[question.id] = loop.create_task(self._put(replace(question, program=find_program())))
        self._waiting += 1
        try:
            answer = await asyncio.shield(self._answers[question.id])
        finally:
            self._waiting -= 1
        if answer not in (Answer.HOST, Answer.PATTERN):
            raise NotAllowed(explain(answer, question.limit_s))

    async def _put(self, question: HostQuestion) -> None:
        answer = Answer.NOBODY
        try:
            async with asyncio.timeout(question.limit_s):
                answer = await self._ask(question)
        except TimeoutError:
            answer = Answer.LATE
        except OSError:
            answer = Answer.NOBODY  # the program that could answer is gone
        finally:
            self._settle(question.id, answer)

    def _settle(self, id_: int, answer: Answer) -> None:
        try:
            settled = self.book.settle(id_, answer)
        except StaleAnswer:
            return  # a wider grant came first
        for question in settled:
            self._answers.pop(question.id).set_result(answer)
            asking = self._asking.pop(question.id)
            if question.id != id_:
                asking.cancel()

    def close(self) -> None:
        """Withdraw all open questions."""
        for id_, asking in list(self._asking.items()):
            self._settle(id_, Answer.NOBODY)
            asking.cancel()
