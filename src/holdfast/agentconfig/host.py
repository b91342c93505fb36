"""Find the facts about this machine that decide about an agent's sandbox. A boundary is never detected here.

No program is run to find out which repository a directory belongs to: `git` would run commands from the
repository's own configuration.
"""

import asyncio
import errno
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.agentconfig.decision import Admin, AgentName, Boundary, CodexFacts, Version
from holdfast.agentconfig.document import scan
from holdfast.sandbox.host import probes
from holdfast.sandbox.host.hostfacts import HostFacts

PROBE_S: Final = 2.0  # for each attempt; it takes milliseconds, and a timeout counts as "not known"

_USERNS: Final = ("user namespace", "uid map", "mount propagation", "mount calls", "pid namespace")
_NETNS: Final = ("net namespace", "loopback")
_PROC: Final = ("fresh proc",)
MAX_POINTER_BYTES: Final = 16 * 1024  # a path and a word; a larger file is no pointer of git's
CODEX_LAYERS: Final = (".codex/config.toml",)
_MAX_LEVELS: Final = 256  # of parent directories; no path has more


def gather(
    *,
    text: str,
    home: Path,
    version: Version | None,
    admin: Admin,
    boundary: Boundary,
    trusted: bool,
    agent: AgentName = AgentName.CODEX,
    environ: Mapping[str, str] = os.environ,
) -> CodexFacts:
    """Collect all facts that the matrix needs; `text` is the present configuration of Codex."""
    system = _system(environ)
    found = asyncio.run(probes.probe(environ, stage_s=PROBE_S)) if system == "linux" else None
    temporary = dict.fromkeys(os.path.realpath(path) for path in ("/tmp", environ.get("TMPDIR") or "/tmp"))  # noqa: S108
    return CodexFacts(
        system,
        version,
        userns=_works(found, _USERNS),
        netns=_works(found, _NETNS),
        proc=_works(found, _PROC),
        bubblewrap=_bubblewrap(found),
        nested=environ.get("CODEX_SANDBOX") == "seatbelt",
        windows_sandbox=_windows_sandbox(text),
        boundary=boundary,
        trusted=trusted,
        admin=admin,
        home=os.path.realpath(home),
        temporary=tuple(temporary),
        agent=agent,
    )


def _system(environ: Mapping[str, str]) -> str:
    system = platform.system().lower()
    if system == "linux" and "ANDROID_ROOT" in environ:
        return "android"
    return "wsl1" if system == "linux" and platform.release().endswith("-Microsoft") else system


def _works(found: HostFacts | None, names: tuple[str, ...]) -> bool | None:
    """Whether all of these work; an attempt that timed out gives no information."""
    facts = [found.fact(name) if found else None for name in names]
    tried = [fact.works if fact and fact.errno != errno.ETIMEDOUT else None for fact in facts]
    return False if False in tried else None if None in tried else True


def _bubblewrap(found: HostFacts | None) -> tuple[int, int] | None:
    number = re.match(r"(\d+)\.(\d+)", found.bwrap.version) if found and found.bwrap else None
    return (int(number[1]), int(number[2])) if number else None


def _windows_sandbox(text: str) -> str | None:
    for item in scan(text).items:
        if item.path == ("windows", "sandbox") and item.value is not None:
            return item.value.string
    return None


@dataclass(frozen=True, slots=True)
class Project:
    """`names` are the directory, its real path, the repository and the main one, each once."""

    names: tuple[str, ...]
    git: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()  # configuration files that the repository brings


def find_project(cwd: Path, brings: tuple[str, ...] = CODEX_LAYERS) -> Project:
    """Find the project of this directory; a directory that does not exist is a project of its own.

    `brings` are names of the agent's files, in the directory or a parent directory in the repository.
    """
    named = Path(os.path.abspath(cwd))
    real = Path(os.path.realpath(cwd))
    names = [str(named), str(real)]
    git: list[str] = []
    above = [real, *real.parents][:_MAX_LEVELS]
    root = next((folder for folder in above if (folder / ".git").exists()), None)
    if root is not None:
        names.append(str(root))
        git = _git_directories(root)
        if git and Path(git[0]).name == ".git":
            names.append(str(Path(git[0]).parent))
        above = above[: above.index(root) + 1]
    else:
        above = above[:1]
    layers = [str(folder / name) for folder in reversed(above) for name in brings]
    return Project(
        tuple(dict.fromkeys(names)),
        tuple(dict.fromkeys(git)),
        tuple(layer for layer in layers if os.path.lexists(layer)),
    )


def _git_directories(root: Path) -> list[str]:
    """The common directory, then a linked worktree's own; empty if they cannot be trusted.

    A process that can write the checkout can write a pointer to any directory, which would then become
    writable. So a worktree counts only if its directory is in the common directory's `worktrees`, and points
    back.
    """
    marker = root / ".git"
    if marker.is_symlink():
        return []
    if marker.is_dir():
        return [str(marker)] if (marker / "HEAD").is_file() else []
    pointed = _pointer(marker)
    if not pointed.startswith("gitdir:"):
        return []
    own = Path(os.path.realpath(root / pointed.removeprefix("gitdir:").strip()))
    common = Path(os.path.realpath(own / _pointer(own / "commondir")))
    back = os.path.realpath(own / _pointer(own / "gitdir"))
    if own.parent != common / "worktrees" or back != str(marker):
        return []
    return [str(common), str(own)]


def _pointer(path: Path) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, MAX_POINTER_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(file)
