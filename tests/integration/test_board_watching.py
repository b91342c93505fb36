"""Following tasks, waiting for them, and looking at what their runs left; on a terminal, in tables."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.sdk import Workers
from holdfast.agents.supervisor import background
from holdfast.board.rules.transitions import Move
from holdfast.board.store import Store, open_store
from tests.support.arena import end_exec_server, end_listener
from tests.support.board_command import WAIT_S, Board
from tests.support.boards import claimed, made
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

pytestmark = pytest.mark.timeout(300)  # many processes, each of which starts an interpreter


@pytest.fixture
def store(board: Board) -> Iterator[Store]:
    """The same store from this side, with a board `b`."""
    with open_store(board.address) as opened:
        opened.create_board("b")
        yield opened


@pytest.fixture
def sqlite_store(sqlite_board: Board) -> Iterator[Store]:
    """Likewise of the store that is on SQLite alone."""
    with open_store(sqlite_board.address) as opened:
        opened.create_board("b")
        yield opened


@contextlib.contextmanager
def started(board: Board, *args: str) -> "Iterator[subprocess.Popen[str]]":
    with board.start(*args) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    found = json.loads(process.stdout.readline())
    assert isinstance(found, dict)
    assert found["schemaVersion"] == 1
    return found


def test_a_list_is_followed_event_by_event(board: Board, store: Store) -> None:
    first = made(store)
    with started(board, "task", "list", "--board", "b", "--follow", "--json") as process:
        assert [task["id"] for task in next_line(process)["tasks"]] == [first.id]
        second = made(store, "second")
        store.move(first.id, Move.CANCEL, who="ann")
        seen = [next_line(process)["event"] for _ in range(2)]
        assert [(event["kind"], event["task_id"]) for event in seen] == [
            ("created", second.id),
            ("cancel", first.id),
        ]
        assert seen[1]["seq"] == seen[0]["seq"] + 1


def test_whoever_follows_leaves_quietly_when_nobody_reads(sqlite_board: Board, sqlite_store: Store) -> None:
    made(sqlite_store)
    with started(sqlite_board, "task", "list", "--board", "b", "--follow", "--json") as process:
        next_line(process)
        assert process.stdout is not None
        process.stdout.close()
        process.wait(WAIT_S)
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_task_is_followed_to_its_end(board: Board, store: Store) -> None:
    task = made(store)
    with started(board, "task", "show", task.id, "--follow", "--json") as process:
        assert next_line(process)["detail"]["task"]["status"] == "ready"
        _, run = claimed(store, task.id)
        made(store, "another")
        store.complete(run.ref, "e", "ok")
        assert [next_line(process)["event"]["kind"] for _ in range(2)] == ["claim", "complete"]
        assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize(("move", "code"), [(Move.COMPLETE, 0), (Move.BLOCK, 1), (Move.CANCEL, 1)])
def test_waiting_ends_when_the_task_stops_and_says_whether_it_is_done(
    board: Board, store: Store, move: Move, code: int
) -> None:
    task = made(store)
    with started(board, "task", "show", task.id, "--wait", "--json") as process:
        claimed(store, task.id)
        store.move(task.id, move)
        assert next_line(process)["detail"]["task"]["status"] != "running"
        assert process.wait(WAIT_S) == code
    board.answer("task", "show", task.id, "--wait", code=code)


def test_what_a_run_left_is_shown(sqlite_board: Board, sqlite_store: Store) -> None:
    task = made(sqlite_store)
    for verb in ("log", "diff", "policy"):
        sqlite_board.answer("task", verb, task.id, code=3)
    _, run = claimed(sqlite_store, task.id)
    for verb in ("log", "diff", "policy"):
        assert run.id in str(sqlite_board.answer("task", verb, task.id, code=3)["error"])
    sqlite_store.complete(run.ref, "e", "ok")
    report = {"backend": "namespaces", "network": False, "writable": ["/srv/p"], "state": "completed"}
    denials = [{"path": "/etc/shadow", "access": "read"}]
    sqlite_store.keep(run.id, "end.json", json.dumps({"worker": report | {"denials": denials}}).encode())
    sqlite_store.keep(run.id, "diff.patch", b"--- a\n+++ b\n")
    sqlite_store.keep(run.id, "output", b"said \x1b[31mthis\n")
    assert sqlite_board.run("task", "diff", task.id).stdout == "--- a\n+++ b\n"
    assert sqlite_board.run("task", "log", task.id, "--run", run.id).stdout == "said \x1b[31mthis\n"
    for short in (run.id[:6], run.id.partition("_")[2][:6]):
        assert sqlite_board.answer("task", "diff", task.id, "--run", short)["run"] == run.id
    answer = sqlite_board.answer("task", "policy", task.id)
    assert answer["policy"] == {
        **{"backend": "namespaces", "network": False, "writable": ["/srv/p"]},
        "denials": denials,
    }
    assert "read /etc/shadow" in sqlite_board.run("task", "policy", task.id).stdout
    sqlite_board.answer("task", "diff", made(sqlite_store).id, "--run", run.id, code=3)
    assert "\x1b" not in on_a_terminal(sqlite_board, "task", "log", task.id)


@contextlib.asynccontextmanager
async def background_ended(home: Path) -> AsyncIterator[None]:
    """What was started there in the background does not outlive this."""
    try:
        yield
    finally:
        await end_listener(background.supervisor_socket(home), signal.SIGTERM)
        await end_exec_server(home)


async def test_a_live_run_is_asked_for_at_the_supervisor(sqlite_board: Board, sqlite_store: Store) -> None:
    _, run = claimed(sqlite_store, made(sqlite_store).id)
    async with background_ended(sqlite_board.home), Workers.connect(sqlite_board.home) as workers:
        worker = await workers.run(
            "shell", cwd=str(sqlite_board.cwd), prompt="echo hello; read forever", id=run.id.replace("_", "-")
        )
        try:
            async for report in worker.changes():
                if report.evidence and "hello" in str(report):
                    break
            said = sqlite_board.answer("task", "log", run.task_id)
            assert (said["live"], said["content"]) == (True, "hello\n")
            policy = sqlite_board.answer("task", "policy", run.task_id)["policy"]
            assert isinstance(policy, dict)
            assert policy["backend"]
            assert policy["network"] is True
        finally:
            await worker.stop(grace_s=0.0)


def on_a_terminal(board: Board, *args: str) -> str:
    """What a command prints there."""
    leader, follower = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *args],
            env=board.environment | {"TERM": "dumb", "COLUMNS": "200"},
            cwd=board.cwd,
            stdin=follower,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        said = b""
        with contextlib.suppress(OSError):  # how a terminal ends
            while data := os.read(leader, 65536):
                said += data
        assert process.wait(WAIT_S) == 0
    finally:
        os.close(leader)
    return said.decode()


def test_people_get_tables_with_reasons_on_a_terminal(sqlite_board: Board, sqlite_store: Store) -> None:
    task = made(sqlite_store, "red \x1b[31m [bold]x")
    running, _ = claimed(sqlite_store, made(sqlite_store, "runs").id)
    text = on_a_terminal(sqlite_board, "task", "list", "--board", "b")
    assert "why" in text.splitlines()[0]
    assert "waits to be claimed" in text
    assert "[bold]x" in text
    assert "\x1b[31m [" not in text
    assert "why" not in sqlite_board.run("task", "list", "--board", "b").stdout
    assert "coder" in on_a_terminal(sqlite_board, "task", "runs", running.id)
    assert sqlite_board.answer("task", "list", "--board", "b")["reasons"] == {task.id: "waits to be claimed"}
