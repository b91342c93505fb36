"""The launchers that can start something here, read again when their file is another one."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.dispatch.rules import launchers
from holdfast.dispatch.rules.launchers import WorkerProfile
from holdfast.errors import StartupError

FILE: Final = "launchers.toml"
_Sign: TypeAlias = tuple[int, int, int] | None


class Installed(Mapping[str, WorkerProfile]):
    """Those whose program is there. Raises as `installed` does; `look` may be called from any thread."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home = home
        self._environ = environ
        self._sign = _sign(home)
        self._found = installed(home, environ)

    def __getitem__(self, name: str) -> WorkerProfile:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def look(self, *, anyway: bool = False) -> bool:
        """Read the file again if it has changed, or anyway, since programs come and go; whether it was.

        Raises:
            UsageError: what is there now is wrong; what was there before holds. Said once for each change.
            StartupError: likewise, it cannot be read.
        """
        sign = _sign(self._home)
        if sign == self._sign and not anyway:
            return False
        self._sign = sign
        self._found = installed(self._home, self._environ)
        return True


def installed(home: Path, environ: Mapping[str, str]) -> dict[str, WorkerProfile]:
    """The launchers whose program is there.

    Raises:
        UsageError: HOME/launchers.toml is wrong.
        StartupError: it cannot be read.
    """
    place, text = home / FILE, None
    try:
        with contextlib.suppress(FileNotFoundError):
            text = place.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise StartupError(f"cannot read {place}") from None
    search = environ.get("PATH", os.defpath)
    known = launchers.known(text, source=str(place))
    return {name: one for name, one in known.items() if shutil.which(one.binary, path=search)}


def _sign(home: Path) -> _Sign:
    """What differs when a file is written or replaced; None without one."""
    try:
        found = (home / FILE).stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
