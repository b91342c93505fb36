"""`holdfast up --install-service`: write a systemd unit of this user, and print how to enable it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.commands.output import Answer
from holdfast.errors import OperationFailed, UsageError
from holdfast.local.atomicfile import replace_file
from holdfast.sandbox.plan import prerequisites

NAME: Final = "holdfast.service"
STOP_S: Final = 90  # `up` takes less to give its runs back and to end what it started


def install(home: Path, typed: Sequence[str], environ: Mapping[str, str] = os.environ) -> Answer:
    """Write the unit of this user; replace an existing one atomically.

    Raises:
        UsageError: an option cannot be written into a unit.
        OperationFailed: it cannot be written.
    """
    _refuse_secrets(typed)
    argv = [*prerequisites.command(), "up", "--home", str(home), *typed]
    path = _folder(environ) / NAME
    try:
        text = unit(argv, {"PATH": environ.get("PATH", os.defpath)})
    except ValueError as exc:
        raise UsageError(str(exc)) from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as exc:
        raise OperationFailed(f"{path} cannot be written: {exc.strerror}") from None
    steps = ["systemctl --user daemon-reload", "systemctl --user enable --now holdfast"]
    told = ["", "To have it run without a login as well: loginctl enable-linger"]
    return {
        "unit": str(path),
        "type": steps,
        "text": [f"written: {path}", *(f"  try: {one}" for one in steps), *told],
    }


def _folder(environ: Mapping[str, str]) -> Path:
    given = environ.get("XDG_CONFIG_HOME")
    return (Path(given) if given else Path.home() / ".config") / "systemd" / "user"


def _refuse_secrets(typed: Sequence[str]) -> None:
    """Refuse a database address that may hold a password: all users can read a unit."""
    if any("://" in word and "@" in word for word in typed):
        raise UsageError(
            "a unit holds no address with a name or a password in it",
            remedy="put HOLDFAST_STORE=… into ~/.config/environment.d/holdfast.conf, mode 0600",
        )


def unit(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """The text of the unit; `argv[0]` is an absolute path. `environment` must hold no secret.

    KillMode=process, because `up` ends what it started by itself: a signal to all processes at once would end
    the supervisor before the runs are given back. And when `up` crashes, its workers go on, and the next `up`
    takes them over.
    """
    lines = [
        "[Unit]",
        "Description=Holdfast: tasks run by sandboxed workers",
        "",
        "[Service]",
        "Type=notify",
        "NotifyAccess=main",
        f"ExecStart={' '.join(quote_command_word(word) for word in argv)}",
        *(f"Environment={quote(f'{name}={value}')}" for name, value in sorted(environment.items())),
        "Restart=on-failure",
        "RestartSec=5",
        "RestartPreventExitStatus=2 4",  # 2: a wrong option; 4: it runs already
        "KillMode=process",
        f"TimeoutStopSec={STOP_S}",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return "\n".join(lines) + "\n"


def quote_command_word(word: str) -> str:
    """Quote a word of a command line, in which systemd also expands variables."""
    return quote(word.replace("$", "$$"))


def quote(word: str) -> str:
    """Quote a word for systemd, with its specifiers escaped.

    Raises:
        ValueError: a unit cannot hold it.
    """
    if any(ord(char) < 32 or ord(char) == 127 for char in word):
        raise ValueError("a unit cannot hold control characters")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
