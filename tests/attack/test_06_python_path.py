"""No Python of ours imports from the directory that it happens to be started in."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.client import environments
from holdfast.sandbox.plan import prerequisites
from tests.support.patience import patient

SRC = Path(holdfast.__file__).parent
ISOLATED = {"-P", "-I"}


def commands(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Every list or tuple that begins a command line of our interpreter, as source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple):
            words = [ast.unparse(element) for element in node.elts]
            if "sys.executable" in words and words.index("sys.executable") + 1 < len(words):
                yield node.lineno, words[words.index("sys.executable") + 1 :]


def test_every_command_line_of_our_interpreter_is_isolated() -> None:
    found, wrong = 0, []
    for path in sorted(SRC.rglob("*.py")):
        for line, words in commands(ast.parse(path.read_text("utf-8"))):
            if not {"'-m'", "'-c'"} & set(words):
                continue
            found += 1
            if words[0].strip("'") not in ISOLATED:
                wrong.append(f"{path.relative_to(SRC)}:{line}: {words[:4]}")
    assert not wrong
    assert found >= 6, "the control: there are some"


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A directory with a package of our name, and modules that everybody imports."""
    (tmp_path / "holdfast").mkdir()
    for name in (
        "holdfast/__init__.py",
        "holdfast/__main__.py",
        "msgspec.py",
        "click.py",
        "sitecustomize.py",
    ):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ESCAPED')!r}, 'w')\n", "utf-8")
    return tmp_path


def started(argv: list[str], cwd: Path) -> bool:
    """Whether what was planted ran."""
    subprocess.run(
        argv, cwd=cwd, capture_output=True, timeout=patient(30), check=False, stdin=subprocess.DEVNULL
    )
    found = (cwd / "ESCAPED").exists()
    (cwd / "ESCAPED").unlink(missing_ok=True)
    return found


def test_nothing_planted_is_imported(planted: Path) -> None:
    assert started([sys.executable, "-m", "holdfast", "--version"], planted), "the control: without -P it is"
    ours = list(prerequisites.command())
    assert not started([*ours, "--version"], planted)
    here = list(environments._HERE)
    assert not started([*here[: here.index("serve")], "--version"], planted)
