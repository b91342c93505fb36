"""Which directories are Holdfast's own, and how others are remembered."""

import os
from pathlib import Path

import pytest

from holdfast.home import FOLDER, find_homes, remember


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name in ("user", "state", "run", "other"):
        (tmp_path / name).mkdir()
    return {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "HOLDFAST_HOME": str(tmp_path / "named"),
    }


def test_only_what_exists_is_hidden(environ: dict[str, str], tmp_path: Path) -> None:
    assert find_homes(environ) == ()
    made = [tmp_path / "state" / "holdfast", tmp_path / "named", tmp_path / "run" / "holdfast"]
    made.append(tmp_path / "user" / ".holdfast")
    for path in made:
        path.mkdir()
    assert {*map(str, made)} <= {*find_homes(environ)}


def test_a_home_that_a_daemon_was_given_is_remembered_while_it_exists(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "other")
    remember(tmp_path / "link", environ)
    remember(tmp_path / "other", environ)
    assert find_homes(environ).count(str(tmp_path / "other")) == 1
    [kept] = (tmp_path / "state" / "holdfast" / FOLDER).iterdir()
    (tmp_path / "other").rmdir()
    assert str(tmp_path / "other") not in find_homes(environ)
    (tmp_path / "third").mkdir()
    remember(tmp_path / "third", environ)
    assert not os.path.lexists(kept)


def test_the_default_home_needs_no_note(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "state" / "holdfast").mkdir()
    remember(tmp_path / "state" / "holdfast", environ)
    assert not (tmp_path / "state" / "holdfast" / FOLDER).exists()


def test_there_is_a_bound(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.home.MAX_HOMES", 1)
    remember(tmp_path / "other", environ)
    remember(tmp_path / "other", environ)
    with pytest.raises(OSError, match="already"):
        remember(tmp_path / "user", environ)
