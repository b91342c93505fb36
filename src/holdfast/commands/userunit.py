"""A systemd unit of a user that runs `holdfast up`, as text. Pure module."""

from collections.abc import Mapping, Sequence
from typing import Final

NAME: Final = "holdfast.service"
STOP_S: Final = 90  # longer than `up` takes to give its runs back and to end what it started


def unit(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """The unit; `argv[0]` is an absolute path. What is in `environment` is written down, so no secret may be.

    KillMode=process, because `up` ends what it started by itself: a signal to all of it at once would end the
    supervisor before the runs are given back. And when `up` crashes, its workers go on, and the one that is
    started then takes them over.
    """
    lines = [
        "[Unit]",
        "Description=Holdfast: tasks run by sandboxed workers",
        "",
        "[Service]",
        "Type=notify",
        "NotifyAccess=main",
        f"ExecStart={' '.join(command_word(word) for word in argv)}",
        *(f"Environment={quoted(f'{name}={value}')}" for name, value in sorted(environment.items())),
        "Restart=on-failure",
        "RestartSec=5",
        "KillMode=process",
        f"TimeoutStopSec={STOP_S}",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return "\n".join(lines) + "\n"


def command_word(word: str) -> str:
    """A word of a command line, in which systemd replaces variables besides."""
    return quoted(word.replace("$", "$$"))


def quoted(word: str) -> str:
    """A word as systemd reads it back: in quotes, with what it would replace doubled.

    Raises:
        ValueError: a line cannot hold it.
    """
    if any(ord(char) < 32 or ord(char) == 127 for char in word):
        raise ValueError("a unit cannot hold control characters")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
