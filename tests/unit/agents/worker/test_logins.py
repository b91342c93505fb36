"""A login that several share: who renews it, what comes back of a worker's copy, and what never does."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.catalog.codex import CODEX
from holdfast.agents.worker.logins import MAX_RENEWALS, LoginState, SharedLogin
from holdfast.local.atomicfile import write_new
from tests.support.logins import DAY_S, REFRESH, chatgpt
from tests.support.rows import every_row
from tests.support.tiers import ASYNCIO, Backend


class Crew:
    """One user with a login, and workers of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = folder / "user/.codex/auth.json"
        self.host.parent.mkdir(parents=True)
        self.write(chatgpt(60))
        self.workers: list[SharedLogin] = []

    def write(self, document: dict[str, Any]) -> None:
        self.host.write_text(json.dumps(document))

    async def hire(self, saved: LoginState | None = None, name: str = "") -> tuple[SharedLogin, Path]:
        state = self.folder / (name or f"state-{len(self.workers)}")
        state.mkdir(exist_ok=True)
        made = SharedLogin.find(
            CODEX,
            saved or LoginState(host=str(self.host), into="auth.json"),
            state=str(state),
            user=str(self.folder / "user"),
            home=self.folder,
        )
        self.workers.append(made)
        if saved is None:
            await made.begin()
        return made, state / "auth.json"


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    made = Crew(tmp_path)
    yield made
    for worker in made.workers:
        worker.end()


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO


def refresh_of(path: Path) -> str:
    return str(json.loads(path.read_bytes())["tokens"]["refresh_token"])


async def test_one_worker_may_renew_and_the_others_borrow(crew: Crew) -> None:
    crew.write(chatgpt(DAY_S))
    (first, one), (second, other) = await crew.hire(), await crew.hire()
    assert (refresh_of(one), refresh_of(other)) == (REFRESH, "")
    assert ("this worker renews it" in first.words(), "lent" in second.words()) == (True, True)


async def test_what_is_renewed_reaches_the_user_and_the_other_workers(crew: Crew) -> None:
    crew.write(chatgpt(DAY_S))
    (first, one), (second, other) = await crew.hire(), await crew.hire()
    one.write_text(json.dumps(chatgpt(2 * DAY_S, refresh="r-2")))
    assert first.sync()
    assert refresh_of(crew.host) == "r-2"
    assert crew.host.stat().st_mode & 0o777 == 0o600
    assert second.sync()
    lent = json.loads(other.read_bytes())["tokens"]
    assert (lent["refresh_token"], lent["access_token"]) == (
        "",
        json.loads(crew.host.read_bytes())["tokens"]["access_token"],
    )
    assert not first.sync(), "what is the same everywhere is left alone"
    assert not second.sync()


async def test_a_borrower_takes_over_when_the_first_has_ended(crew: Crew) -> None:
    crew.write(chatgpt(DAY_S))
    (first, one), (second, other) = await crew.hire(), await crew.hire()
    one.write_text(json.dumps(chatgpt(2 * DAY_S, refresh="r-2")))
    first.end()
    assert not one.exists()
    assert refresh_of(crew.host) == "r-2", "the last look"
    assert second.sync()
    assert refresh_of(other) == "r-2"


async def test_what_expired_is_waited_for_while_another_renews_it(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew.write(chatgpt(-60))
    first, one = await crew.hire()

    async def renewed_meanwhile(_: float) -> None:
        one.write_text(json.dumps(chatgpt(DAY_S, refresh="r-2")))
        first.sync()

    monkeypatch.setattr("holdfast.agents.worker.logins.asyncio.sleep", renewed_meanwhile)
    _, other = await crew.hire()
    assert (
        json.loads(other.read_bytes())["tokens"]["access_token"]
        == (json.loads(crew.host.read_bytes())["tokens"]["access_token"])
    )


async def test_what_its_user_changed_meanwhile_wins(crew: Crew) -> None:
    first, one = await crew.hire()
    crew.write(chatgpt(3 * DAY_S, refresh="of-the-user"))
    one.write_text(json.dumps(chatgpt(2 * DAY_S, refresh="r-2")))
    assert first.sync()
    assert (refresh_of(crew.host), refresh_of(one)) == ("of-the-user", "of-the-user")


async def test_what_its_user_changes_at_the_last_moment_wins(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, one = await crew.hire()
    one.write_text(json.dumps(chatgpt(2 * DAY_S, refresh="r-2")))

    def late(folder: int, data: bytes) -> str:
        crew.write(chatgpt(3 * DAY_S, refresh="of-the-user"))
        return write_new(folder, data)

    monkeypatch.setattr("holdfast.agents.worker.logins.write_new", late)
    first.sync()
    assert refresh_of(crew.host) == "of-the-user"
    assert os.listdir(crew.host.parent) == ["auth.json"], "nothing is left behind"


async def test_a_user_who_logged_out_is_not_logged_in_again(crew: Crew) -> None:
    first, one = await crew.hire()
    crew.host.unlink()
    one.write_text(json.dumps(chatgpt(2 * DAY_S, refresh="r-2")))
    first.sync()
    first.end()
    assert not crew.host.exists()


async def test_a_login_that_is_a_link_is_lent_and_never_written(crew: Crew) -> None:
    kept = crew.folder / "dotfiles.json"
    crew.write(chatgpt(DAY_S))
    crew.host.rename(kept)
    crew.host.symlink_to(kept)
    first, one = await crew.hire()
    assert refresh_of(one) == ""
    assert "a link is never written" in first.words()
    one.write_text(json.dumps(chatgpt(2 * DAY_S, refresh="r-2")))
    first.sync()
    assert refresh_of(kept) == REFRESH
    assert crew.host.is_symlink()


async def test_a_login_that_becomes_a_link_is_not_written_through(crew: Crew) -> None:
    first, one = await crew.hire()
    kept = crew.folder / "elsewhere.json"
    crew.host.rename(kept)
    crew.host.symlink_to(kept)
    one.write_text(json.dumps(chatgpt(2 * DAY_S, refresh="r-2")))
    first.sync()
    assert refresh_of(kept) == REFRESH


async def test_a_supervisor_that_takes_over_goes_on_with_it(crew: Crew) -> None:
    first, one = await crew.hire(name="state")
    saved = first.saved
    os.close(first._lock)
    crew.workers.clear()  # killed: no last look, and the kernel gave its lock back
    one.write_text(json.dumps(chatgpt(2 * DAY_S, refresh="r-2")))
    successor, _ = await crew.hire(saved, name="state")
    successor.adopt()
    assert successor.sync()
    assert refresh_of(crew.host) == "r-2"
    _, other = await crew.hire()
    assert refresh_of(other) == "", "and it holds the lock"


# --- a worker that wants more


def to_a_link(copy: Path, aim: Path) -> None:
    copy.unlink()
    copy.symlink_to(aim)


def to_a_pipe(copy: Path, _: Path) -> None:
    copy.unlink()
    os.mkfifo(copy)


def to_a_folder(copy: Path, _: Path) -> None:
    copy.unlink()
    (copy / "x").mkdir(parents=True)


def to_a_gigabyte(copy: Path, _: Path) -> None:
    with open(copy, "r+b") as file:
        file.truncate(1 << 30)


def to_a_device(copy: Path, _: Path) -> None:
    copy.unlink()
    copy.symlink_to("/dev/zero")


def to_deep_json(copy: Path, _: Path) -> None:
    copy.write_text('{"a":' * 10_000)


def to_bytes(copy: Path, _: Path) -> None:
    copy.write_bytes(b"\xff\xfe\x00")


def to_other_json(copy: Path, _: Path) -> None:
    copy.write_text('{"tokens": {"refresh_token": "planted"}}')


def to_another_account(copy: Path, _: Path) -> None:
    copy.write_text(json.dumps(chatgpt(2 * DAY_S, account="of-the-worker")))


def to_nothing(copy: Path, _: Path) -> None:
    copy.unlink()


@every_row(
    "attack",
    [
        to_a_link,
        to_a_pipe,
        to_a_folder,
        to_a_gigabyte,
        to_a_device,
        to_deep_json,
        to_bytes,
        to_other_json,
        to_another_account,
        to_nothing,
    ],
    ids=lambda attack: attack.__name__,
)
async def test_what_is_no_renewal_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, attack: Callable[[Path, Path], None]
) -> None:
    folder = tmp_path_factory.mktemp("crew")
    crew = Crew(folder)
    aim = folder / "renewed-elsewhere.json"  # what would be a renewal, if a link were followed
    aim.write_text(json.dumps(chatgpt(2 * DAY_S, refresh="r-2")))
    before = crew.host.read_bytes()
    first, one = await crew.hire()
    attack(one, aim)
    first.sync()
    first.sync()
    assert crew.host.read_bytes() == before
    assert os.listdir(crew.host.parent) == ["auth.json"]
    crew.write(chatgpt(3 * DAY_S, refresh="of-the-user"))  # and what its user does goes on reaching it
    first.sync()
    with contextlib.suppress(OSError):
        assert refresh_of(one) == "of-the-user"
    first.end()
    assert json.loads(aim.read_bytes())["tokens"]["refresh_token"] == "r-2", "no link is written through"


async def test_a_folder_on_the_way_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    """As of claude, whose login lies one folder deeper."""
    from holdfast.agents.catalog.claude import CLAUDE
    from tests.support.logins import anthropic

    host, state, outside = tmp_path / "host.json", tmp_path / "state", tmp_path / "outside"
    host.write_text(json.dumps(anthropic(60)))
    for made in (state, outside):
        made.mkdir()
    login = SharedLogin.find(
        CLAUDE,
        LoginState(host=str(host), into="config/.credentials.json"),
        state=str(state),
        user=str(tmp_path),
        home=tmp_path,
    )
    await login.begin()
    (state / "config").rename(tmp_path / "moved")
    (state / "config").symlink_to(outside)
    planted = outside / ".credentials.json"
    planted.write_text(json.dumps(anthropic(DAY_S, refresh="r-2")))
    login.sync()
    assert json.loads(host.read_bytes())["claudeAiOauth"]["refreshToken"] == REFRESH
    host.write_text(json.dumps(anthropic(2 * DAY_S, refresh="of-the-user")))
    login.sync()
    login.end()
    assert json.loads(planted.read_bytes())["claudeAiOauth"]["refreshToken"] == "r-2", (
        "nor written, nor removed"
    )


async def test_a_worker_that_renews_again_and_again_is_not_followed_for_ever(crew: Crew) -> None:
    first, one = await crew.hire()
    for number in range(MAX_RENEWALS + 2):
        one.write_text(json.dumps(chatgpt((2 + number) * DAY_S, refresh=f"r-{number}")))
        first.sync()
    assert refresh_of(crew.host) == f"r-{MAX_RENEWALS - 1}"


async def test_a_borrower_brings_nothing_back(crew: Crew) -> None:
    crew.write(chatgpt(DAY_S))
    await crew.hire()
    second, other = await crew.hire()
    before = crew.host.read_bytes()
    other.write_text(json.dumps(chatgpt(2 * DAY_S, refresh="planted")))
    second.sync()
    second.end()
    assert crew.host.read_bytes() == before
