"""The app server of the Codex CLI, the one behind editors, with an exec server as its environment."""

import asyncio
import itertools
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.codex import AppServer
from tests.support.oauth import OAuthServer, oauth_server
from tests.support.patience import patient
from tests.support.provider import Item, Provider, call, command, turns
from tests.support.recorder import Recorder
from tests.support.stage import Stage, write_below


async def test_the_app_server_sees_a_ready_environment_and_works_in_it(stage: Stage) -> None:
    script = turns([command("c1", "pwd; exit 2")])
    async with stage.connected(script) as (model, recorder), stage.client.app_server() as app:
        await app.call("environment/add", {"environmentId": "ext", "execServerUrl": recorder.url})
        info = await app.call("environment/info", {"environmentId": "ext"})
        status = await app.call("environment/status", {"environmentId": "ext"})
        await app.take_turn(await app.start_thread("ext", stage.workspace))
    assert info["shell"]["path"].startswith("/")
    assert status["status"] == "ready"
    assert recorder.answers("environment/status") == [{"status": "ready"}]
    assert model.exit_code("c1") == 2


async def test_the_app_server_sees_the_link_go_and_come_back(stage: Stage) -> None:
    ask = "echo begun; until test -e go; do sleep 0.05; done; echo survived; exit 4"
    script = turns([command("c1", ask, yield_time_ms=15000)])
    named = {"environmentId": "ext"}
    async with (
        # A third connection was seen once, on a busy machine; why is not known. The session has to be one.
        stage.connected(script, connections=range(2, 4)) as (model, recorder),
        stage.client.app_server() as app,
        asyncio.TaskGroup() as tasks,
    ):
        await app.call("environment/add", named | {"execServerUrl": recorder.url})
        turn = tasks.create_task(app.take_turn(await app.start_thread("ext", stage.workspace)))
        await stage.printed(b"begun")
        recorder.reachable = False
        recorder.cut()
        while (await app.call("environment/status", named))["status"] != "disconnected":
            pass  # each answer takes a while; the block as a whole has a limit
        recorder.reachable = True
        (stage.workspace / "go").touch()
        await turn
        while (await app.call("environment/status", named))["status"] != "ready":
            pass  # the command's end may be known before the client calls its link ready
    assert len({answer["sessionId"] for answer in recorder.answers("initialize")}) == 1
    assert model.exit_code("c1") == 4
    assert "survived" in model.output("c1")


async def test_the_app_server_discovers_what_a_root_on_the_server_offers(stage: Stage) -> None:
    plugin = stage.workspace / "plug"
    manifest = '{"name": "plug", "version": "1.0.0", "description": "plug"}'
    skill = "---\nname: hello\ndescription: says MEDLAR\n---\nBody\n"
    write_below(plugin, {".codex-plugin/plugin.json": manifest, "skills/hello/SKILL.md": skill})
    location = {"type": "environment", "environmentId": "ext", "path": plugin.as_uri()}
    roots = [{"id": "plug@interop", "location": location}]
    features = ["executor_capability_discovery"]
    async with (
        stage.connected(turns(), features=features) as (model, recorder),
        stage.client.app_server() as app,
    ):
        await app.call("environment/add", {"environmentId": "ext", "execServerUrl": recorder.url})
        thread = await app.start_thread("ext", stage.workspace, selectedCapabilityRoots=roots)
        await app.take_turn(thread)
    assert "MEDLAR" in model.prompts[0]
    (found,) = recorder.answers("capabilityRoots/discoverV1")[0]["roots"]
    assert found["id"] == "plug@interop"
    assert found["plugin"]["manifest"]["contents"] == manifest


async def test_the_login_of_an_http_mcp_server_goes_through_the_executor(stage: Stage) -> None:
    """Discovery with its redirect, registration, the exchange of the code, and the calls after that."""
    async with _locked(stage) as (locked, model, recorder, app):
        thread = await app.start_thread("remote", stage.workspace)
        begun = await app.call("mcpServer/oauth/login", {"name": "locked", "threadId": thread})
        await asyncio.to_thread(_visit, locked.begin(begun["authorizationUrl"]))
        await app.until(lambda: "mcpServer/oauthLogin/completed" in app.notifications)
        assert "LOQUAT" not in "".join(model.prompts)
        for number in itertools.count():  # a turn may begin before the tools are there; the block has a limit
            await app.take_turn(await app.start_thread("remote", stage.workspace))
            if "unsupported call" not in model.output(f"opened{number}"):
                break
    assert "LOQUAT" in model.output(f"opened{number}")
    assert locked.refused, "without a login nobody comes in"
    assert [asked["grant_type"] for asked in locked.tokens] == ["authorization_code"]
    asked_for = [one.params for one in recorder.sent("http/request", kind="request")]
    sent = [(params["method"], params["url"]) for params in asked_for]
    came = [(one.method, f"{locked.base}{one.target}") for one in locked.daemon.received]
    assert not Counter(came) - Counter(sent), "nothing came from the client itself"
    needed = {f"{locked.base}/{path}" for path in ("metadata", "register", "token", "mcp")}
    assert needed <= {url for _, url in sent}


async def test_metadata_of_a_login_that_is_too_long_is_refused(stage: Stage) -> None:
    async with _locked(stage) as (locked, _, _, app):
        locked.padding = 1 << 20
        thread = await app.start_thread("remote", stage.workspace)
        with pytest.raises(AssertionError, match="mcpServer/oauth/login"):
            await app.call("mcpServer/oauth/login", {"name": "locked", "threadId": thread})
    assert locked.tokens == []


@asynccontextmanager
async def _locked(stage: Stage) -> AsyncIterator[tuple[OAuthServer, Provider, Recorder, AppServer]]:
    """The app server, with an MCP server that wants a login and that only the executor is to reach."""
    async with oauth_server() as locked:

        async def play(model: Provider) -> AsyncIterator[list[Item]]:
            """The tool once in each turn."""
            for number in itertools.count():
                yield [call(f"opened{number}", "open", {}, namespace="mcp__locked")]
                yield []

        config = f'[mcp_servers.locked]\nurl = "{locked.base}/mcp"\nenvironment_id = "remote"\n'
        async with stage.connected(play, config=config) as (model, recorder):
            stage.client.variables["CODEX_EXEC_SERVER_URL"] = recorder.url
            async with stage.client.app_server() as app:
                yield locked, model, recorder, app


def _visit(url: str) -> None:
    with urllib.request.urlopen(url, timeout=patient(10)) as answer:  # noqa: S310 - the client's own, on loopback
        assert answer.status == 200
