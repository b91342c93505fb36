"""`holdfast serve --remote` and `holdfast exec --env` as commands: what ends them, what they keep and say."""

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.commands.daemons.remoteserving import AwsWish, choose_transport, find_address, find_direct
from holdfast.errors import StartupError, UsageError
from holdfast.rendezvous import attempts
from holdfast.server import metrics
from tests.support.relayservice import (
    ENVIRONMENT,
    TOKEN,
    WAIT_S,
    RelayService,
    reached,
    registering,
    relay_service,
    variables,
)
from tests.support.rows import every_row
from tests.support.servers import isolated_environment

SERVE = [sys.executable, "-m", "holdfast", "serve"]
EXEC = [sys.executable, "-m", "holdfast", "exec"]


@pytest.fixture
async def service() -> AsyncIterator[RelayService]:
    async with relay_service() as service:
        yield service


@asynccontextmanager
async def serving(
    service: RelayService,
    home: Path,
    *options: str,
    stdin: bytes | None = None,
    environ: dict[str, str] | None = None,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Not necessarily for long."""
    home.mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *SERVE, "--remote", service.url, "--environment-id", ENVIRONMENT, *options,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=isolated_environment(home) | (environ or {}), cwd=home,
    )  # fmt: skip
    assert process.stdin is not None
    if stdin is not None:
        process.stdin.write(stdin)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(WAIT_S):
        out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
        await process.wait()
    assert out == b""
    return process.returncode, err.decode()


OURS = {"HOLDFAST_REGISTRY_TOKEN": TOKEN}
METRICS = ("--remote", "https://x", "--environment-id", "x", "--metrics")


async def test_an_executor_is_the_same_one_after_a_restart_and_its_key_is_its_owners_alone(
    service: RelayService, tmp_path: Path
) -> None:
    for _ in range(2):
        async with serving(service, tmp_path, environ=OURS) as process:
            await service.until_registered()
            process.send_signal(signal.SIGTERM)
            assert await ended(process) == (0, "")
            await service.until(lambda: service.executor is None)
    first, second = (asked.body["executor_public_key"] for asked in service.asked)
    assert first == second
    key = tmp_path / ".local/state/holdfast/executor.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


async def test_what_became_of_registrations_and_dials_is_in_a_file_that_collectors_can_read(
    service: RelayService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "WRITE_S", 0.02)
    monkeypatch.setattr(attempts, "_REDIAL_S", (0.02,))
    file = tmp_path / "holdfast.prom"

    async def until_written(*lines: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while not (file.exists() and set(lines) <= set(file.read_text("utf-8").splitlines())):
                await asyncio.sleep(0.02)

    async with registering(service.url, ENVIRONMENT, TOKEN, seed=bytes(32), metrics_file=file):
        await service.until_registered()
        service.refuse["environment"] += [503, 401]
        service.drop_executor()
        await until_written(
            'holdfast_remote_registration_seconds_count{result="success"} 2.0',
            'holdfast_remote_rendezvous_seconds_count{result="success"} 2.0',
            'holdfast_remote_rendezvous_seconds_count{result="error"} 2.0',
            'holdfast_remote_reconnects_total{reason="connect_failed"} 1.0',
            'holdfast_remote_reconnects_total{reason="registration_rejected"} 1.0',
            "holdfast_sessions 0.0",
        )
        reasons = re.findall(r'reconnects_total{reason="(\w+)"', file.read_text("utf-8"))
        assert set(reasons) - {"connect_failed", "registration_rejected"} <= {"peer_close", "read_error"}
        assert len(reasons) == 3
        async with reached(service) as environment:
            await environment.files.read("/proc/self/status")
            await until_written("holdfast_connections 1.0", "holdfast_connections_made_total 1.0")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["holdfast.prom"]


async def test_a_key_that_others_can_read_is_not_used(service: RelayService, tmp_path: Path) -> None:
    key = tmp_path / ".local/state/holdfast/executor.key"
    key.parent.mkdir(parents=True)
    key.write_bytes(bytes(32))
    key.chmod(0o644)
    async with serving(service, tmp_path, environ=OURS) as process:
        code, said = await ended(process)
    assert (code, "not its owner's alone" in said, service.asked) == (1, True, [])


async def test_a_registration_that_fails_ends_the_process(service: RelayService, tmp_path: Path) -> None:
    async with serving(
        service, tmp_path, "--log-level", "debug", environ={"HOLDFAST_REGISTRY_TOKEN": "SECRET"}
    ) as process:
        code, said = await ended(process)
    assert (code, len(service.asked)) == (1, 1)
    assert "the registry refused the credential" in said
    assert "SECRET" not in said


@every_row(
    ("change", "environ", "word"),
    [
        ({}, {}, "wants a token"),
        ({}, {"HOLDFAST_REGISTRY_TOKEN": "a\nb"}, "HOLDFAST_REGISTRY_TOKEN"),
        ({}, {"CODEX_API_KEY": "x"}, "CODEX_API_KEY"),
        ({"url": "http://registry.example"}, OURS, "https"),
        ({"environment_id": None}, OURS, "--environment-id"),
        ({"environment_id": " "}, OURS, "needs an id"),
        ({"token_file_text": ""}, OURS, "token"),
        ({"token_file_text": "x", "credential_stdin": True}, OURS, "not by both"),
    ],
    ids=range(8),
)
def test_what_makes_no_sense_is_said_before_anybody_is_asked(
    change: dict[str, Any], environ: dict[str, str], word: str, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {
        "url": "https://registry.example",
        "environment_id": "box",
        "token_file_text": None,
    }
    asked |= {"credential_stdin": False, "exit_on_stdin_close": False, "home": tmp_path}
    with pytest.raises(StartupError, match=word):
        find_address(**(asked | change), environ=dict(environ))


def test_a_token_that_came_by_a_variable_is_taken_out_of_there(tmp_path: Path) -> None:
    environ = {"CODEX_API_KEY": "x", "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE": "1"}
    address = find_address(
        " http://127.0.0.1:1 ", " box ", None,
        credential_stdin=False, exit_on_stdin_close=False, home=tmp_path, environ=environ,
    )  # fmt: skip
    assert "CODEX_API_KEY" not in environ
    assert (address.url, address.environment_id) == ("http://127.0.0.1:1", "box")
    assert address.credential.headers() == {"authorization": "Bearer x"}
    assert address.exit_on_stdin_close
    assert repr(address) == "<RemoteAddress box>"


@every_row(
    ("options", "word"),
    [
        (("noise", True, None, None, None), "direct"),
        (("noise", False, "work", None, None), "direct"),
        (("direct", False, None, None, None), "--aws-sigv4"),
    ],
)
def test_options_of_the_direct_transport_come_with_it(
    options: tuple[str, bool, str | None, str | None, str | None], word: str
) -> None:
    with pytest.raises(UsageError, match=word):
        choose_transport(*options)
    assert choose_transport("noise", False, None, None, None) is None


@every_row(
    ("change", "word"),
    [
        ({"environment_id": None}, "--environment-id"),
        ({"url": "http://registry.example"}, "https"),
        ({"other_credentials": True}, "no token"),
        ({"environ": {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "SECRET"}}, "region"),
        ({"environ": {"AWS_REGION": "r"}}, "no keys"),
    ],
)
def test_what_makes_no_sense_of_the_direct_transport_is_said_before_anybody_is_asked(
    change: dict[str, Any], word: str, tmp_path: Path
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "SECRET", "AWS_REGION": "r"}
    asked: dict[str, Any] = {
        "url": "https://host.example",
        "environment_id": "box",
        "wish": AwsWish(None, None, None),
    }
    asked |= {"other_credentials": False, "exit_on_stdin_close": False, "environ": keys}
    assert repr(find_direct(**asked)) == "<DirectAddress box>"
    assert list(keys) == ["AWS_REGION"]
    asked |= {"environ": keys | {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "SECRET"}} | change
    with pytest.raises(StartupError, match=word) as refused:
        find_direct(**(asked | {"environ": asked["environ"] | {"HOME": str(tmp_path)}}))
    assert "SECRET" not in str(refused.value)


@every_row("options", [("--environment-id", "x"), ("--remote", "https://x", "--listen", "stdio"), METRICS])
def test_options_that_exclude_each_other_are_refused(options: tuple[str, ...]) -> None:
    environ = os.environ | OURS
    done = subprocess.run([*SERVE, *options], capture_output=True, text=True, check=False, env=environ)
    assert done.returncode in (1, 2)
    assert "--remote" in done.stderr


def credential(token: str = TOKEN, **change: object) -> bytes:
    line = {"version": 1, "environment_id": ENVIRONMENT, "token": token, "expires_at": 4_000_000_000}
    return json.dumps(line | change).encode() + b"\n"


async def test_a_credential_may_come_by_standard_input_whose_end_ends_us(
    service: RelayService, tmp_path: Path
) -> None:
    async with serving(service, tmp_path, "--executor-credential-stdin", stdin=credential()) as process:
        await service.until_registered()
        assert process.stdin is not None
        process.stdin.write(credential("another"))
        await process.stdin.drain()
        process.stdin.close()
        assert await ended(process) == (0, "")


async def test_the_credential_that_came_last_is_the_one_that_the_registry_is_shown(
    service: RelayService, tmp_path: Path
) -> None:
    """It is asked again whenever the address is refused, and takes the first credential only."""
    async with serving(service, tmp_path, "--executor-credential-stdin", stdin=credential()) as process:
        await service.until_registered()
        assert process.stdin is not None
        process.stdin.write(credential("another"))
        await process.stdin.drain()
        service.refuse["environment"].extend([403] * 8)
        service.drop_executor()
        code, said = await ended(process)
    assert (code, "the registry refused the credential" in said, "another" in said) == (1, True, False)
    shown = [asked.headers["authorization"] for asked in service.asked]
    assert (shown[0], shown[-1]) == (f"Bearer {TOKEN}", "Bearer another")


async def test_what_is_no_credential_ends_us(service: RelayService, tmp_path: Path) -> None:
    line = credential(environment_id="another")
    async with serving(service, tmp_path, "--executor-credential-stdin", stdin=line) as process:
        code, said = await ended(process)
    assert code == 1
    assert "standard input" in said
    assert TOKEN not in said
    assert service.asked == []


async def test_the_end_of_standard_input_ends_us_where_that_is_asked_for(
    service: RelayService, tmp_path: Path
) -> None:
    async with serving(service, tmp_path, "--exit-on-stdin-close", environ=OURS) as process:
        await service.until_registered()
        assert process.stdin is not None
        process.stdin.close()
        assert await ended(process) == (0, "")


async def test_exec_runs_a_command_there_which_sees_no_credential(
    service: RelayService, tmp_path: Path
) -> None:
    """Neither in its environment, nor in what it may inherit."""
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n", "utf-8")
    client = tmp_path / "client"
    client.mkdir()
    (client / "environments.toml").write_text(
        f"[[environments]]\nid = 'box'\nenvironment_id = '{ENVIRONMENT}'\n"
        f"registry_url = '{service.url}'\nauth_bearer_token_file = '../token'\n",
        "utf-8",
    )
    script = "env; tr '\\0' '\\n' < /proc/$$/environ; exit 7"
    async with serving(service, tmp_path / "server", environ={"CODEX_API_KEY": TOKEN}):
        await service.until_registered()
        process = await asyncio.create_subprocess_exec(
            *EXEC, "--env", "box", "--full-access", "--", "/bin/sh", "-c", script,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=isolated_environment(tmp_path) | {"HOLDFAST_HOME": str(client)},
        )  # fmt: skip
        async with asyncio.timeout(WAIT_S):
            out, err = await process.communicate()
    assert (process.returncode, err) == (7, b"")
    assert b"PATH=" in out
    assert TOKEN.encode() not in out


async def test_exec_says_why_it_cannot_reach_an_environment(service: RelayService, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *EXEC, "--env", "remote", "--", "/bin/true",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=isolated_environment(tmp_path) | variables(service, token="SECRET") | {"HOME": str(tmp_path)},
    )  # fmt: skip
    async with asyncio.timeout(WAIT_S):
        _, err = await process.communicate()
    assert process.returncode in (1, 125)
    assert b"refused the credential" in err
    assert b"SECRET" not in err
