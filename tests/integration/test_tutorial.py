"""The tutorial, typed from its first command to its last, prints what it shows; the picture can be drawn."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.support import console
from tests.support.patience import patient
from tools import pictures

ROOT: Final = Path(__file__).parents[2]
WHOLE_S: Final = patient(120.0)
MARK: Final = "@@@ step "

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """A home of its own below nothing that a sandbox hides or opens, and `holdfast` on the PATH."""
    top = Path(
        subprocess.check_output(["mktemp", "-d", "/var/tmp/holdfast-tutorial-XXXXXX"], text=True).strip()
    )
    program = top / "bin" / "holdfast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m holdfast "$@"\n', "utf-8")
    program.chmod(0o755)
    variables = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(top),
        "HOLDFAST_HOME": str(top / "state"),
        "LANG": "C.UTF-8",
    }
    try:
        yield variables
    finally:
        subprocess.run([program, "down", "--workers"], env=variables, check=False, capture_output=True)
        subprocess.run(["rm", "-rf", top], check=False)


def test_every_command_of_the_tutorial_prints_what_is_shown(environment: dict[str, str]) -> None:
    steps = console.steps(ROOT / "docs" / "tutorial.md")
    assert len(steps) > 15
    script = "\n".join(f"echo {shlex.quote(MARK)}{number}; {step.typed}" for number, step in enumerate(steps))
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WHOLE_S,
    )
    printed = dict(re.findall(rf"^{MARK}(\d+)\n(.*?)(?=^{MARK}|\Z)", done.stdout, re.MULTILINE | re.DOTALL))
    wrong = [
        f"$ {step.typed}\n{printed.get(str(number), 'not reached')}"
        for number, step in enumerate(steps)
        if not console.matches(step.shown, printed.get(str(number), "not reached"))
    ]
    assert wrong == []
    assert done.returncode == 0


def test_the_picture_is_drawn_from_what_the_commands_print() -> None:
    lines = [line.text for line in pictures.record()]
    drawn = ElementTree.fromstring(pictures.draw([pictures.Line(text) for text in lines]))  # noqa: S314 - ours
    assert "holdfast: the sandbox denies writing /home/you/notes/today (claimed by the output)" in lines
    assert lines.count("done") == 1
    assert {line.split()[1] for line in lines if line.startswith("t_")} == {"done", "failed", "waiting_human"}
    assert len([text for text in drawn.iter() if text.tag.endswith("text")]) == len(list(filter(None, lines)))
    committed = ElementTree.parse(pictures.PICTURE).getroot()  # noqa: S314 - ours
    shown = [text.text or "" for text in committed.iter() if text.tag.endswith("text")]
    typed = [line for line in lines if line.startswith("$ ")]
    assert [line for line in shown if line.startswith("$ ")] == typed, "run `python -m tools.pictures`"
