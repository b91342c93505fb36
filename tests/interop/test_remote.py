"""The Codex CLI and ours meet through a registry and a relay, in both roles."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.codex import CodexClient, requires_codex
from tests.support.provider import Item, Provider, command, scripted, turns
from tests.support.relayservice import (
    ENVIRONMENT,
    RelayService,
    executor_process,
    reached,
    relay_service,
    variables,
)
from tests.support.servers import codex_server

OURS = [sys.executable, "-m", "holdfast", "serve"]


@pytest.fixture
def base() -> Iterator[Path]:
    # Not below /tmp: there the Codex CLI makes no links to itself, and its sandbox needs them.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="holdfast-") as folder:
        yield Path(folder)


@pytest.fixture
async def service() -> AsyncIterator[RelayService]:
    async with relay_service() as service:
        yield service


async def test_our_client_runs_commands_on_their_executor(service: RelayService, base: Path) -> None:
    """Also large output both ways, and a command that goes on while the connection is cut."""
    theirs = [str(requires_codex()), "exec-server"]
    async with executor_process(service, theirs, base / "executor"), reached(service) as environment:
        done = await environment.run(["/bin/sh", "-c", "echo hi; exit 4"], cwd=base)
        assert (done.code, done.stdout) == (4, b"hi\n")
        await environment.files.write(base / "large", bytes(5_000_000))
        assert len(await environment.files.read(base / "large")) == 5_000_000
        script = "echo begun; until test -e go; do sleep 0.05; done; echo ended; exit 7"
        process = await environment.start(["/bin/sh", "-c", script], cwd=base)
        async with asyncio.timeout(30):
            await anext(aiter(process))
            service.drop_clients()
            (base / "go").touch()
            ended = await process.wait()
        assert ended.code == 7
        assert service.count("connect") == 2
        assert service.asked[0].body["security_profile"] == "noise_hybrid_ik_v1"


async def test_their_client_runs_commands_on_our_executor(service: RelayService, base: Path) -> None:
    """One command goes on while the connection is cut, and nothing of it is lost or repeated."""
    client = CodexClient(requires_codex(), base)
    client.variables = variables(service) | {"HOME": str(base / "client")}

    async def script(_: Provider) -> AsyncIterator[list[Item]]:
        ask = 'for i in 1 2 3 4 5 6; do echo "tick-$i"; sleep 0.1; done; exit 9'
        yield [command("c1", ask, yield_time_ms=15000)]
        yield [command("c2", f"echo to-{ENVIRONMENT}; exit 5")]

    async with executor_process(service, OURS, base / "executor"), scripted(script) as model:
        client.configure(model.url)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.execute())
            await service.until(lambda: sum(way == "down" for way, _ in service.seen) > 8)
            service.drop_clients()
    assert model.exit_code("c1") == 9
    assert [model.output("c1").count(f"tick-{i}") for i in range(1, 7)] == [1] * 6
    assert (model.exit_code("c2"), f"to-{ENVIRONMENT}" in model.output("c2")) == (5, True)
    assert service.count("connect") == 2


async def test_their_client_and_ours_agree_on_what_a_first_connection_asks(
    service: RelayService, base: Path
) -> None:
    """An upgrade that is refused with 401 costs one more answer of the registry."""
    theirs = CodexClient(requires_codex(), base)
    theirs.variables = variables(service) | {"HOME": str(base / "client")}
    async with executor_process(service, OURS, base / "executor"), scripted(turns([])) as model:
        theirs.configure(model.url)
        service.refuse["harness"].extend([401])
        async with theirs.app_server() as server:
            await service.until(lambda: service.clients)
            status = await server.call("environment/status", {"environmentId": "remote"})
            assert status["status"] in ("ready", "pending")
        by_theirs = service.count("connect")
        service.refuse["harness"].extend([401])
        async with reached(service) as environment:
            assert await environment.status() == "ready"
        assert (by_theirs, service.count("connect") - by_theirs) == (2, 2)


async def test_a_forwarder_of_ours_leads_to_their_server(service: RelayService, base: Path) -> None:
    async with codex_server(requires_codex(), base / "server") as server:
        argv = [sys.executable, "-m", "holdfast", "forward", "--connect", server.url]
        async with executor_process(service, argv, base / "forwarder"), reached(service) as environment:
            done = await environment.run(["/bin/sh", "-c", "echo hi; exit 4"], cwd=base)
            assert (done.code, done.stdout) == (4, b"hi\n")
