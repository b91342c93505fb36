"""Repositories that name programs: every way in which git would run one for whoever works there."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.support.patience import patient


def git(place: Path, *words: str, check: bool = True) -> str:
    """Git as a person runs it."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    done = subprocess.run(
        ["git", "-C", str(place), *who, *words],
        check=check,
        timeout=patient(30),
        capture_output=True,
        text=True,
    )
    return done.stdout


def program(place: Path, mark: Path, rest: str = "") -> str:
    """A program that leaves a mark."""
    path = place.parent / f"program-{mark.name}"
    path.write_text(f"#!/bin/sh\ntouch {mark}\n{rest}\n", "utf-8")
    path.chmod(0o755)
    return str(path)


def _hook(name: str) -> Callable[[Path, Path], None]:
    def arm(place: Path, mark: Path) -> None:
        hooks = place / ".git" / "hooks"
        hooks.mkdir(exist_ok=True)
        (hooks / name).symlink_to(program(place, mark))

    return arm


def _setting(name: str, rest: str = "") -> Callable[[Path, Path], None]:
    def arm(place: Path, mark: Path) -> None:
        git(place, "config", name, program(place, mark, rest))

    return arm


def _included(place: Path, mark: Path) -> None:
    more = place.parent / "more.config"
    git(place, "config", "--file", str(more), "filter.x.smudge", program(place, mark, "cat"))
    git(place, "config", "include.path", str(more))


def _of_one_worktree(place: Path, mark: Path) -> None:
    git(place, "config", "extensions.worktreeConfig", "true")
    git(place, "config", "--worktree", "filter.x.clean", program(place, mark, "cat"))
    git(place, "config", "filter.x.smudge", program(place, mark, "cat"))


ARMED: Final[Mapping[str, Callable[[Path, Path], None]]] = {
    "smudge": _setting("filter.x.smudge", "cat"),
    "clean": _setting("filter.x.clean", "cat"),
    "process": _setting("filter.x.process", "exit 1"),
    "external diff": _setting("diff.external"),
    "driver": _setting("diff.x.command"),
    "text": _setting("diff.x.textconv", 'cat "$1"'),
    "post-checkout": _hook("post-checkout"),
    "reference-transaction": _hook("reference-transaction"),
    "monitor": _setting("core.fsmonitor"),
    "include": _included,
    "worktree": _of_one_worktree,
}


def arm(place: Path, trap: str, mark: Path) -> None:
    """Make a repository run a program that leaves this mark."""
    ARMED[trap](place, mark)
