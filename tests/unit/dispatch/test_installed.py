"""Which file of worker profiles is read."""

from pathlib import Path

from holdfast.dispatch.installed import FILE, OLD_FILE, InstalledProfiles, find_installed, notice

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
