"""The name that people are told to install is ours on the package index."""

import re
import tomllib
from pathlib import Path
from typing import Final

import holdfast

ROOT: Final = Path(__file__).parents[2]
TEXTS: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for top in ("src", "docs", "examples") for path in sorted((ROOT / top).rglob("*"))),
]
# `pip install holdfast`, `uv tool install 'holdfast[web]'` and the like; the word alone is the command.
STRANGER: Final = re.compile(r"(?:\binstall(?: -\S+)* ['\"`]?holdfast|\bholdfast\[)(?!-agents)")


def test_nothing_tells_people_to_install_the_other_package() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in TEXTS
        if path.suffix in {".md", ".py", ".toml", ".js"}
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if STRANGER.search(line)
    ]
    assert found == []


def test_the_package_knows_what_it_is_installed_as() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (project["name"], project["version"]) == (holdfast.DISTRIBUTION, holdfast.__version__)
