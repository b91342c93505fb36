"""`holdfast up --install-service`: write the unit, and say what to type."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.commands.boarding import Answer
from holdfast.commands.userunit import NAME, unit
from holdfast.errors import OperationFailed, UsageError
from holdfast.local.atomicfile import replace_file
from holdfast.sandbox.plan import prerequisites


def install(home: Path, typed: Sequence[str], environ: Mapping[str, str] = os.environ) -> Answer:
    """Write the unit of this user; one that is there is replaced, whole or not at all.

    Raises:
        UsageError: what was typed cannot be in a unit.
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
    """The address of a database may hold a password, and a unit is for everybody to read."""
    if any("://" in word and "@" in word for word in typed):
        raise UsageError(
            "a unit holds no address with a name or a password in it",
            remedy="put HOLDFAST_STORE=… into ~/.config/environment.d/holdfast.conf, mode 0600",
        )
