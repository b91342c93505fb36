"""What `make` installs into: when it is kept, made anew or left alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import environment, get_packages
from tools.environment import STAMP, Environment

VERSION = sys.version.split()[0]


def an_environment(place: Path, *, python: str = VERSION, **stamp: str) -> Environment:
    """One that runs; the stamp says where it was made, unless told otherwise."""
    (place / "bin").mkdir(parents=True)
    (place / "pyvenv.cfg").touch()
    (place / "bin" / "python").symlink_to("/bin/true")
    noted = {"root": str(environment.ROOT), "folder": str(place), "python": python, **stamp}
    (place / STAMP).write_text(json.dumps(noted), "utf-8")
    (place / "kept").touch()
    return Environment(place)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Every command that would have been run, but for the look whether an interpreter starts."""
    commands: list[list[str]] = []
    run = subprocess.run

    def noted(command: list[str], **more: object) -> "subprocess.CompletedProcess[bytes]":
        if command[1:] == ["-c", ""]:
            return run(command, check=False)
        commands.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", noted)
    return commands


def test_one_that_fits_is_kept(tmp_path: Path, made: list[list[str]]) -> None:
    an_environment(tmp_path / "v").make(exactly=True)
    an_environment(tmp_path / "w", python="3.99.0").make(exactly=False)
    assert made == []


@pytest.mark.parametrize("wrong", [{"root": "/elsewhere"}, {"folder": "/elsewhere"}, {"python": "3.99.0"}])
def test_one_that_was_made_elsewhere_or_by_another_python_is_made_anew(
    tmp_path: Path, made: list[list[str]], wrong: dict[str, str]
) -> None:
    found = an_environment(tmp_path / "a b", **wrong)
    found.make(exactly=True)
    assert made == [[sys.executable, "-m", "venv", str(tmp_path / "a b")]]
    assert not (tmp_path / "a b" / "kept").exists()
    assert Environment(tmp_path / "a b").stamp["folder"] == str(tmp_path / "a b")


def test_one_whose_interpreter_is_gone_is_made_anew(tmp_path: Path, made: list[list[str]]) -> None:
    found = an_environment(tmp_path / "v")
    found.python.unlink()
    found.make(exactly=False)
    assert len(made) == 1


def test_a_directory_that_is_no_environment_is_never_removed(tmp_path: Path, made: list[list[str]]) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(SystemExit):
        Environment(tmp_path).make(exactly=False)
    assert (tmp_path / "thesis.txt").exists()
    assert made == []


def test_a_pin_is_installed_once(tmp_path: Path, made: list[list[str]]) -> None:
    found = an_environment(tmp_path / "v")
    found.install("run")
    found.install("run")
    Environment(tmp_path / "v").install("run")
    assert len(made) == 1


def test_sources_that_cannot_be_written_are_built_elsewhere(
    tmp_path: Path, made: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = an_environment(tmp_path / "v")
    linked.install_package()
    assert made[0][-2:] == ["-e", str(environment.ROOT)]
    monkeypatch.setattr(os, "access", lambda *_: False)
    linked.install_package()
    linked.install_package()
    assert len(made) == 2
    assert not Path(made[1][-1]).is_relative_to(environment.ROOT)


def test_what_is_linked_has_bytecode_also_where_none_is_written_by_itself(
    tmp_path: Path, made: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = an_environment(tmp_path / "v")
    found.compile_sources()
    [command] = made
    assert command[1:3] == ["-m", "compileall"]
    assert str(environment.ROOT / "src") in command
    monkeypatch.setattr(os, "access", lambda *_: False)
    found.compile_sources()
    assert len(made) == 1


def test_the_package_under_its_former_name_is_removed_first(tmp_path: Path, made: list[list[str]]) -> None:
    found = an_environment(tmp_path / "v")
    (tmp_path / "v/lib/python3.11/site-packages/holdfast-0.1.0.dist-info").mkdir(parents=True)
    found.install_package()
    assert [command[3] for command in made] == ["uninstall", "install"]
    assert made[0][-2:] == ["-y", "holdfast"]


def test_what_is_missing_is_told_with_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_packages, "_is_there", lambda program: program != "tmux")
    found = get_packages.missing()
    assert found == {"tmux": "workers in a terminal of their own"}
    assert get_packages.report(found)[1:] == [
        "  tmux: workers in a terminal of their own",
        "  apt-get install tmux",
    ]
    assert get_packages.report({}) == []


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_what_is_missing_fails_only_where_nothing_may_be(
    monkeypatch: pytest.MonkeyPatch, ci: str, code: int
) -> None:
    monkeypatch.setattr(get_packages, "_is_there", lambda _program: False)
    monkeypatch.setattr(sys, "argv", ["get_packages", "--missing"])
    monkeypatch.setenv("CI", ci)
    with pytest.raises(SystemExit) as ended:
        get_packages.main()
    assert int(ended.value.code or 0) == code
