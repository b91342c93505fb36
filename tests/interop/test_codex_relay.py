"""Our relay between the real codex on both ends: neither knows that it is not the vendor's."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.codex import CodexClient, requires_codex
from tests.support.patience import patient
from tests.support.provider import Item, Provider, command, scripted, turns, type_in
from tests.support.relays import RelayProcess, codex_executor, relay_process

END_LIMIT_S = patient(30.0)


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RelayProcess]:
    async with relay_process(tmp_path / "relay") as running:
        yield running


def make_client(tmp_path: Path, relay: RelayProcess, token: str) -> CodexClient:
    """The Codex CLI with the environment `box` behind the relay."""
    client = CodexClient(requires_codex(), tmp_path)
    client.variables = {
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": relay.url,
        "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": "box",
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": token,
    }
    return client


async def test_the_real_codex_runs_a_command_on_the_real_codex_through_our_relay(
    relay: RelayProcess, tmp_path: Path
) -> None:
    theirs = relay.call("token", "add", "box", "--role", "executor", "--environment", "box")
    ours = relay.call("token", "add", "ann", "--role", "harness", "--environment", "box")
    client = make_client(tmp_path, relay, ours)
    async with codex_executor(requires_codex(), tmp_path / "executor", relay.url, "box", theirs):
        await relay.until("executor.connected")
        script = turns([command("c1", "echo out:$((40+2)); echo $HOME; exit 3")])
        async with scripted(script) as model:
            client.configure(model.url)
            await client.execute()
        assert model.exit_code("c1") == 3
        assert f"out:42\n{tmp_path / 'executor'}\n" in model.output("c1")
    await relay.until("executor.disconnected")
    said = relay.audit.read_text("utf-8")
    assert relay.events("harness.validated") == relay.events("harness.connected") == 1
    assert theirs not in said
    assert ours not in said
    assert "sig=" not in said
