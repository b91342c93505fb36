"""The pinned agent CLIs: the table and the lock files say the same, and say nothing of where it came from."""

import json
from pathlib import Path

from tests.support.rows import every_row
from tools.get_agents import LOCKS, PINS, STAMP, installed


@every_row("name", PINS)
def test_the_lock_holds_the_version_of_the_table_with_its_digest(name: str) -> None:
    pin = PINS[name]
    packages = json.loads((LOCKS / f"{name}.json").read_text("utf-8"))["packages"]
    assert packages[""]["dependencies"] == {pin.package: pin.version}
    assert packages[f"node_modules/{pin.package}"]["version"] == pin.version
    assert all("integrity" in package for place, package in packages.items() if place)


@every_row("name", PINS)
def test_the_lock_names_no_address(name: str) -> None:
    assert "://" not in (LOCKS / f"{name}.json").read_text("utf-8")


def test_a_lock_for_every_pin_and_no_other() -> None:
    assert {path.stem for path in LOCKS.iterdir()} == set(PINS)


def test_what_was_installed_from_another_lock_does_not_count(tmp_path: Path) -> None:
    program = tmp_path / "gemini" / "node_modules" / PINS["gemini"].program
    program.parent.mkdir(parents=True)
    program.write_text("")
    (tmp_path / "gemini" / STAMP).write_text("another digest")
    assert installed("gemini", tmp_path) is None
