"""`holdfast exec` as a child process: as root or as an ordinary user, on pipes or on a terminal."""

import contextlib
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.patience import patient

WAIT_S: Final = patient(20.0)  # no single step takes this long, also on a loaded machine
ORDINARY: Final = 12345

# An ordinary user may not be able to reach the interpreter, in root's home for example. In a mount
# namespace of its own it is reachable: $1 is the first closed directory, $2 the interpreter's.
_REACHABLE: Final = """
mount -t tmpfs -o mode=755 none /mnt && mkdir /mnt/keep && mount --rbind "$2" /mnt/keep &&
mount -t tmpfs -o mode=755 none "$1" && mkdir -p "$2" && mount --rbind /mnt/keep "$2" || exit 99
shift 2; exec "$@"
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Place:
    """A workspace outside of /tmp, which is writable by default, and a directory beside it."""

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.top = Path("/var/lib") / f"holdfast-test-{uuid.uuid4().hex}"
        self.workspace, self.outside = self.top / "ws", self.top / "outside"
        (self.workspace / ".git").mkdir(parents=True)
        self.outside.mkdir()
        self.own()

    def own(self) -> None:
        for path in (self.top, *self.top.rglob("*")):
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "holdfast", "exec", *args]

    def argv(self, *args: str) -> list[str]:
        return self.as_user(self.command(*args))

    def as_user(self, command: list[str]) -> list[str]:
        if self.uid == os.getuid():
            return command
        user = str(self.uid)
        return self.reachable(["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *command])

    def reachable(self, command: list[str]) -> list[str]:
        """A command line of root's, where its interpreter can be reached by our user."""
        home = Path(sys.base_prefix)
        closed = [path for path in (*reversed(home.parents), home) if not path.stat().st_mode & 1]
        if not closed or self.uid == os.getuid():
            return command
        return ["unshare", "-m", "sh", "-c", _REACHABLE, "sh", str(closed[0]), str(home), *command]

    @contextlib.contextmanager
    def start(
        self, *args: str, stdin: int = subprocess.PIPE, stderr: int = subprocess.PIPE
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """It runs inside the block and not longer."""
        with subprocess.Popen(
            self.argv(*args),
            cwd=self.workspace,
            env=self.env(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
        ) as child:
            try:
                yield child
            finally:
                child.kill()

    def run(self, *args: str, feed: bytes = b"", env: dict[str, str] | None = None) -> Done:
        return self.call(self.argv(*args), feed=feed, env=env)

    def call(self, argv: list[str], *, feed: bytes = b"", env: dict[str, str] | None = None) -> Done:
        done = subprocess.run(
            argv,
            cwd=self.workspace,
            env={**self.env(), **(env or {})},
            input=feed,
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def sh(self, script: str, *flags: str) -> Done:
        return self.run(*flags, "--", "sh", "-c", script)

    def env(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.top), "LANG": "C.UTF-8"}

    def remove(self) -> None:
        shutil.rmtree(self.top)


class Screen:
    """The other side of a real terminal on which the command runs."""

    def __init__(self, place: Place, *args: str, size: tuple[int, int] = (33, 101)) -> None:
        self.master, self._slave = os.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self._slave)
        slave = self._slave
        self.child = subprocess.Popen(
            place.argv(*args),
            cwd=place.workspace,
            env={**place.env(), "TERM": "dumb"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.seen = b""

    def __enter__(self) -> "Screen":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _exc: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.child.kill()
        self.child.wait()
        for fd in (self.master, self._slave):
            with contextlib.suppress(OSError):
                os.close(fd)

    def resize(self, rows: int, cols: int) -> None:
        termios.tcsetwinsize(self.master, (rows, cols))

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def until(self, pattern: bytes) -> "re.Match[bytes]":
        """Wait for this to appear."""
        deadline = time.monotonic() + WAIT_S
        while (found := re.search(pattern, self.seen)) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"no {pattern!r} in {self.seen!r}")
            self.seen += os.read(self.master, 65536)
        return found

    def end(self) -> int:
        """Wait for the end; the exit code. All output is in `seen` then."""
        code = self.child.wait(WAIT_S)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return code

    def hang_up(self) -> None:
        os.close(self._slave)
        os.close(self.master)

    def settings(self) -> object:
        return termios.tcgetattr(self._slave)


@contextlib.contextmanager
def place(uid: int) -> Iterator[Place]:
    made = Place(uid)
    try:
        yield made
    finally:
        made.remove()


def gone(mark: str) -> bool:
    """Wait until no process has `mark` in its command line."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if not _named(mark):
            return True
        time.sleep(0.01)
    for pid in _named(mark):
        os.kill(pid, signal.SIGKILL)
    return False


def _named(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
