"""Commands of ours in what we print can be pasted as they are, also where `holdfast` is not on the PATH."""

import functools
import os
import re
import shlex
import shutil
import sys
from typing import Final

# The command with what follows it; `holdfast` alone is the name of the product.
_COMMAND: Final = re.compile(
    r"(?<![\w/.-])holdfast (?=(?:board|config|cp|dispatch|doctor|down|exec|handoff|mcp|open|serve|status|"
    r"task|up|web|worker)\b)"
)
# Lines of ours that say what to type; other lines may be somebody's text.
_ADVICE: Final = re.compile(
    r"\s*(?:(?:try|more|answer it|see what changed|see all of it|to end it|to end them): |holdfast )"
)


def pasteable(text: str) -> str:
    """The text with `holdfast` as this shell can find it."""
    own = _own_name()
    return text if own == "holdfast" else _COMMAND.sub(lambda _: f"{own} ", text)


def pasteable_line(line: str) -> str:
    """Likewise, if this is a line that says what to type."""
    return pasteable(line) if _ADVICE.match(line) else line


@functools.cache
def _own_name() -> str:
    if shutil.which("holdfast") is not None:
        return "holdfast"
    program = os.path.abspath(sys.argv[0])
    if os.path.basename(program) == "holdfast" and os.access(program, os.X_OK):
        return shlex.quote(program)
    return f"{shlex.quote(sys.executable)} -m holdfast"
