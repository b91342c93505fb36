"""The stories of `test_client_chaos`, through a relay that is killed: no process notices.

The links of clients lead through a proxy that treats them badly; those of executors end with the relay.
"""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast import HoldfastError
from holdfast.client.environments import Environments
from holdfast.relay import natsbus
from holdfast.relay.natsbus import NatsOptions
from holdfast.rendezvous import attempts
from tests.fault.test_client_chaos import STORY_S, Size, insisting, story
from tests.support.chaos import Chaos, chaos
from tests.support.natsservers import NatsServer, nats_server
from tests.support.rawrelay import relay_under_test
from tests.support.relays import RelayProcess, relay_process
from tests.support.relayservice import registering
from tests.support.tiers import DEEP

CUT_EVERY_BYTES = (12_000, 100_000)  # from a little more than a handshake; what was missed must fit sometimes
KILL_EVERY = 4  # cuts


MANY = Size(stories=5, cuts=9)  # executor, client and proxy of each are in one loop
DEEP_RUNS = 12  # 540 cuts


@pytest.mark.parametrize(
    ("run", "size"),
    [
        pytest.param(0, Size(stories=2, cuts=4), id="quick"),
        *(pytest.param(run, MANY, id=f"deep {run}", marks=DEEP) for run in range(DEEP_RUNS)),
    ],
)
async def test_nothing_is_lost_or_doubled_through_a_relay_however_often_it_is_killed_and_links_are_cut(
    run: int,
    size: Size,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.setattr(attempts, "_REDIAL_S", (0.1,))
    mistreating = chaos(
        ("127.0.0.1", 0),
        seed=run,
        cut_every_bytes=CUT_EVERY_BYTES,
        max_cuts=size.stories * size.cuts,
        refuse=0.1,
        max_refuse_s=0.1,
    )
    async with (
        mistreating as proxy,
        relay_process(tmp_path / "relay", "--node-url", proxy.url.replace("ws", "http", 1)) as relay,
    ):
        proxy.target = ("127.0.0.1", urlsplit(relay.url).port or 0)
        try:
            async with asyncio.timeout(STORY_S), asyncio.TaskGroup() as stories:
                killing = stories.create_task(kill_relay(relay, proxy))
                for number in range(size.stories):
                    (tmp_path / str(number)).mkdir()
                    stories.create_task(tell(relay, tmp_path / str(number), f"box-{number}", proxy))
            killed = killing.result()
        except* HoldfastError as exc:
            exc.add_note(f"seed {run}: {proxy.cuts} cuts, {proxy.refusals} refusals")
            raise
    assert proxy.cuts == size.stories * size.cuts
    assert killed >= proxy.cuts // (2 * KILL_EVERY)
    record_property("cuts", proxy.cuts)
    record_property("killed relays", killed)


async def kill_relay(relay: RelayProcess, proxy: Chaos) -> int:
    """Again and again, until all cuts are done; how often."""
    seen = killed = 0
    while not proxy.calm:
        await asyncio.sleep(0.02)
        if proxy.cuts >= seen + KILL_EVERY:
            seen, killed = proxy.cuts, killed + 1
            await relay.stop(signal.SIGKILL)
            await relay.start()
    return killed


NODES = Size(stories=3, cuts=5)  # of what the streams of all stories cross, so that each meets all of them
NODES_EVERY_BYTES = (200_000, 1_000_000)  # a client has 25 s to recover, also if it is cut again meanwhile
NODES_RUNS = 5


@DEEP
@pytest.mark.parametrize("run", range(NODES_RUNS))
async def test_nothing_is_lost_or_doubled_between_nodes_however_often_nats_is_killed_and_cut(
    run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    """The nodes and both ends are in this loop; the proxy is between the nodes and a real NATS."""
    monkeypatch.setattr(attempts, "_REDIAL_S", (0.1,))
    monkeypatch.setattr(natsbus, "AGAIN_S", 0.05)
    cuts, store = NODES.stories * NODES.cuts, str(tmp_path / "relay.db")
    mistreating = chaos(("127.0.0.1", 0), seed=run, cut_every_bytes=NODES_EVERY_BYTES, max_cuts=cuts)
    async with mistreating as proxy, nats_server() as server:
        proxy.target = ("127.0.0.1", urlsplit(server.url).port or 0)
        nats = NatsOptions((proxy.url.replace("ws", "nats", 1),))
        async with (
            relay_under_test(store, monkeypatch, nats=nats) as near,
            relay_under_test(store, monkeypatch, nats=nats, node_url=near.url) as far,
            asyncio.timeout(STORY_S * 2),
            asyncio.TaskGroup() as stories,
        ):
            killing = stories.create_task(kill(server, proxy))
            for number in range(NODES.stories):
                (tmp_path / str(number)).mkdir()
                name, token = f"box-{number}", near.add_token(f"box-{number}")
                places = (far.url, near.url)
                stories.create_task(tell_with(token, places, tmp_path / str(number), name, proxy))
        lost = sum(node.node._bridge.lost for node in (near, far) if node.node._bridge is not None)
    assert proxy.cuts == cuts
    record_property("cuts", proxy.cuts)
    record_property("killed servers", killing.result())
    record_property("streams that ended for a lost message", lost)


async def kill(server: NatsServer, proxy: Chaos) -> int:
    """Again and again, until all cuts are done; how often."""
    seen = killed = 0
    while not proxy.calm:
        await asyncio.sleep(0.02)
        if proxy.cuts >= seen + KILL_EVERY:
            seen, killed = proxy.cuts, killed + 1
            await server.kill()
            await server.start()
    return killed


async def tell(relay: RelayProcess, folder: Path, environment_id: str, proxy: Chaos) -> None:
    token = await asyncio.to_thread(relay.call, "token", "add", environment_id)
    await tell_with(token, (relay.url, relay.url), folder, environment_id, proxy)


async def tell_with(
    token: str, places: tuple[str, str], folder: Path, environment_id: str, proxy: Chaos
) -> None:
    """The executor registers at the first place, the client asks at the second."""
    named = {
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL": places[1],
        "CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID": environment_id,
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": token,
        "HOME": "/nonexistent",
    }
    seed = environment_id.encode().ljust(32)
    async with (
        registering(places[0], environment_id, token, seed=seed),
        Environments.load(environ=named) as environments,
    ):
        env = await insisting(environments.get)
        await story(env, folder, proxy, late=False)
