"""Install the pinned Codex CLI, the peer of the interop tests, into the ignored folder `.codex/`.

python -m tools.get_codex        prints the path of the native binary
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

PACKAGE: Final = "@openai/codex"
VERSION: Final = "0.166.0"
FOLDER: Final = Path(__file__).resolve().parent.parent / ".codex"
INSTALL_LIMIT_S: Final = 600  # a download of some hundred megabytes over a slow line, but not for ever


def installed(folder: Path = FOLDER) -> Path | None:
    """The native binary in `folder`, or None unless it is there in the pinned version."""
    packages = folder / "node_modules" / "@openai"
    try:
        manifest = json.loads((packages / "codex" / "package.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if manifest.get("version") != VERSION:
        return None
    # The package of this platform is an optional dependency; npm installs no other.
    return next(packages.glob("codex-*/vendor/*/bin/codex"), None)


def install(folder: Path = FOLDER) -> Path:
    """Fetch the pinned version with npm.

    Raises:
        SystemExit: npm is missing or failed, or the platform has no binary.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit(f"npm is not installed; it is needed once, to fetch {PACKAGE} {VERSION}")
    folder.mkdir(exist_ok=True)
    options = ["--prefix", str(folder), "--no-save", "--no-audit", "--no-fund"]
    command = [npm, "install", *options, f"{PACKAGE}@{VERSION}"]
    # What npm prints goes to stderr: the caller reads the path from stdout.
    status = subprocess.run(command, stdout=sys.stderr, timeout=INSTALL_LIMIT_S, check=False).returncode
    found = installed(folder)
    if found is None:
        raise SystemExit(f"npm ended with status {status} and left no {PACKAGE} {VERSION} for this platform")
    return found


def main() -> None:
    print(installed() or install())


if __name__ == "__main__":
    main()
