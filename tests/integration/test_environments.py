"""Environments by name: who starts when, who shares, what is replaced, and what readiness says."""

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.client.environments import Condition, Environments, Readiness
from holdfast.client.recovery import LinkState
from holdfast.errors import HoldfastError, SessionLost, TokenRefused, Unreachable, UsageError
from holdfast.server.edges.auth import load
from tests.support.peer import WAIT_S, serving
from tests.support.recorder import Recorder, recording
from tests.support.tcp import tcp_server

SERVER = f"echo $$ > pid; exec {shlex.quote(sys.executable)} -m holdfast serve --listen stdio"
CHILD = f"program = '/bin/sh'\nargs = ['-c', {json.dumps(SERVER)}]"


@asynccontextmanager
async def named(folder: Path, text: str) -> AsyncIterator[Environments]:
    file = folder / "environments.toml"
    file.write_text(text, "utf-8")
    async with Environments.load(file, {}) as environments:
        yield environments


@asynccontextmanager
async def one(folder: Path) -> AsyncIterator[tuple[Environments, Recorder, list[str]]]:
    """`box` behind a proxy; the list is where the server is."""
    async with serving() as (url, _), serving() as (other, _):
        where = [url, other]
        async with (
            recording(lambda: where[0]) as proxy,
            named(folder, f"[[environments]]\nid = 'box'\nurl = '{proxy.url}'") as environments,
        ):
            yield environments, proxy, where


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def condition(environments: Environments, name: str = "box") -> Condition:
    return environments.readiness()[name].condition


# --- where they come from


def test_the_first_file_that_exists_wins_and_the_variable_comes_last(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    environ = {"HOLDFAST_HOME": str(ours), "CODEX_HOME": str(theirs), "CODEX_EXEC_SERVER_URL": "ws://h:1"}
    assert Environments.load(None, environ).ids == ("remote",)
    (theirs / "environments.toml").write_text("[[environments]]\nid = 'b'\nurl = 'ws://h:1'", "utf-8")
    assert Environments.load(None, environ).ids == ("local", "b")
    noise = {"CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": "hidden"}
    with pytest.raises(UsageError):
        Environments.load(None, environ | noise)
    (ours / "environments.toml").write_text("include_local = false", "utf-8")
    assert Environments.load(None, environ | noise).ids == ()
    explicit = tmp_path / "explicit.toml"
    with pytest.raises(UsageError):
        Environments.load(explicit, environ)
    explicit.write_text("default = 'none'", "utf-8")
    assert Environments.load(explicit, environ | noise).default is None


def test_the_homes_are_below_the_home_directory_unless_given(tmp_path: Path) -> None:
    for folder, name in ((".codex", "theirs"), (".holdfast", "ours")):
        (tmp_path / folder).mkdir()
        text = f"[[environments]]\nid = '{name}'\nurl = 'ws://h:1'"
        (tmp_path / folder / "environments.toml").write_text(text, "utf-8")
        assert Environments.load(None, {"HOME": str(tmp_path)}).ids == ("local", name)


@pytest.mark.parametrize("content", [b"\xff", None])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "environments.toml"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(UsageError):
        Environments.load(None, {"HOLDFAST_HOME": str(tmp_path)})


def test_printed_they_show_names_and_no_secrets(tmp_path: Path) -> None:
    file = tmp_path / "environments.toml"
    file.write_text("[[environments]]\nid = 'b'\nurl = 'wss://h'\nauth_bearer_token = 'hidden'", "utf-8")
    environments = Environments.load(file, {})
    assert repr(environments) == "<Environments local, b; default local>"
    assert "hidden" not in repr(vars(environments))


# --- use


async def test_nothing_starts_until_it_is_used_and_then_once_for_everybody(tmp_path: Path) -> None:
    async with one(tmp_path) as (environments, proxy, _):
        assert environments.readiness()["box"] == Readiness(Condition.DISCONNECTED)
        waiting = [asyncio.ensure_future(environments.get("box")) for _ in range(10)]
        await asyncio.sleep(0)
        assert condition(environments) is Condition.STARTING
        waiting[0].cancel()
        found = await asyncio.gather(*waiting[1:])
        assert len(set(found)) == 1
        assert (await found[0].run(["/bin/true"])).code == 0
        assert (proxy.connections, condition(environments)) == (1, Condition.READY)
        assert await environments.get("box") is found[0]
        assert condition(environments, "local") is Condition.DISCONNECTED


async def test_an_eager_start_is_what_the_first_use_gets(tmp_path: Path) -> None:
    async with one(tmp_path) as (environments, proxy, _):
        environments.start()
        await until(lambda: condition(environments) is Condition.READY)
        await environments.get("box")
        assert proxy.connections == 1
        assert condition(environments, "local") is Condition.DISCONNECTED


async def test_a_failure_that_may_pass_does_not_burn_it(tmp_path: Path) -> None:
    async with one(tmp_path) as (environments, proxy, _):
        proxy.reachable = False
        with pytest.raises(Unreachable):
            await environments.get("box")
        readiness = environments.readiness()["box"]
        assert readiness.condition is Condition.DISCONNECTED
        assert isinstance(readiness.error, Unreachable)
        proxy.reachable = True
        assert (await (await environments.get("box")).run(["/bin/true"])).code == 0
        assert environments.readiness()["box"] == Readiness(Condition.READY)


async def test_a_failure_that_stays_is_remembered(tmp_path: Path) -> None:
    authenticator = load(
        "capability-token",
        token_file_text="right\n",
        token_sha256=None,
        secret_bytes=None,
        issuer=None,
        audience=None,
        skew_s=30,
    )
    async with serving(authenticator=authenticator) as (url, _), recording(lambda: url) as proxy:
        text = f"[[environments]]\nid = 'box'\nurl = '{url}'\nauth_bearer_token = '%s'"
        async with named(tmp_path, text % "wrong") as environments:
            for _ in range(2):
                with pytest.raises(TokenRefused):
                    await environments.get("box")
            assert condition(environments) is Condition.FAILED
        async with named(tmp_path, text % "right") as environments:
            await environments.get("box")
        assert proxy.connections == 0
    async with named(tmp_path, "[[environments]]\nid = 'box'\nprogram = '/no/such'") as environments:
        for _ in range(2):
            with pytest.raises(Unreachable):
                await environments.get("box")
        assert condition(environments) is Condition.FAILED
    async with named(tmp_path, "[[environments]]\nid = 'box'\nurl = 'ws://u:hidden@h'") as environments:
        with pytest.raises(UsageError):
            await environments.get("box")


async def test_while_it_recovers_it_is_the_same_one(tmp_path: Path) -> None:
    async with one(tmp_path) as (environments, proxy, _):
        environment = await environments.get("box")
        proxy.reachable = False
        proxy.cut()
        await until(lambda: environment.state is LinkState.RECOVERING)
        assert condition(environments) is Condition.RECOVERING
        assert await environments.get("box") is environment
        proxy.reachable = True
        assert (await environment.run(["/bin/true"])).code == 0
        assert condition(environments) is Condition.READY


async def test_a_lost_session_is_replaced_once_on_the_next_use(tmp_path: Path) -> None:
    async with one(tmp_path) as (environments, proxy, where):
        environment = await environments.get("box")
        where.reverse()  # a server that knows nothing of the session
        proxy.cut()
        await until(lambda: environment.state is LinkState.FAILED)
        readiness = environments.readiness()["box"]
        assert readiness.condition is Condition.DISCONNECTED
        assert isinstance(readiness.error, SessionLost)
        before = proxy.connections
        fresh = await asyncio.gather(*(environments.get("box") for _ in range(5)))
        assert len(set(fresh)) == 1
        assert fresh[0] is not environment
        assert proxy.connections == before + 1
        assert (await fresh[0].run(["/bin/true"])).code == 0


async def test_a_child_that_died_is_replaced(tmp_path: Path) -> None:
    more = f"[[environments]]\nid = 'box'\n{CHILD}\ncwd = 'below'\n[environments.env]\nHOME = '/elsewhere'"
    (tmp_path / "below").mkdir()
    async with named(tmp_path, more) as environments:
        environment = await environments.get("box")
        said = await environment.run(["/bin/sh", "-c", "echo $HOME; pwd"])
        assert said.stdout == f"/elsewhere\n{tmp_path}/below\n".encode()
        os.kill(int((tmp_path / "below" / "pid").read_text("utf-8")), signal.SIGKILL)
        await until(lambda: environment.state is LinkState.FAILED)
        assert condition(environments) is Condition.DISCONNECTED
        fresh = await environments.get("box")
        assert fresh is not environment
        assert (await fresh.run(["/bin/true"])).code == 0


async def test_this_machine_is_an_environment(tmp_path: Path) -> None:
    async with named(tmp_path, "") as environments:
        assert (environments.default, environments.ids) == ("local", ("local",))
        environment = await environments.get()
        assert (await environment.run(["/bin/sh", "-c", "pwd"])).stdout == f"{os.getcwd()}\n".encode()


async def test_a_name_that_is_not_there_is_an_error_that_names_the_others(tmp_path: Path) -> None:
    async with named(
        tmp_path, "include_local = false\n[[environments]]\nid = 'b'\nurl = 'ws://h'"
    ) as environments:
        with pytest.raises(UsageError) as unknown:
            await environments.get("box")
        assert unknown.value.remedy is not None
        assert "b" in unknown.value.remedy
        with pytest.raises(UsageError):
            await environments.get()


async def test_whoever_holds_one_keeps_it_when_another_is_put_under_its_name(tmp_path: Path) -> None:
    async with one(tmp_path) as (environments, proxy, where):
        old = await environments.get("box")
        process = await old.start(["/bin/cat"], stdin=True)
        await environments.put("box", f" {where[1]} ")
        fresh = await environments.get("box")
        assert fresh.session_id != old.session_id
        assert (await fresh.run(["/bin/true"])).code == 0
        await process.write(b"still here")
        await process.close_stdin()
        assert (await asyncio.wait_for(process.wait(), WAIT_S)).stdout == b"still here"
        assert (await old.run(["/bin/true"])).code == 0
        assert proxy.connections == 1
    assert (old.state, fresh.state) == (LinkState.FAILED, LinkState.FAILED)


async def test_one_that_nobody_was_given_is_closed_when_another_is_put(tmp_path: Path) -> None:
    async with serving() as (url, executor), named(tmp_path, "") as environments:
        await environments.put("box", url)
        await until(lambda: condition(environments) is Condition.READY)
        await environments.put("box", url)
        await until(lambda: [session.listener is None for session in executor.sessions] == [True, False])
        await until(lambda: condition(environments) is Condition.READY)
        assert (await (await environments.get("box")).run(["/bin/true"])).code == 0


async def test_what_can_be_put_is_checked_first(tmp_path: Path) -> None:
    async with one(tmp_path) as (environments, _, where):
        await environments.put("new", where[1])
        assert environments.ids == ("local", "box", "new")
        assert environments.default == "local"
        for name, url in (
            ("", where[1]),
            ("local", where[1]),
            ("x", " "),
            ("x", "None"),
            ("x", "no address"),
        ):
            with pytest.raises(UsageError):
                await environments.put(name, url)
        with pytest.raises(UsageError):
            await environments.put("x", "ws://192.0.2.1", token="hidden")


async def test_replacing_ends_an_attempt_and_whoever_waits_is_told(tmp_path: Path) -> None:
    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    async with (
        tcp_server(silent) as port,
        serving() as (other, _),
        named(tmp_path, f"[[environments]]\nid = 'box'\nurl = 'ws://127.0.0.1:{port}'") as environments,
    ):
        waiting = asyncio.ensure_future(environments.get("box"))
        await asyncio.sleep(0)
        await environments.put("box", other)
        with pytest.raises(SessionLost):
            await waiting
        await environments.get("box")


async def test_closed_ones_stay_closed(tmp_path: Path) -> None:
    async with one(tmp_path) as (environments, _, _):
        environment = await environments.get("box")
        process = await environment.start(["/bin/sleep", "600"])
        await environments.aclose()
        with pytest.raises(HoldfastError):
            await process.wait()
        with pytest.raises(SessionLost):
            await environments.get("box")


def test_they_are_offered_by_the_package() -> None:
    assert holdfast.Environments is Environments
