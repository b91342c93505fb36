"""Questions to a client: answers in any order, bounds on number and time, and the end."""

import asyncio
import json

from holdfast.server.questions import NO_ANSWER, Questions
from holdfast.wire import rpc
from holdfast.wire.network import MAX_QUESTIONS, PolicyQuestion, PolicyRequest
from tests.support.patience import patient

ASKED = PolicyRequest("p", PolicyQuestion("http", "a.example", 80))


def begin(questions: Questions) -> int:
    begun = questions.begin("network/policyRequest", ASKED)
    assert begun is not None
    number, message = begun
    assert json.loads(message)["id"] == number
    return number


async def test_answers_find_their_questions_in_any_order() -> None:
    questions = Questions()
    numbers = [begin(questions) for _ in range(3)]
    assert numbers == [1, 2, 3]
    waiting = [asyncio.ensure_future(questions.wait(number, patient(10))) for number in numbers]
    await asyncio.sleep(0)
    assert questions.answer(rpc.Response(3, "c"))
    assert questions.answer(rpc.ErrorResponse(1, -32000, "no"))
    assert questions.answer(rpc.Response(2, "b"))
    assert await asyncio.gather(*waiting) == [NO_ANSWER, "b", "c"]
    assert not questions.any


async def test_an_answer_that_is_late_is_ignored_and_one_that_nobody_asked_for_is_not_ours() -> None:
    questions = Questions()
    number = begin(questions)
    assert await questions.wait(number, 0) is NO_ANSWER
    assert not questions.any
    assert questions.answer(rpc.Response(number, "late"))
    for stranger in (number + 1, 0, -1, "1"):
        assert not questions.answer(rpc.Response(stranger, None))
    assert not questions.answer(rpc.Notification("x"))


async def test_no_more_than_so_many_are_open_and_time_makes_room() -> None:
    questions = Questions()
    for _ in range(MAX_QUESTIONS):
        begin(questions)
    assert questions.begin("network/policyRequest", ASKED) is None
    assert await questions.wait(1, 0) is NO_ANSWER
    assert begin(questions) == MAX_QUESTIONS + 1


async def test_at_the_end_of_the_connection_nobody_waits_and_what_came_before_counts() -> None:
    questions = Questions()
    first, second = (asyncio.ensure_future(questions.wait(begin(questions), patient(10))) for _ in range(2))
    await asyncio.sleep(0)
    assert questions.answer(rpc.Response(1, "yes"))
    questions.end()
    assert [await first, await second] == ["yes", NO_ANSWER]
    assert questions.begin("network/policyRequest", ASKED) is None
