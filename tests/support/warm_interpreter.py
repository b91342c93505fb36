"""An interpreter that has loaded every command already, and becomes each that is asked for by a fork.

A script: its argument is a socket, over which come the program, words, surroundings, user and fault of a
command, a pipe, into which go its process id and how it ended, and its streams: three, or more that it finds
as descriptors 3 and up. It ends when the socket does.
"""

import contextlib
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import holdfast
from holdfast.entry import main

sys.path.append(str(Path(__file__).parents[2]))
from tests.support import faults, identity

PROGRAMS = {"holdfast": main}
if sys.platform == "linux":
    from tests.support import confinement

    PROGRAMS["confinement"] = confinement.run_options
sys.path.pop()

MOST_BYTES = 1 << 20
MOST_STREAMS = 4
ROOMS = ("holdfast.commands", "holdfast.agentconfig", "holdfast.doctor")
LOADED_WHEN_USED = (  # where they are installed
    "getpass",
    "holdfast.cli",
    "holdfast.web.server",
    "psycopg",
    "resource",
    "sqlite3",
    "uvicorn",
)


def load() -> None:
    for room in map(import_module, ROOMS):
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if sys.platform == "linux":  # elsewhere not all of them can be; it is only for speed
                import_module(found.name)
    for name in LOADED_WHEN_USED:
        with contextlib.suppress(ModuleNotFoundError):
            import_module(name)
    gc.collect()
    gc.freeze()


def report(running: dict[int, int]) -> None:
    """Say of each that has ended how it did."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        pipe = running.pop(pid)
        os.write(pipe, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os.close(pipe)


def become(order: bytes, streams: list[int]) -> Callable[[], object]:
    """In the child: what a new process of the command would be; what it is to call."""
    program, words, environ, cwd, uid, fault = json.loads(order)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    faults.apply(faults.parse(fault))
    identity.become(uid)
    sys.argv[:] = [os.path.join(os.path.dirname(holdfast.__file__), "__main__.py"), *words]
    return PROGRAMS[program]


def serve(asked: socket.socket) -> Callable[[], object] | None:
    """What this is to go on with, if it is a child now."""
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asked.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            report(running)
        if asked.fileno() in ready:
            order, fds, _, _ = socket.recv_fds(asked, MOST_BYTES, 1 + MOST_STREAMS)
            if not order:
                return None
            pipe, *streams = fds
            if not (pid := os.fork()):
                for fd in (asked.detach(), woken, wakes, pipe, *running.values()):
                    os.close(fd)
                return become(order, streams)
            for stream in streams:
                os.close(stream)
            os.write(pipe, f"{pid}\n".encode())
            running[pid] = pipe


if __name__ == "__main__":
    load()
    if (command := serve(socket.socket(fileno=int(sys.argv.pop())))) is not None:
        command()
