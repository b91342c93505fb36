"""The worker profiles that can be started here; they are read again when one of their files changes.

The agents that they name are built in, or described by a record: one that we ship, or one in
HOME/agents.toml. No other file is read: files in a workspace cannot describe an agent.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.agents.catalog.catalog import FILE as RECORDS
from holdfast.agents.catalog.known import read_known
from holdfast.dispatch.rules import profiles
from holdfast.dispatch.rules.profiles import WorkerProfile
from holdfast.errors import StartupError

FILE: Final = "worker-profiles.toml"
OLD_FILE: Final = "launchers.toml"  # as it was called up to 0.1; read where the new one is not there
_Sign: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class InstalledProfiles(Mapping[str, WorkerProfile]):
    """The profiles for which the program is installed. Raises as `find_installed` does.

    `look` may be called from any thread.
    """

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home = home
        self._environ = environ
        self._sign = _sign(home)
        self._found = find_installed(home, environ)

    def __getitem__(self, name: str) -> WorkerProfile:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def look(self, *, anyway: bool = False) -> bool:
        """Read the files again if they have changed, or if `anyway`; return whether they were read.

        `anyway` is for programs that were installed or removed.

        Raises:
            UsageError: the new content is wrong; the old one stays in force. Raised once for each change.
            StartupError: likewise, a file cannot be read.
        """
        sign = _sign(self._home)
        if sign == self._sign and not anyway:
            return False
        self._sign = sign
        self._found = find_installed(self._home, self._environ)
        return True


def find_installed(home: Path, environ: Mapping[str, str]) -> dict[str, WorkerProfile]:
    """The profiles for which the program is installed; those for another machine are included unchecked.

    Raises:
        UsageError: HOME/worker-profiles.toml is wrong, or names an agent with a wrong record.
        StartupError: it cannot be read.
    """
    place, text = file_of(home), None
    try:
        with contextlib.suppress(FileNotFoundError):
            text = place.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise StartupError(f"cannot read {place}") from None
    search = environ.get("PATH", os.defpath)
    agents = read_known(home)
    programs = agents.find_programs()
    described = [name for name, program in programs.items() if shutil.which(program, path=search)]
    known = profiles.combine(text, source=str(place), known=agents, described=described)
    return {
        name: one
        for name, one in known.items()
        if one.environment or shutil.which(one.program(agents), path=search)
    }


def file_of(home: Path) -> Path:
    """Where a user's own profiles are, or would be."""
    new, old = home / FILE, home / OLD_FILE
    return old if old.exists() and not new.exists() else new


def notice(home: Path) -> str | None:
    """The notice for a profiles file that still has its old name."""
    if not (home / OLD_FILE).exists():
        return None
    if (home / FILE).exists():
        return f"{home / OLD_FILE} is not read: {FILE} beside it is"
    return f"{home / OLD_FILE} is still read; its new name is {FILE}: mv {home / OLD_FILE} {home / FILE}"


def _sign(home: Path) -> _Sign:
    """Values that change when one of the files is written or replaced."""
    return tuple(_sign_of(place) for place in (file_of(home), home / RECORDS))


def _sign_of(place: Path) -> tuple[int, int, int] | None:
    """None when the file does not exist."""
    try:
        found = place.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
