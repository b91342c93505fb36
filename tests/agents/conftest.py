"""One supervisor, one exec server and one scripted model for a module of tests; asyncio only."""

import fcntl
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.agents.evidence.evidence import WorkerStatus
from holdfast.agents.evidence.status import WorkerLimits
from tests.agents.cases import SITUATIONS
from tests.support.arena import Arena, arena
from tests.support.tiers import ASYNCIO, Backend
from tools.get_agents import AGENTS

# A stall shows within seconds and not after minutes: how it is told is tested, not how long it takes.
QUICK: Final = WorkerLimits(quiet_s=5.0, provider_quiet_s=5.0)
RECORD: Final = "HOLDFAST_RECORD_AGENTS"  # a file: what was seen of every case goes there


@pytest.fixture(scope="module")
def anyio_backend() -> Backend:
    return ASYNCIO


@pytest.fixture(scope="module")
async def stage() -> AsyncIterator[Arena]:
    async with arena(QUICK) as made:
        yield made


class Results:
    """What was told, by agent and cell; written down at once, if asked for, over what was recorded before."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def note(self, cli: str, key: str, told: dict[str, Any]) -> None:
        if self._path is None:
            return
        with self._path.open("a+", encoding="utf-8") as recorded:  # several processes may record
            fcntl.flock(recorded, fcntl.LOCK_EX)
            recorded.seek(0)
            text = recorded.read()
            before = json.loads(text)["agents"] if text else {}
            agents: dict[str, dict[str, Any]] = {
                name: {"version": pin.version, "told": dict(before.get(name, {}).get("told", {}))}
                for name, pin in AGENTS.items()
            }
            agents[cli]["told"] = dict(sorted((agents[cli]["told"] | {key: told}).items()))
            faults = {name: one.words for name, one in SITUATIONS.items()}
            recorded.truncate(0)
            recorded.write(json.dumps({"faults": faults, "agents": agents}, indent=1) + "\n")


@pytest.fixture(scope="session")
def results() -> Results:
    path = os.environ.get(RECORD)
    return Results(Path(path) if path else None)


def note(status: WorkerStatus, began: float, first: float | None) -> dict[str, Any]:
    """What is told now: `after` is how long after the provider was first asked."""
    now = time.monotonic()
    return {
        "state": status.state.value,
        "detail": status.detail,
        "failure": status.failure.value if status.failure else None,
        "flags": sorted(status.flags),
        "rule": status.rule,
        "seconds": round(now - began, 1),
        "after": None if first is None else round(now - first, 1),
    }


def first_request(stage: Arena, began: float) -> float | None:
    """When the provider was first asked since then."""
    return next((one.at for one in stage.model.requests if one.at >= began), None)
