"""The few shapes of Markdown that the reference is made of."""

from collections.abc import Sequence
from typing import Final

NOTE: Final = "<!-- Made by `make docs`; do not edit. -->"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def page(title: str, introduction: str, *parts: str) -> str:
    return "\n\n".join([NOTE, f"# {title}", introduction, *parts]) + "\n"


def code(text: str) -> str:
    """As typed, also with backquotes in it."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"
