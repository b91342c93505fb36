"""The drawing and the table of rooms in docs/architecture.md, from the import graph and the docstrings.

python -m tools.rooms            write them anew
"""

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SRC: Final = ROOT / "src" / "holdfast"
PAGE: Final = ROOT / "docs" / "architecture.md"
LISTS: Final = re.compile(r"^(Imports|Open to other rooms): ", re.MULTILINE)
# Imported by nearly all: no arrows to them.
EVERYWHERE: Final = {"decoding", "light", "errors", "home", "log", "tracing", "local"}
ENTRY: Final = {"__init__", "__main__"}


def imports() -> dict[str, set[str]]:
    """Room -> the rooms it imports; a room is a folder or a module of the top level."""
    found: dict[str, set[str]] = {}
    for path in SRC.rglob("*.py"):
        room = path.relative_to(SRC).parts[0].removesuffix(".py")
        if room in ENTRY:
            continue
        uses = found.setdefault(room, set())
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module == "holdfast":
                names = [f"holdfast.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            uses |= {name.split(".")[1] for name in names if name.startswith("holdfast.")}
    return {room: {other for other in uses if other in found} - {room} for room, uses in found.items()}


def reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without arrows that a longer way says too."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            if (room := waiting.pop()) not in seen:
                seen.add(room)
                waiting += graph[room]
        return seen

    return {
        room: {other for other in uses if not any(other in reach(third) for third in uses - {other})}
        for room, uses in graph.items()
    }


def drawing() -> str:
    graph = {room: uses - EVERYWHERE for room, uses in imports().items() if room not in EVERYWHERE}
    lines = ["```mermaid", "flowchart TD"]
    for room, uses in sorted(reduced(graph).items()):
        lines += [f"    {room} --> {other}" for other in sorted(uses)]
    return "\n".join([*lines, "```"])


def paragraph(init: Path) -> str:
    """What a room says of itself, without the lists that the architecture test checks."""
    about = ast.get_docstring(ast.parse(init.read_text("utf-8"))) or ""
    return " ".join(LISTS.split(about)[0].split())


def table() -> str:
    lines = ["| room | what lives there |", "|---|---|"]
    for init in sorted(SRC.rglob("*/__init__.py")):
        name = "/".join(init.parent.relative_to(SRC).parts)
        lines.append(f"| `{name}/` | {paragraph(init)} |")
    return "\n".join(lines)


def page(text: str) -> str:
    for name, made in (("drawing", drawing()), ("rooms", table())):
        begin, end = f"<!-- {name}: made by tools/rooms.py -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n\n{made}\n\n{end}{after}"
    return text


def main() -> None:
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
