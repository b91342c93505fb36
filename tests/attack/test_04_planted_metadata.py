"""Metadata that a command planted does not stay, whatever it does about it, and nobody else's is touched."""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.confine.guard import HeldNames
from tests.support import identity
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES

PLANT = "mkdir .git && echo '[core] fsmonitor = evil' > .git/config"


@pytest.fixture(params=IDENTITIES)
def uid(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def place(uid: int) -> Iterator[Path]:
    """Not below /tmp: that is writable by default, and would be a root of its own."""
    made = Path(tempfile.mkdtemp(prefix="planted-", dir=identity.OUTSIDE_TMP))
    (made / "ws").mkdir()
    identity.hand_over(made, uid)
    yield made
    subprocess.run(["chmod", "-R", "u+rwx", str(made)], check=False)
    shutil.rmtree(made)


def run(uid: int, place: Path, script: str, *flags: str) -> "subprocess.CompletedProcess[str]":
    argv = [identity.python(uid), "-P", "-m", "holdfast", "exec", *flags, "--", "sh", "-c", script]
    return subprocess.run(
        identity.command_as(uid, argv),
        cwd=place / "ws",
        capture_output=True,
        text=True,
        timeout=patient(30),
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(place)},
    )


def aside(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".git.set-aside-")]


@pytest.mark.parametrize("backend", ["namespaces", "bwrap", "landlock"])
def test_a_directory_that_was_closed_to_writing_is_opened_for_it(uid: int, place: Path, backend: str) -> None:
    ws = place / "ws"
    done = run(uid, place, f"{PLANT} && chmod 555 .", "--backend", backend)
    assert "has been moved to" in done.stderr, done.stderr
    assert not (ws / ".git").exists()
    assert len(aside(ws)) == 1
    assert ws.stat().st_mode & 0o777 == 0o555
    ws.chmod(0o755)
    subprocess.run(["sh", "-c", PLANT], cwd=ws, check=True)
    assert (ws / ".git").exists(), "the control: without us it stays"


def test_a_link_to_a_repository_in_its_place_has_nothing_renamed(uid: int, place: Path) -> None:
    """As in /tmp, where a command may move its own directory away."""
    repository, ws = place / "repo", place / "ws"
    (repository / ".git").mkdir(parents=True)
    held = HeldNames([f"{ws}/.git"])
    (ws / ".git").mkdir()
    ws.rename(place / "x")
    ws.symlink_to(repository)
    assert (ws / ".git").exists(), "the control: by its path it would be renamed"
    assert held.have_appeared()
    moved, failed = held.set_aside()
    assert (repository / ".git").is_dir()
    assert len(aside(place / "x")) == 1
    assert moved.keys() == failed.keys() == {f"{ws}/.git"}
    assert "was replaced" in failed[f"{ws}/.git"]
    held.close()


def test_a_new_directory_in_its_place_is_told(place: Path) -> None:
    """Another door: the directory is replaced by one with metadata in it."""
    ws = place / "ws"
    held = HeldNames([f"{ws}/.git"])
    ws.rename(place / "x")
    (ws / ".git").mkdir(parents=True)
    assert held.have_appeared()
    assert held.set_aside() == ({}, {f"{ws}/.git": f"{ws} was replaced meanwhile"})
    shutil.rmtree(ws)
    assert not held.have_appeared(), "a directory that is gone is no matter"
    held.close()


def test_what_one_command_made_and_another_found_there_does_not_stay(place: Path) -> None:
    """Two at once: the second was planned when the first had planted it, so it protected what was there."""
    ws = place / "ws"
    name = f"{ws}/.git"
    first = HeldNames([name])
    (ws / ".git").mkdir()
    second = HeldNames([], [name])
    assert first.set_aside()[0]
    assert not second.have_appeared()
    (ws / ".git").mkdir()  # by the second
    assert second.have_appeared()
    moved, failed = second.set_aside()
    assert list(moved) == [name]
    assert not failed
    assert len(aside(ws)) == 2
    first.close()
    second.close()


def test_a_repository_that_its_user_replaced_stays(place: Path) -> None:
    ws = place / "ws"
    (ws / ".git").mkdir()
    held = HeldNames([], [f"{ws}/.git"])
    (ws / ".git").rename(ws / "old.git")
    (ws / ".git").mkdir()
    assert held.set_aside() == ({}, {})
    assert (ws / ".git").is_dir()
    held.close()


@pytest.fixture
def shared(place: Path) -> Path:
    """As /tmp is: everybody may make something there."""
    made = place / "shared"
    made.mkdir()
    made.chmod(0o1777)
    return made


def test_a_mount_point_of_another_sandbox_is_left_and_not_told(shared: Path) -> None:
    """codex makes such directories in /tmp while a command of its own runs."""
    git = shared / ".git"
    held = HeldNames([str(git)])
    git.mkdir()
    assert not held.have_appeared()
    assert held.set_aside() == ({}, {})
    assert git.is_dir()
    (git / "config").touch()
    assert held.have_appeared()
    assert list(held.set_aside()[0]) == [str(git)]
    assert not git.exists()
    held.close()


@pytest.mark.parametrize("make", ["touch .git", "ln -s ../ws .git", "mkdir .git && touch .git/config"])
def test_what_takes_the_place_of_a_mount_point_does_not_stay(shared: Path, make: str) -> None:
    """It was there at the plan; then its owner removed it, and the command put a repository there."""
    git = shared / ".git"
    git.mkdir()
    held = HeldNames([], [str(git)])
    assert not held.have_appeared()
    git.rmdir()
    subprocess.run(["sh", "-c", make], cwd=shared, check=True)
    assert held.have_appeared()
    assert list(held.set_aside()[0]) == [str(git)]
    assert not os.path.lexists(git)
    held.close()


@pytest.mark.parametrize("backend", ["namespaces", "bwrap", "landlock"])
def test_a_command_is_not_blamed_for_a_mount_point(uid: int, shared: Path, backend: str) -> None:
    flags = ("--backend", backend, "--allow-write", str(shared))
    planted = run(uid, shared.parent, f"mkdir -p {shared}/.agents/x", *flags)
    assert "has been moved to" in planted.stderr, "the control: one with something in it is"
    assert not (shared / ".agents").exists()
    empty = run(uid, shared.parent, f"mkdir {shared}/.git {shared}/.codex", *flags)
    assert (empty.returncode, empty.stderr) == (0, "")


def test_many_ends_at_once_do_not_fight(place: Path) -> None:
    ws = place / "ws"
    held = [HeldNames([f"{ws}/.git"]) for _ in range(8)]
    (ws / ".git").mkdir()
    told: list[tuple[dict[str, str], dict[str, str]]] = []
    threads = [threading.Thread(target=lambda one=one: told.append(one.set_aside())) for one in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patient(10))
    assert sum(len(moved) for moved, _ in told) == 1
    assert not any(failed for _, failed in told)
    for one in held:
        one.close()


def test_what_cannot_be_moved_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.confine import verdict

    held = HeldNames([f"{place}/ws/.git"])
    (place / "ws" / ".git").mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "rename", refuse)
    denial = verdict.denial_of(*held.set_aside())
    assert denial is not None
    assert "could not be moved aside: Operation not permitted" in denial.evidence
    held.close()


def test_nobody_follows_a_link_on_a_way_that_was_not_there(place: Path) -> None:
    ws, outside = place / "ws", place / "outside"
    (outside / "secret").mkdir(parents=True)
    held = HeldNames([f"{ws}/no/secret"])
    (ws / "no").symlink_to(outside)
    moved, failed = held.set_aside()
    assert (outside / "secret").is_dir()
    assert not os.path.lexists(ws / "no")
    assert list(moved) == [f"{ws}/no/secret"]
    assert not failed
    held.close()
