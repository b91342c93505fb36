"""Finds what a directory is part of: the names under which Codex looks up its trust, what a commit writes.

Nothing is executed for it: `git` would run what the repository's own configuration names.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_POINTER_BYTES: Final = 16 * 1024  # a path and a word; more is no pointer of git's
CODEX_LAYERS: Final = (".codex/config.toml",)
_MAX_LEVELS: Final = 256  # of directories above; a path has no more


@dataclass(frozen=True, slots=True)
class Project:
    """`names` are the directory, its real path, the repository and the main one, each once."""

    names: tuple[str, ...]
    git: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()  # configuration files that the repository brings


def look(cwd: Path, brings: tuple[str, ...] = CODEX_LAYERS) -> Project:
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
