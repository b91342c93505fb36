"""The real Codex CLI loses its connection, its session, or its server."""

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.provider import command, turns
from tests.support.recorder import Entry, Message
from tests.support.stage import SERVERS, ExamServer, Stage, exam_server, files_below, readable


@pytest.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ExamServer]:
    """For each test one of its own, which may be killed."""
    async with exam_server(request.param, tmp_path) as started:
        yield started


async def test_a_cut_in_mid_command_loses_and_repeats_nothing(stage: Stage) -> None:
    ask = 'for i in 1 2 3 4 5 6; do echo "tick-$i"; sleep 0.1; done; exit 9'
    script = turns([command("c1", ask, yield_time_ms=15000)], [command("c2", "echo afterwards")])
    async with stage.playing(script, connections=2) as (model, recorder):
        await stage.printed(b"tick-3")
        recorder.cut()
    assert model.exit_code("c1") == 9
    assert [model.output("c1").count(f"tick-{i}") for i in range(1, 7)] == [1] * 6
    assert model.exit_code("c2") == 0
    first, second = recorder.sent("initialize")
    assert first.params["resumeSessionId"] is None
    assert second.params["resumeSessionId"] == recorder.answers("initialize")[0]["sessionId"]


async def test_a_command_that_ends_while_the_client_is_away_is_read_back_whole(stage: Stage) -> None:
    os.mkfifo(stage.workspace / "done")
    done = os.open(stage.workspace / "done", os.O_RDWR | os.O_NONBLOCK)
    many = 'head -c 300000 /dev/zero | tr "\\0" z | fold -w 100; echo; echo last'
    ask = f"echo begun; until test -e go; do sleep 0.05; done; {many}; echo > done; exit 11"
    script = turns([command("c1", ask, yield_time_ms=15000, max_output_tokens=1000)])
    async with stage.playing(script, connections=2) as (model, recorder):
        await stage.printed(b"begun")
        recorder.reachable = False
        recorder.cut()
        (stage.workspace / "go").touch()
        await readable(done)
        recorder.reachable = True
    assert model.exit_code("c1") == 11
    assert "last" in model.output("c1")
    pages = recorder.answers("process/read")
    size = sum(len(base64.b64decode(chunk["chunk"])) for page in pages for chunk in page["chunks"])
    assert size + len(recorder.output("stdout")) == len("begun\n") + 303_000 + len("last\n")


async def test_a_session_the_server_does_not_know_fails_the_command_but_not_the_next(stage: Stage) -> None:
    def forget(entry: Entry) -> Message:
        if entry.method == "initialize" and entry.params.get("resumeSessionId"):
            return entry.message | {"params": entry.params | {"resumeSessionId": "no-such-session"}}
        return entry.message

    script = turns(
        [command("c1", "echo begun; sleep 20", yield_time_ms=15000)],
        [command("c2", "echo afterwards; exit 5")],
    )
    async with stage.playing(script, connections=3, fault=forget) as (model, recorder):
        await stage.printed(b"begun")
        recorder.cut()
    assert "failed to resume exec-server session" in model.output("c1")
    assert recorder.error_codes("initialize") == [-32600]
    assert model.exit_code("c2") == 5


async def test_a_server_that_crashed_and_came_back_runs_the_next_command(stage: Stage) -> None:
    ask = "echo $$ > pid; echo begun; exec sleep 20"
    script = turns([command("c1", ask, yield_time_ms=15000)], [command("c2", "echo afterwards; exit 5")])
    async with stage.playing(script, connections=3) as (model, _):
        await stage.printed(b"begun")
        survivor = os.pidfd_open(int(files_below(stage.workspace)["pid"]))
        await stage.server.crash()
        await readable(survivor)
        await stage.server.start()
    assert "failed to resume exec-server session" in model.output("c1")
    assert model.exit_code("c2") == 5
