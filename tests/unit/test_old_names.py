"""The map from 0.1.0 to now leads to what is there: paths, and names in their modules."""

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "holdfast"
PAGE: Final = (ROOT / "docs" / "adr" / "0011-rooms.md").read_text("utf-8")
ROWS: Final = re.findall(r"^\| (`.+`) \| (.+) \|$", PAGE.partition("## Old and new paths")[2], re.MULTILINE)


def defined(module: Path) -> set[str]:
    """What has its name in this module and nowhere else: classes, functions, constants."""
    found: set[str] = set()
    for node in ast.parse(module.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets += [node.target] if isinstance(node, ast.AnnAssign) else []
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_every_new_path_is_there() -> None:
    paths = {path for _, now in ROWS for path in re.findall(r"`([\w/]+(?:\.py|/))`", now)}
    assert len(paths) > 100
    assert [path for path in sorted(paths) if not (SOURCE / path).exists()] == []


def test_every_new_name_stands_in_its_module() -> None:
    rows = re.findall(r"^\| `\w+` \| `(\w+)` \| `([\w/]+\.py)` \|$", PAGE, re.MULTILINE)
    assert len(rows) > 100
    assert [(name, path) for name, path in rows if name not in defined(SOURCE / path)] == []
