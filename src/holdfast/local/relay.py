"""Connect a command's streams to ours and pass our signals on to it, wherever it runs.

A command never gets our descriptors themselves: through `/proc/self/fd` it could reopen the file behind one
of them, for writing and past every mount. So each stream is copied here, on a loop (`loop.py` or asyncio's),
without threads and without ever waiting for a slow reader. Our descriptors are not made non-blocking, because
other processes share them and would notice.

Job control belongs to the shell that started us. A stop signal applies to the command and to us: we stop the
command, restore our terminal, then stop ourselves. On continue, the order is reversed. In the background we
neither read our terminal nor change it: that would stop us although the command goes on.
"""

import errno
import os
import select
import stat

from holdfast.light import Callable, Final, Protocol, Self, signal, suppress
from holdfast.local.loop import AnyLoop, Cancellable

STDIN, STDOUT, STDERR = 0, 1, 2
COPY_BYTES: Final = 64 * 1024  # one pipe's worth at a time
GRACE_S: Final = 5.0  # from SIGTERM to SIGKILL: a build tool removes its temporary files in less
PASSED_ON: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_SETTLE_S: Final = 0.02  # the last output of a stopped command comes out of its terminal a moment later
_LOOK_AGAIN_S: Final = 0.2  # the user types, but into another job
_PIECE: Final = 4096  # what a writable pipe takes without waiting
_MASTER: Final = os.makedev(5, 2)  # opening it again would create another terminal
_NAMES: Final = {STDOUT: "standard output", STDERR: "standard error"}
_LEFT: Final = (errno.EPIPE, errno.ECONNRESET)  # the reader went away, which is its right


class Tail:
    """Keeps the end of everything that was written."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > 2 * self._max_bytes:
            del self._data[: -self._max_bytes]

    def read(self) -> bytes:
        return bytes(self._data[-self._max_bytes :])


class SignalTarget(Protocol):
    """A running command that receives signals."""

    def pass_on(self, signum: int) -> None: ...
    def kill(self) -> None: ...


class Course:
    """The life of a command, from before its start to the last byte of output: decides what our signals do.

    Before the start a signal is for us, and nothing is started. While the command runs, the signal is passed
    on to it; one that asks for an end is enforced with SIGKILL after GRACE_S. After the command's end we no
    longer wait for a slow reader of its output.

    A signal that stops us stops the command too. A job reports when it was stopped, whatever stopped it.
    """

    def __init__(self, loop: AnyLoop, target: SignalTarget) -> None:
        self._loop, self._target = loop, target
        self.terminal: OwnTerminal | None = None  # set if the command has a terminal connected to ours
        self.is_job = False
        self.running = self.ended = self.over = False
        self.stopped_by: int | None = None  # a signal that was for us
        for signum in (*PASSED_ON, *ENDING):
            loop.add_signal_handler(signum, self.signal, signum)
        loop.add_signal_handler(signal.SIGTSTP, self.suspend)
        loop.add_signal_handler(signal.SIGCONT, self._take_terminal)

    def begin(self) -> None:
        """Mark the command as running; a signal that came before the start is passed on."""
        self.running = True
        early, self.stopped_by, self.over = self.stopped_by, None, False
        if early is not None:
            self.signal(early)

    def end(self) -> None:
        """Mark the command as ended; there may be more output."""
        self.ended = True

    def stop(self) -> None:
        """Mark everything as finished."""
        self.over = True

    def signal(self, signum: int) -> None:
        if self.running and not self.ended:
            self._target.pass_on(signum)
            if signum in ENDING:
                self._loop.call_later(GRACE_S, self._enforce)
        else:
            self.stopped_by = signum
            self.stop()

    def suspend(self) -> None:
        """Stop ourselves and the command, on SIGTSTP."""
        if not self.running or self.ended:
            self._stop_ourselves(os.getpid(), signal.SIGTSTP)
            return
        self._target.pass_on(signal.SIGTSTP)
        if not self.is_job:
            self._stop_ourselves(os.getpid(), signal.SIGTSTP)
            self._target.pass_on(signal.SIGCONT)

    def on_stopped(self, signum: int) -> None:
        """Stop our whole job after the command's job was stopped, as if it were in our process group."""
        self._loop.call_later(_SETTLE_S, self._follow, signum)

    def _follow(self, signum: int) -> None:
        if not self.ended:
            self._stop_ourselves(0, signum)
            self._target.pass_on(signal.SIGCONT)

    def _stop_ourselves(self, whom: int, signum: int) -> None:
        """Stop; return when we are continued, or at once where no process could continue us."""
        if self.terminal is not None:
            self.terminal.give_back()
        if signum != signal.SIGSTOP:
            signal.signal(signum, signal.SIG_DFL)
        os.kill(whom, signum)
        self._loop.add_signal_handler(signal.SIGTSTP, self.suspend)
        self._take_terminal()

    def _take_terminal(self) -> None:
        if self.terminal is not None:
            self.terminal.take()

    def _enforce(self) -> None:
        if not self.ended:
            self._target.kill()


# --- our own streams


def occupy_standard_descriptors() -> None:
    """Put the null device where a standard stream is closed, so that nothing else takes its number."""
    for fd in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def on_terminal() -> bool:
    """Whether standard input and output are a terminal, so that a person can type and read."""
    return os.isatty(STDIN) and os.isatty(STDOUT)


def in_foreground() -> bool:
    """Whether our job may read standard input: true in the foreground, and if it is no terminal of ours."""
    try:
        return os.tcgetpgrp(STDIN) == os.getpgrp()
    except OSError:
        return True


class OwnTerminal:
    """Our terminal: in raw mode while it is ours, with its original settings otherwise."""

    def __init__(self) -> None:
        import termios

        self.settings = termios.tcgetattr(STDIN)
        self.on_taken: Callable[[], object] = _nothing  # called on regain, maybe with another size
        self.taken = self.lent = False

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def take(self) -> None:
        """Put it into raw mode, unless another job has the foreground or it is lent."""
        if self.lent:
            return
        if not in_foreground():
            self.taken = False  # the foreground job has set it up as it needs
            return
        import termios
        import tty

        with suppress(termios.error):  # it may be gone, which we notice in other ways
            if not self.taken:
                self.settings = termios.tcgetattr(STDIN)
            self.taken = True
            tty.setraw(STDIN, termios.TCSADRAIN)
            self.on_taken()

    def give_back(self) -> None:
        import termios

        if self.taken:
            self.taken = False
            with suppress(termios.error):  # it may be gone
                termios.tcsetattr(STDIN, termios.TCSADRAIN, self.settings)

    def lend(self) -> None:
        """Restore its settings until `regain`: what is typed then is not for the command."""
        self.give_back()
        self.lent = True

    def regain(self) -> None:
        self.lent = False
        self.take()

    def is_ours(self) -> bool:
        """Whether typed input is for us; take the terminal if it has become ours."""
        if not self.taken:
            self.take()
        return self.taken and in_foreground()


class Outlet:
    """A descriptor for writing, one piece after another. A slow reader delays nothing else."""

    def __init__(self, loop: AnyLoop, fd: int) -> None:
        self._loop = loop
        self._fd, self._write = _writer_to(fd)
        self._left = memoryview(b"")
        self._then: Callable[[], object] = _nothing
        self._gone: Callable[[], object] = _nothing
        self.error: OSError | None = None  # why writing failed for good

    def write(self, data: bytes, then: Callable[[], object], gone: Callable[[], object]) -> None:
        """Write all data, then call `then`; if writing fails, as without a reader, call `gone` instead."""
        self._left, self._then, self._gone = memoryview(data), then, gone
        if self._advance():
            then()

    def _advance(self) -> bool:
        """Write on; return whether all is written. If not, continue when the descriptor is writable."""
        try:
            while self._left:
                self._left = self._left[self._write(self._left) :]
        except BlockingIOError:
            self._loop.add_writer(self._fd, self._go_on)
            return False
        except OSError as exc:
            self._left, self.error = memoryview(b""), exc
            self._gone()
            return False
        return True

    def _go_on(self) -> None:
        self._loop.remove_writer(self._fd)
        if self._advance():
            self._then()


def describe_unwritten(fd: int, error: OSError | None, *, tty: bool = False) -> str | None:
    """Describe what is lost and why, as on a full disk; None if only the reader has gone."""
    if error is None or error.errno in _LEFT or (tty and error.errno == errno.EIO):
        return None
    return f"cannot write {_NAMES[fd]}: {error.strerror}"


def _nothing() -> None:
    """Do nothing: the callback where no caller waits."""


def _writer_to(fd: int) -> tuple[int, Callable[[memoryview], int]]:
    """Return a descriptor of the same file, and a function that writes or raises BlockingIOError."""
    if not os.get_blocking(fd):
        return fd, lambda data: os.write(fd, data)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode):
        return fd, lambda data: os.write(fd, data)
    if stat.S_ISFIFO(status.st_mode) or (stat.S_ISCHR(status.st_mode) and status.st_rdev != _MASTER):
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with suppress(OSError):  # another user's, or without a reader: the write will report it
            own = os.open(f"/proc/self/fd/{fd}", flags)
            return own, lambda data: os.write(own, data)
    if stat.S_ISSOCK(status.st_mode):
        import socket

        end = socket.socket(fileno=os.dup(fd))
        return end.fileno(), lambda data: end.send(data, socket.MSG_DONTWAIT)
    ready = select.poll()
    ready.register(fd, select.POLLOUT)

    def write(data: memoryview) -> int:
        if not ready.poll(0):
            raise BlockingIOError
        return os.write(fd, data[:_PIECE])

    return fd, write


def hand_on_input(
    loop: AnyLoop,
    take: Callable[[bytes, Callable[[], object]], object],
    is_ours: Callable[[], bool] = in_foreground,
) -> Callable[[], None]:
    """Pass on our standard input until its end, which is passed as no bytes; return a function that stops it.

    Each piece comes with a callback that asks for the next one. Typed input for another job is left unread.
    """

    waiting: list[Cancellable] = []
    ready = select.poll()
    ready.register(STDIN, select.POLLIN)

    def read() -> None:
        stop()
        if not is_ours():
            waiting.append(loop.call_later(_LOOK_AGAIN_S, more))
            return
        if not ready.poll(0):  # it was an answer to a question of ours, which has been read since
            more()
            return
        try:
            data = os.read(STDIN, COPY_BYTES)
        except BlockingIOError:  # another process was quicker
            more()
            return
        except OSError:
            data = b""
        take(data, more if data else _nothing)

    def more() -> None:
        try:
            loop.add_reader(STDIN, read)
        except PermissionError:  # a file: asyncio cannot wait for it, and it is always ready
            waiting.append(loop.call_later(0, read))

    def stop() -> None:
        loop.remove_reader(STDIN)
        while waiting:
            waiting.pop().cancel()

    more()
    return stop


# --- streams of a command on this machine


class Streams:
    """Both ends of a command's streams; `theirs` are the command's, and are closed once it has them."""

    tty = False
    terminal: OwnTerminal | None = None
    unwritten: str | None = None  # what part of the command's output is lost, and why
    theirs: tuple[int, int, int]

    def __init__(self, loop: AnyLoop) -> None:
        self._loop = loop
        self._stop: Callable[[], None] = _nothing
        self._held: list[Callable[[], None]] | None = None  # outputs that wait while the user is asked

    def hold(self) -> None:
        """While the user is asked, until `release`: do not write the command's output or read typed input."""
        if self._held is None:
            self._held = []
            if self.terminal is not None:
                self.terminal.lend()

    def release(self) -> None:
        held, self._held = self._held, None
        if self.terminal is not None:
            self.terminal.regain()
        for go_on in held or ():
            go_on()

    def join(self, tail: Tail, gone: Callable[[], object], ended: Callable[[], object]) -> None:
        """Start copying, when the command runs. `ended` is called when no more output can come."""
        raise NotImplementedError

    def resize(self) -> None:
        """Pass on the size of our terminal, which may have changed."""

    def __enter__(self) -> Self:
        if self.terminal is not None:
            self.terminal.take()
        return self

    def __exit__(self, *_: object) -> None:
        """Restore our terminal."""
        if self.terminal is not None:
            self.terminal.give_back()

    def stop_input(self) -> None:
        """Stop reading input: the command has ended, and typed input is for another program."""
        self._stop()

    def _feed(self, sink: int, *, close: bool) -> None:
        outlet = Outlet(self._loop, sink)

        def take(data: bytes, more: Callable[[], object]) -> None:
            if data:
                outlet.write(data, more, end)
            else:
                end()

        def end() -> None:
            if close:
                os.close(sink)

        self._stop = hand_on_input(self._loop, take, self._is_ours)

    def _is_ours(self) -> bool:
        if self._held is not None:
            return False
        return in_foreground() if self.terminal is None else self.terminal.is_ours()

    def _drain(
        self,
        source: int,
        sink: int,
        tail: Tail,
        gone: Callable[[], object],
        ended: Callable[[], object],
        *,
        close: bool,
    ) -> None:
        """Copy until the source or the sink ends; closing the source then notifies the command."""
        outlet = Outlet(self._loop, sink)

        def copy() -> None:
            if self._held is not None:
                self._loop.remove_reader(source)
                self._held.append(more)
                return
            try:
                data = os.read(source, COPY_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""  # a terminal with no writer left answers EIO instead of end of file
            self._loop.remove_reader(source)
            if not data:
                end()
                return
            tail.add(data)
            if self.terminal is not None and not self.terminal.taken:
                self.terminal.take()  # a shell does not notify a running job that it brings to the foreground
            outlet.write(data, more, lost)

        def more() -> None:
            self._loop.add_reader(source, copy)

        def lost() -> None:
            self.unwritten = self.unwritten or describe_unwritten(sink, outlet.error, tty=self.tty)
            gone()
            end()

        def end() -> None:
            if close:
                os.close(source)
            ended()

        more()


class Pipes(Streams):
    """Pipes; a single one for both outputs where ours are the same file, so that their order is kept."""

    def __init__(self, loop: AnyLoop) -> None:
        super().__init__(loop)
        read, self._input = os.pipe2(os.O_CLOEXEC)
        self._outputs = [os.pipe2(os.O_CLOEXEC)]
        if not _same(STDOUT, STDERR):
            self._outputs.append(os.pipe2(os.O_CLOEXEC))
        for fd in (self._input, *(source for source, _ in self._outputs)):
            os.set_blocking(fd, False)
        self.theirs = (read, self._outputs[0][1], self._outputs[-1][1])

    def join(self, tail: Tail, gone: Callable[[], object], ended: Callable[[], object]) -> None:
        for fd in set(self.theirs):
            os.close(fd)
        self._feed(self._input, close=True)
        left = [source for source, _ in self._outputs]

        def one_ended() -> None:
            left.pop()
            if not left:
                ended()

        for (source, _), sink in zip(self._outputs, (STDOUT, STDERR), strict=False):
            self._drain(source, sink, tail, _nothing, one_ended, close=True)


class TerminalStreams(Streams):
    """A terminal for the command, with the settings and the size of ours."""

    tty = True

    def __init__(self, loop: AnyLoop, terminal: OwnTerminal) -> None:
        import termios

        super().__init__(loop)
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self.terminal = terminal
        terminal.on_taken = self.resize
        termios.tcsetattr(slave, termios.TCSANOW, terminal.settings)
        self.theirs = (slave, slave, slave)
        loop.add_signal_handler(signal.SIGWINCH, self.resize)
        self.resize()

    def join(self, tail: Tail, gone: Callable[[], object], ended: Callable[[], object]) -> None:
        os.close(self.theirs[0])
        self._feed(self._master, close=False)
        self._drain(self._master, STDOUT, tail, gone, ended, close=False)

    def resize(self) -> None:
        import termios

        with suppress(termios.error):
            termios.tcsetwinsize(self._master, termios.tcgetwinsize(STDOUT))


def open_streams(loop: AnyLoop) -> Streams:
    """Return terminal streams if we are on a terminal, otherwise pipes; the caller enters them."""
    return TerminalStreams(loop, OwnTerminal()) if on_terminal() else Pipes(loop)


def _same(one: int, other: int) -> bool:
    a, b = os.fstat(one), os.fstat(other)
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
