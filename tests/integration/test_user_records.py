"""A CLI that nobody has heard of, described by a record in agents.toml, through the real supervisor."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.agents.sdk import Workers, select_variables
from holdfast.board.rules.transitions import TaskStatus
from holdfast.errors import UsageError
from tests.integration.test_worker_commands import Place, place
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.patience import patient
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

WAIT_S = patient(30.0)

TOY = """#!/bin/sh
say() { printf '%s\\n' "$1"; }
say '{"kind":"hello"}'
: > "$TOY_HOME/kept" || exit 9
case "$2" in
work) say '{"kind":"tool","name":"touch"}'; : > made
      say '{"kind":"bye","good":true,"in":3,"out":4}';;
limit) say '{"kind":"again","n":1}'; say '{"kind":"bye","good":false,"why":"429 too many requests"}'; exit 1;;
login) exit 7;;
ask) say '{"kind":"ask","what":"remove all?"}'; exec tail -f /dev/null;;
esac
"""

RECORD = """
[toy]
binary = "toy-cli"
headless = ["go", "{prompt}"]
relocation = { TOY_HOME = "{state}" }
exits = { zero = "unknown", codes = { 7 = "auth" } }
[[toy.state]]
path = "{home}/.toy"
role = "toy's home"
variable = "TOY_HOME"
[[toy.events]]
when = { kind = "hello" }
means = "start"
example = '{"kind":"hello"}'
[[toy.events]]
when = { kind = "tool" }
means = "tool-call"
tool = "name"
example = '{"kind":"tool","name":"touch"}'
[[toy.events]]
when = { kind = "again" }
means = "retry"
attempt = "n"
example = '{"kind":"again","n":1}'
[[toy.events]]
when = { kind = "ask" }
means = "asks"
message = "what"
example = '{"kind":"ask","what":"remove all?"}'
[[toy.events]]
when = { kind = "bye", good = true }
means = "done"
usage = { input = "in", output = "out" }
example = '{"kind":"bye","good":true,"in":3,"out":4}'
[[toy.events]]
when = { kind = "bye" }
means = "failed"
message = "why"
example = '{"kind":"bye","good":false,"why":"429 too many requests"}'

[broken]
binary = "toy-cli"
headless = ["{prompt}"]
colour = "red"
"""


def describe(here: Place) -> dict[str, str]:
    """The record and the program; the variables with which that is found."""
    here.home.mkdir(mode=0o700, exist_ok=True)
    (here.home / "agents.toml").write_text(RECORD)
    folder = here.home.parent / "bin"
    folder.mkdir()
    (folder / "toy-cli").write_text(TOY)
    (folder / "toy-cli").chmod(0o755)
    return {**select_variables(), "PATH": f"{folder}:{os.environ['PATH']}"}


async def test_a_described_cli_has_the_states_that_it_says() -> None:
    async with place() as here:
        env = describe(here)
        async with Workers.connect(here.home) as workers, asyncio.timeout(WAIT_S):
            told = {}
            for prompt in ("work", "limit", "login"):
                worker = await workers.run("toy", prompt=prompt, cwd=str(here.work), env=env)
                told[prompt] = await worker.wait()
            assert (here.work / "made").exists()
            assert told["work"].state == "completed"
            assert told["work"].usage is not None
            assert (told["work"].usage.input_tokens, told["work"].usage.output_tokens) == (3, 4)
            assert (told["limit"].state, told["limit"].failure) == ("failed", "rate-limit")
            assert (told["login"].state, told["login"].failure) == ("failed", "auth")
            asking = await workers.run("toy", prompt="ask", cwd=str(here.work), env=env)
            async for change in asking.changes():
                if change.state == "waiting":
                    break
            assert (change.detail, change.about) == ("decision", "remove all?")

            # The record is gone, the worker is not: whoever asks is still answered.
            (here.home / "agents.toml").unlink()
            with pytest.raises(UsageError, match="no agent `toy`"):
                await workers.run("toy", prompt="work", cwd=str(here.work), env=env)
            assert (await asking.status()).state == "waiting"
            await asking.stop()


async def test_a_wrong_record_is_named_where_it_is_used_and_listed() -> None:
    async with place() as here:
        env = describe(here)
        async with Workers.connect(here.home) as workers, asyncio.timeout(WAIT_S):
            with pytest.raises(UsageError, match=r"record of `broken` is invalid: .*agents.toml.*colour"):
                await workers.run("broken", prompt="x", cwd=str(here.work), env=env)
            good = await workers.run("shell", prompt="exit 0", cwd=str(here.work), env=env)
            assert (await good.wait()).state == "completed"
        rows = {row["name"]: row for row in json.loads(_list(here, "--json").stdout)}
        assert rows["toy"]["source"] == str(here.home / "agents.toml")
        assert "colour" in rows["broken"]["invalid"]
        assert rows["codex"]["source"] == "built in"
        assert "broken  INVALID: " in _list(here).stdout


def _list(here: Place, *words: str) -> subprocess.CompletedProcess[str]:
    return here.command("agents", *words)


async def test_a_record_shows_its_cli_nothing_more() -> None:
    """State that a record names is no grant: neither of what is below the home nor of the records."""
    async with place() as here:
        env = describe(here)
        user = here.home.parent / "user"
        (user / ".toy").mkdir(parents=True)
        env["HOME"] = str(user)
        script = 'echo x > "$HOME/.toy/x"; cat "$1" && echo "READ"; true\n'
        Path(here.home.parent / "bin" / "toy-cli").write_text(
            f'#!/bin/sh\nset -- "{here.home}/agents.toml"\n{script}'
        )
        async with Workers.connect(here.home) as workers, asyncio.timeout(WAIT_S):
            worker = await workers.run("toy", prompt="x", cwd=str(here.work), env=env)
            await worker.wait()
            assert b"READ" not in await worker.logs(10_000)
        assert not (user / ".toy" / "x").exists()


async def test_a_described_cli_does_its_task_on_the_board_and_a_repository_describes_none(yard: Yard) -> None:
    """A profile names it. Such files of a workspace are not read: they would start another's program."""
    (yard.home / "agents.toml").write_text(RECORD)
    said = ('{"kind":"hello"}', '{"kind":"bye","good":true,"in":3,"out":4}')
    yard.program("toy-cli", "".join(f"echo '{line}'\n" for line in said))
    yard.profile("quick", agent="toy", success="exit")
    work = yard.user / "work"
    (work / ".holdfast").mkdir(parents=True)
    for folder in (work, work / ".holdfast"):
        (folder / "agents.toml").write_text(RECORD.replace("toy-cli", "evil-cli").replace("[toy", "[evil"))
    yard.program("evil-cli", f"touch {yard.user}/ran; exit 0")
    done = yard.create("work", assignee="quick", workspace_kind="dir", workspace=str(work))
    named = yard.create("work", assignee="evil", workspace_kind="dir", workspace=str(work))
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    assert yard.store.task(done.id).status is TaskStatus.DONE, yard.store.show(done.id)
    [run] = yard.store.runs(done.id)
    assert run.tokens == 7
    assert yard.store.runs(named.id) == []
    assert not (yard.user / "ran").exists()
