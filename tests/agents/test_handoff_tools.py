"""Every real CLI that is given the tools of a worker, in our sandbox, completes its task with them."""

from typing import Any, Final

import pytest

from holdfast.agents.evidence.evidence import WorkerState
from holdfast.board.rules.transitions import TaskStatus
from tests.support.agent_clis import CLIS, requires_cli
from tests.support.arena import Arena
from tests.support.assigned import assigned
from tests.support.model import CONTENT, REPORT
from tests.support.patience import patient

LIMIT_S: Final = patient(100.0)
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
    assert status.state is WorkerState.COMPLETED, status
    offered = [request.asked.tools for request in stage.model.requests[before:] if request.asked.rounds == 0]
    assert any(name.endswith(REPORT) for tools in offered for name in tools)  # with the first turn
    task = run.detail().task
    assert (task.status, task.result) == (TaskStatus.DONE, CONTENT)
