"""Programs on terminals and pipes, looked at as a supervisor would; run as any user, it prints what was seen.

python -m tests.support.watched FOLDER      JSON: case → what the looks said
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.agents.worker import procwatch
from tests.support.patience import patient

WAIT_S: Final = patient(60.0)  # for all programs to reach the state they are started for
MORE_LOOKS: Final = 5  # at what must not happen

_PY: Final = (sys.executable, "-I", "-c")
_CLOSED: Final = "closed-cat"
_BWRAP: Final = (
    "bwrap",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
    "--unshare-user",
    "--unshare-pid",
)
_GIT: Final = ("git", "-c", "user.name=n", "-c", "user.email=e@x", "-c", "core.editor=cat >/dev/null; :")
_BACKGROUND: Final = "import subprocess as s, time; s.Popen(['cat'], process_group=0); time.sleep(600)"
_QUESTION: Final = (
    "require('readline').createInterface({input:process.stdin,output:process.stdout}).question('? ',()=>{})"
)
_COMMAND: Final = "import subprocess as s; s.run(['sleep', '600'], start_new_session=True)"
_SOCKET: Final = "import socket; a, b = socket.socketpair(); print('ready', flush=True); a.recv(1)"
_WAITING_PARENT: Final = "import subprocess as s; s.run(['cat'])"


class Case(NamedTuple):
    argv: tuple[str, ...]
    reader: str = ""  # the program that must be seen waiting; none: nobody may be
    ready: str = ""  # for the others: a program to appear below it …
    says: bytes = b""  # … or what it prints …
    stopped: str = ""  # … or is stopped
    pipe: bool = False  # stdin is an open pipe
    tree: str = ""  # look from the parent of the process with this name, as a server that started it would


CASES: Final = {
    "shell read": Case(("bash", "--norc", "-c", "read x; :"), "bash"),
    "interactive shell": Case(("bash", "--norc", "-i"), "bash"),
    "input()": Case((*_PY, "input('? ')"), "python"),
    "password": Case((*_PY, "import getpass; getpass.getpass()"), "python"),
    "cat": Case(("cat",), "cat"),
    "pager": Case(("less", "/bin/cat"), "less"),
    "readline in node": Case(("node", "-e", _QUESTION), "node"),
    "child reads, parent waits": Case((*_PY, _WAITING_PARENT), "cat"),
    "select": Case((*_PY, "import select; select.select([0], [], [])"), "python"),
    "poll": Case((*_PY, "import select; p = select.poll(); p.register(0, 1); p.poll()"), "python"),
    "epoll": Case((*_PY, "import select; p = select.epoll(); p.register(0, 1); p.poll()"), "python"),
    "another thread": Case(
        (*_PY, "import threading as t; x = t.Thread(target=input); x.start(); x.join()"), "python"
    ),
    "editor started by git": Case((*_GIT, "commit", "--allow-empty"), "cat"),
    "sleep": Case(("sleep", "600"), ready="sleep"),
    "busy loop": Case((*_PY, "print('ready', flush=True)\nwhile True: pass"), says=b"ready"),
    "pipeline": Case(("bash", "--norc", "-c", "sleep 600 | cat"), ready="cat"),
    "socket": Case((*_PY, _SOCKET), says=b"ready"),
    "poll in the background": Case(
        (
            "bash",
            "--norc",
            "-mc",
            f"{shlex.quote(sys.executable)} -c 'import select; select.select([0], [], [])' & wait",
        ),
        ready="python",
    ),
    "read in the background": Case((*_PY, _BACKGROUND), stopped="cat"),
    "command in a session of its own": Case((*_PY, _COMMAND), ready="sleep"),
    "closed program": Case((f"./{_CLOSED}",), ready=_CLOSED),
    "pipe read by cat": Case(("cat",), "cat", pipe=True),
    "pipe polled by node": Case(("node", "-e", "process.stdin.resume()"), "node", pipe=True),
    "pipe that nobody reads": Case(("sleep", "600"), ready="sleep", pipe=True),
    "bubblewrap": Case((*_BWRAP, "cat"), "cat"),
    "bubblewrap, sleep": Case((*_BWRAP, "sleep", "600"), ready="sleep"),
    "our sandbox": Case((sys.executable, "-m", "holdfast", "exec", "--", "cat"), "cat", tree="cat"),
    "our sandbox, sleep": Case(
        (sys.executable, "-m", "holdfast", "exec", "--", "sleep", "600"), ready="sleep", tree="sleep"
    ),
    "our sandbox, pipe": Case(
        (sys.executable, "-m", "holdfast", "exec", "--", "cat"), "cat", pipe=True, tree="cat"
    ),
}


@dataclasses.dataclass(frozen=True)
class Seen:
    """What the looks said, as plain values."""

    waiting: list[tuple[str, bool]]  # program, and whether on the terminal
    stopped: list[str]
    hidden: list[str]
    commands: list[str]
    main: str
    canonical: bool | None
    password: bool | None
    nobody_reads: bool


def _seen(look: procwatch.ProcessSnapshot) -> Seen:
    terminal = look.terminal
    return Seen(
        [(_plain(waiter.process.name), waiter.on_terminal) for waiter in look.waiting],
        [process.name for process in look.stopped],
        [process.name for process in look.hidden],
        [process.name for process in look.commands],
        _plain(look.main.name) if look.main else "",
        terminal.canonical if terminal else None,
        terminal.password if terminal else None,
        look.nobody_reads,
    )


def _plain(name: str) -> str:
    """python3.11 → python, and node's thread names: they set their own."""
    return "node" if name in ("node", "MainThread", "node-MainThread") else name.rstrip("0123456789.")


@contextlib.contextmanager
def started(case: Case, folder: Path) -> "Iterator[tuple[subprocess.Popen[bytes], int]]":
    """A program in a session of its own on a new terminal; with it the terminal's other side."""
    master, slave = os.openpty()
    feed, stdin = os.pipe()[::-1] if case.pipe else (-1, slave)
    child = subprocess.Popen(
        case.argv,
        cwd=folder,
        env=os.environ | {"TERM": "xterm", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"},
        stdin=stdin,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    if case.pipe:
        os.close(stdin)
    try:
        yield child, master
    finally:
        for process in procwatch.look(child.pid).processes[::-1]:
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)
        child.wait()
        for fd in (master, feed):
            if fd >= 0:
                os.close(fd)


def _drained(master: int) -> bytes:
    data = b""
    while select.select([master], [], [], 0)[0]:
        try:
            data += os.read(master, 65536)
        except OSError:
            break
    return data


class Watch:
    """One case at work, and what the last look at it said."""

    def __init__(self, case: Case, child: "subprocess.Popen[bytes]", master: int) -> None:
        self._case, self._child, self._master = case, child, master
        self._said = b""
        self.seen = _seen(procwatch.ProcessSnapshot())

    def look(self) -> bool:
        """Is it what it was started to be?"""
        self._said += _drained(self._master)
        look = procwatch.look(_leader(self._child.pid, self._case))
        self.seen = _seen(look)
        if self._case.reader:
            return any(name == self._case.reader for name, _ in self.seen.waiting)
        if self._case.stopped:
            return self._case.stopped in self.seen.stopped
        names = {_plain(process.name) for process in look.processes}
        return self._case.ready in names if self._case.ready else self._case.says in self._said

    def look_again(self) -> None:
        """Where nobody may wait: chances to say something wrong."""
        for _ in range(0 if self._case.reader else MORE_LOOKS):
            if self.seen.waiting:
                return
            time.sleep(0.05)
            self.look()


def observe(cases: dict[str, Case], folder: Path) -> dict[str, Seen]:
    """All of them at once, until each is what it is meant to be, or for long enough."""
    with contextlib.ExitStack() as stack:
        watches = {
            name: Watch(case, *stack.enter_context(started(case, folder))) for name, case in cases.items()
        }
        left = dict(watches)
        deadline = time.monotonic() + WAIT_S
        while left and time.monotonic() < deadline:
            left = {name: watch for name, watch in left.items() if not watch.look()}
            time.sleep(0.05)
        for watch in watches.values():
            watch.look_again()
        return {name: watch.seen for name, watch in watches.items()}


def _leader(pid: int, case: Case) -> int:
    """Where a server would look from: its child, or the process of ours around a confined command."""
    if not case.tree:
        return pid
    look = procwatch.look(pid)
    return next((process.parent for process in look.processes if process.name == case.tree), 0)


def main() -> None:
    folder = Path(sys.argv[1])
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    greedy = {name: case for name, case in CASES.items() if name == "busy loop"}
    seen = observe({name: case for name, case in CASES.items() if name not in greedy}, folder)
    seen |= observe(greedy, folder)
    json.dump({name: dataclasses.asdict(values) for name, values in seen.items()}, sys.stdout)


def add_closed_program(folder: Path, *, as_root: bool) -> None:
    """One that nobody but root may look into: the kernel hides what is set-user-id or cannot be read."""
    program = folder / _CLOSED
    shutil.copyfile("/bin/cat", program)
    program.chmod(0o4755 if as_root else 0o111)


if __name__ == "__main__":
    main()
