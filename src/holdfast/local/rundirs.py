"""Directories of runs and workers, outside every home: for what only one of them may know and reach.

    RUNTIME/holdfast/runs/RUN/

Every policy denies RUNTIME/holdfast; the policy of a run grants read access to its own directory. Nothing on
the way is trusted: no link is followed, and what is not ours alone is refused, since RUNTIME may be set to a
place that other users can write to.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.errors import OperationFailed
from holdfast.home import remember, runtime_directories, state_directory
from holdfast.local.atomicfile import open_folder, replace_at

_RUNS: Final = "runs"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def prepare(run: str) -> Path:
    """Return the directory of a run; create it if missing. Its place is known to every policy before use.

    Raises:
        OperationFailed: no place is ours alone.
    """
    reasons = []
    with contextlib.suppress(OSError):
        os.makedirs(state_directory(), mode=0o700, exist_ok=True)  # one of the places is beside it
    for top in runtime_directories():
        try:
            with _opened(top, run):
                remember(top)
                return Path(top, _RUNS, run)
        except OSError as exc:
            reasons.append(f"{top}: {exc.strerror or exc}")
    raise OperationFailed(
        f"no directory for a run can be made: {'; '.join(reasons)}",
        remedy="set XDG_RUNTIME_DIR to a directory that is yours alone",
    )


def put(run: str, name: str, data: bytes) -> Path:
    """Write a file into the directory of a run; return its path.

    Raises:
        OperationFailed: it cannot be written.
    """
    place = prepare(run)
    try:
        with _opened(str(place.parents[1]), run) as fd:
            replace_at(fd, name, data)
    except OSError as exc:
        raise OperationFailed(f"cannot write {place / name}: {exc.strerror}") from None
    return place / name


def remove(run: str) -> None:
    """Remove all files and directories of a run, in every place where one may have been created."""
    for top in runtime_directories():
        with contextlib.suppress(OSError):
            with _opened(top, run, make=False) as fd:
                for name in os.listdir(fd):
                    os.unlink(name, dir_fd=fd)
            os.rmdir(os.path.join(top, _RUNS, run))


@contextlib.contextmanager
def _opened(top: str, run: str, *, make: bool = True) -> Iterator[int]:
    """Open the directory of a run below `top`. Raises OSError when it, or one above, is not ours alone."""
    if not _NAME.fullmatch(run):
        raise OperationFailed("this is no name of a run")
    with contextlib.ExitStack() as opened:
        above = opened.enter_context(open_folder(os.path.dirname(top)))
        for name in (os.path.basename(top), _RUNS, run):
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=above)
            above = opened.enter_context(open_folder(name, above))
            _refuse_others(above)
        yield above


def _refuse_others(fd: int) -> None:
    status = os.fstat(fd)
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError("it belongs to somebody else, or others may enter it")
