"""One list of behaviours of the client on three servers: ours on two transports, and the Codex CLI's.

What each must show is written beside it in `client_cases`. Where the reference shows something else,
`DIFFERENCES` says why, and the test insists on exactly that.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import holdfast
from tests.interop.client_cases import CASES, gone
from tests.support.codex import requires_codex
from tests.support.patience import patient
from tests.support.peer import seen_running
from tests.support.servers import codex_server, holdfast_server

CASE_S: Final = patient(40.0)  # the slowest takes a second on a machine with nothing else to do
DIFFERENCES: Final = {
    "client-report": "usage and enforcement are additions of ours",
    "client-end-of-input": "the reference cannot close a pipe; the client refuses rather than waits for ever",
    "client-terminal-resized": "the reference's terminals keep their first size",
    "client-terminal-terminated": "the reference says 1 for any death by signal on a terminal",
    "client-signalled": "the reference knows only the interrupt",
    "client-our-own-additions": "the reference announces none of them",
    "client-denial": "the reference says that something was denied, and not what",
}


class Served(NamedTuple):
    kind: str
    address: str


@pytest.fixture(scope="module", params=["ours-ws", "ours-unix", "theirs"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    # Not below /tmp: there the Codex CLI makes no links to itself, and its sandbox needs them.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="holdfast-") as folder:
        home = Path(folder) / "home"
        match request.param:
            case "ours-ws":
                launch = holdfast_server(home)
            case "ours-unix":
                launch = holdfast_server(home, listen=f"unix://{folder}/socket")
            case _:
                launch = codex_server(requires_codex(), home)
        async with launch as server:
            yield Served(request.param, server.url)


@pytest.mark.parametrize("name", sorted(CASES))
async def test_the_client_shows_the_same_on_every_server(name: str, served: Served, tmp_path: Path) -> None:
    case = CASES[name]
    async with asyncio.timeout(CASE_S), holdfast.connect(served.address) as env:
        shown = await case.run(env, tmp_path)
    assert shown == (case.theirs if served.kind == "theirs" else case.ours)


async def test_what_still_runs_when_the_block_ends_is_ended(served: Served) -> None:
    mark = f"601.{os.getpid():09}"
    async with asyncio.timeout(CASE_S):
        async with holdfast.connect(served.address) as env:
            process = await env.start(["/bin/sleep", mark])
            await seen_running(mark)
        assert await gone(mark)
        with pytest.raises(holdfast.SessionLost):
            await process.wait()


def test_every_difference_has_its_reason_and_every_reason_its_difference() -> None:
    assert {name for name, case in CASES.items() if case.ours != case.theirs} == set(DIFFERENCES)
