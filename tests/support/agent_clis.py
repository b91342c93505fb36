"""The real agent CLIs, where `python -m tools.get_agents` put them."""

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from tools.get_agents import AGENTS, PINS, installed

CLIS: Final = tuple(AGENTS)


def requires_cli(name: str) -> Path:
    """The program; without it the test is skipped, and in CI it fails."""
    found = installed(name)
    if found is not None and found.is_file():
        return found
    reason = f"NO {name}: `python -m tools.get_agents {name}` installs {PINS[name].version}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def link_clis(folder: Path) -> str:
    """A PATH on which every CLI that is installed is found by its name, and what they need."""
    folder.mkdir()
    for name in CLIS:
        if (found := installed(name)) is not None:
            (folder / name).symlink_to(found)
    if (node := shutil.which("node")) is not None:
        (folder / "node").symlink_to(node)
    return f"{folder}:/usr/local/bin:/usr/bin:/bin"
