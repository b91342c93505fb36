"""Which file of worker profiles is read."""

import os
from pathlib import Path

import pytest

from holdfast.dispatch.installed import FILE, OLD_FILE, InstalledProfiles, find_installed, notice
from holdfast.errors import UsageError

ENVIRON = {"PATH": "/usr/bin:/bin"}
OLD = '[old]\ncommand = ["sh", "-c", "{prompt}"]\n'
NEW = '[new]\ncommand = ["sh", "-c", "{prompt}"]\n'


def test_the_file_with_its_old_name_is_read_and_a_notice_says_what_to_type(tmp_path: Path) -> None:
    assert notice(tmp_path) is None
    (tmp_path / OLD_FILE).write_text(OLD, "utf-8")
    assert "old" in find_installed(tmp_path, ENVIRON)
    said = notice(tmp_path) or ""
    assert said.endswith(f"mv {tmp_path / OLD_FILE} {tmp_path / FILE}")


def test_the_new_name_wins_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / OLD_FILE).write_text(OLD, "utf-8")
    found = InstalledProfiles(tmp_path, ENVIRON)
    (tmp_path / FILE).write_text(NEW, "utf-8")
    assert found.look()
    assert "new" in found
    assert "old" not in found
    assert "is not read" in (notice(tmp_path) or "")


RECORD = '[{name}]\nbinary = "{binary}"\nheadless = ["-c", "{{prompt}}"]\n'


def test_an_agent_of_a_record_has_a_profile_and_may_be_named_in_one(tmp_path: Path) -> None:
    (tmp_path / "agents.toml").write_text(RECORD.format(name="mine", binary="sh"))
    (tmp_path / FILE).write_text('[quick]\nagent = "mine"\nmax_runtime_s = 60\n')
    found = find_installed(tmp_path, ENVIRON)
    assert (found["mine"].cli, found["quick"].cli) == ("mine", "mine")
    assert found["mine"].env == (), "a record passes no key"
    assert "goose" not in found, "its program is not here"


def test_a_shipped_record_has_a_profile_where_its_program_is(tmp_path: Path) -> None:
    (tmp_path / "goose").symlink_to("/bin/sh")
    found = find_installed(tmp_path, {"PATH": str(tmp_path)})
    assert found["goose"].cli == "goose"
    assert "OPENAI_API_KEY" in found["goose"].env


def test_a_profile_whose_record_is_wrong_says_so(tmp_path: Path) -> None:
    (tmp_path / "agents.toml").write_text('[mine]\nbinary = "sh"\n')
    (tmp_path / FILE).write_text('[quick]\nagent = "mine"\n')
    with pytest.raises(UsageError, match=r"profile quick: the record of `mine` is invalid: .*headless"):
        find_installed(tmp_path, ENVIRON)


def test_a_record_that_is_written_later_is_heard_of(tmp_path: Path) -> None:
    found = InstalledProfiles(tmp_path, ENVIRON)
    assert not found.look()
    (tmp_path / "agents.toml").write_text(RECORD.format(name="mine", binary="sh"))
    assert found.look()
    assert "mine" in found


def test_records_of_a_repository_describe_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: whoever writes to a workspace would have a program of theirs run, or one of ours replaced."""
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (work, work / ".holdfast", work / ".config" / "holdfast", home):
        folder.mkdir(parents=True)
        record = RECORD.format(name="evil", binary="sh") + RECORD.format(name="goose", binary="sh")
        if folder != home:
            (folder / "agents.toml").write_text(record)
            (folder / FILE).write_text('[evil-too]\ncommand = ["sh"]\n')
    monkeypatch.chdir(work)
    found = find_installed(home, ENVIRON | {"PWD": str(work)})
    assert not found.keys() & {"evil", "evil-too", "goose"}
    os.rename(work / "agents.toml", home / "agents.toml")  # the same file, where its user keeps it
    assert found.keys() < find_installed(home, ENVIRON).keys()
