"""Our relay between the real codex on both ends: neither knows that it is not the vendor's."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.client.environments import Environments
from tests.support.certificates import certify
from tests.support.codex import CodexClient, requires_codex
from tests.support.patience import patient
from tests.support.provider import Item, Provider, command, scripted, turns, type_in
from tests.support.relays import RelayProcess, relay_process, remote_executor

END_LIMIT_S = patient(30.0)


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RelayProcess]:
    async with relay_process(tmp_path / "relay") as running:
        yield running


def argv_of(whose: str) -> list[str]:
    if whose == "ours":
        return [sys.executable, "-m", "holdfast", "serve"]
    return [str(requires_codex()), "exec-server"]


def make_client(tmp_path: Path, relay: RelayProcess, token: str) -> CodexClient:
    """The Codex CLI with the environment `box` behind the relay."""
    client = CodexClient(requires_codex(), tmp_path)
    client.variables = name_environment(relay, token)
    return client


def name_environment(relay: RelayProcess, token: str) -> dict[str, str]:
    return {
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": relay.url,
        "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": "box",
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": token,
    }


@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_the_real_codex_runs_a_command_on_the_real_codex_through_our_relay(
    relay: RelayProcess, tmp_path: Path, whose: str
) -> None:
    """And on an executor of ours."""
    hers = relay.call("token", "add", "box", "--role", "executor", "--environment", "box")
    ours = relay.call("token", "add", "ann", "--role", "harness", "--environment", "box")
    client = make_client(tmp_path, relay, ours)
    async with remote_executor(argv_of(whose), tmp_path / "executor", relay.url, "box", hers):
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
    assert hers not in said
    assert ours not in said
    assert "sig=" not in said


@pytest.mark.parametrize("whose", ["ours", "theirs"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_a_relay_that_is_started_again_loses_nothing_of_a_running_command(
    relay: RelayProcess, tmp_path: Path, how: signal.Signals, whose: str
) -> None:
    token = relay.call("token", "add", "box")
    client = make_client(tmp_path, relay, token)
    folder = tmp_path / "executor"
    async with remote_executor(argv_of(whose), folder, relay.url, "box", token):
        await relay.until("executor.connected")

        async def script(model: Provider) -> AsyncIterator[list[Item]]:
            wait = "echo begun; until test -e go; do sleep 0.05; done; echo ended; exit 4"
            yield [command("c1", f"cd {folder}; {wait}", yield_time_ms=1000)]
            await relay.stop(how)
            (folder / "go").touch()  # it ends while nobody can be told
            await relay.start()
            yield [type_in("c2", model.session("c1"), "", yield_time_ms=20_000)]

        async with scripted(script) as model:
            client.configure(model.url)
            await client.execute()
    seen = model.output("c1") + model.output("c2")
    assert (seen.count("begun"), seen.count("ended"), model.exit_code("c2")) == (1, 1, 4)
    assert relay.events("executor.connected") == relay.events("harness.validated") == 2
    assert relay.log == ""


@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_a_relay_with_a_certificate_is_dialled_by_tls(tmp_path: Path, whose: str) -> None:
    certified = certify(tmp_path, [])
    options = ("--tls-cert", str(certified.certificate), "--tls-key", str(certified.key))
    folder = tmp_path / "executor"
    async with relay_process(tmp_path / "relay", *options) as relay:
        token = relay.call("token", "add", "box")
        client = make_client(tmp_path, relay, token)
        client.variables |= certified.trusting
        async with remote_executor(argv_of(whose), folder, relay.url, "box", token, **certified.trusting):
            await relay.until("executor.connected")
            async with scripted(turns([command("c1", "echo out:$((40+2)); exit 3")])) as model:
                client.configure(model.url)
                await client.execute()
        assert relay.url.startswith("https://127.0.0.1:")
    assert (model.exit_code("c1"), "out:42\n" in model.output("c1")) == (3, True)


async def test_an_executor_whose_token_is_revoked_ends_and_another_takes_its_place(
    relay: RelayProcess, tmp_path: Path
) -> None:
    first, second = (relay.call("token", "add", name, "--role", "executor") for name in ("one", "two"))
    async with remote_executor(argv_of("theirs"), tmp_path / "first", relay.url, "box", first) as executor:
        await relay.until("executor.connected")
        assert relay.url.replace("http", "ws") in relay.call("list")
        relay.call("token", "revoke", "one")
        async with asyncio.timeout(END_LIMIT_S):
            assert await executor.wait() == 1
        await relay.until("executor.disconnected")
        assert "offline" in relay.call("list")
    async with remote_executor(argv_of("theirs"), tmp_path / "second", relay.url, "box", second):
        await relay.until("executor.connected", 2)


async def test_an_executor_with_a_wrong_token_ends_at_once(relay: RelayProcess, tmp_path: Path) -> None:
    relay.call("token", "add", "ann", "--role", "harness")
    wrong = remote_executor(argv_of("theirs"), tmp_path / "wrong", relay.url, "box", "not-the-token")
    async with wrong as executor, asyncio.timeout(END_LIMIT_S):
        assert await executor.wait() == 1
    assert relay.events("token.refused") == 1
    assert relay.events("executor.registered") == 0


@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_our_client_loses_nothing_while_the_relay_is_killed_again_and_again(
    relay: RelayProcess, tmp_path: Path, whose: str
) -> None:
    token, folder = relay.call("token", "add", "box"), tmp_path / "executor"
    async with remote_executor(argv_of(whose), folder, relay.url, "box", token):
        await relay.until("executor.connected")
        named = {**name_environment(relay, token), "HOME": "/nonexistent"}
        async with Environments.load(environ=named) as environments, asyncio.timeout(END_LIMIT_S):
            environment = await environments.get()
            count = 'i=0; while test $i -lt 60; do echo "line $i"; i=$((i+1)); sleep 0.05; done; exit 7'
            process = await environment.start(["/bin/sh", "-c", count], cwd=folder)
            await anext(aiter(process))
            for _ in range(2):
                await relay.stop(signal.SIGKILL)
                await relay.start()
                assert await environment.files.exists(folder)
            result = await process.wait()
    assert result.code == 7
    assert result.stdout == "".join(f"line {number}\n" for number in range(60)).encode()
