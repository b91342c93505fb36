"""Install what only the system's package manager has, when we may; otherwise say what tests will miss."""

import os
import shutil
import subprocess
import sys
from typing import Final

PACKAGES: Final = {
    "zsh": "zsh",
    "bwrap": "bubblewrap",
    "chromium": "chromium",
    "less": "less",
    "node": "nodejs",
    "pg_lsclusters": "postgresql",  # its server, which is not on the PATH
    "socat": "socat",
    "strace": "strace",
    "tmux": "tmux",
}  # program -> Debian package


def main() -> None:
    """Idempotent and quick when everything is there."""
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if not missing:
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"check": False, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
        if subprocess.run(install, env=environment, **quiet).returncode != 0:  # type: ignore[call-overload]
            subprocess.run(["apt-get", "update"], env=environment, **quiet)  # type: ignore[call-overload]
            subprocess.run(install, env=environment, **quiet)  # type: ignore[call-overload]
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if missing:
        print(f"tests that need {', '.join(missing)} will be SKIPPED: install it yourself", file=sys.stderr)


if __name__ == "__main__":
    main()
