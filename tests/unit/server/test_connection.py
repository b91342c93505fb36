"""What a connection lets through before its handshake, how it waits, and its questions to a client."""

import asyncio
import json

import pytest

from holdfast.errors import InvalidRequest
from holdfast.server.connection import NO_ANSWER, ExecConnection, HandshakeStage, Questions, gate
from holdfast.server.executor import Executor
from holdfast.wire import rpc
from holdfast.wire.methods import METHODS, MethodRow
from holdfast.wire.network import MAX_QUESTIONS, PolicyQuestion, PolicyRequest
from tests.support.patience import patient
from tests.support.rows import every_row

OTHERS = [method for name, method in METHODS.items() if name != "initialize"]


@every_row("method", OTHERS, ids=lambda method: method.name)
def test_nothing_but_initialize_comes_first(method: MethodRow) -> None:
    with pytest.raises(InvalidRequest) as caught:
        gate(HandshakeStage.NEW, method)
    assert str(caught.value) == f"client must call initialize before using {method.family} methods"


@every_row("method", OTHERS, ids=lambda method: method.name)
def test_nothing_comes_before_the_client_says_initialized(method: MethodRow) -> None:
    with pytest.raises(InvalidRequest) as caught:
        gate(HandshakeStage.INITIALIZED, method)
    assert str(caught.value) == f"client must send initialized before using {method.family} methods"


@every_row("method", OTHERS, ids=lambda method: method.name)
def test_everything_is_open_once_the_handshake_is_complete(method: MethodRow) -> None:
    gate(HandshakeStage.READY, method)


def test_initialize_opens_a_new_connection() -> None:
    gate(HandshakeStage.NEW, METHODS["initialize"])


@pytest.mark.parametrize("stage", [HandshakeStage.INITIALIZED, HandshakeStage.READY])
def test_initialize_is_not_repeated(stage: HandshakeStage) -> None:
    with pytest.raises(InvalidRequest, match=r"^initialize may only be sent once per connection$"):
        gate(stage, METHODS["initialize"])


def test_the_families_are_those_of_the_protocol() -> None:
    assert {method.family for method in OTHERS} == {
        "exec",
        "environment info",
        "environment status",
        "environment config",
        "capability discovery",
        "filesystem",
        "http",
    }


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


class Silent:
    """A wire on which nobody hears anything."""

    def send(self, message: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None: ...


@pytest.mark.parametrize("near", [True, False])
async def test_the_loop_lingers_for_a_client_that_may_ask_again_at_once(
    near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, touched = Executor({}), []
    monkeypatch.setattr(executor.linger, "touch", lambda: touched.append(near))
    connection = ExecConnection(executor, Silent(), label="test", near=near)
    connection.receive(b"{}")
    assert touched == ([True] if near else [])
