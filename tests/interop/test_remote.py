"""The Codex CLI and ours meet through a registry and a relay, in both roles."""

import asyncio
import contextlib
import dataclasses
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConnectionLost
from holdfast.wire import relayframes
from holdfast.wire.relayframes import Body, RelayFrame
from tests.support import logins
from tests.support.codex import CodexClient, requires_codex
from tests.support.patience import patient
from tests.support.provider import Item, Provider, command, scripted, turns, type_in
from tests.support.relayservice import (
    ENVIRONMENT,
    Direction,
    RelayService,
    Tamper,
    executor_process,
    reached,
    relay_service,
    variables,
)
from tests.support.servers import codex_server, holdfast_server, isolated_environment

OURS = [sys.executable, "-m", "holdfast", "serve"]
LIMIT_S = patient(30.0)


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
        async with asyncio.timeout(patient(30)):
            await anext(aiter(process))
            service.drop_clients()
            (base / "go").touch()
            ended = await process.wait()
        assert ended.code == 7
        assert service.count("connect") == 2
        assert service.asked[0].body["security_profile"] == "noise_hybrid_ik_v1"


@pytest.mark.parametrize("whose", ["client", "executor"])
async def test_their_client_runs_commands_on_our_executor(
    service: RelayService, base: Path, whose: str
) -> None:
    """One command goes on while a connection is cut, and nothing of it is lost or repeated."""
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
            (service.drop_clients if whose == "client" else service.drop_executor)()
    assert model.exit_code("c1") == 9
    assert [model.output("c1").count(f"tick-{i}") for i in range(1, 7)] == [1] * 6
    assert (model.exit_code("c2"), f"to-{ENVIRONMENT}" in model.output("c2")) == (5, True)
    assert service.count("connect") == 2 or whose == "executor"  # which is asked for until it is back
    assert service.count("register") == 1


async def test_their_client_notices_another_executor_in_the_place_of_ours(
    service: RelayService, base: Path
) -> None:
    """What ran is lost with the session. The next command is the new executor's."""
    client = CodexClient(requires_codex(), base)
    client.variables = variables(service) | {"HOME": str(base / "client")}
    async with contextlib.AsyncExitStack() as first, contextlib.AsyncExitStack() as second:
        await first.enter_async_context(executor_process(service, OURS, base / "first"))
        key = service.key

        async def script(model: Provider) -> AsyncIterator[list[Item]]:
            yield [command("c1", "sleep 600", yield_time_ms=1000)]
            session = model.session("c1")
            await first.aclose()
            await service.until(lambda: service.executor is None)
            await second.enter_async_context(executor_process(service, OURS, base / "second"))
            yield [type_in("c2", session, "", yield_time_ms=5000)]
            yield [command("c3", "echo home:$HOME; exit 5")]

        async with scripted(script) as model:
            client.configure(model.url)
            await client.execute()
    assert service.key != key
    assert (model.exit_code("c3"), f"home:{base / 'second'}" in model.output("c3")) == (5, True)


# --- a relay that lies, and one real end


def lie_once(name: str, way: Direction, least: int = 0) -> Tamper:
    """Do this to the next record of so many bytes; `swapped` is one with the record behind it."""
    held: list[bytes] = []
    told: list[str] = []

    def tamper(direction: Direction, frame: RelayFrame, raw: bytes) -> list[bytes]:
        if direction != way or frame.body is not Body.DATA:
            return [raw]
        if held:
            return [raw, held.pop()]
        if told or len(frame.payload) < least:
            return [raw]
        told.append(name)
        match name:
            case "said twice":
                return [raw, raw]
            case "swapped":
                held.append(raw)
                return []
            case "changed":
                payload = bytes((frame.payload[0] ^ 1,)) + frame.payload[1:]
            case _:
                payload = frame.payload[:-1]
        return [relayframes.encode(dataclasses.replace(frame, payload=payload))]

    return tamper


LIES = {"said twice": False, "swapped": False, "changed": True, "cut short": True}  # is it noticed?
LONG = 60_000  # of a record behind which there is another of the same message


@pytest.mark.parametrize("name", LIES)
async def test_a_lie_of_the_relay_between_our_client_and_their_executor_does_no_harm(
    service: RelayService, base: Path, name: str
) -> None:
    """The lie to either ends the link, and nothing else, or means nothing."""
    theirs = [str(requires_codex()), "exec-server"]
    wait = "until test -e go; do sleep 0.05; done; "
    ticks = f"{wait}i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo tick-$i; sleep 0.01; done"
    async with executor_process(service, theirs, base / "executor"), reached(service) as environment:
        process = await environment.start(["/bin/sh", "-c", ticks], cwd=base)
        service.tamper = lie_once(name, "down")
        (base / "go").touch()
        assert (await process.wait()).stdout == b"".join(b"tick-%d\n" % one for one in range(1, 41))
        asked = service.count("connect")
        assert (asked > 1) is LIES[name]
        service.tamper = lie_once(name, "up", LONG)
        if LIES[name]:
            with pytest.raises(ConnectionLost):  # a call that was under way is not repeated
                await environment.files.write(base / "large", bytes(200_000))
        else:
            await environment.files.write(base / "large", bytes(200_000))
            assert (base / "large").stat().st_size == 200_000
        assert (await environment.run(["/bin/echo", "hi"], cwd=base)).stdout == b"hi\n"
        assert (service.count("connect") > asked) is LIES[name]


@pytest.mark.parametrize("name", LIES)
async def test_a_lie_of_the_relay_between_their_client_and_our_executor_does_no_harm(
    service: RelayService, base: Path, name: str
) -> None:
    """As above."""
    client = CodexClient(requires_codex(), base)
    client.variables = variables(service) | {"HOME": str(base / "client")}
    wait = f"cd {base}; touch begun; until test -e go; do echo waiting; sleep 0.05; done"
    ticks = f"{wait}; i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo tick-$i.; sleep 0.05; done; exit 9"
    counts: list[int] = []

    async def script(_: Provider) -> AsyncIterator[list[Item]]:
        yield [command("c1", ticks, yield_time_ms=15000)]
        counts.append(service.count("connect"))
        service.tamper = lie_once(name, "up", LONG)
        yield [command("c2", f": {'x' * 100_000}; echo once >> {base}/ran; exit 5")]
        yield [command("c3", "echo after; exit 6")]
        counts.append(service.count("connect"))

    async with executor_process(service, OURS, base / "executor"), scripted(script) as model:
        client.configure(model.url)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(client.execute())
            await service.until((base / "begun").exists)
            said = len(service.seen)
            # A start whose answer is lost is not repeated, and output comes after the answer.
            await service.until(lambda: sum(way == "down" for way, _ in service.seen[said:]) > 2)
            service.tamper = lie_once(name, "down")
            (base / "go").touch()
    assert model.exit_code("c1") == 9
    assert [model.output("c1").count(f"tick-{one}.") for one in range(1, 31)] == [1] * 30
    assert model.exit_code("c3") == 6
    assert (base / "ran").exists() is not LIES[name]  # what was changed is not run
    assert (counts[0] > 1, counts[1] > counts[0]) == (LIES[name], LIES[name])


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


async def test_a_forwarder_of_theirs_leads_to_our_server(service: RelayService, base: Path) -> None:
    """A command goes on while the client's connection is cut: its session is our server's."""
    async with holdfast_server(base / "server") as server:
        argv = [str(requires_codex()), "exec-server", "forward", "--connect", server.url]
        async with executor_process(service, argv, base / "forwarder"), reached(service) as environment:
            await environment.files.write(base / "large", bytes(5_000_000))
            assert len(await environment.files.read(base / "large")) == 5_000_000
            script = "echo begun; until test -e go; do sleep 0.05; done; echo ended; exit 7"
            process = await environment.start(["/bin/sh", "-c", script], cwd=base)
            async with asyncio.timeout(LIMIT_S):
                await anext(aiter(process))
                service.drop_clients()
                (base / "go").touch()
                ended = await process.wait()
            assert (ended.code, ended.stdout) == (7, b"begun\nended\n")


@pytest.mark.parametrize("kind", ["account", "key"])
async def test_our_executor_shows_a_login_as_theirs_does(
    service: RelayService, base: Path, kind: str
) -> None:
    """Both with the auth.json that the Codex CLI keeps, and no variable."""
    kept: dict[str, Any] = {"OPENAI_API_KEY": logins.KEY}
    if kind == "account":
        kept = logins.chatgpt(logins.DAY_S)
    shown = []
    for name, argv in (("theirs", [str(requires_codex()), "exec-server"]), ("ours", OURS)):
        service.answers["register"].append((401, {"error": {"message": "no"}}))
        home = base / name
        (home / ".codex").mkdir(parents=True)
        (home / ".codex" / "auth.json").write_text(json.dumps(kept), "utf-8")
        process = await asyncio.create_subprocess_exec(
            *argv, "--remote", service.url, "--environment-id", ENVIRONMENT,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, env=isolated_environment(home), cwd=home,
        )  # fmt: skip
        said, _ = await process.communicate()
        assert process.returncode == 1
        secret = kept["tokens"]["access_token"] if kind == "account" else logins.KEY
        assert secret.encode() not in said
        names = ("authorization", "chatgpt-account-id", "x-openai-fedramp")
        shown.append({name: service.asked[-1].headers.get(name) for name in names})
    assert shown[0] == shown[1]
    assert (shown[0]["chatgpt-account-id"] is None) is (kind == "key")
