"""Where Holdfast keeps a user's data: workers, board and keys; no confined command may see any of it.

    STATE/holdfast              the default home
    ~/.holdfast                 addresses and tokens of other machines (`environments.toml`)
    STATE/holdfast/homes/HASH   a link to each further home that a daemon of this user was given
    RUNTIME/holdfast            a directory for each run (`handoff/outbox.py`), outside of every home

STATE is $XDG_STATE_HOME or ~/.local/state. RUNTIME is $XDG_RUNTIME_DIR; without one, STATE/holdfast-runs is
used. It is not /tmp, because commands may write there, so hiding a part of it would cost them more.
"""

import os

from holdfast.light import TYPE_CHECKING, Final, Iterator, Mapping, suppress

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "homes"
MAX_HOMES: Final = 64  # that are kept; each costs a confined command a mount


def state_directory(environ: Mapping[str, str] = os.environ) -> str:
    """The home unless $HOLDFAST_HOME names another: below $XDG_STATE_HOME or ~/.local/state."""
    state = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "holdfast")


def default_home(environ: Mapping[str, str] = os.environ) -> "Path":
    """The default home: $HOLDFAST_HOME, or below $XDG_STATE_HOME."""
    from pathlib import Path  # imported here, since confined starts do not need it

    return Path(environ.get("HOLDFAST_HOME") or state_directory(environ))


def runtime_directories(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Where directories of runs may be; the first one is used for new ones."""
    lasting = f"{state_directory(environ)}-runs"
    named = environ.get("XDG_RUNTIME_DIR")
    return (os.path.join(named, "holdfast"), lasting) if named else (lasting,)


def find_homes(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """All existing homes, as real paths, each once."""
    state = state_directory(environ)
    written = os.path.join(os.path.expanduser("~"), ".holdfast")
    chosen = environ.get("HOLDFAST_HOME") or state
    named = (state, chosen, written, *runtime_directories(environ), *_remembered(state))
    return tuple(dict.fromkeys(os.path.realpath(path) for path in named if os.path.isdir(path)))


def remember(home: str | os.PathLike[str], environ: Mapping[str, str] = os.environ) -> None:
    """Make every policy of this user hide this directory from now on, as long as it exists.

    Raises:
        OSError: it cannot be recorded.
    """
    import hashlib  # imported here, since confined starts do not need it

    state, real = state_directory(environ), os.path.realpath(home)
    if real == os.path.realpath(state):
        return
    folder = os.path.join(state, FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    kept = list(_links(folder))
    for path, target in kept:
        if not os.path.isdir(target):
            with suppress(OSError):
                os.unlink(path)
    if len(kept) >= MAX_HOMES and all(target != real for _, target in kept):
        raise OSError(f"{folder} remembers {MAX_HOMES} homes already")
    with suppress(FileExistsError):
        os.symlink(real, os.path.join(folder, hashlib.sha256(os.fsencode(real)).hexdigest()[:16]))


def _remembered(state: str) -> tuple[str, ...]:
    return tuple(target for _, target in _links(os.path.join(state, FOLDER)))


def _links(folder: str) -> Iterator[tuple[str, str]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names[: 2 * MAX_HOMES]:
        path = os.path.join(folder, name)
        with suppress(OSError):
            yield path, os.readlink(path)
