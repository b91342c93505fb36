"""A dashboard for tests: in this process, or as the command that people start."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest

from holdfast.board.store import Store, open_store
from holdfast.web.server import DashboardOptions, serve
from tests.support import warm
from tests.support.patience import patient

WAIT_S: Final = patient(30)
WHO: Final = "anna"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the store of a dashboard is."""
    return str(tmp_path / "board.db")


@pytest.fixture
def board(path: str) -> Iterator[Store]:
    """That store, with one board."""
    with open_store(path) as store:
        store.create_board("b", "a board")
        yield store


@dataclass(frozen=True)
class Dashboard:
    url: str  # as announced, with the token

    @property
    def base(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def token(self) -> str:
        return urlsplit(self.url).fragment.removeprefix("token=")

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.base, headers=self.headers, timeout=WAIT_S, trust_env=False)


@contextlib.asynccontextmanager
async def dashboard(address: str, home: Path, **more: Any) -> AsyncIterator[Dashboard]:
    """Served by this loop."""
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve(DashboardOptions(address, home, WHO, **more), told.set_result))
    try:
        serving.add_done_callback(lambda _: told.cancel())
        try:
            url = await asyncio.wait_for(told, WAIT_S)
        except asyncio.CancelledError:
            serving.result()
            raise
        yield Dashboard(url)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@contextlib.contextmanager
def started(address: str, home: Path, *words: str) -> Iterator[Dashboard]:
    """As a process of its own."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "HOLDFAST_HOME": str(home)}
    command = ("web", "--json", "--store", address, *words)
    with warm.started(command, env=environment, cwd=home) as printed:
        yield Dashboard(json.loads(printed.readline())["address"])


@dataclass
class Heard:
    """Messages of a stream as they come."""

    response: httpx2.Response

    async def messages(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        kind = ""
        async for line in self.response.aiter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))


@contextlib.asynccontextmanager
async def listening(
    client: httpx2.AsyncClient, board: str, after: int | None = None
) -> AsyncIterator[AsyncIterator[tuple[str, dict[str, Any]]]]:
    where = f"/api/boards/{board}/events" + ("" if after is None else f"?after={after}")
    async with client.stream("GET", where) as response:
        assert response.status_code == 200
        yield Heard(response).messages()
