"""The calls that a watcher is notified of: their table, and the filter as a BPF program. Pure module.

A watched call waits until the watcher has answered. So only calls are watched that want to change something,
or to connect: an `openat` that only reads costs nothing. Calls are seen by their number, so no program
escapes by static linking or by calling the kernel directly.

This filter comes on top of the one in `seccomp.py`: a call that is refused there (io_uring, say) is refused
without a notification.

The launcher and the watcher import this.
"""

import enum
import functools
from typing import Final, NamedTuple

from holdfast.sandbox.kernel import seccomp

# asm-generic/fcntl.h, the same on both machines
_O_WRONLY, _O_RDWR, O_CREAT, O_EXCL, O_TRUNC = 0o1, 0o2, 0o100, 0o200, 0o1000
WRITE_INTENT: Final = _O_WRONLY | _O_RDWR | O_CREAT | O_TRUNC
_NO_FOLLOW: Final = 0x100  # AT_SYMLINK_NOFOLLOW


class Aim(enum.StrEnum):
    """What a call wants to do with a path, or with an address."""

    OPEN = "open"  # write to it, or create it
    WRITE = "write"
    CHANGE = "change"  # its mode, owner or times
    CREATE = "create"
    REMOVE = "remove"
    BIND = "bind"
    CONNECT = "connect"
    LISTEN = "listen"  # listen to system calls, as the watcher does


class PathArgument(NamedTuple):
    """The arguments that name a path. Without `directory` it is relative to the current directory."""

    path: int
    directory: int | None = None
    follow: bool = False  # whether a link at its end is followed


class Call(NamedTuple):
    """A watched call: its aim for each of its paths, or for the address at `places[0].path`."""

    name: str
    x86_64: int | None
    aarch64: int | None
    aims: tuple[Aim, ...]
    places: tuple[PathArgument, ...] = ()
    flags: int | None = None  # the argument that holds the flags
    unfollow: int = 0  # with this flag a link at the end is not followed
    bits: tuple[int, int] | None = None  # watched only if this argument has one of these bits
    origin: PathArgument | None = None  # a path that the call only needs to reach

    @property
    def moves(self) -> bool:
        """Whether it needs two directories. Between some directories the kernel answers EXDEV."""
        return self.name.startswith(("rename", "link"))

    def number(self, machine: str) -> int | None:
        """Its number on this machine; None if it does not exist there."""
        return self.x86_64 if machine == "x86_64" else self.aarch64


_HERE, _AT = PathArgument(0), PathArgument(1, 0)
_FOLLOWED, _FOLLOWED_AT = PathArgument(0, follow=True), PathArgument(1, 0, follow=True)
_OPEN, _WRITE, _CHANGE = (Aim.OPEN,), (Aim.WRITE,), (Aim.CHANGE,)
_CREATE, _REMOVE, _MOVE = (Aim.CREATE,), (Aim.REMOVE,), (Aim.REMOVE, Aim.CREATE)
_EVERY_BIT: Final = 0xFFFFFFFF

CALLS: Final = (
    Call("open", 2, None, _OPEN, (_FOLLOWED,), flags=1, bits=(1, WRITE_INTENT)),
    Call("openat", 257, 56, _OPEN, (_FOLLOWED_AT,), flags=2, bits=(2, WRITE_INTENT)),
    Call(
        "openat2", 437, 437, _OPEN, (_FOLLOWED_AT,), flags=2
    ),  # flags are in memory, where argument 2 points
    Call("creat", 85, None, _OPEN, (_FOLLOWED,)),
    Call("truncate", 76, 45, _WRITE, (_FOLLOWED,)),
    Call("mkdir", 83, None, _CREATE, (_HERE,)),
    Call("mkdirat", 258, 34, _CREATE, (_AT,)),
    Call("mknod", 133, None, _CREATE, (_HERE,)),
    Call("mknodat", 259, 33, _CREATE, (_AT,)),
    Call("symlink", 88, None, _CREATE, (PathArgument(1),)),
    Call("symlinkat", 266, 36, _CREATE, (PathArgument(2, 1),)),
    # The target of a link is not changed; only the place of the new name matters.
    Call("link", 86, None, _CREATE, (PathArgument(1),), origin=_HERE),
    Call("linkat", 265, 37, _CREATE, (PathArgument(3, 2),), origin=_AT),
    Call("rename", 82, None, _MOVE, (_HERE, PathArgument(1))),
    Call("renameat", 264, 38, _MOVE, (_AT, PathArgument(3, 2))),
    Call("renameat2", 316, 276, _MOVE, (_AT, PathArgument(3, 2))),
    Call("unlink", 87, None, _REMOVE, (_HERE,)),
    Call("unlinkat", 263, 35, _REMOVE, (_AT,)),
    Call("rmdir", 84, None, _REMOVE, (_HERE,)),
    Call("chmod", 90, None, _CHANGE, (_FOLLOWED,)),
    Call("fchmodat", 268, 53, _CHANGE, (_FOLLOWED_AT,)),
    Call("fchmodat2", 452, 452, _CHANGE, (_FOLLOWED_AT,), flags=3, unfollow=_NO_FOLLOW),
    Call("chown", 92, None, _CHANGE, (_FOLLOWED,)),
    Call("lchown", 94, None, _CHANGE, (_HERE,)),
    Call("fchownat", 260, 54, _CHANGE, (_FOLLOWED_AT,), flags=4, unfollow=_NO_FOLLOW),
    Call("utime", 132, None, _CHANGE, (_FOLLOWED,)),
    Call("utimes", 235, None, _CHANGE, (_FOLLOWED,)),
    Call("futimesat", 261, None, _CHANGE, (_FOLLOWED_AT,)),
    Call("utimensat", 280, 88, _CHANGE, (_FOLLOWED_AT,), flags=3, unfollow=_NO_FOLLOW),
    Call("bind", 49, 200, (Aim.BIND,), (PathArgument(1),)),
    Call("connect", 42, 203, (Aim.CONNECT,), (PathArgument(1),)),
)
LISTEN: Final = Call("seccomp", 317, 277, (Aim.LISTEN,))  # as `seccomp.no_other_listener` has it
# Watched only if it has an address.
SEND: Final = Call("sendto", 44, 206, (Aim.CONNECT,), (PathArgument(4),), bits=(5, _EVERY_BIT))


def list_watched(machine: str) -> dict[int, Call]:
    """Every call that may be reported, by its number on this machine."""
    found = ((call.number(machine), call) for call in (*CALLS, LISTEN, SEND))
    return {number: call for number, call in found if number is not None}


def _notify_of(call: Call) -> list[seccomp.Instruction]:
    """Instructions that notify the watcher when the call matches; otherwise fall through, number loaded."""
    notify = seccomp.ret(seccomp.NOTIFY)
    if call.bits is None:
        return notify
    index, bits = call.bits
    return [*seccomp.load_arg(index), *seccomp.when_any_bit(bits, notify), *seccomp.load_number()]


@functools.cache  # built once in the launcher, inherited by every child that it forks
def program(machine: str, *, network: bool) -> bytes:
    """The filter in the kernel's form; with `network` it also notifies of outgoing datagrams.

    Raises:
        KeyError: the architecture's numbers are unknown.
    """
    architecture = seccomp.ARCHITECTURES[machine]
    code = seccomp.native_only(architecture)
    for call in (*CALLS, *((SEND,) if network else ())):
        if (number := call.number(machine)) is not None:
            code += seccomp.when(number, _notify_of(call))
    code += seccomp.no_other_listener(architecture.numbers, seccomp.NOTIFY)
    return seccomp.assemble([*code, *seccomp.ret(seccomp.ALLOW)])
