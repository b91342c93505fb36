"""Remembers what was proven with this program on this boot, so that not every start takes the long way."""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Final

from holdfast.local.atomicfile import replace_file

MAX_PROOFS: Final = 64  # the newest; a machine has a few homes and workspaces
MAX_BYTES: Final = 64 * 1024  # of the file; larger is none of ours
NAME: Final = "assertions.json"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def key(binary: Path, decision: object) -> str:
    """Changes with the program, the boot, the user and everything that decided, which is never written down.

    Raises:
        OSError: there is no such program.
    """
    found = os.stat(binary)
    boot = ""
    with contextlib.suppress(OSError):
        boot = _BOOT.read_text("ascii").strip()
    parts = [os.path.realpath(binary), found.st_size, found.st_mtime_ns, boot, os.getuid(), decision]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def since(folder: Path, key: str) -> str | None:
    """When this was proven; None if it was not."""
    return _read(folder).get(key)


def record(folder: Path, key: str, when: str) -> bool:
    """Note it, all or nothing; False where that cannot be."""
    proofs = [(old, then) for old, then in _read(folder).items() if old != key]
    text = json.dumps({"schemaVersion": 1, "proofs": dict([*proofs, (key, when)][-MAX_PROOFS:])})
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(folder / NAME, text.encode())
    except OSError:
        return False
    return True


def _read(folder: Path) -> dict[str, str]:
    try:
        with (folder / NAME).open("rb") as file:
            tree = json.loads(file.read(MAX_BYTES))
        return {str(name): str(when) for name, when in tree["proofs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
