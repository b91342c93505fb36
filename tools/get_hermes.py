"""Install the pinned Hermes Agent, the peer of the board, into an environment of its own in `.agents-cli/`.

python -m tools.get_hermes        quick when it is there; prints the path of its interpreter

What is fetched is compared with the digests in requirements/hermes.txt.
"""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from tools.get_agents import FOLDER, INSTALL_LIMIT_S, STAMP

VERSION: Final = "0.19.0"
PINNED: Final = Path(__file__).resolve().parent.parent / "requirements" / "hermes.txt"
HOME: Final = FOLDER / "hermes"


def installed(home: Path = HOME) -> Path | None:
    """Its interpreter, or None unless everything is there as it is pinned; `hermes` is beside it."""
    try:
        stamp = (home / STAMP).read_text("utf-8")
    except OSError:
        return None
    return home / "bin" / "python" if stamp == _digest() else None


def install(home: Path = HOME) -> Path:
    """Fetch the pinned versions, in place of any other.

    Raises:
        SystemExit: pip failed.
    """
    venv.create(home, with_pip=True, clear=True)
    python = home / "bin" / "python"
    command = [os.fspath(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--require-hashes", "--no-deps", "-r", os.fspath(PINNED)],
        stdout=sys.stderr,  # the caller reads a path from stdout
        timeout=INSTALL_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"pip ended with status {done.returncode} and left no Hermes {VERSION}")
    (home / STAMP).write_text(_digest(), "utf-8")
    return python


def _digest() -> str:
    return hashlib.sha256(PINNED.read_bytes()).hexdigest()


def main() -> None:
    try:
        print(installed() or install())
    except (SystemExit, OSError, subprocess.SubprocessError) as exc:
        print(f"{exc}: tests with it will be SKIPPED", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")


if __name__ == "__main__":
    main()
