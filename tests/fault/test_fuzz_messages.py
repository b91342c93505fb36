"""Damaged messages: each gets what the protocol promises it, and nothing is left.

A hundred thousand in `make deep`. HOLDFAST_FUZZ_SEED=n tries others; a failure names seed and message.
"""

import asyncio
import itertools
import json
import logging
import os
import random
import resource
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from holdfast.server.connection import ExecConnection
from holdfast.server.executor import Clocks, Executor
from holdfast.server.processes import processes
from holdfast.wire.methods import METHODS
from tests.support.accounting import Account, Census, Debt, Due, due, objects
from tests.support.mutator import (
    TOO_MANY,
    Fence,
    Mutator,
    chosen_seed,
    conversational,
    corpus,
    furnish,
    known_values,
)
from tests.support.patience import patient
from tests.support.tiers import DEEP, sizes

BURST: Final = 40  # delivered at once, as one read from a socket would
BURSTS: Final = 8  # on one connection
ANSWER_S: Final = patient(30.0)  # for a whole burst, on a loaded machine
LONG_POLL_S: Final = 0.01  # in place of a day
MAX_FILE_BYTES: Final = 1024 * 1024  # a block written at a wild offset must not fill the disk
MORE_OBJECTS: Final = 4000  # caches that fill late; a leak per connection is several times this
MORE_KIB: Final = 16 * 1024
CODES: Final = {-32600, -32601, -32602, -32603, -32004, -32010}
FATAL_SHARE: Final = 0.04  # of the fatal ones: about one per connection, so that most are not in vain
LAST: Final = b'{"id":"the last of its burst","method":"environment/status"}'
HANDSHAKE: Final = (
    b'{"id":0,"method":"initialize","params":{"clientName":"f"}}',
    b'{"method":"initialized"}',
)


class Wrong(AssertionError):
    """The server broke a promise; the text has the seed and the message."""


class Wire:
    """The socket's part: keeps what is sent, ends the connection when told to drop it."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.accounts: dict[str, Account] = {}
        self.late: list[dict[str, Any]] = []
        self.aborted = False
        self.readable = asyncio.Event()
        self.readable.set()
        self.news = asyncio.Event()
        self.life: asyncio.Task[None]

    def send(self, message: bytes) -> None:
        told = json.loads(message)
        if self.aborted:
            self.late += [told] if "method" not in told else []
        elif "method" not in told:
            self.answers.append(told)
            self.news.set()
        elif told["method"].startswith("process/"):
            params = told["params"]
            if params["seq"] == 1:
                self.accounts[params["processId"]] = Account()
            self.accounts[params["processId"]].pushed(told["method"], params)

    def pause_reading(self) -> None:
        self.readable.clear()

    def resume_reading(self) -> None:
        self.readable.set()

    def abort(self) -> None:
        self.aborted = True
        asyncio.get_running_loop().call_soon(self.life.cancel)  # as a transport reports its loss
        self.readable.set()
        self.news.set()


class Bench:
    """An executor to try messages on."""

    def __init__(self, root: Path, executor: Executor, label: str) -> None:
        self._root = root
        self._executor = executor
        self._label = label
        self.sent = 0

    async def converse(
        self, bursts: Sequence[Sequence[bytes]], *, slots: int, handshake: bool, resumable: bool, choppy: bool
    ) -> None:
        """One connection from its first message to its end.

        Raises:
            Wrong: some message did not get what it was due.
        """
        shutil.rmtree(self._root, ignore_errors=True)
        furnish(self._root)
        wire = Wire()
        connection = ExecConnection(self._executor, wire, label="fuzz", slots=slots, resumable=resumable)
        wire.life = asyncio.ensure_future(connection.run())
        await asyncio.sleep(0)
        initialized = False
        if handshake:
            initialized = await self._burst(
                connection, wire, [*HANDSHAKE, LAST], initialized, 1, choppy=False
            )
        for burst in bursts:
            if wire.aborted:
                break
            initialized = await self._burst(
                connection, wire, [*burst, LAST], initialized, slots, choppy=choppy
            )
        connection.end()
        async with asyncio.timeout(ANSWER_S):
            await asyncio.wait([wire.life])
        if not wire.life.cancelled():
            wire.life.result()

    async def _burst(
        self,
        connection: ExecConnection,
        wire: Wire,
        messages: list[bytes],
        initialized: bool,
        slots: int,
        *,
        choppy: bool,
    ) -> bool:
        """Deliver the messages and settle what is due for them; tells whether `initialize` has succeeded."""
        wire.answers.clear()
        if choppy:
            connection.on_writing_paused()
        for message in messages:
            if not wire.readable.is_set():
                if choppy:
                    connection.on_writing_resumed()
                async with asyncio.timeout(ANSWER_S):
                    await wire.readable.wait()
            connection.receive(message)
        if choppy:
            connection.on_writing_resumed()
        debts = [due(message, initialized=True) for message in messages]
        settle = self._in_order if slots == 1 else self._in_any_order
        try:
            async with asyncio.timeout(ANSWER_S):
                while (outcome := settle(wire, messages, debts, initialized)) is None:
                    wire.news.clear()
                    await wire.news.wait()
        except TimeoutError:
            raise self._wrong("no answer in time", messages[len(wire.answers) :]) from None
        return outcome

    def _in_order(
        self, wire: Wire, messages: list[bytes], debts: list[Debt], initialized: bool
    ) -> bool | None:
        """None while answers are missing; what else is wrong is found once the last one is there."""
        if not wire.aborted and (not wire.answers or wire.answers[-1]["id"] != debts[-1].id):
            return None
        answers = iter(wire.answers)
        for at, (message, debt) in enumerate(zip(messages, debts, strict=True)):
            if debt.due is Due.NOTHING and initialized:
                continue
            answer = next(answers, None)
            if debt.due in (Due.DROP, Due.NOTHING):  # nothing is due only to what `initialize` came before
                if not wire.aborted or answer is not None or wire.late:
                    raise self._wrong("not dropped, or served after that", messages[at : at + 3])
                self.sent += at + 1
                return initialized
            if answer is None:
                raise self._wrong("dropped or silent without a reason", messages[at : at + 3])
            if answer["id"] != (debt.id if debt.due is Due.ANSWER else -1):
                raise self._wrong(f"answered with {answer}", [message])
            self._check(answer, message, refused=debt.due is Due.REFUSAL)
            if debt.method == "initialize" and "result" in answer:
                initialized = True
        if wire.aborted or next(answers, None) is not None:
            raise self._wrong("more answers than questions", messages[-3:])
        self.sent += len(messages)
        return initialized

    def _in_any_order(
        self, wire: Wire, messages: list[bytes], debts: list[Debt], initialized: bool
    ) -> bool | None:
        """The same for a connection whose answers overtake each other; it has had its handshake."""
        fatal = next((at for at, debt in enumerate(debts) if debt.due is Due.DROP), len(debts))
        owed = [
            debt.id if debt.due is Due.ANSWER else -1 for debt in debts[:fatal] if debt.due is not Due.NOTHING
        ]
        if not wire.aborted and (fatal < len(debts) or len(wire.answers) < len(owed)):
            return None
        if wire.aborted and fatal == len(debts):
            raise self._wrong("dropped without a reason", messages)
        wrong = Counter(answer["id"] for answer in wire.answers)
        wrong.subtract(owed)
        if any(count > 0 or (count < 0 and not wire.aborted) for count in wrong.values()):
            raise self._wrong(f"answers too many or too few: {+wrong}, {-wrong}", messages)
        for answer in wire.answers:
            self._check(answer, b"(any)", refused=False)
        self.sent += fatal
        return initialized

    def _check(self, answer: dict[str, Any], message: bytes, *, refused: bool) -> None:
        if set(answer) == {"id", "result"} and not refused:
            return
        error = answer.get("error", {})
        if (
            set(answer) != {"id", "error"}
            or error["code"] not in CODES
            or error["message"] == "internal error"
        ):
            raise self._wrong(f"answered with {answer}", [message])
        if refused and error["code"] != -32600:
            raise self._wrong(f"a malformed message was answered with {answer}", [message])

    def _wrong(self, what: str, messages: Sequence[bytes]) -> Wrong:
        shown = "\n".join(f"  {message[:2000]!r}" for message in messages[:8])
        return Wrong(f"{what}; {self._label}, after {self.sent} messages:\n{shown}")


class _Errors(logging.Handler):
    """Everything logged as an error, and what the loop had to report."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []
        self.setFormatter(logging.Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@asynccontextmanager
async def _bench(root: Path, label: str) -> AsyncIterator[Bench]:
    """A bench whose executor must log no error and leave neither task, descriptor nor child."""
    loop = asyncio.get_running_loop()
    errors = _Errors()
    logging.getLogger().addHandler(errors)
    loop.set_exception_handler(lambda _, context: errors.texts.append(repr(context)))
    tasks = asyncio.all_tasks()
    executor = Executor(
        {"PATH": "/usr/bin:/bin", "HOME": str(root / "home")}, Clocks(detached_s=0.05, closed_s=0.5)
    )
    executor.open()
    bench = Bench(root / "room", executor, label)
    try:
        yield bench
        async with asyncio.timeout(ANSWER_S):
            while len(executor.sessions) or asyncio.all_tasks() - tasks - {asyncio.current_task()}:
                await asyncio.sleep(0.01)
    finally:
        await executor.aclose()
        await loop.shutdown_default_executor()
        logging.getLogger().removeHandler(errors)
        loop.set_exception_handler(None)
    assert not errors.texts, f"{label}: {errors.texts[0]}"


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory with a short name, so that damage to a path rarely leads out of it."""
    with tempfile.TemporaryDirectory(prefix="f") as name:
        yield Path(name)


@contextmanager
def _harmless(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Short polls, small files, and a port that refuses connections."""
    monkeypatch.setattr(processes, "MAX_WAIT_S", LONG_POLL_S)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, hard))
    try:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            yield bound.getsockname()[1]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_corpus_has_a_message_of_every_method(tmp_path: Path) -> None:
    messages = [json.loads(message) for message in corpus(tmp_path, 9)]
    assert {message["method"] for message in messages if "params" in message} >= METHODS.keys()


@pytest.mark.timeout(600)
@sizes("messages", quick=3_000, deep=100_000)
async def test_every_mutated_message_gets_what_it_is_due(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    messages: int,
    record_property: Callable[[str, object], None],
) -> None:
    number = chosen_seed()
    dice = random.Random(number)  # noqa: S311 - repeatable is the point
    before = Census.of(os.getpid())
    with _harmless(monkeypatch) as port:
        fence = Fence(root, port)
        mutants = (
            message
            for message in Mutator(number, corpus(root / "room", port))
            if fence.admits(message)
            and (due(message, initialized=True).due is not Due.DROP or dice.random() < FATAL_SHARE)
        )
        async with _bench(root, f"HOLDFAST_FUZZ_SEED={number}") as bench:
            middle: tuple[int, Census] | None = None
            while bench.sent < messages:
                bursts = [list(itertools.islice(mutants, BURST)) for _ in range(BURSTS)]
                if dice.random() < 0.03:
                    bursts[0].insert(5, TOO_MANY)
                slots = dice.choice((1, 1, 1, 4))
                await bench.converse(
                    bursts,
                    slots=slots,
                    handshake=slots > 1 or dice.random() < 0.9,
                    resumable=dice.random() < 0.5,
                    choppy=dice.random() < 0.2,
                )
                if middle is None and bench.sent > messages // 3:
                    middle = objects(), Census.of(os.getpid())
            record_property("messages", bench.sent)
            assert middle is not None
            assert objects() - middle[0] < MORE_OBJECTS
            after = Census.of(os.getpid())
            assert after.private_kib - middle[1].private_kib < MORE_KIB
    after = Census.of(os.getpid())
    assert (after.files, after.children) == (before.files, before.children)


@pytest.mark.timeout(300)
@sizes("examples", quick=6, deep=120)
@pytest.mark.parametrize(
    "new_loop",
    [
        pytest.param(uvloop.new_event_loop, id="uvloop"),
        pytest.param(asyncio.new_event_loop, id="asyncio", marks=DEEP),
    ],
)
def test_every_conversation_hypothesis_thinks_of_gets_what_it_is_due(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    examples: int,
    record_property: Callable[[str, object], None],
) -> None:
    """Each example is a conversation of up to 24 messages."""
    number = chosen_seed()
    with _harmless(monkeypatch) as port, asyncio.Runner(loop_factory=new_loop) as runner:
        fence = Fence(root, port)
        known = known_values(corpus(root / "room", port))
        talks = st.lists(conversational(known), min_size=8, max_size=24)
        opened = _bench(root, f"HOLDFAST_FUZZ_SEED={number}")
        bench = runner.run(opened.__aenter__())

        @seed(number)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(talks, st.sampled_from([1, 1, 4]), st.booleans())
        def converse(messages: list[bytes], slots: int, choppy: bool) -> None:
            burst = [message for message in messages if fence.admits(message)]
            runner.run(bench.converse([burst], slots=slots, handshake=True, resumable=False, choppy=choppy))

        converse()
        record_property("conversations", examples)
        runner.run(opened.__aexit__(None, None, None))
