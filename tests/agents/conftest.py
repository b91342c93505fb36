"""One supervisor, one exec server and one scripted model for a module of tests; asyncio only."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.agents.evidence.status import WorkerLimits
from tests.agents.cases import SITUATIONS
from tests.support.arena import Arena, arena
from tools.get_agents import AGENTS

# A stall shows within seconds and not after minutes: how it is told is tested, not how long it takes.
QUICK: Final = WorkerLimits(quiet_s=5.0, provider_quiet_s=5.0)
RECORD: Final = "HOLDFAST_RECORD_AGENTS"  # a file: what was seen of every case goes there


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def stage() -> AsyncIterator[Arena]:
    async with arena(QUICK) as made:
        yield made


@pytest.fixture(scope="session")
def results() -> Iterator[dict[str, Any]]:
    """By agent and fault; written down when that is asked for, over what was recorded before."""
    found: dict[str, Any] = {}
    yield found
    if (path := os.environ.get(RECORD)) and found:
        recorded = Path(path)
        before = json.loads(recorded.read_text("utf-8"))["agents"] if recorded.exists() else {}
        agents = {
            name: {
                "version": pin.version,
                "told": dict(sorted((before.get(name, {}).get("told", {}) | found.get(name, {})).items())),
            }
            for name, pin in AGENTS.items()
        }
        told = {"faults": {name: one.words for name, one in SITUATIONS.items()}, "agents": agents}
        recorded.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
