"""`holdfast config claude` and `opencode` where neither is installed: what is written, what is left alone."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.patience import patient

TIMEOUT_S = patient(60)
AGENTS = ["claude", "opencode"]


@pytest.fixture
def base() -> Iterator[Path]:
    """Not below a directory for temporary files: that would be refused."""
    with tempfile.TemporaryDirectory(prefix="holdfast-config-", dir="/var/tmp") as made:
        path = Path(os.path.realpath(made))
        for name in ("home", "work", "a*"):
            (path / name).mkdir()
        yield path


def config(base: Path, agent: str, command: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    where = ["--home", str(base / "home"), "--cwd", str(base / "work")]
    words = ["config", agent, command, *where, *map(str, options)]
    return warm.run(words, env={"PATH": "/nowhere", "HOME": "/nowhere"}, cwd=base, timeout=TIMEOUT_S)


@pytest.mark.parametrize("agent", AGENTS)
def test_without_the_agent_the_decision_is_written_and_nothing_is_checked(base: Path, agent: str) -> None:
    done = config(base, agent, "apply", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["decision"]["severity"] == "degraded"
    file = base / "home" / f"holdfast-{agent}.json"
    assert json.loads(file.read_text())
    assert file.stat().st_mode & 0o777 == 0o600
    assert config(base, agent, "check").returncode == 3


@pytest.mark.parametrize("agent", AGENTS)
def test_a_plan_says_why_and_how_to_launch_and_writes_nothing(base: Path, agent: str) -> None:
    done = config(base, agent, "plan")
    assert done.returncode == 0, done.stderr
    assert "because:" in done.stdout
    assert f"holdfast-{agent}.json" in done.stdout
    assert "launch:" in done.stdout
    assert list((base / "home").iterdir()) == []


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("text", ["{", "[]", '{"model": "mine"}'])
def test_a_file_that_cannot_be_ours_is_refused_and_left_alone(base: Path, agent: str, text: str) -> None:
    file = base / "home" / f"holdfast-{agent}.json"
    file.write_text(text)
    for command in ("apply", "remove"):
        assert config(base, agent, command).returncode == 1
    assert file.read_text() == text


@pytest.mark.parametrize("agent", AGENTS)
def test_a_path_that_would_be_a_pattern_is_refused(base: Path, agent: str) -> None:
    assert config(base, agent, "apply", "--writable", base / "a*").returncode == 1
    assert list((base / "home").iterdir()) == []


@pytest.mark.parametrize("agent", AGENTS)
def test_full_access_without_a_boundary_and_a_home_that_commands_could_write_are_refused(
    base: Path, agent: str
) -> None:
    assert config(base, agent, "apply", "--writes", "everything").returncode == 125
    assert config(base, agent, "apply", "--writable", base).returncode == 125
    assert list((base / "home").iterdir()) == []


def test_a_file_of_ours_is_removed_and_one_in_a_linked_task_home_is_not(base: Path) -> None:
    config(base, "claude", "apply")
    assert config(base, "claude", "remove").returncode == 0
    assert not (base / "home" / "holdfast-claude.json").exists()
    (base / "link").symlink_to(base / "home")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "config", "claude", "remove", "--task-home", str(base / "link")],
        env={"PATH": "/nowhere", "HOME": "/nowhere"},
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1
