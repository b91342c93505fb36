"""`holdfast up`: the exec server answers, the example comes to its three ends, a signal ends it cleanly."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents import background
from holdfast.board.store import open_store
from holdfast.client.environment import connect
from holdfast.dispatch.demo import FORBIDDEN
from tests.support.arena import end_exec_server, end_listener

WAIT_S = 60


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the command brings its own loop


@pytest.fixture
async def home() -> AsyncIterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="up-", dir="/var/tmp"))
    try:
        yield folder
    finally:
        await end_listener(background.supervisor_socket(folder), signal.SIGTERM)
        await end_exec_server(folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running(home: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    argv = [sys.executable, "-m", "holdfast", "up", "--json", *words]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "HOLDFAST_HOME": str(home)}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def until(process: "subprocess.Popen[str]", kind: str) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_S):
        while line := await asyncio.to_thread(process.stdout.readline):
            said: dict[str, Any] = json.loads(line)
            if said["kind"] == kind:
                return said
    raise AssertionError("it ended")


async def test_the_example_is_done_denied_and_asked_about(home: Path) -> None:
    with running(home, "--demo") as process:
        ids = (await until(process, "demo"))["tasks"]
        with open_store(str(home / "board.db"), create=False) as store:
            done, denied, asked = (store.task(id) for id in ids)
            assert [done.status, denied.status, asked.status] == ["done", "failed", "waiting_human"]
            assert asked.options == ["red", "white"]
            [run] = store.runs(denied.id)
            end = json.loads(store.file(denied.id, run.id, "end.json"))
            [refused] = [one for one in end["worker"]["denials"] if one["path"] == FORBIDDEN]
            assert (refused["errno"], refused["grant"]) == ("EROFS", "--allow-write /etc")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, WAIT_S) == 0


async def test_its_exec_server_runs_commands_and_a_second_one_is_sent_away(home: Path) -> None:
    with running(home) as process:
        address = (await until(process, "serving"))["address"]
        async with connect(address) as environment:
            assert (await environment.run(["echo", "hello"], cwd="/")).stdout == b"hello\n"
        with running(home) as second:
            code = await asyncio.to_thread(second.wait, WAIT_S)
        assert code == 4
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, WAIT_S) == 0
