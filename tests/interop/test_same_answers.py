"""The same messages to the Codex CLI's server and to ours: codes and results agree, texts may differ.

Each case runs against both servers in the same freshly made directory. Where we differ on purpose,
`DIFFERENCES` says why, and the test insists that we still do.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.interop import file_cases, process_cases, wire_cases
from tests.support.codex import requires_codex
from tests.support.dialogue import answers_of
from tests.support.servers import ServerProcess, codex_server, holdfast_server

CASES: Final = wire_cases.CASES | process_cases.CASES | file_cases.CASES
DIFFERENCES: Final = {
    "envelope-positional-params": "parameters by position are an accident of their decoder",
    "handshake-information": "we announce the capabilities we have, and some that only we have",
    "stdin-base64": "bits of the last letter that encode nothing are ignored, not refused",
    "terminal-killed": "the end by a signal is 128 + n on a terminal too; they say 1",
    "signal-kill": "we deliver more signals than the interrupt",
    "terminal-without-directory": "they start a terminal elsewhere and do not say so; we fail the start",
    "uri-address": "no UNC server has an address for a name; either way the path is unusable on this host",
}


@pytest.fixture(scope="module")
async def theirs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    async with codex_server(requires_codex(), tmp_path_factory.mktemp("theirs") / "home") as server:
        yield server


@pytest.fixture(scope="module")
async def ours(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    async with holdfast_server(tmp_path_factory.mktemp("ours") / "home") as server:
        yield server


@pytest.mark.parametrize("name", sorted(CASES))
async def test_both_servers_answer_alike(
    name: str, ours: ServerProcess, theirs: ServerProcess, tmp_path: Path
) -> None:
    steps = CASES[name]
    expected = await answers_of(theirs.url, tmp_path / "w", steps)
    got = await answers_of(ours.url, tmp_path / "w", steps)
    differing = [f"theirs {e}, ours {g}" for e, g in zip(expected, got, strict=True) if e != g]
    if name in DIFFERENCES:
        assert differing, f"no longer different: {DIFFERENCES[name]}"
    else:
        assert not differing


def test_every_recorded_difference_is_a_case_and_no_case_hides_another() -> None:
    assert set(DIFFERENCES) <= set(CASES)
    assert len(CASES) == sum(len(module.CASES) for module in (wire_cases, process_cases, file_cases))
