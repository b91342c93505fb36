"""The pinned Codex CLI, one of those that tools.get_agents installs.

python -m tools.get_codex        prints the path of the native binary
"""

from pathlib import Path
from typing import Final

from tools import get_agents

VERSION: Final = get_agents.PINS["codex"].version


def installed() -> Path | None:
    """The native binary, or None unless it is there in the pinned version."""
    return get_agents.installed("codex")


def main() -> None:
    print(installed() or get_agents.install("codex"))


if __name__ == "__main__":
    main()
