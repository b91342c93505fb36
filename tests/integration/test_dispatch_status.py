"""How a dispatcher stands, seen from outside; and profiles that are read again while it goes on."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.board.rules.transitions import TaskStatus
from holdfast.dispatch import dispatcher, homefiles
from holdfast.dispatch.installed import InstalledProfiles
from holdfast.dispatch.rules.dispatcherstatus import DispatcherReport, DispatcherStatus
from holdfast.errors import Conflict, UsageError
from tests.support.board_command import Board
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.dispatch import dispatcher as dispatcher_process
from tests.support.patience import patient
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first", "home_fixture", "yard_fixture"]

pytestmark = pytest.mark.timeout(120)


async def told(yard: Yard, met: str) -> DispatcherReport:
    """What the dispatcher says once a member is neither empty nor zero."""
    found: DispatcherReport | None = None
    async with asyncio.timeout(patient(40)):
        while found is None or not getattr(found, met):
            await asyncio.sleep(0.05)
            _, found = homefiles.read_status(yard.home)
    return found


async def test_the_lock_says_whether_there_is_a_dispatcher_and_asking_does_not_keep_one_out(
    tmp_path: Path,
) -> None:
    assert not homefiles.is_held(tmp_path)
    async with homefiles.only_one(tmp_path):
        assert homefiles.is_held(tmp_path)
        with pytest.raises(Conflict):
            async with homefiles.only_one(tmp_path):
                pass
    assert not homefiles.is_held(tmp_path)


def test_what_a_dead_dispatcher_said_does_not_make_it_alive(tmp_path: Path) -> None:
    assert homefiles.read_status(tmp_path) == (False, None)
    said = DispatcherStatus("h", os.getpid(), ["b"], 1.0).report(2.0, runs=[], profiles=[])
    homefiles.StatusFile(tmp_path).write(said, 1)
    assert homefiles.read_status(tmp_path) == (False, said)
    (tmp_path / homefiles.STATUS).write_text("{")
    assert homefiles.read_status(tmp_path) == (False, None)
    homefiles.clear_status(tmp_path)
    homefiles.clear_status(tmp_path)
    assert homefiles.read_status(tmp_path) == (False, None)


async def test_a_dispatcher_says_what_it_does(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "TELL_S", 0.1)
    task = yard.create("sleep 1000")
    async with yard.dispatching(lease_ms=2000):
        await yard.until(task, TaskStatus.RUNNING)
        found = await told(yard, "starts")
        assert homefiles.read_status(yard.home)[0]
        [run] = yard.store.runs(task.id)
        assert (found.boards, found.runs, found.claims) == (["b"], [run.id], 1)
        assert "script" in found.profiles
        assert found.start_p95_s is not None
        assert found.round_at is not None
        assert (await told(yard, "leases_renewed")).error_at is None
    alive, found_later = homefiles.read_status(yard.home)
    assert not alive
    assert found_later is not None


async def test_the_command_tells_a_living_dispatcher_from_a_killed_one(yard: Yard) -> None:
    board = Board(yard.address, yard.home)
    none = board.answer("dispatch", "status", code=3)
    assert (none["alive"], none["dispatcher"]) == (False, None)
    async with dispatcher_process(yard) as process:
        await told(yard, "round_at")
        answer = await asyncio.to_thread(board.answer, "dispatch", "status")
        assert answer["alive"]
        assert isinstance(answer["dispatcher"], dict)
        assert answer["dispatcher"]["boards"] == ["b"]
        await process.end(signal.SIGKILL)
    assert board.answer("dispatch", "status", code=3)["alive"] is False
    assert "no dispatcher" in board.run("dispatch", "status").stdout


def test_options_before_the_command_are_not_forgotten_silently(sqlite_board: Board) -> None:
    assert sqlite_board.run("dispatch", "--once", "status").returncode == 2
    assert sqlite_board.answer("dispatch", code=2)["error"]


def test_a_file_is_read_again_when_it_is_another_one_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"]}
    found = InstalledProfiles(tmp_path, environ)
    before = dict(found)
    assert not found.look()
    (tmp_path / "worker-profiles.toml").write_text('[mine]\nagent = "shell"\n', "utf-8")
    assert found.look()
    assert found["mine"].cli == "shell"
    (tmp_path / "worker-profiles.toml").write_text('[mine]\nagent = "nobody at all"\n', "utf-8")
    with pytest.raises(UsageError):
        found.look()
    assert not found.look(), "once for each change"
    assert found["mine"].cli == "shell"
    (tmp_path / "worker-profiles.toml").unlink()
    assert found.look(anyway=True)
    assert (dict(found), len(found)) == (before, len(before))


async def test_a_launcher_that_is_added_starts_workers_and_a_wrong_file_is_told_of(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "TELL_S", 0.1)
    task = yard.create("echo hello", assignee="mine")
    async with yard.dispatching():
        await told(yard, "round_at")
        (yard.home / "worker-profiles.toml").write_text("[mine", "utf-8")
        assert "worker-profiles.toml" in (await told(yard, "reload_error")).reload_error
        (yard.home / "worker-profiles.toml").write_text(
            '[mine]\nagent = "shell"\nprompt = "{body}"\nsuccess = "exit"\n', "utf-8"
        )
        await yard.until(task, TaskStatus.DONE)
        found = await told(yard, "reloads")
    assert "mine" in found.profiles


async def test_a_signal_has_the_launchers_read_again(yard: Yard) -> None:
    async with dispatcher_process(yard) as process:
        await told(yard, "round_at")
        process.tell(signal.SIGHUP)
        assert (await told(yard, "reloads")).reloads == 1
        process.tell(signal.SIGTERM)
        assert await process.left() == 0


def test_two_threads_that_write_at_once_leave_one_of_both(tmp_path: Path) -> None:
    """A round that is cancelled does not stop its thread, and the last word may be written beside it."""
    said = DispatcherStatus("h", os.getpid(), ["b"], 1.0).report(2.0, runs=[], profiles=[])
    with ThreadPoolExecutor(4) as threads:
        status = homefiles.StatusFile(tmp_path)
        for written in [threads.submit(status.write, said, status.number()) for _ in range(400)]:
            written.result()
    assert homefiles.read_status(tmp_path)[1] == said
    assert [path.name for path in tmp_path.iterdir()] == [homefiles.STATUS]


def test_a_thread_that_comes_late_does_not_overwrite_the_last_word(tmp_path: Path) -> None:
    """Its caller was cancelled when the dispatcher ended, and what it has to say was so before that."""
    status = homefiles.StatusFile(tmp_path)
    told = DispatcherStatus("h", os.getpid(), ["b"], 1.0)
    older, newer = (told.report(at, runs=[], profiles=[]) for at in (2.0, 3.0))
    first, last = status.number(), status.number()
    status.write(newer, last)
    status.write(older, first)
    assert homefiles.read_status(tmp_path)[1] == newer
