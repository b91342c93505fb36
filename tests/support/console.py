"""The `console` blocks of a page: what is typed, and what is shown for it."""

import re
from pathlib import Path
from typing import NamedTuple

ANYTHING = "…"


class Step(NamedTuple):
    """One command as a shell reads it, over several lines if it must, and the lines that are shown for it."""

    typed: str
    shown: tuple[str, ...]


def steps(page: Path) -> list[Step]:
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        typed, open_ = "", False
        shown: list[str] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                found += [Step(typed, tuple(shown))] if typed else []
                typed, shown = line[2:], []
            elif open_:
                typed += f"\n{line}"
            else:
                shown.append(line)
            open_ = line.endswith("\\")
        found.append(Step(typed, tuple(shown)))
    return found


def matches(shown: tuple[str, ...], printed: str) -> bool:
    """Whether that is what was printed: `…` alone is any lines, in a line any text; blanks may be wider."""
    patterns = [
        r"(?:.*\n)*?" if line.strip() == ANYTHING else f"{_pattern(line)}\\n"
        for line in shown
        if line.strip()
    ]
    text = "".join(f"{line}\n" for line in printed.splitlines() if line.strip())
    return re.fullmatch("".join(patterns), text) is not None


def _pattern(line: str) -> str:
    parts = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in line.split(ANYTHING)]
    return ".*".join(parts)
