"""Hosts that a worker of the board waits for: asked about and answered there, in both databases, and by every
face while a real program waits for its connection."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.board.rules.rows import Run, Task
from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.store import Store
from holdfast.board.verbs.hostquestions import MAX_ASKED
from holdfast.errors import Conflict, InvalidRequest, StaleRun, UsageError
from tests.integration.test_mcp import call, tools
from tests.support.board_command import Board
from tests.support.boards import claimed, made
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.fleet import far_machine
from tests.support.tiers import DEEP, asyncio_first
from tests.support.webhosts import WebHosts, web_hosts

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]

pytestmark = pytest.mark.timeout(180)

HOST = "api.test:443"


@pytest.fixture
def held(store: Store) -> tuple[Task, Run]:
    return claimed(store, made(store).id)


def put(store: Store, run: Run, request: str = "n1", host: str = HOST, pattern: str = "") -> object:
    words = {"request": request, "host": host, "pattern": pattern}
    return store.ask_host(run.ref, program="/usr/bin/curl", **words)


def history(store: Store, task: Task) -> list[tuple[str, str, object]]:
    """Who said what about hosts."""
    return [
        (event.kind, event.actor, event.payload.get("answer") or event.payload.get("outcome"))
        for event in store.show(task.id).events
        if event.kind.startswith("host_")
    ]


def test_a_question_is_asked_answered_once_and_written_down(store: Store, held: tuple[Task, Run]) -> None:
    task, run = held
    assert put(store, run) == put(store, run)
    [waiting] = store.inbox("b").waiting
    assert (waiting.task, waiting.options) == (task.id, ["yes", "no"])
    assert store.waiting(task.id) == waiting
    given = store.answer_host(task.id, "yes", HOST, who="ada")
    assert (given.answer, given.who, given.run_id) == ("yes", "ada", run.id)
    assert (store.inbox("b").waiting, store.waiting(task.id)) == ([], None)
    with pytest.raises(Conflict, match="ada has answered"):
        store.answer_host(task.id, "no", HOST, who="bob")
    for _ in range(2):
        store.settle_host(run.ref, "n1", "allowed")
    assert history(store, task) == [
        ("host_asked", "board", None),
        ("host_answered", "ada", "yes"),
        ("host_settled", "board", "allowed"),
    ]
    [kept] = store.show(task.id).questions
    assert (kept.outcome, kept.who) == ("allowed", "ada")


def test_an_answer_is_for_what_is_asked_now_and_for_nothing_else(
    store: Store, held: tuple[Task, Run]
) -> None:
    task, run = held
    other, other_run = claimed(store, made(store).id)
    put(store, run)
    put(store, other_run, "n9", "other.test:443")
    with pytest.raises(InvalidRequest, match=r"does not ask about other\.test:443") as refused:
        store.answer_host(task.id, "yes", "other.test:443")
    assert refused.value.remedy == f"holdfast task answer {task.id} ANSWER {HOST}"
    with pytest.raises(InvalidRequest, match="does not ask"):
        store.answer_host(task.id, "yes", "api.test:80")
    with pytest.raises(UsageError, match="nothing but"):
        store.answer_host(task.id, "pattern", HOST)
    store.settle_host(run.ref, "n1", "no answer in time")
    with pytest.raises(InvalidRequest, match="no answer in time"):
        store.answer_host(task.id, "yes", HOST)
    assert list(store.asking_tasks("b")) == [other.id]
    put(store, run, "n2", HOST, "*.test:443")
    assert store.answer_host(task.id, "pattern", HOST).request == "n2"


def test_a_question_is_over_with_its_run(store: Store, held: tuple[Task, Run]) -> None:
    task, run = held
    put(store, run)
    store.move(task.id, Move.BLOCK)
    assert [one.status for one in store.inbox("b").waiting] == [TaskStatus.WAITING_HUMAN]
    with pytest.raises(InvalidRequest, match="does not ask"):
        store.answer_host(task.id, "yes", HOST)
    with pytest.raises(StaleRun):
        put(store, run, "n2")
    store.move(task.id, Move.UNBLOCK)
    _, second = claimed(store, task.id)
    with pytest.raises(InvalidRequest, match="does not ask"):
        store.answer_host(task.id, "yes", HOST)  # the first one's question is not the second one's
    assert store.host_questions(second.id) == []
    store.settle_host(run.ref, "n1", "the connection does not wait any more")
    assert len(history(store, task)) == 2


def test_questions_of_a_run_are_bounded(store: Store, held: tuple[Task, Run]) -> None:
    task, run = held
    for number in range(MAX_ASKED):
        assert put(store, run, f"n{number:03}", f"h{number:03}.test:443") is not None
    assert put(store, run, "more", "more.test:443") is None
    [waiting] = store.inbox("b").waiting
    assert waiting.question == f"/usr/bin/curl wants to reach h000.test:443 (and {MAX_ASKED - 1} more)"
    assert len(store.show(task.id).questions) == MAX_ASKED


# --- with a dispatcher, and programs that wait


def fetching(yard: Yard, hosts: WebHosts, **more: Any) -> int:
    """A profile whose workers are asked about; the port at which every name of the test is."""
    port = hosts.ports["plain"]
    names = ("one.test", "two.test", "three.test", "denied.test")
    rules = {f"known.test:{port}": "allow", "denied.test": "deny", "private": True}
    rules |= {"addresses": dict.fromkeys(names, "127.0.0.1")}
    yard.profile("fetch", agent="shell", prompt="{body}", success="exit", hosts=rules, **more)
    return port


async def open_host(yard: Yard, task: Task) -> str:
    """The one that is asked about next."""
    await yard.when(lambda: yard.store.asking_tasks("b").get(task.id))
    return yard.store.asking_tasks("b")[task.id][0].host


async def test_a_run_waits_is_answered_by_every_face_and_the_program_never_sees_a_failure(
    yard: Yard, tmp_path: Path
) -> None:
    with web_hosts(tmp_path) as hosts:
        port = fetching(yard, hosts, ask_network=True)
        fetch = f'fetch() {{ curl -sS --fail "http://$1.test:{port}/$2"; }}; set -e'
        script = f"{fetch}; fetch one a; fetch one again; fetch two b; ! fetch three c; ! fetch denied d"
        task = yard.create(script, assignee="fetch")
        commands = Board(yard.address, yard.user)
        notify = ("sh", "-c", f"cat >> {tmp_path}/told")
        async with yard.dispatching(notify=notify):
            assert await open_host(yard, task) == f"one.test:{port}"
            await yard.when((tmp_path / "told").exists)
            shown = await asyncio.to_thread(commands.run, "task", "show", task.id)
            assert f"curl wants to reach one.test:{port}" in shown.stdout
            listed = await asyncio.to_thread(commands.answer, "task", "list", "--board", "b")
            assert isinstance(listed["reasons"], dict)
            assert "waits for an answer" in listed["reasons"][task.id]
            [waiting] = yard.store.inbox("b").waiting
            said = await asyncio.to_thread(commands.run, *waiting.next[0].split()[1:])
            assert (said.returncode, f"allowed: one.test:{port}" in said.stdout) == (0, True), said

            assert await open_host(yard, task) == f"two.test:{port}"
            environ = {"HOLDFAST_HOME": str(yard.user), "HOLDFAST_STORE": yard.address}
            async with tools("--board", "b", cwd=tmp_path, env=environ) as client:
                told = await call(client, "kanban_show", task_id=task.id)
                asked = [one["host"] for one in told["questions"] if not one["answer"]]
                assert asked == [f"two.test:{port}"]
                given = await call(client, "kanban_answer", task_id=task.id, answer="yes", host=asked[0])
                assert given["run_id"] == yard.store.runs(task.id)[-1].id
                assert "error" in await call(
                    client, "kanban_answer", task_id=task.id, answer="no", host=asked[0]
                )

            assert await open_host(yard, task) == f"three.test:{port}"
            yard.store.answer_host(task.id, "no", f"three.test:{port}", who="ada")
            done = await yard.until(task, TaskStatus.DONE)
        arrived = [seen.data.split(b" ")[1] for seen in hosts.seen if seen.data]
    assert (arrived, len(yard.store.runs(task.id))) == ([b"/a", b"/again", b"/b"], 1), done
    assert f"wants to reach one.test:{port}" in (tmp_path / "told").read_text("utf-8")
    settled = [said for kind, _, said in history(yard.store, task) if kind == "host_settled"]
    assert settled == ["allowed", "allowed", "refused"]
    refused = yard.told("run_network")[task.id]
    assert isinstance(refused, dict)
    assert {row["host"] for row in refused["refused"]} == {"three.test", "denied.test"}


@DEEP
async def test_a_run_on_another_machine_is_asked_about_here(yard: Yard, tmp_path: Path) -> None:
    with web_hosts(tmp_path) as hosts:
        port = fetching(yard, hosts, ask_network=True)
        script = f"curl -sS --fail http://one.test:{port}/far"
        task = yard.create(script, assignee="fetch", environment="box")
        async with far_machine(yard.home, yard.folder / "there"), yard.dispatching():
            yard.store.answer_host(task.id, "yes", await open_host(yard, task), who="ada")
            await yard.until(task, TaskStatus.DONE)
        assert b"/far" in hosts.seen[0].data
    assert history(yard.store, task)[-1] == ("host_settled", "board", "allowed")


async def test_without_an_answer_in_time_it_is_no_and_that_is_written_down(
    yard: Yard, tmp_path: Path
) -> None:
    """By the setup of a profile, which nobody looks after, nobody is asked."""
    with web_hosts(tmp_path) as hosts:
        port = fetching(yard, hosts, ask_network=0.5, setup="! curl -sS --fail http://one.test")
        task = yard.create(f"! curl -sS --fail http://one.test:{port}/", assignee="fetch")
        async with yard.dispatching():
            await yard.until(task, TaskStatus.DONE)
        assert hosts.seen == []
    assert history(yard.store, task) == [
        ("host_asked", "board", None),
        ("host_settled", "board", "no answer in time"),
    ]
