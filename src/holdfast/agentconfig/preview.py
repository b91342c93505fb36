"""A change of a configuration as lines to show. Pure module.

The file may hold tokens, and what is shown ends in logs: lines that do not change are left out, and of a
line that sounds like a secret only the key is shown.
"""

import difflib
import re
from typing import Final

_SECRET: Final = re.compile(
    r"key|secret|token|passw|credential|authorization|bearer|shell_environment_policy", re.IGNORECASE
)
_HARMLESS: Final = re.compile(r"[+-](?:#: )?(?:shell_environment_policy\.)?ignore_default_excludes = \w+")
_MARK: Final = re.compile(r"[+-]# (?:>>>|<<<|holdfast) ?.*")


def diff(name: str, before: str, after: str) -> list[str]:
    """Unified, without line ends and without context; empty if nothing changes."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, n=0, lineterm="")
    return [_shown(line) for line in lines]


def _shown(line: str) -> str:
    if line.startswith(("---", "+++", "@@")) or _HARMLESS.fullmatch(line) or _MARK.fullmatch(line):
        return line
    if not _SECRET.search(line):
        return line
    key, equals, _ = line.partition("=")
    return f"{key}= (not shown)" if equals else f"{line[0]}(not shown)"
