"""What is looked at on this machine, and what is not: nothing that a command could have written."""

from pathlib import Path

import pytest

from holdfast.egress.clients.recipes import find_hosts
from holdfast.egress.clients.surroundings import look_around
from holdfast.errors import UsageError


def test_what_the_command_may_write_says_nothing_also_by_a_link(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "home" / "w"
    workspace.mkdir(parents=True)
    (workspace / ".npmrc").write_text("registry=https://evil.test/", "utf-8")
    (home / ".npmrc").symlink_to(workspace / ".npmrc")

    def is_writable(path: str) -> bool:
        return path.startswith(str(workspace))

    environ = {"HOME": str(home), "PATH": str(workspace), "NPM_CONFIG_GLOBALCONFIG": f"{workspace}/.npmrc"}
    with pytest.raises(UsageError, match="nothing outside of the workspace"):
        find_hosts("npm", look_around(environ, is_writable))
    (home / ".npmrc").unlink()
    (home / ".npmrc").write_text("registry=https://good.test/", "utf-8")
    assert [rule for rule, _ in find_hosts("npm", look_around(environ, is_writable))] == ["good.test:443"]


def test_a_relative_path_is_one_of_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rc").write_text("registry=https://evil.test/", "utf-8")
    assert look_around({}, lambda _: False).read("rc") is None


def test_pip_is_found_without_running_it() -> None:
    """Which index it has is its own affair; here it must say one."""
    environ = {"HOME": "/nonexistent", "PATH": ""}
    found = find_hosts("pip", look_around(environ, lambda path: path.startswith("/etc/")))
    assert {where for _, where in found} == {"pip itself"}


def test_no_pip_that_the_command_may_write_says_where_its_index_is() -> None:
    """Neither one that is installed nor one that an interpreter has with it."""
    with pytest.raises(UsageError, match="nothing outside of the workspace"):
        find_hosts("pip", look_around({"HOME": "/nonexistent", "PATH": ""}, lambda _: True))


def test_folders_are_listed_unless_the_command_may_write_them(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    (tmp_path / "a").touch()
    assert look_around({}, lambda _: False).list(str(tmp_path)) == ["a", "b"]
    assert look_around({}, lambda _: True).list(str(tmp_path)) == ()
    assert look_around({}, lambda _: False).list(str(tmp_path / "none")) == ()
