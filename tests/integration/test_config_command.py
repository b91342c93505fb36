"""`holdfast config codex` where no Codex is installed, and where what is typed makes no sense."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import patient

TIMEOUT_S = patient(60)


@pytest.fixture
def home() -> Iterator[Path]:
    """Not below a directory for temporary files: that would be refused."""
    with tempfile.TemporaryDirectory(prefix="holdfast-config-", dir="/var/tmp") as made:
        path = Path(os.path.realpath(made)) / "codex"
        path.mkdir()
        yield path


def config(command: str, *options: str | Path, path: str = "/nowhere") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "config", "codex", command, *map(str, options)],
        env={"PATH": path, "HOME": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_without_codex_the_version_is_unknown_and_the_strict_decision_is_written(
    home: Path, tmp_path: Path
) -> None:
    done = config("apply", "--json", "--task-home", home, "--cwd", tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["decision"]["severity"] == "degraded"
    assert 'sandbox_mode = "workspace-write"' in (home / "config.toml").read_text()


def test_a_plan_says_why_and_shows_the_change_and_writes_nothing(home: Path, tmp_path: Path) -> None:
    done = config("plan", "--home", home, "--cwd", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "because:" in done.stdout
    assert "+sandbox_mode" in done.stdout
    assert list(home.iterdir()) == []


def test_check_needs_a_codex_to_ask(home: Path, tmp_path: Path) -> None:
    done = config("check", "--home", home, "--cwd", tmp_path)
    assert done.returncode == 3
    assert "try:" in done.stderr


def test_a_codex_that_says_nothing_sensible_is_an_error_and_never_a_pass(home: Path, tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\necho nonsense\n")
    program.chmod(0o755)
    done = config("check", "--home", home, "--cwd", tmp_path, path=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 71, done.stdout + done.stderr


def test_what_makes_no_sense_is_told_apart(home: Path, tmp_path: Path) -> None:
    where = ("--home", home, "--cwd", tmp_path)
    assert config("plan", "--home", home, "--task-home", home).returncode == 2
    assert config("plan", *where, "--network", "https://a.example").returncode == 2
    assert config("plan", *where, "--network", "full", "--network", "a.example").returncode == 2
    assert config("plan", *where, "--writable", tmp_path / "nowhere").returncode == 3
    assert config("plan", "--home", home / "nowhere", "--cwd", tmp_path).returncode == 3
    (home / "config.toml").write_text("a = [\n")
    assert config("plan", *where).returncode == 2


def test_a_home_below_a_directory_for_temporary_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    done = config("apply", "--home", tmp_path / "home", "--cwd", tmp_path / "work", "--writable", tmp_path)
    assert done.returncode == 125
    assert list((tmp_path / "home").iterdir()) == []
