"""The stories of `test_client_chaos`, through a relay: whatever becomes of the links, no process notices."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast import HoldfastError
from holdfast.client.environments import Environments
from holdfast.rendezvous import attempts
from tests.fault.test_client_chaos import STORY_S, Size, insisting, story
from tests.support.chaos import chaos
from tests.support.relayservice import executing, relay_service, variables
from tests.support.tiers import DEEP

CUT_EVERY_BYTES = (12_000, 100_000)  # from a little more than a handshake; what was missed must fit sometimes


MANY = Size(stories=5, cuts=9)  # relay, executor, client and proxy of each are in one loop
DEEP_RUNS = 12  # 540 cuts


@pytest.mark.parametrize(
    ("run", "size"),
    [
        pytest.param(0, Size(stories=2, cuts=4), id="quick"),
        *(pytest.param(run, MANY, id=f"deep {run}", marks=DEEP) for run in range(DEEP_RUNS)),
    ],
)
async def test_nothing_is_lost_or_doubled_through_a_relay_however_often_links_are_cut(
    run: int,
    size: Size,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """Every third cut is followed by one of the executor's."""
    monkeypatch.setattr(attempts, "_REDIAL_S", (0.1,))
    async with asyncio.TaskGroup() as stories:
        for seed in range(run * MANY.stories, run * MANY.stories + size.stories):
            (tmp_path / str(seed)).mkdir()
            stories.create_task(tell(tmp_path / str(seed), seed, size.cuts))
    record_property("cuts", size.stories * size.cuts)


async def tell(folder: Path, seed: int, cuts: int) -> None:
    async with relay_service() as service, executing(service):
        place = urlsplit(service.url)
        relay = chaos(
            (str(place.hostname), place.port or 0),
            seed=seed,
            cut_every_bytes=CUT_EVERY_BYTES,
            max_cuts=cuts,
            refuse=0.1,
            max_refuse_s=0.1,
        )
        async with relay as proxy, Environments.load(environ=variables(service)) as named:
            service.clients_url = proxy.url
            async with asyncio.timeout(STORY_S):
                env = await insisting(named.get)
                cutting = asyncio.ensure_future(cut_executor(service.drop_executor, lambda: proxy.cuts))
                try:
                    await story(env, folder, proxy, late=False)
                except HoldfastError as exc:
                    exc.add_note(f"seed {seed}: {proxy.cuts} cuts, {proxy.refusals} refusals")
                    raise
                finally:
                    cutting.cancel()
            assert proxy.cuts == cuts


async def cut_executor(drop: Callable[[], None], count: Callable[[], int]) -> None:
    seen = 0
    while True:
        await asyncio.sleep(0.02)
        if count() >= seen + 3:
            seen = count()
            drop()
