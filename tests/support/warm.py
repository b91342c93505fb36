"""Commands that people type, as processes that do not load the program first.

Most of what a short command costs is to start an interpreter. A process that has loaded everything forks for
each of them: it has its own id, streams, environment and directory, its user and the faults of its host, and
ends as it would. For what the start itself plays a part in, start `python -m holdfast`.
"""

import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, TextIO

from tests.support import identity
from tests.support.faults import NONE, Fault
from tests.support.patience import patient

SCRIPT: Final = Path(__file__).with_name("warm_interpreter.py")
WAIT_S: Final = patient(60)


class Interpreter:
    """Started when it is first needed, with the product as this user can run it."""

    def __init__(self, uid: int = identity.SELF) -> None:
        self._uid = uid
        self._lock = threading.Lock()
        self._started: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def _asked(self) -> socket.socket:
        with self._lock:
            if self._started is None:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    process = subprocess.Popen(
                        [identity.python(self._uid), "-P", str(SCRIPT), str(theirs.fileno())],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                    )
                self._started = process, ours
            return self._started[1]

    def close(self) -> None:
        with self._lock:
            started, self._started = self._started, None
        if started is not None:
            started[1].close()
            started[0].wait(WAIT_S)

    def run(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str],
        timeout: float = WAIT_S,
        fault: Fault = NONE,
    ) -> "subprocess.CompletedProcess[str]":
        """`holdfast` with these words, like `subprocess.run`, under the fault if there is one."""
        with contextlib.ExitStack() as open_files:
            out, err, status = (_pipe(open_files) for _ in ("output", "errors", "status"))
            given = [status[1], _nothing(), out[1], err[1]]
            self._order("holdfast", words, env, cwd, fault, given)
            told, said, failed = _contents([status[0], out[0], err[0]], timeout, words)
        code = int(told.split()[1])
        return subprocess.CompletedProcess(list(words), code, said.decode(), failed.decode())

    def confine(
        self, words: Sequence[str], *, cwd: str | os.PathLike[str], typed: bytes, timeout: float
    ) -> tuple[int, bytes, bytes]:
        """`tests.support.confinement` with these words: how it ended, all that it printed, and its report.

        It finds where the report goes as descriptor 3. Our environment is its own, and so is our user.
        """
        with contextlib.ExitStack() as open_files:
            status, out, report = (_pipe(open_files) for _ in ("status", "output", "report"))
            given = [status[1], _filled(typed), out[1], os.dup(out[1]), report[1]]
            self._order("confinement", words, os.environ, cwd, NONE, given, uid=identity.SELF)
            told, said, reported = _contents([status[0], out[0], report[0]], timeout, words)
        return int(told.split()[1]), said, reported

    @contextlib.contextmanager
    def started(
        self, words: Sequence[str], *, env: Mapping[str, str], cwd: str | os.PathLike[str]
    ) -> Iterator[TextIO]:
        """`holdfast` with these words until the block ends: what it prints. Errors go where ours do."""
        with contextlib.ExitStack() as open_files:
            (printed, output), (told, status) = _pipe(open_files), _pipe(open_files)
            self._order("holdfast", words, env, cwd, NONE, [status, _nothing(), output, os.dup(2)])
            with open(told, closefd=False) as ended, open(printed, closefd=False) as lines:
                pid = int(ended.readline())
                try:
                    yield lines
                finally:
                    os.kill(
                        pid, signal.SIGTERM
                    )  # it is reaped when its end has been told, which is read next
                    if not select.select([told], [], [], WAIT_S)[0]:
                        os.kill(pid, signal.SIGKILL)
                    ended.readline()

    def _order(
        self,
        program: str,
        words: Sequence[str],
        env: Mapping[str, str],
        cwd: str | os.PathLike[str],
        fault: Fault,
        given: list[int],
        *,
        uid: int | None = None,
    ) -> None:
        """Have it become this command, with these descriptors: where its end is told, and its streams."""
        if fault.needs_exec:
            raise ValueError("what takes hold when a program is started needs a start")
        told = json.dumps(asdict(fault))
        who = self._uid if uid is None else uid
        order = json.dumps([program, list(words), dict(env), os.fspath(cwd), who, told]).encode()
        try:
            socket.send_fds(self._asked(), [order], given)
        finally:
            for fd in given:
                os.close(fd)


def _pipe(open_files: contextlib.ExitStack) -> tuple[int, int]:
    """The end that is read is closed with the others, the other one by whoever gives it away."""
    ours, theirs = os.pipe()
    open_files.callback(os.close, ours)
    return ours, theirs


def _nothing() -> int:
    return os.open(os.devnull, os.O_RDONLY)


def _filled(text: bytes) -> int:
    """A pipe from which this is read, and then its end."""
    read, write = os.pipe()
    threading.Thread(target=_fill, args=(write, text), daemon=True).start()
    return read


def _fill(write: int, text: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(write, "wb", buffering=0) as pipe:
        while text:  # a pipe takes so much at a time
            text = text[pipe.write(text) or 0 :]


def _contents(pipes: Sequence[int], timeout: float, words: Sequence[str]) -> list[bytes]:
    """All of each; the first begins with the process that is killed when it takes too long."""
    found = dict.fromkeys(pipes, b"")
    until = time.monotonic() + timeout
    with selectors.DefaultSelector() as waiting:
        for pipe in pipes:
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(until - time.monotonic())
            if not ready and time.monotonic() > until:
                if pid := found[pipes[0]].partition(b"\n")[0]:
                    os.kill(int(pid), signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(words), timeout, *list(found.values())[1:])
            for key, _ in ready:
                if data := os.read(key.fd, 1 << 16):
                    found[key.fd] += data
                else:
                    waiting.unregister(key.fd)
    return list(found.values())


OURS: Final = Interpreter()
THEIRS: Final = Interpreter(identity.USER) if identity.USER != identity.SELF else OURS
run = OURS.run
started = OURS.started


def of(uid: int) -> Interpreter:
    """One that becomes commands of this user."""
    return OURS if uid == identity.SELF else THEIRS


def close() -> None:
    OURS.close()
    THEIRS.close()
