"""Both servers take the same tests; asyncio only, since the loop under the test plays no part."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.codex import CodexClient, requires_codex
from tests.support.servers import codex_server, holdfast_server
from tests.support.stage import Stage


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["ours", "theirs"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    binary = requires_codex()
    home = tmp_path / "server"
    ours = request.param == "ours"
    launch = holdfast_server(home) if ours else codex_server(binary, home)
    async with launch as server:
        yield Stage(CodexClient(binary, tmp_path), server, ours=ours)
