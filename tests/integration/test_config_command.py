"""`holdfast config codex` where no Codex is installed, and where what is typed makes no sense."""

import json
import os
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import warm
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
    words = ["config", "codex", command, *map(str, options)]
    return warm.run(words, env={"PATH": path, "HOME": "/nowhere"}, cwd=os.getcwd(), timeout=TIMEOUT_S)


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


def test_an_environment_is_a_program_of_ours_by_its_absolute_path(home: Path, tmp_path: Path) -> None:
    where = ("--home", home, "--cwd", tmp_path)
    done = config("apply", "--json", *where, "--environment", "holdfast")
    assert done.returncode == 0, done.stderr
    file = home / "environments.toml"
    (entry,) = tomllib.loads(file.read_text())["environments"]
    assert os.path.isabs(entry["program"])
    asked = subprocess.run(
        [entry["program"], *entry["args"]],
        input=b"",
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=tmp_path,
    )
    assert asked.returncode == 0, asked.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    assert config("remove", *where).returncode == 0
    assert not file.exists()


def test_an_environment_that_makes_no_sense_is_told_apart_and_nothing_is_written(
    home: Path, tmp_path: Path
) -> None:
    token, where = tmp_path / "token", ("--home", home, "--cwd", tmp_path)
    token.write_text("s3cret-token")
    url, file = "--environment-url", "--environment-token-file"
    named = ("--environment", "there")
    for code, options in (
        (2, ("--environment-default",)),
        (2, (file, token)),
        (2, (*named, file, token)),
        (2, ("--environment", "local")),
        (2, (*named, url, "http://127.0.0.1:1")),
        (2, (*named, url, "ws://192.0.2.1:1", file, token)),  # everybody on the way could read it
        (3, (*named, url, "wss://h:1", file, tmp_path / "nowhere")),
    ):
        done = config("apply", *where, *options)
        assert done.returncode == code, (options, done.stderr)
        assert "s3cret" not in done.stdout + done.stderr
        assert list(home.iterdir()) == []
    (home / "environments.toml").write_text('[[environments]]\nid = "there"\nprogram = "x"\n')
    assert config("apply", *where, *named).returncode == 1
    assert not (home / "config.toml").exists()
