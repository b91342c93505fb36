"""The kernel's answers to a command's calls, read from the calling thread as it returns from the call.

A listener is notified of a call before it is made, and not of its outcome. So the watcher attaches to the
thread that waits in the call (`PTRACE_SEIZE`), asks it to stop, and lets the call go on. The thread stops
when it returns from the call, with the result in its registers, and is detached at once. Nothing else in it
is changed. A process that may read the thread's memory may do this too. Only a thread that is already traced
by another process, such as strace, cannot be attached to.

Before Linux 5.19 the request interrupts the wait for our answer instead, and the kernel repeats the call,
unseen by the program. Then the watcher follows the thread into the call and out of it.

If a watcher dies, the kernel detaches it from all threads.

Standard library only, and little of it: the watcher imports this.
"""

import contextlib
import ctypes
import enum
import errno
import os
import signal
from collections.abc import Callable, Iterator
from ctypes import c_int, c_long, c_size_t, c_void_p
from typing import Final

from holdfast.sandbox.kernel.kernel import named

MAX_JOINED: Final = 256  # threads at a time; each waits in a call that may be refused
# linux/ptrace.h, linux/elf.h, linux/wait.h
_SYSCALL, _DETACH, _GETREGSET, _SEIZE, _INTERRUPT = 24, 17, 0x4204, 0x4206, 0x4207
_SYSGOOD: Final = 1  # PTRACE_O_TRACESYSGOOD: a stop at a call differs from one by a signal
_AT_CALL: Final = signal.SIGTRAP | 0x80
_EVENT_STOP: Final = 128
_PRSTATUS: Final = 1
_WALL: Final = 0x40000000  # threads too
_RESULT_AT: Final = {"x86_64": 80, "aarch64": 0}  # offset in the registers: rax, x0
_REGISTERS: Final = 1024  # bytes, more than the registers of any machine
_MAX_ERRNO: Final = 4095
_AGAIN: Final = range(512, 517)  # ERESTARTSYS and its kin: the call is repeated after signals are handled
_SIGSET_BYTES: Final = 128


class _Vector(ctypes.Structure):
    _fields_ = (("base", c_void_p), ("length", c_size_t))


_ptrace = named("ptrace", c_long, c_int, c_void_p, c_void_p)
_signalfd = named("signalfd", c_int, c_void_p, c_int)


class _Way(enum.Enum):
    """How far an attached thread has come."""

    OUT = enum.auto()  # it stops when it returns from the call
    AGAIN = enum.auto()  # it is about to repeat the call
    INSIDE = enum.auto()  # it has made the call, and stops when it returns


class Answers:
    """The answers to one command's calls. `fd` is readable when `collect` has something to do."""

    def __init__(self) -> None:
        """Raises OSError."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        mask = ctypes.create_string_buffer((1 << signal.SIGCHLD - 1).to_bytes(_SIGSET_BYTES, "little"))
        self.fd = _signalfd(-1, ctypes.byref(mask), os.O_NONBLOCK | os.O_CLOEXEC)
        self._joined: dict[int, _Way] = {}
        self._registers = ctypes.create_string_buffer(_REGISTERS)
        self._vector = _Vector(ctypes.addressof(self._registers), _REGISTERS)
        self._result_at = _RESULT_AT.get(os.uname().machine)

    def expects(self, pid: int) -> bool:
        """Whether this thread is already attached; if so, it repeats a call."""
        return pid in self._joined

    def expect(self, pid: int, still_waits: Callable[[], bool]) -> bool:
        """Attach to a thread that waits to make a call; return False if that is impossible.

        If the thread still waits afterwards, its pid was not reused by another thread meanwhile.
        """
        if self._result_at is None or len(self._joined) >= MAX_JOINED:
            return False
        try:
            _ptrace(_SEIZE, pid, None, _SYSGOOD)
            self._joined[pid] = _Way.OUT
            _ptrace(_INTERRUPT, pid, None, None)
        except OSError:
            return False
        return still_waits()

    def collect(self) -> Iterator[tuple[int, int | None]]:
        """Each thread that returned, with its errno, or 0; None if the answer is unknown."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fd, 128 * 32):
                pass
        for pid in list(self._joined):
            try:
                if (stopped := _stop_of(pid)) is None:
                    continue
                came, code = self._take(pid, *stopped)
            except OSError:  # killed, or gone with its process
                came, code = True, None
            if came:
                self._joined.pop(pid, None)
                yield pid, code

    def _take(self, pid: int, signum: int, event: int) -> tuple[bool, int | None]:
        """Whether the thread has returned, and its errno; if it has not, let it go on. Raises OSError."""
        way = self._joined[pid]
        if signum == _AT_CALL and way is _Way.AGAIN:
            self._joined[pid] = _Way.INSIDE
            _ptrace(_SYSCALL, pid, None, None)
            return False, None
        delivered = 0 if signum == _AT_CALL or event == _EVENT_STOP else signum
        code: int | None = self._read_code(pid)
        if code in _AGAIN:
            if way is _Way.OUT and not delivered:
                self._joined[pid] = _Way.AGAIN
                _ptrace(_SYSCALL, pid, None, None)
                return False, None
            code = None
        elif signum != _AT_CALL and way is not _Way.OUT:
            code = None  # a signal before the call was made
        _ptrace(_DETACH, pid, None, delivered)
        return True, code

    def _read_code(self, pid: int) -> int:
        if self._result_at is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._vector.length = _REGISTERS
        _ptrace(_GETREGSET, pid, _PRSTATUS, ctypes.addressof(self._vector))
        result = c_long.from_buffer(self._registers, self._result_at).value
        return -result if -_MAX_ERRNO <= result < 0 else 0


def _stop_of(pid: int) -> tuple[int, int] | None:
    """The signal and the event that stopped this thread; None if it runs. Raises OSError if it has ended."""
    found, status = os.waitpid(pid, os.WNOHANG | _WALL)
    if found == 0:
        return None
    if not os.WIFSTOPPED(status):
        raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
    return os.WSTOPSIG(status), status >> 16
