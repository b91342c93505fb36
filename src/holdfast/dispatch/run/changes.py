"""What a worker left in its workspace: looked at from outside, without trusting anything in there.

Directories are read by descriptor and no link is followed. Git runs confined, without network, and writes
only into a directory of its own: the settings of a repository are programs.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.agents.supervisor import background
from holdfast.client.environment import Environment
from holdfast.client.policy import Policy
from holdfast.dispatch.rules.manifest import (
    CUT,
    MAX_DIFF,
    MAX_LISTED,
    MAX_PATH,
    Changes,
    Manifest,
    ManifestEntry,
)
from holdfast.errors import OperationFailed

MAX_ENTRIES: Final = 20_000  # files of one look; beyond it the manifest is not whole
MAX_GLANCED: Final = 10_000  # entries of a glance, which costs tens of milliseconds then
MAX_TEXT: Final = 128 * 1024  # bytes of one file that is kept to compare with
MAX_TEXTS: Final = 4 << 20  # bytes of all of them
GIT_S: Final = 60.0
MAX_NAMES: Final = 4 << 20  # bytes of a list of changed paths
_LEFT_OUT: Final = frozenset({".git", ".holdfast"})
# Whoever runs the same tests over and over writes these anew each time.
_BYPRODUCTS: Final = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules"})
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# $1: a directory of its own, $2: the commit to compare with, $3: what to print, $4: at most so many bytes;
# the rest: what is left out
_GIT: Final = """
set -e
export GIT_ALTERNATE_OBJECT_DIRECTORIES="$(git rev-parse --path-format=absolute --git-path objects)"
export GIT_INDEX_FILE="$1/index" GIT_OBJECT_DIRECTORY="$1/objects"
mkdir -p "$GIT_OBJECT_DIRECTORY"
base="$2" show="$3" most="$4"
shift 4
[ -e "$GIT_INDEX_FILE" ] || { git read-tree "$base"; git add -A -- . "$@"; }
git diff --cached --no-ext-diff --no-textconv --no-color --no-renames "$show" "$base" | head -c "$most"
"""
_GIT_ENVIRONMENT: Final = {
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
}


def look(folder: Path) -> Manifest:
    """Everything below a directory, except what git and we keep there. One that is not there is empty."""
    entries: dict[str, ManifestEntry] = {}
    texts = 0
    for top, folders, files, fd in os.fwalk(folder, follow_symlinks=False):
        at = os.path.relpath(top, folder)
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        links = [name for name in folders if stat.S_ISLNK(os.lstat(name, dir_fd=fd).st_mode)]
        for name in sorted([*(name for name in files if name not in _LEFT_OUT), *links]):
            if len(entries) >= MAX_ENTRIES:
                return Manifest(entries, whole=False)
            entry = _entry(name, fd, MAX_TEXTS - texts)
            if entry is not None:
                texts += entry.size if entry.text is not None else 0
                entries[name if at == "." else f"{at}/{name}"] = entry
    return Manifest(entries)


def glance(folder: Path) -> tuple[int, int] | None:
    """How many files there are below a directory, and their bytes; what tools leave behind does not count.

    None when there are too many to be looked at often.
    """
    seen = files = size = 0
    waiting = [os.fspath(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                if seen > MAX_GLANCED:
                    return None
                if entry.is_dir(follow_symlinks=False):
                    waiting += [] if entry.name in _LEFT_OUT | _BYPRODUCTS else [entry.path]
                else:
                    files, size = files + 1, size + entry.stat(follow_symlinks=False).st_size
    return files, size


def _entry(name: str, folder: int, budget: int) -> ManifestEntry | None:
    try:
        status = os.lstat(name, dir_fd=folder)
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            return ManifestEntry("link", 0, 0, 0, os.readlink(name, dir_fd=folder))
        if not stat.S_ISREG(status.st_mode):
            return ManifestEntry("other", 0, 0, mode)
        text = None
        if status.st_size <= min(MAX_TEXT, budget):
            with open(os.open(name, _READ, dir_fd=folder), "rb") as file:
                text = _text(file.read(MAX_TEXT + 1))
        return ManifestEntry("file", status.st_size, status.st_mtime_ns, mode, text)
    except OSError:  # gone meanwhile, or not to be read
        return None


def _text(data: bytes) -> str | None:
    if len(data) > MAX_TEXT or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


async def since_commit(
    home: Path, workspace: Path, base: str, search: str, leave_out: Sequence[str] = ()
) -> Changes:
    """What a git tree holds now that was not in a commit, whether it is committed or not.

    Files that are not in the commit and are left out by name do not count.

    Raises:
        OperationFailed: git cannot tell.
        HoldfastError: the exec server does not answer.
    """
    own = Path(tempfile.mkdtemp(prefix=".changes-", dir=home))
    policy = Policy.read_only().deny(home).allow_read(workspace).allow_write(own)
    spared = [f":(top,exclude,literal){name}" for name in leave_out]
    environment = await background.reach_exec_server(home, Environment.open)
    try:

        async def git(show: str, most: int) -> str:
            try:
                done = await environment.run(
                    ["/bin/sh", "-c", _GIT, "git", str(own), base, show, str(most + 1), *spared],
                    cwd=str(workspace),
                    env={**_GIT_ENVIRONMENT, "PATH": search},
                    policy=policy,
                    timeout_s=GIT_S,
                )
            except TimeoutError:
                raise OperationFailed(f"git takes more than {GIT_S:.0f} s") from None
            if done.code:
                raise OperationFailed(
                    f"git cannot tell what changed: {done.stderr.decode('utf-8', 'replace')[-300:]}"
                )
            return done.stdout.decode("utf-8", "replace")

        listed = (await git("--name-status", MAX_NAMES)).splitlines()
        diff = await git("--patch", MAX_DIFF)
    finally:
        await environment.aclose()
        shutil.rmtree(own, ignore_errors=True)
    if len(diff) > MAX_DIFF:
        diff = diff[:MAX_DIFF] + CUT
    return Changes(
        len(listed), tuple(line.replace("\t", " ", 1)[:MAX_PATH] for line in listed[:MAX_LISTED]), diff
    )
