"""Finds the facts that decide about an agent's sandbox on this machine; nothing here declares a boundary.

Nothing is executed to find what a directory is part of: `git` would run what the repository's own
configuration names.
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

PROBE_S: Final = 2.0  # for each attempt; it takes milliseconds, and a slow one would be taken for "not known"

_USERNS: Final = ("user namespace", "uid map", "mount propagation", "mount calls", "pid namespace")
_NETNS: Final = ("net namespace", "loopback")
_PROC: Final = ("fresh proc",)
MAX_POINTER_BYTES: Final = 16 * 1024  # a path and a word; more is no pointer of git's
CODEX_LAYERS: Final = (".codex/config.toml",)
_MAX_LEVELS: Final = 256  # of directories above; a path has no more


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
    """Everything the matrix wants to know; `text` is the configuration of Codex as it is."""
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
    """All of these; an attempt that ran out of time says nothing about the host."""
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
    """What this directory is part of; one that is not there is a project of its own.

    `brings` are the names of files for the agent, below the directory or one above it in the repository.
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
    """The common directory, then the worktree's own if it is a linked one; none if it cannot be believed.

    Whoever can write the checkout can write a pointer to any directory, which would then become writable.
    So a worktree counts only if it lies where the common directory has its worktrees, and points back.
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
