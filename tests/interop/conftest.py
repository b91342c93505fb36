"""Both servers take the same tests; asyncio only, since the loop under the test plays no part."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.codex import CodexClient, requires_codex
from tests.support.stage import SERVERS, ExamServer, Stage, exam_server
from tests.support.tiers import ASYNCIO, Backend


@pytest.fixture(scope="module")
def anyio_backend() -> Backend:
    return ASYNCIO


@pytest.fixture(scope="module", params=SERVERS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ExamServer]:
    """One for all tests of a module: what a client leaves in it is another session's.

    Not below a temporary directory of the system, in which Codex's own finds no sandbox.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="holdfast-") as folder:
        async with exam_server(request.param, Path(folder).resolve()) as started:
            yield started


@pytest.fixture
def stage(server: ExamServer, tmp_path: Path) -> Stage:
    return Stage(CodexClient(requires_codex(), tmp_path), server.process, ours=server.ours)
