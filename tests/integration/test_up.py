"""`holdfast up`: the exec server answers, the example comes to its three ends, a signal ends it cleanly."""

import asyncio
import configparser
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.board.rules.transitions import Move, TaskStatus
from holdfast.board.store import open_store
from holdfast.client.environment import connect
from holdfast.dispatch import demo
from holdfast.dispatch.demo import FORBIDDEN
from tests.support import proc
from tests.support.home import WAIT_S, home, started, until
from tests.support.tiers import ASYNCIO, Backend
from tests.support.web import Dashboard, listening

__all__ = ["home"]


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO  # the command brings its own loop


async def test_the_example_is_done_denied_and_asked_about_and_the_answer_is_used(home: Path) -> None:
    with started(home, "up", "--demo") as process:
        ids = (await until(process, "demo"))["tasks"]
        with open_store(str(home / "board.db"), create=False) as store:
            done, denied, asked = (store.task(id) for id in ids)
            assert [done.status, denied.status, asked.status] == ["done", "failed", "waiting_human"]
            assert asked.options == ["red", "white"]
            [run] = store.runs(denied.id)
            end = json.loads(store.file(denied.id, run.id, "end.json"))
            [refused] = [one for one in end["worker"]["denials"] if one["path"] == FORBIDDEN]
            assert (refused["errno"], refused["grant"]) == ("EROFS", "--allow-write /etc")
            store.move(asked.id, Move.UNBLOCK, who="anna", reason="red")  # what the printed command does
            async with asyncio.timeout(WAIT_S):
                while store.task(asked.id).status is not TaskStatus.DONE:
                    await asyncio.sleep(0.05)
            assert store.task(asked.id).result == "The sail is red"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, WAIT_S) == 0


async def test_its_dashboard_shows_what_a_worker_says_while_it_runs(home: Path) -> None:
    with started(home, "up") as process:
        here = Dashboard((await until(process, "web"))["address"])
        async with here.client() as client:
            script = {"title": "talk", "assignee": "script", "body": "echo hello from inside\nsleep 600"}
            made = await client.post("/api/boards/main/tasks", json=script)
            where = f"/api/tasks/{made.json()['task']['id']}"
            async with asyncio.timeout(WAIT_S), listening(client, "main", 0) as messages:
                said: dict[str, Any] = {}
                while "hello from inside" not in said.get("content", ""):
                    said = (await client.get(f"{where}/output")).json()
                assert said["live"]
                await client.post(f"{where}/cancel", json={})
                while True:
                    _, changes = await anext(messages)
                    if any(event["kind"] == "cancel" for event in changes.get("events", ())):
                        break
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, WAIT_S) == 0


async def test_it_goes_on_without_a_dashboard(home: Path) -> None:
    hidden = home / "hidden" / "uvicorn"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError('no', name='uvicorn')", "utf-8")
    with started(home, "up", PYTHONPATH=str(hidden.parent)) as process:
        assert (await until(process, "web"))["address"] is None
        await until(process, "ready")
    with started(home, "up", "--no-web") as process:
        await until(process, "ready")
        process.send_signal(signal.SIGTERM)
        rest, _ = await asyncio.to_thread(process.communicate, timeout=WAIT_S)
        assert '"kind":"web"' not in rest


async def test_a_second_demo_shows_the_first_ones_tasks(home: Path) -> None:
    shown = []
    for _ in range(2):
        with started(home, "up", "--demo", "--no-web") as process:
            shown.append((await until(process, "demo"))["tasks"])
            process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(process.wait, WAIT_S) == 0
    assert shown[0] == shown[1]
    with open_store(str(home / "board.db"), create=False) as store:
        assert len(store.page("demo").tasks) == 3
        assert all(len(store.runs(id)) == 1 for id in shown[0])


def test_an_example_of_another_installation_that_did_not_end_is_made_anew(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "board.db")) as store:
        old = demo.create_tasks(store, ["/gone/python"])
        store.move(old[0], Move.COMPLETE, result="done")
        new = demo.create_tasks(store, ["/here/python"])
        assert new[0] == old[0]
        assert new[1] == old[1], "its body names no installation"
        assert new[2] != old[2]
        assert store.task(old[2]).status is TaskStatus.CANCELLED
        assert demo.create_tasks(store, ["/here/python"]) == new


def test_a_unit_is_written_with_what_was_typed_and_no_secret(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SECRET_KEY": "hunter2"}
    argv = [sys.executable, "-m", "holdfast", "up", "--install-service", "--json", "--max", "3", "--no-web"]
    more = ["--home", str(tmp_path / "a 100%")]
    done = subprocess.run([*argv, *more], env=env, capture_output=True, check=True, timeout=WAIT_S)
    said = json.loads(done.stdout)
    path = tmp_path / ".config/systemd/user/holdfast.service"
    assert said["unit"] == str(path)
    assert "systemctl --user enable --now holdfast" in said["type"]
    unit = configparser.ConfigParser(interpolation=None)
    unit.read(path)
    words = unit["Service"]["ExecStart"]
    assert words.startswith(f'"{sys.executable}"')
    assert words.endswith(f'"--home" "{tmp_path}/a 100%%" "--max" "3" "--no-web"')
    assert "hunter2" not in path.read_text("utf-8")
    assert not (tmp_path / "a 100%").exists()
    store = ["--store", "postgresql://me:hunter2@db/board"]
    refused = subprocess.run([*argv, *store], env=env, capture_output=True, check=False, timeout=WAIT_S)
    assert refused.returncode == 2
    assert "hunter2" not in path.read_text("utf-8")


async def test_nothing_listens_on_the_network_unless_it_is_asked_for(home: Path) -> None:
    """Whoever may connect to an exec server may run commands as this user, confined workers included."""
    with started(home, "up", "--no-web") as process:
        await until(process, "ready")
        assert proc.listening_ports(process.pid) == []
        process.send_signal(signal.SIGTERM)
        said, _ = await asyncio.to_thread(process.communicate, timeout=WAIT_S)
        assert '"kind":"serving"' not in said


async def test_its_exec_server_runs_commands_and_a_second_one_is_sent_away(home: Path) -> None:
    with started(home, "up", "--listen", "ws://127.0.0.1:0") as process:
        address = (await until(process, "serving"))["address"]
        assert int(address.rpartition(":")[2]) in proc.listening_ports(process.pid)
        async with connect(address) as environment:
            assert (await environment.run(["echo", "hello"], cwd="/")).stdout == b"hello\n"
        with started(home, "up") as second:
            code = await asyncio.to_thread(second.wait, WAIT_S)
        assert code == 4
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, WAIT_S) == 0
