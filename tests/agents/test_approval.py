"""The real CLIs over the Agent Client Protocol: a question, its options, and what an answer does."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from holdfast import InvalidRequest
from holdfast.agents.catalog.catalog import CATALOG
from holdfast.agents.evidence.evidence import Want, WorkerState
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.supervisor.service import build_report
from holdfast.agents.worker.answering import answer
from tests.support.agent_clis import requires_cli
from tests.support.arena import Arena, arena
from tests.support.model import CONTENT, MADE
from tests.support.patience import patient
from tests.support.tiers import ASYNCIO, DEEP, Backend

LIMIT_S: Final = patient(100.0)  # opencode alone takes 20 s to start on a machine with much to do
CLIS: Final = ("opencode", "gemini", "qwen")


@pytest.fixture(scope="module")
def anyio_backend() -> Backend:
    return ASYNCIO


@pytest.fixture(scope="module")
async def stage() -> AsyncIterator[Arena]:
    async with arena() as made:
        yield made


async def answered(stage: Arena, cli: str, **how: Any) -> tuple[WorkerReport, str | None]:
    """Run a CLI that wants to write a file, answer its question; its last report, and what is in the file."""
    requires_cli(cli)
    bench = stage.bench()
    worker = await stage.run(cli, bench, scenario="write", acp=True, unattended=False)
    given: dict[str, Any] = {"option": None, "deny": False, "request": None, **how}
    try:
        status = await stage.until(worker, ended=False, state="waiting", limit_s=LIMIT_S)
        assert (status.state, status.detail) == (WorkerState.WAITING, Want.DECISION), build_report(worker)
        asks = build_report(worker).asks
        assert asks is not None
        assert MADE in asks.question
        assert {"allow_once", "reject_once"} <= {option.kind for option in asks.options}
        assert not (bench.work / MADE).exists()
        await answer(worker, CATALOG[cli], **given)
        await stage.until(worker, ended=True, limit_s=LIMIT_S)
        with pytest.raises(InvalidRequest):
            await answer(worker, CATALOG[cli], **given)
        made = bench.work / MADE
        return build_report(worker), made.read_text("utf-8").strip() if made.exists() else None
    finally:
        await stage.end(worker)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("cli", [pytest.param(cli, marks=() if cli == "gemini" else DEEP) for cli in CLIS])
async def test_what_was_approved_is_done(stage: Arena, cli: str) -> None:
    last, made = await answered(stage, cli)
    assert (last.state, last.flags, made) == ("completed", [], CONTENT), last


@pytest.mark.timeout(240)
async def test_what_was_denied_is_not_done_and_the_verdict_says_so(stage: Arena) -> None:
    last, made = await answered(stage, "opencode", deny=True)
    assert (last.state, last.failure, made) == ("failed", "permission", None), last
