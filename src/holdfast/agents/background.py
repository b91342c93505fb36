"""The two processes in the background: the exec server that owns the workers, and the supervisor.

Both are started by whoever needs them first, in sessions of their own, and neither is a child of the other:
the supervisor may die and be started again while the exec server keeps the workers. Of the environment they
get only names that carry no secret.
"""

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from holdfast.agents import book
from holdfast.agents.control import Client
from holdfast.errors import OperationFailed, Unreachable
from holdfast.sandbox import prerequisites

START_S: Final = 20.0  # for an interpreter, on a machine that is busy with agents
ALREADY: Final = 75  # exit status of a supervisor that finds another one at work
KEEP: Final = "7d"  # how long the workers of a supervisor that does not come back are kept
_LOG_TAIL: Final = 2000
_PASSED: Final = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER", "XDG_RUNTIME_DIR")
_STARTED: Final[list["subprocess.Popen[bytes]"]] = []  # nobody waits for them: they are meant to outlive us

T = TypeVar("T")


def exec_address(home: Path) -> str:
    return f"unix://{home / 'exec.sock'}"


def listens(home: Path) -> bool:
    """Whether there is an exec server, however slow."""
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(home / "exec.sock"))
        except OSError:
            return False
    return True


def supervisor_socket(home: Path) -> Path:
    return home / "supervisor.sock"


async def supervisor(home: Path) -> Client:
    """A connection to the supervisor of this home, which is started if there is none.

    Raises:
        OperationFailed: it does not start; its log says why.
    """
    book.Book(home).prepare()
    path = supervisor_socket(home)
    argv = [sys.executable, "-m", "holdfast", "worker", "supervise", "--home", str(home)]
    return await _reached(lambda: Client.connect(path), argv, home / "supervisor.log")


async def exec_server(home: Path, connect: Callable[[str], Awaitable[T]]) -> T:
    """What `connect` makes of the address of the exec server, which is started if there is none."""
    address = exec_address(home)
    argv = [sys.executable, "-m", "holdfast", "serve", "--listen", address, "--keep", KEEP, "--no-hint"]
    return await _reached(lambda: connect(address), argv, home / "exec.log")


async def _reached(connect: Callable[[], Awaitable[T]], argv: Sequence[str], log: Path) -> T:
    try:
        return await connect()
    except Unreachable:
        process = _spawn(argv, log)
    try:
        async with asyncio.timeout(START_S):
            while True:
                gone = process.poll() is not None
                try:
                    return await connect()
                except Unreachable as exc:
                    if gone and process.returncode != ALREADY:
                        said = book.tail(log, _LOG_TAIL).decode("utf-8", "replace").strip()
                        raise OperationFailed(f"{argv[3]} does not start: {said or exc}") from None
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise OperationFailed(f"{argv[3]} does not start within {START_S:g} s") from None


def _spawn(argv: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own arguments
            argv,
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            cwd="/",
            env=_environment(os.environ),
        )
    finally:
        os.close(fd)
    _STARTED.append(process)
    return process


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environ[name] for name in _PASSED if name in environ}
    kept |= {name: value for name, value in environ.items() if name.startswith(("LC_", "HOLDFAST_"))}
    if given := prerequisites.given_by_caller():
        kept["PYTHONPATH"] = os.pathsep.join(given)
    return kept


def only_one(home: Path) -> int | None:
    """A lock that says: I am the supervisor of this home. None when somebody else is; held until closed."""
    fd = os.open(home / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
