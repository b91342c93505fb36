"""Nothing that we write into a place of a worker's is written through a link that it left there."""

import ast
import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

import holdfast
from holdfast.dispatch.run import workspace
from holdfast.errors import OperationFailed
from holdfast.handoff import outbox
from holdfast.handoff.envelope import Grant
from holdfast.local.atomicfile import write_below

SRC = Path(holdfast.__file__).parent
GRANT = Grant(
    board="b", task="t", run="r", generation=1, token="x", socket="", outbox="", command=["holdfast"]
)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file and a directory of the user's own."""
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / ".bashrc").write_text("mine\n", "utf-8")
    return tmp_path / "user"


def _state(place: Path) -> None:
    write_below(place, ("config", "settings.json"), b"ours")


def _put(place: Path) -> None:
    workspace.put(place, b"ours", "TASK.md")


def _lay_out(place: Path) -> None:
    outbox.lay_out(place, GRANT)


def _copy(place: Path) -> None:
    source = place.parent / "source"
    (source / "config").mkdir(parents=True, exist_ok=True)
    (source / "config" / "settings.json").write_text("ours", "utf-8")
    workspace.copy_files(source, place, ["config/settings.json"])


WRITERS: Final[Mapping[str, Callable[[Path], None]]] = {
    "state": _state,
    "put": _put,
    "lay out": _lay_out,
    "copy": _copy,
}
NAMES: Final = (
    ("config", ""),
    ("config", "settings.json"),
    (".holdfast", ""),
    (".holdfast", "TASK.md"),
    (".holdfast", "run.json"),
    (".holdfast", ".gitignore"),
    (".holdfast", "outbox"),
    (".holdfast", ".copy"),
)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("names", NAMES, ids="/".join)
@pytest.mark.parametrize("target", ["file", "directory"])
def test_a_link_is_not_written_through(
    tmp_path: Path, precious: Path, writer: str, names: tuple[str, str], target: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    link = place / names[0] / names[1] if names[1] else place / names[0]
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(precious / ".bashrc" if target == "file" else precious)
    with contextlib.suppress(OSError, OperationFailed):  # to refuse is as good
        WRITERS[writer](place)
    assert os.listdir(precious) == [".bashrc"]
    assert (precious / ".bashrc").read_text("utf-8") == "mine\n"


def test_the_control_writes_through(tmp_path: Path, precious: Path) -> None:
    link = tmp_path / "settings.json"
    link.symlink_to(precious / ".bashrc")
    link.write_text("ours", "utf-8")
    assert (precious / ".bashrc").read_text("utf-8") == "ours"


# Who writes by path, and why no worker has been there.
BY_PATH: Final = {
    "agents/changes/git.py": "a directory that was made a moment ago, outside every workspace",
    "agents/changes/changes.py": "likewise",
}
WRITING: Final = frozenset(
    {"write_text", "write_bytes", "copytree", "copyfile", "copy2", "touch", "symlink_to"}
)


def test_no_other_door_is_opened_by_path() -> None:
    """Whoever adds a write to these rooms uses `local/atomicfile.py`, or says here why not."""
    found = set()
    for room in ("agents", "dispatch", "handoff", "web", "mcp"):
        for path in sorted((SRC / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    if node.func.attr in WRITING:
                        found.add(str(path.relative_to(SRC)))
                elif (
                    isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
                ):
                    mode = [ast.unparse(arg) for arg in node.args[1:2]]
                    opened = ast.unparse(node.args[0])
                    if (
                        mode
                        and set(mode[0]) & set("wa+x")
                        and "os.open" not in opened
                        and opened not in ("fd", "opened")
                    ):
                        found.add(str(path.relative_to(SRC)))
    assert found == set(BY_PATH)
