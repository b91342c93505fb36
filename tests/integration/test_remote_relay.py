"""Both ends ours, and our own relay between them: the story of `docs/howto/a-box-behind-a-firewall.md`."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.client.environments import Environments
from holdfast.errors import Unreachable
from holdfast.rendezvous import attempts
from tests.support.certificates import certify
from tests.support.patience import patient
from tests.support.relays import RelayProcess, end, relay_process
from tests.support.servers import isolated_environment

LIMIT_S = patient(40.0)


@asynccontextmanager
async def box(relay: RelayProcess, home: Path, **more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The executor, with a token in a file."""
    home.mkdir()
    token = home / "token"
    token.write_text(relay.call("token", "add", "box", "--role", "executor", "--environment", "box"), "utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "serve", "--remote", relay.url, "--environment-id", "box",
        "--remote-token-file", str(token),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE, env=isolated_environment(home) | more, cwd=home,
        start_new_session=True,
    )  # fmt: skip
    try:
        await relay.until("executor.connected")
        yield process
    finally:
        await end(process, signal.SIGTERM)


def environments(relay: RelayProcess, folder: Path) -> Environments:
    """Those of a file that has the client's token in another."""
    folder.mkdir()
    token = relay.call("token", "add", "me", "--role", "harness", "--environment", "box")
    (folder / "box.token").write_text(f"{token}\n", "utf-8")
    file = folder / "environments.toml"
    text = (
        f"[[environments]]\nid = 'box'\nregistry_url = '{relay.url}'\nauth_bearer_token_file = 'box.token'\n"
    )
    file.write_text(text, "utf-8")
    return Environments.load(file)


async def test_a_command_goes_on_while_the_relay_is_killed_and_started_again(tmp_path: Path) -> None:
    async with (
        relay_process(tmp_path / "relay") as relay,
        box(relay, tmp_path / "box"),
        environments(relay, tmp_path / "me") as named,
        asyncio.timeout(LIMIT_S),
    ):
        there = await named.get("box")
        script = "echo begun; until test -e go; do sleep 0.05; done; head -c 500000 /dev/zero; exit 4"
        process = await there.start(["/bin/sh", "-c", script], cwd=tmp_path)
        await anext(aiter(process))
        await relay.stop(signal.SIGKILL)
        await relay.start()
        (tmp_path / "go").touch()
        result = await process.wait(max_output_bytes=2**22)
        assert (result.code, len(result.stdout)) == (4, 6 + 500_000)


async def test_a_command_runs_where_both_trust_who_signed_for_the_relay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified = certify(tmp_path, [])
    for variable, value in certified.trusting.items():
        monkeypatch.setenv(variable, value)
    options = ("--tls-cert", str(certified.certificate), "--tls-key", str(certified.key))
    async with (
        relay_process(tmp_path / "relay", *options) as relay,
        box(relay, tmp_path / "box", **certified.trusting),
        asyncio.timeout(LIMIT_S),
    ):
        assert relay.url.startswith("https://127.0.0.1:")
        async with environments(relay, tmp_path / "me") as named:
            there = await named.get("box")
            assert (await there.run(["/usr/bin/wc", "-c"], input=bytes(2**20))).stdout == b"1048576\n"
        for variable in certified.trusting:
            monkeypatch.delenv(variable)
        monkeypatch.setattr(attempts, "_CONNECT_S", (0.02,))
        async with Environments.load(tmp_path / "me" / "environments.toml") as named:
            with pytest.raises(Unreachable, match="the registry cannot be reached"):
                await named.get("box")


async def test_an_executor_whose_token_is_revoked_ends(tmp_path: Path) -> None:
    async with relay_process(tmp_path / "relay") as relay, box(relay, tmp_path / "box") as process:
        relay.call("token", "revoke", "box")
        assert process.stderr is not None
        async with asyncio.timeout(LIMIT_S):
            said = await process.stderr.read()
            assert await process.wait() == 1
        assert b"the registry refused the credential" in said
