"""Install what only the system's package manager has, when we may; otherwise say what tests will miss.

python -m tools.get_packages               install what is missing, as root on a system with apt-get
python -m tools.get_packages --missing     say what is still missing; with CI=true that is a failure
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple


class Package(NamedTuple):
    """`program` is how we know that it is there; `used_for` is what nobody tries without it."""

    program: str
    used_for: str


PACKAGES: Final = {
    "bubblewrap": Package("bwrap", "the bubblewrap backend"),
    "chromium": Package("chromium", "the dashboard in a browser"),
    "dbus-daemon": Package("dbus-run-session", "keys from a desktop's keyring"),
    "faketime": Package("faketime", "a clock that jumps"),
    "gnome-keyring": Package("gnome-keyring-daemon", "keys from a desktop's keyring"),
    "gnupg": Package("gpg", "keys from pass"),
    "less": Package("less", "a pager in a terminal"),
    "libsecret-tools": Package("secret-tool", "keys from a desktop's keyring"),
    "nats-server": Package("nats-server", "streams between nodes of a relay"),
    "nodejs": Package("node", "agent CLIs that are scripts"),
    "npm": Package("npm", "fetching the agent CLIs"),
    "openssh-server": Package("sshd", "environments that are reached by ssh"),
    "pass": Package("pass", "keys from pass"),
    "postgresql": Package("initdb", "the store on PostgreSQL"),
    "socat": Package("socat", "the sandbox of another agent CLI"),
    "strace": Package("strace", "explain mode"),
    "tmux": Package("tmux", "workers in a terminal of their own"),
    "zsh": Package("zsh", "the state of another shell"),
}  # by the name in Debian


def missing() -> dict[str, str]:
    """The packages that are not there, with what is not tried without each."""
    return {name: one.used_for for name, one in PACKAGES.items() if not _is_there(one.program)}


def _is_there(program: str) -> bool:
    # Debian keeps the programs of PostgreSQL's server off the PATH, and those of daemons off that of users.
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    found = shutil.which(program, path=search) is not None
    return found or any(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))


def install() -> None:
    """Idempotent and quick when everything is there."""
    wanted = [*missing()]
    if not wanted or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    quiet = {"check": False, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "--no-install-recommends", *wanted]
    if subprocess.run(command, env=environment, **quiet).returncode != 0:  # type: ignore[call-overload]
        subprocess.run(["apt-get", "update"], env=environment, **quiet)  # type: ignore[call-overload]
        subprocess.run(command, env=environment, **quiet)  # type: ignore[call-overload]


def report(found: dict[str, str]) -> list[str]:
    """In words, one line for each; none if nothing is missing."""
    if not found:
        return []
    lines = [f"  {name}: {used_for}" for name, used_for in sorted(found.items())]
    return [
        "Not installed, so tests that need it were skipped:",
        *lines,
        f"  apt-get install {' '.join(sorted(found))}",
    ]


def main() -> None:
    if sys.argv[1:] != ["--missing"]:
        install()
        return
    found = missing()
    for line in report(found):
        print(line, file=sys.stderr)
    sys.exit(bool(found) and os.environ.get("CI") == "true")


if __name__ == "__main__":
    main()
