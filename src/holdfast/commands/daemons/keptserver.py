"""The remote side of an ssh environment: an exec server that stays, and our standard streams joined to it.

There is one server for each directory and installation, on a unix socket in the home, which no confined
command sees. The first client starts it. It is independent of any login, keeps sessions without a client for
a while, and ends after the same time without any session. The server of an older installation goes on until
then.
"""

import contextlib
import fcntl
import hashlib
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import holdfast
from holdfast.errors import OperationFailed, StartupError
from holdfast.home import default_home
from holdfast.local.peers import pid_of_unix_peer
from holdfast.sandbox.plan import prerequisites

KEEP: Final = "15m"  # longer than a laptop stays closed on the way to another room
START_S: Final = 30.0
MAX_PATH_BYTES: Final = 100  # of a socket path: the kernel's limit is 107


def find_directory(given: str) -> Path:
    """Raises: StartupError: there is no such directory."""
    place = Path(given or "~").expanduser()
    if not place.is_dir():
        raise StartupError(f"there is no directory {place}", remedy="name another in the address")
    return place.resolve()


def find_socket(directory: Path) -> Path:
    """The socket path of this directory's server."""
    installed = os.path.dirname(holdfast.__file__)
    digest = hashlib.sha256(f"{holdfast.__version__}\0{installed}\0{directory}".encode()).hexdigest()[:12]
    place = default_home() / "ssh" / f"{digest}.sock"
    if len(os.fsencode(place)) > MAX_PATH_BYTES:
        raise StartupError(f"{place} is too long for a socket", remedy="set HOLDFAST_HOME to a shorter place")
    return place


def connect(directory: Path) -> socket.socket:
    """Connect to the server of this directory; start it if there is none.

    Raises:
        StartupError: it cannot be started.
    """
    place = find_socket(directory)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(place.with_suffix(".lock")):
            found = _try(place)
            if found is not None:
                return found
            _start(place, directory)
            found = _try(place)
    except OSError as exc:
        raise StartupError(f"no server can be started in {place.parent}: {exc.strerror or exc}") from None
    if found is None:
        raise StartupError(
            f"the server at {place} does not answer", remedy=f"see {place.with_suffix('.log')}"
        )
    return found


def stop(directory: Path) -> bool:
    """End the server of this directory and everything it runs; return whether there was one.

    Raises:
        OperationFailed: we may not end it.
    """
    found = _try(find_socket(directory))
    if found is None:
        return False
    with found:
        pid = pid_of_unix_peer(found)
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError as exc:
        raise OperationFailed(f"the server cannot be ended: {exc.strerror}") from None
    return True


def _try(place: Path) -> socket.socket | None:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.connect(str(place))
    except OSError:
        made.close()
        return None
    return made


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Let only one of several simultaneous clients start the server."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _start(place: Path, directory: Path) -> None:
    argv = [*prerequisites.command(), "serve", "--listen", f"unix://{place}", "--keep", KEEP, "--idle", KEEP]
    log = os.open(
        place.with_suffix(".log"),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW,
        0o600,
    )
    try:
        process = subprocess.Popen(  # noqa: S603 - our own program
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=directory,
            start_new_session=True,
        )
    finally:
        os.close(log)
    if process.stdout is None:
        raise AssertionError("a pipe was asked for")
    with process.stdout:  # the server prints a line when it listens; end of file means that it failed
        select.select([process.stdout], [], [], START_S)
