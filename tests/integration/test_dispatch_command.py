"""`holdfast dispatch` as a process: what it prints, and how it exits."""

import json
import os
import subprocess
import sys

import pytest

from holdfast.board.rules.transitions import TaskStatus
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.patience import patient
from tests.support.tiers import ASYNCIO, Backend

__all__ = ["home_fixture", "yard_fixture"]

WAIT_S = patient(60)


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO  # the command brings its own loop


def dispatch(yard: Yard, *words: str) -> "subprocess.CompletedProcess[str]":
    """However busy this machine is."""
    argv = [sys.executable, "-m", "holdfast", "dispatch", "--home", str(yard.home), "--store", yard.address]
    argv += ["--max-load", "0", "--min-free-memory", "0"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(yard.user)}
    return subprocess.run(
        [*argv, *words], env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )


async def test_once_starts_what_is_ready_follows_it_and_leaves(yard: Yard) -> None:
    task = yard.create("echo fine")
    done = dispatch(yard, "--board", "b", "--once", "--max", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    [run] = yard.store.runs(task.id)
    about = {"schemaVersion": 1, "run": run.id, "task": task.id, "board": "b", "profile": "script"}
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {**about, "kind": "began"},
        {**about, "kind": "ended"},
    ]
    assert yard.store.task(task.id).status is TaskStatus.DONE


async def test_a_dry_run_says_what_would_be_started_and_why_the_rest_waits(yard: Yard) -> None:
    yard.store.set_cap("b", "board", "", 1)
    first, second = yard.create("true", priority=1), yard.create("true")
    other = yard.create("true", assignee="nobody")
    said = json.loads(dispatch(yard, "--board", "b", "--dry-run", "--json").stdout)
    assert said["starts"] == [{"board": "b", "task": first.id}]
    waits = {wait["task"]: wait["reason"] for wait in said["waits"]}
    assert waits.keys() == {second.id, other.id}
    assert "cap of the board" in waits[second.id]
    assert "no worker accepts it" in waits[other.id]
    assert {yard.store.task(task.id).status for task in (first, second, other)} == {TaskStatus.READY}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--board", "nope"), 3),
        (("--board", "b", "--once", "--drain"), 2),
        (("--once",), 2),
        (("--board", "b", "--max", "0"), 2),
        (("--board", "b", "--notify", "it's open"), 2),
    ],
)
async def test_what_is_wrong_is_said_by_the_exit_code(yard: Yard, words: tuple[str, ...], code: int) -> None:
    done = dispatch(yard, *words, "--json")
    assert done.returncode == code
    assert json.loads(done.stdout)["error"]["exit"] == code


async def test_a_wrong_file_of_launchers_is_named(yard: Yard) -> None:
    yard.profile("x", agent="no-such-agent")
    done = dispatch(yard, "--board", "b", "--once")
    assert done.returncode == 2
    assert "worker-profiles.toml" in done.stderr
    assert "no-such-agent" in done.stderr
