"""Workers in Holdfast's own sandbox report on a task: every real CLI by its tools, a script by each channel."""

import shlex
from typing import Any, Final

import pytest

from holdfast.agents.evidence import State
from holdfast.board.transitions import Status
from tests.support.agent_clis import CLIS, requires_cli
from tests.support.arena import Arena
from tests.support.assigned import assigned
from tests.support.model import CONTENT, REPORT

LIMIT_S: Final = 100.0
QUICK: Final = {"codex", "claude"}

pytestmark = pytest.mark.timeout(180)


def cases() -> list[Any]:
    return [pytest.param(cli, marks=[] if cli in QUICK else pytest.mark.matrix) for cli in CLIS]


@pytest.mark.parametrize("cli", cases())
async def test_a_cli_is_given_the_tools_and_completes_its_task(stage: Arena, cli: str) -> None:
    requires_cli(cli)
    bench = stage.bench()
    run = assigned(bench.work.parent, bench.work)
    before = len(stage.model.requests)
    async with run.serving():
        worker = await stage.run(cli, bench, scenario="report", mcp=run.server)
        try:
            status = await stage.until(worker, ended=True, limit_s=LIMIT_S)
        finally:
            await stage.end(worker)
    assert status.state is State.COMPLETED, status
    offered = [request.asked.tools for request in stage.model.requests[before:] if request.asked.rounds == 0]
    assert any(name.endswith(REPORT) for tools in offered for name in tools)  # with the first turn
    task = run.detail().task
    assert (task.status, task.result) == (Status.DONE, CONTENT)


async def reported(stage: Arena, channel: str, *, network: bool) -> tuple[State, Status]:
    """What became of a script that reports this way, and of its task."""
    bench = stage.bench()
    run = assigned(bench.work.parent, bench.work)
    command = shlex.join([*run.grant.command, "handoff", "complete", CONTENT, "--channel", channel])
    async with run.serving():
        worker = await stage.run("shell", bench, prompt=command, base=None, network=network)
        try:
            status = await stage.until(worker, ended=True, limit_s=LIMIT_S)
        finally:
            await stage.end(worker)
    return status.state, run.detail().task.status


async def test_a_script_with_network_reports_by_the_socket(stage: Arena) -> None:
    assert await reported(stage, "socket", network=True) == (State.COMPLETED, Status.DONE)


@pytest.mark.parametrize("channel", ["auto", "outbox"])
async def test_a_script_without_network_reports_by_the_outbox(stage: Arena, channel: str) -> None:
    assert await reported(stage, channel, network=False) == (State.COMPLETED, Status.DONE)


async def test_without_network_there_is_no_socket_to_report_by(stage: Arena) -> None:
    """Unix sockets reach services of the host: that is the sandbox's own rule, and the board lives with it."""
    assert await reported(stage, "socket", network=False) == (State.FAILED, Status.RUNNING)
