"""Talking to a worker that runs: every channel, both databases, the command line and a real dispatcher."""

import asyncio
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from holdfast.board.rules.rows import Run, Task
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.store import Store, open_store
from holdfast.board.verbs import messages
from holdfast.board.verbs.messages import MAX_MESSAGE, MAX_UNSEEN
from holdfast.errors import InvalidRequest, UsageError
from holdfast.handoff import envelope
from holdfast.handoff.broker import Broker
from holdfast.handoff.sender import Sender
from tests.support.board_command import Board
from tests.support.boards import SettableClock, claimed, made
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.handoff import KEY, WAIT_S, asked, grant_of, serving, started
from tests.support.patience import patient
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def held(store: Store) -> tuple[Task, Run]:
    return claimed(store, made(store).id)


def states(store: Store, task: Task) -> list[str]:
    return [messages.state(message) for message in store.show(task.id).messages]


def handed(store: Store, run: Run, id: str, *, ends: bool = False) -> list[str]:
    return [message.body for message in store.hand_out(run.ref, id, ends=ends)]


def kinds(store: Store) -> list[str]:
    told = ("told", "message_delivered", "message_seen")
    return [event.kind for event in store.events("b", limit=500) if event.kind in told]


def test_a_message_waits_is_delivered_and_has_been_seen_once_the_worker_goes_on(
    store: Store, held: tuple[Task, Run]
) -> None:
    task, run = held
    assert handed(store, run, "e0") == []
    assert store.tell(task.id, "use tabs", who="ann").author == "ann"
    assert states(store, task) == ["waiting"]
    assert handed(store, run, "e1") == ["use tabs"]
    assert states(store, task) == ["delivered"]
    assert handed(store, run, "e2") == []
    assert states(store, task) == ["seen"]
    assert kinds(store) == ["told", "message_delivered", "message_seen"]


def test_an_envelope_whose_answer_was_lost_gets_the_same_messages_again(
    store: Store, held: tuple[Task, Run]
) -> None:
    task, run = held
    store.tell(task.id, "one")
    assert handed(store, run, "e1") == ["one"]
    store.tell(task.id, "two")
    assert [handed(store, run, "e1") for _ in range(3)] == [["one"]] * 3
    assert states(store, task) == ["delivered", "waiting"]
    assert handed(store, run, "e2") == ["two"]
    assert handed(store, run, "e1") == ["one"]
    assert states(store, task) == ["seen", "delivered"]


def test_nobody_is_told_anything_who_does_not_run(store: Store, held: tuple[Task, Run]) -> None:
    task, run = held
    store.complete(run.ref, "e", "done")
    for id in (task.id, made(store).id):
        with pytest.raises(InvalidRequest) as caught:
            store.tell(id, "hello")
        assert caught.value.remedy is not None
        assert "task comment" in caught.value.remedy


def test_messages_are_bounded_in_number_and_size(store: Store, held: tuple[Task, Run]) -> None:
    task, run = held
    for text in ("", " \n", "x" * (MAX_MESSAGE + 1), "a\0b"):
        with pytest.raises(UsageError):
            store.tell(task.id, text)
    for number in range(MAX_UNSEEN):
        store.tell(task.id, str(number))
    with pytest.raises(InvalidRequest):
        store.tell(task.id, "too much")
    assert len(handed(store, run, "e1")) == MAX_UNSEEN
    assert handed(store, run, "e2") == []
    assert store.tell(task.id, "x" * MAX_MESSAGE).number == MAX_UNSEEN + 1


def test_what_ends_a_run_says_that_it_has_heard_and_is_told_nothing_more(
    store: Store, held: tuple[Task, Run]
) -> None:
    task, run = held
    store.tell(task.id, "one")
    assert handed(store, run, "e1") == ["one"]
    store.tell(task.id, "two")
    assert handed(store, run, "e2", ends=True) == []
    assert states(store, task) == ["seen", "waiting"]


def test_what_no_run_has_seen_is_for_the_next_one_and_never_for_an_old_one(
    store: Store, held: tuple[Task, Run], clock: SettableClock
) -> None:
    task, old = held
    store.tell(task.id, "seen")
    handed(store, old, "e1")
    store.tell(task.id, "delivered")
    handed(store, old, "e2")
    store.tell(task.id, "waiting")
    store.move(task.id, Move.BLOCK)
    assert handed(store, old, "e3") == []
    assert states(store, task) == ["seen", "delivered", "waiting"]
    store.move(task.id, Move.UNBLOCK)
    clock.now_ms += 1
    _, new = claimed(store, task.id)
    assert handed(store, old, "e4") == []
    assert states(store, task) == ["seen", "waiting", "waiting"]
    assert [message.body for message in store.brief(new.ref)] == ["delivered", "waiting"]
    assert [message.body for message in store.brief(new.ref)] == ["delivered", "waiting"]
    assert store.brief(old.ref) == []
    assert states(store, task) == ["seen", "delivered", "delivered"]
    assert handed(store, new, "f1") == []
    assert states(store, task) == ["seen", "seen", "seen"]
    assert {message.run_id for message in store.show(task.id).messages[1:]} == {new.id}


def test_an_envelope_of_an_old_generation_is_told_nothing(store: Store, tmp_path: Path) -> None:
    task, run = claimed(store, made(store).id)
    grant = grant_of(run, tmp_path)
    store.tell(task.id, "for the next one")
    store.move(task.id, Move.BLOCK)
    store.move(task.id, Move.UNBLOCK)
    claimed(store, task.id)
    answer = Broker(store, KEY).carry_out(envelope.seal(grant, "heartbeat", {}, id="late"))
    assert answer.error is not None
    assert (answer.error.kind, answer.messages) == ("StaleRun", [])
    assert states(store, task) == ["waiting"]


def test_a_verb_that_is_refused_brings_the_messages_all_the_same(store: Store, tmp_path: Path) -> None:
    task, run = claimed(store, made(store).id)
    grant = grant_of(run, tmp_path)
    store.tell(task.id, "stop that")
    answer = Broker(store, KEY).carry_out(
        envelope.seal(grant, "link", {"parent": task.id, "child": task.id}, id="e")
    )
    assert answer.error is not None
    assert [message.body for message in answer.messages] == ["stop that"]


@pytest.mark.parametrize("channel", ["socket", "outbox"])
async def test_messages_come_with_the_answer_over_every_channel(
    channel: Literal["socket", "outbox"], store: Store, address: str, tmp_path: Path
) -> None:
    ws, sock = tmp_path / "ws", tmp_path / "s"
    task, _ = started(store, ws, sock)
    sender = Sender.find(ws, {})

    async def heard(verb: str, **args: object) -> list[str]:
        answer = await asked(lambda: sender.send(verb, args, channel=channel, wait_s=WAIT_S))
        assert answer.error is None
        return [message.body for message in answer.messages]

    async with serving(address, sock, [ws]):
        assert await heard("heartbeat") == []
        store.tell(task.id, "use tabs")
        store.tell(task.id, "and no spaces")
        assert await heard("show") == ["use tabs", "and no spaces"]
        assert await heard("comment", body="I do") == []
        assert states(store, task) == ["seen", "seen"]
        assert await heard("complete", summary="done") == []


# --- the command line


@pytest.fixture
def running(sqlite_board: Board, tmp_path: Path) -> Iterator[tuple[Store, Task, Path]]:
    """A task that a worker has, with the place where that works."""
    with open_store(sqlite_board.address) as opened:
        opened.create_board("b")
        task, _ = started(opened, tmp_path / "ws", tmp_path / "s")
        yield opened, task, tmp_path / "ws"


async def test_a_person_tells_and_the_worker_reads_it_from_the_command_line(
    sqlite_board: Board, running: tuple[Store, Task, Path], tmp_path: Path
) -> None:
    store, task, ws = running

    async def handoff(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "holdfast", "handoff", *words]
        return await asked_process(command, ws)

    assert sqlite_board.run("task", "tell", made(store).id, "hello").returncode == 1
    told = sqlite_board.answer("task", "tell", task.id, "use tabs")["message"]
    assert isinstance(told, dict)
    assert (told["number"], told["delivered_ms"]) == (1, None)
    async with serving(sqlite_board.address, tmp_path / "s", [ws]):
        beat = await handoff("heartbeat")
        assert (beat.returncode, "use tabs" in beat.stdout) == (0, True)
        sqlite_board.answer("task", "tell", task.id, "not like that")
        refused = json.loads((await handoff("link", task.id, task.id, "--json")).stdout)
        assert refused["error"]["kind"] == "InvalidRequest"
        assert [message["body"] for message in refused["messages"]] == ["not like that"]
    detail = sqlite_board.answer("task", "show", task.id)["detail"]
    assert isinstance(detail, dict)
    assert [message["state"] for message in detail["messages"]] == ["seen", "delivered"]
    assert "message 2 by" in sqlite_board.run("task", "show", task.id).stdout


async def asked_process(command: list[str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(
        lambda: subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=patient(60), check=False
        )
    )


# --- with a dispatcher and a worker in its sandbox

LISTENER = """
import time
from holdfast.handoff.sender import Sender
sender, heard = Sender.find(), []
while not heard:
    heard = sender.send("heartbeat", {"note": "listening"}).messages
    time.sleep(0.02)
sender.send("complete", {"summary": heard[0].body})
"""


@pytest.mark.parametrize("network", [True, False], ids=["socket", "outbox"])
async def test_a_worker_in_its_sandbox_hears_what_a_person_says(yard: Yard, network: bool) -> None:
    yard.profile("agent", agent="shell", prompt="{body}", network=network)
    task = yard.create(shlex.join([sys.executable, "-c", LISTENER]), assignee="agent")
    async with yard.dispatching():
        await yard.when(lambda: any(run.note == "listening" for run in yard.store.runs(task.id)))
        yard.store.tell(task.id, "that will do", who="ann")
        done = await yard.until(task, TaskStatus.DONE)
    assert done.result == "that will do"
    assert states(yard.store, task) == ["seen"]


async def test_a_message_that_the_run_did_not_see_is_in_the_prompt_of_the_next(yard: Yard) -> None:
    code = "from holdfast.handoff.sender import Sender; Sender.find().send('complete', {'summary': 'heard'})"
    report = shlex.join([sys.executable, "-c", code])
    yard.program("my-agent", f'case "$1" in *"use tabs"*) {report};; *) touch began; sleep 300;; esac')
    yard.profile("agent", command=["my-agent", "{prompt}"], network=False)
    task = yard.create("indent it", assignee="agent")
    async with yard.dispatching():
        await yard.when(lambda: (yard.home / "board" / task.id / "began").exists())
        yard.store.tell(task.id, "use tabs")
        yard.store.move(task.id, Move.BLOCK)
        assert states(yard.store, task) == ["waiting"]
        yard.store.move(task.id, Move.UNBLOCK)
        done = await yard.until(task, TaskStatus.DONE)
    assert (done.result, states(yard.store, task)) == ("heard", ["seen"])
    [message] = yard.store.show(task.id).messages
    assert message.run_id == yard.store.runs(task.id)[-1].id
