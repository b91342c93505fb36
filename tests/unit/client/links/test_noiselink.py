"""How often a registry is asked for a first connection, and for how long, on a loop whose clock jumps."""

import asyncio
from typing import Any

import pytest

from holdfast.client.links import noiselink
from holdfast.client.links.noiselink import dial_noise
from holdfast.client.links.target import NoiseTarget
from holdfast.errors import HoldfastError, TokenRefused
from holdfast.rendezvous.attempts import FIRST_BUDGET_S, FIRST_REQUEST_S
from holdfast.rendezvous.registryclient import RegistryRefused, RegistryUnavailable
from holdfast.rendezvous.relaysocket import UpgradeRefused
from holdfast.wire.registry import PublicKey, RegistryFailure
from tests.support.jumping import JumpingLoop
from tests.support.rows import every_row

OFFLINE = RegistryUnavailable("offline")
BUNDLE = "bundle"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": JumpingLoop}


class Scene:
    """A registry that answers by its script, None being silence, and one that refuses upgrades."""

    def __init__(self, *script: HoldfastError | str | None, refused: int = 0) -> None:
        self.asked: list[PublicKey] = []
        self.opened: list[object] = []
        self._script = list(script)
        self._refused = refused
        self._began = 0.0

    @property
    def took_s(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    async def dial(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(noiselink, "Registry", lambda *_: self)
        monkeypatch.setattr(noiselink, "_open", self._open)
        self._began = asyncio.get_running_loop().time()
        receiver: Any = None
        await dial_noise(NoiseTarget("http://registry", "env", "token"), receiver, timeout_s=10)

    async def connect(self, key: PublicKey, *, timeout_s: float) -> str:
        self.asked.append(key)
        answer = self._script.pop(0) if self._script else None
        if answer is None:
            await asyncio.sleep(timeout_s)
            raise RegistryUnavailable("silence")
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def _open(self, _target: NoiseTarget, bundle: object, *_rest: object) -> None:
        self.opened.append(bundle)
        if len(self.opened) <= self._refused:
            raise UpgradeRefused(401)

    async def aclose(self) -> None:
        pass


async def test_a_registry_that_is_silent_once_is_asked_again_by_the_same_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(None, BUNDLE)
    await scene.dial(monkeypatch)
    assert scene.opened == [BUNDLE]
    assert scene.asked == scene.asked[:1] * 2
    assert scene.took_s > FIRST_REQUEST_S


@every_row("before", [0, 1], ids=["at first", "at a retry"])
async def test_a_registry_that_stays_silent_is_left_within_the_budget(before: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        scene = Scene(*[OFFLINE] * before)
        with pytest.raises(RegistryUnavailable, match="silence"):
            await scene.dial(monkeypatch)
    assert len(scene.asked) in (2 + before, 3 + before)
    assert FIRST_BUDGET_S - 2 < scene.took_s <= FIRST_BUDGET_S + 0.001


@every_row(
    "last",
    [TokenRefused("no"), RegistryRefused("no", RegistryFailure(409, "registration_conflict", ""))],
    ids=["token", "conflict"],
)
async def test_an_answer_that_is_final_ends_a_row_of_retries(last: HoldfastError) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        scene = Scene(OFFLINE, OFFLINE, last, BUNDLE)
        with pytest.raises(type(last)):
            await scene.dial(monkeypatch)
    assert len(scene.asked) == 3


async def test_after_a_refused_upgrade_there_is_a_budget_as_if_none_had_been_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one took all retries, and so may the second."""
    scene = Scene(*[OFFLINE] * 4, "used up", *[OFFLINE] * 4, BUNDLE, refused=1)
    await scene.dial(monkeypatch)
    assert scene.opened == ["used up", BUNDLE]
    assert scene.asked == scene.asked[:1] * 10
