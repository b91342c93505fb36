"""Connections that wait for an answer."""

import asyncio

import pytest

from holdfast.egress.asking.asker import Asker
from holdfast.egress.asking.questions import MAX_WAITING, Answer, HostQuestion, NotAllowed
from holdfast.egress.hosts import Host, parse_rules
from tests.support.patience import patient

API = Host("api.example.com")


class Person:
    """Answers when told to."""

    def __init__(self) -> None:
        self.asked: list[HostQuestion] = []
        self.withdrawn: list[int] = []
        self.answers: dict[int, asyncio.Future[Answer]] = {}

    async def ask(self, question: HostQuestion) -> Answer:
        self.asked.append(question)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.answers[question.id] = answer
        try:
            return await answer
        except asyncio.CancelledError:
            self.withdrawn.append(question.id)
            raise


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_many_connections_wait_for_one_answer() -> None:
    person = Person()
    asker = Asker(parse_rules(), person.ask, 60)
    waiting = [asyncio.ensure_future(asker.admit(API, 443)) for _ in range(20)]
    await settle()
    assert [question.id for question in person.asked] == [1]
    assert not any(task.done() for task in waiting)
    person.answers[1].set_result(Answer.HOST)
    await asyncio.gather(*waiting)
    await asker.admit(API, 443)
    assert len(person.asked) == 1


async def test_a_pattern_wakes_up_who_waits_for_others_and_withdraws_their_question() -> None:
    person = Person()
    asker = Asker(parse_rules(), person.ask, 60)
    names = ("api.example.com", "www.example.com", "www.example.org")
    waiting = [asyncio.ensure_future(asker.admit(Host(name), 443)) for name in names]
    await settle()
    person.answers[1].set_result(Answer.PATTERN)
    await asyncio.gather(*waiting[:2])
    await settle()
    assert person.withdrawn == [2]
    assert not waiting[2].done()
    person.answers[3].set_result(Answer.NO)
    with pytest.raises(NotAllowed, match="the answer was no"):
        await waiting[2]


async def test_no_answer_in_time_is_no_and_a_later_connection_asks_again() -> None:
    person = Person()
    asker = Asker(parse_rules(), person.ask, 0.01)
    for number in (1, 2):
        with pytest.raises(NotAllowed, match=r"nobody answered within 0\.01 s"):
            await asker.admit(API, 443)
        assert person.withdrawn == list(range(1, number + 1))


async def test_nobody_to_ask_is_no() -> None:
    asker = Asker(parse_rules(), limit_s=60)
    with pytest.raises(NotAllowed, match="nobody could be asked"):
        await asker.admit(API, 443)

    async def fail(_question: HostQuestion) -> Answer:
        raise BrokenPipeError

    with pytest.raises(NotAllowed, match="nobody could be asked"):
        await Asker(parse_rules(), fail, 60).admit(API, 443)


async def test_whoever_gives_up_leaves_the_question_to_the_others() -> None:
    person = Person()
    asker = Asker(parse_rules(), person.ask, 60)
    first, second = (asyncio.ensure_future(asker.admit(API, 443)) for _ in range(2))
    await settle()
    first.cancel()
    await settle()
    assert person.withdrawn == []
    person.answers[1].set_result(Answer.HOST)
    await second


async def test_connections_that_wait_are_bounded() -> None:
    person = Person()
    asker = Asker(parse_rules(), person.ask, 60)
    waiting = [asyncio.ensure_future(asker.admit(API, 443)) for _ in range(MAX_WAITING)]
    await settle()
    with pytest.raises(NotAllowed, match="too many connections wait"):
        await asker.admit(API, 443)
    person.answers[1].set_result(Answer.HOST)
    await asyncio.gather(*waiting)
    await asker.admit(API, 443)


async def test_at_the_end_nobody_waits_and_nothing_is_open() -> None:
    person = Person()
    asker = Asker(parse_rules(), person.ask, 60)
    waiting = [asyncio.ensure_future(asker.admit(Host("a.test"), 443))]
    await settle()
    waiting.append(asyncio.ensure_future(asker.admit(Host("b.test"), 443)))
    await asyncio.sleep(0)  # it waits, and its question is not put yet
    asker.close()
    async with asyncio.timeout(patient(5)):
        for task in waiting:
            with pytest.raises(NotAllowed):
                await task
    assert [question.host for question in person.asked] == ["a.test"]
    assert (person.withdrawn, asker.book.open) == ([1], [])
