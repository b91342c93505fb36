"""`holdfast exec` as a child process: as root or as an ordinary user, on pipes or on a terminal."""

import contextlib
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support import identity, warm
from tests.support.patience import patient

WAIT_S: Final = patient(40.0)  # no single step takes this long, also on a loaded machine


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Place:
    """A workspace outside of /tmp, which is writable by default, and a directory beside it."""

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.top = identity.folder_for(uid)
        self.workspace, self.outside = self.top / "ws", self.top / "outside"
        (self.workspace / ".git").mkdir(parents=True)
        self.outside.mkdir()
        self.own()

    def own(self) -> None:
        identity.hand_over(self.top, self.uid)

    @property
    def python(self) -> str:
        """An interpreter that our user can execute, with the product."""
        return identity.python(self.uid)

    def command(self, *args: str) -> list[str]:
        return [self.python, "-m", "holdfast", "exec", *args]

    def argv(self, *args: str) -> list[str]:
        return self.as_user(self.command(*args))

    def as_user(self, command: list[str]) -> list[str]:
        return identity.command_as(self.uid, command)

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

    def holdfast(self, *words: str, env: dict[str, str] | None = None) -> Done:
        """Any other command of ours, without its start."""
        surroundings = {**self.env(), **(env or {})}
        done = warm.of(self.uid).run(words, env=surroundings, cwd=self.workspace, timeout=WAIT_S)
        return Done(done.returncode, done.stdout, done.stderr)

    def sh(self, script: str, *flags: str, env: dict[str, str] | None = None) -> Done:
        return self.run(*flags, "--", "sh", "-c", script, env=env)

    def env(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.top), "LANG": "C.UTF-8"}

    def remove(self) -> None:
        self.top.chmod(0o700)  # a test may have closed a directory, and we may not be root
        for folder, inner, _ in os.walk(self.top):
            for name in inner:
                if not os.path.islink(os.path.join(folder, name)):
                    os.chmod(os.path.join(folder, name), 0o700)
        shutil.rmtree(self.top)


class Screen:
    """The other side of a real terminal on which the command runs."""

    def __init__(
        self,
        place: Place,
        *args: str,
        size: tuple[int, int] = (33, 101),
        program: list[str] | None = None,
    ) -> None:
        """`holdfast exec` with these arguments, or another program."""
        self.master, self._slave = os.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self._slave)
        slave = self._slave
        self.child = subprocess.Popen(
            place.argv(*args) if program is None else place.as_user(program),
            cwd=place.workspace,
            env={**place.env(), "TERM": "dumb"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.seen = b""

    def __enter__(self) -> Self:
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


class Shell(Screen):
    """A person's shell on a terminal, with job control. Whatever is waited for comes after what was."""

    PROMPT: Final = b"ready> "
    INTERACTIVE: Final = {
        "bash": ["bash", "--norc", "--noprofile", "--noediting", "-i"],
        "zsh": ["zsh", "-f", "-i", "+Z"],
    }

    def __init__(self, place: Place, name: str = "bash") -> None:
        super().__init__(place, program=["env", f"PS1={self.PROMPT.decode()}", *self.INTERACTIVE[name]])
        self._all = b""
        self.until(self.PROMPT)

    def until(self, pattern: bytes) -> "re.Match[bytes]":
        found = super().until(pattern)
        self._all, self.seen = self._all + self.seen[: found.end()], self.seen[found.end() :]
        return found

    def run(self, line: str, *, until: bytes = PROMPT) -> str:
        """Type a line and wait until it is done, or for what it shows; what was shown."""
        return self.press(f"{line}\n".encode(), until=until)

    def press(self, keys: bytes, *, until: bytes = PROMPT) -> str:
        begin = len(self._all)
        self.type(keys)
        self.until(until)
        return self._all[begin:].decode()


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


def stopped(*argv: str) -> bool:
    """Wait until this command runs, and is stopped."""
    return _reach(argv, lambda states: states == ["T"])


def runs(*argv: str) -> bool:
    """Wait until this command runs, and is not stopped."""
    return _reach(argv, lambda states: len(states) == 1 and states != ["T"])


def _reach(argv: tuple[str, ...], wanted: Callable[[list[str]], bool]) -> bool:
    line = "".join(f"{word}\0" for word in argv)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        states = []
        for pid in _named(line):
            with contextlib.suppress(OSError):
                states.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
        if wanted(states):
            return True
        time.sleep(0.01)
    return False


def _named(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
