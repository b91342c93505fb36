"""The listener of a confined command: made inside, handed out to whoever serves it.

It leaves the sandbox on a socket that came with the order: to the owner of the command, whose broker carries
out some calls, or to whoever watches, who does that too. A watcher gets also a descriptor of the root
directory as the command sees it, and one of its mounts: with the last process they would go away, and what
was writable would look read-only to a watcher that judges the last calls.

Nothing waits for anybody here, but calls of the command do: of a watched one with a terminal already the
first, which opens it.

Standard library only, and little of it: this runs in a forked child of the launcher, and in that of `exec`.
"""

import ctypes
import errno
import os
import struct
from ctypes import c_int, c_void_p

from holdfast.annotations import Final
from holdfast.sandbox.kernel import kernel, seccomp
from holdfast.sandbox.kernel.kernel import Stage

NO_BROKER: Final = "sockets"  # what came out weaker: nobody carries out calls on unix sockets
_MACHINE: Final = os.uname().machine
_ANSWER: Final = struct.Struct("<i")  # an errno, or 0 with the descriptors
_MAX_HANDED: Final = 3  # listener, root, mounts
# linux/socket.h: struct msghdr, iovec and cmsghdr, as on every machine of 64 bits
_HEADER: Final = struct.Struct("@QIQQQQi4x")
_PART: Final = struct.Struct("@QQ")
_CONTROL: Final = struct.Struct("@Qii")
_AF_UNIX, _SOCK_SEQPACKET, _SOL_SOCKET, _SCM_RIGHTS = 1, 5, 1, 1
_MSG_CMSG_CLOEXEC, _MSG_DONTWAIT = 0x40000000, 0x40

_socketpair = kernel.named("socketpair", c_int, c_int, c_int, c_void_p)
_sendmsg = kernel.named("sendmsg", c_int, c_void_p, c_int)
_recvmsg = kernel.named("recvmsg", c_int, c_void_p, c_int)


def pair() -> tuple[int, int]:
    """Two ends of a channel for `hand_out`, of which neither survives exec. Raises OSError."""
    ends = (ctypes.c_int * 2)()
    _socketpair(_AF_UNIX, _SOCK_SEQPACKET | os.O_CLOEXEC, 0, ctypes.byref(ends))
    return ends[0], ends[1]


def broker_out(channel: int, *, watched: bool, network_off: bool) -> tuple[str, ...]:
    """Have a broker, on a channel that is closed; without one unix sockets are refused, which is returned.

    Raises:
        StageFailed: not even that is possible.
    """
    if channel >= 0 and hand_out(channel, watched=watched, network_off=network_off):
        return ()
    with Stage("seccomp"):
        kernel.install_filter(seccomp.no_unix_program(_MACHINE))
    return (NO_BROKER,)


def hand_out(channel: int, *, watched: bool, network_off: bool) -> bool:
    """From here on our calls are told of. The channel is closed. Where that cannot be, it is said there.

    Raises:
        StageFailed: nobody is at the other end any more.
    """
    fds: list[int] = []
    try:
        with Stage("watch"):
            if watched:
                fds.append(os.open("/", os.O_PATH | os.O_CLOEXEC))
                fds.append(os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
            try:
                fds.insert(0, kernel.install_listener(_program(watched=watched, network_off=network_off)))
            except OSError as exc:
                os.write(channel, _ANSWER.pack(exc.errno or errno.EIO))
                return False
            message = _Message(_ANSWER.pack(0), fds)
            _sendmsg(channel, message.address, 0)
            return True
    finally:
        for fd in (channel, *fds):
            os.close(fd)


def hand_out_namespaces(channel: int) -> None:
    """Send descriptors of the user namespace and the mounts that we have now. The channel is closed.

    Raises:
        StageFailed: nobody is at the other end any more.
    """
    fds: list[int] = []
    try:
        with Stage("masks"):
            fds += (os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("user", "mnt"))
            message = _Message(_ANSWER.pack(0), fds)
            _sendmsg(channel, message.address, 0)
    finally:
        for fd in (channel, *fds):
            os.close(fd)


def warm() -> None:
    """Make what every start needs once, before anything is forked."""
    if _MACHINE in seccomp.ARCHITECTURES:
        seccomp.broker_program(_MACHINE)
        for network_off in (False, True):
            _program(watched=True, network_off=network_off)


def _program(*, watched: bool, network_off: bool) -> bytes:
    if _MACHINE not in seccomp.ARCHITECTURES:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if not watched:
        return seccomp.broker_program(_MACHINE)
    from holdfast.sandbox.watcher import notifyfilter

    return notifyfilter.program(_MACHINE, network=network_off)


def take(channel: int) -> list[int]:
    """What `hand_out` sent: the listener, and if it is watched the root and the mounts; or the namespaces.

    Raises:
        OSError: there is no listener, and why; EPIPE when nothing was sent at all; EAGAIN for not yet.
    """
    message = _Message(bytes(_ANSWER.size), [-1] * _MAX_HANDED)
    got = _recvmsg(channel, message.address, _MSG_CMSG_CLOEXEC | _MSG_DONTWAIT)
    if fds := message.descriptors():
        return fds
    code = _ANSWER.unpack(message.data())[0] if got == _ANSWER.size else errno.EPIPE
    raise OSError(code, os.strerror(code))


class _Message:
    """A `struct msghdr` with a few bytes and descriptors, or with room for them.

    By hand: loading the library's sockets would take longer than handing a listener out.
    """

    def __init__(self, data: bytes, fds: list[int]) -> None:
        rights = _CONTROL.pack(_CONTROL.size + 4 * len(fds), _SOL_SOCKET, _SCM_RIGHTS)
        rights += struct.pack(f"{len(fds)}i", *fds)
        self._data = ctypes.create_string_buffer(data, len(data))
        self._rights = ctypes.create_string_buffer(rights, len(rights) + 7 & ~7)
        self._part = ctypes.create_string_buffer(_PART.pack(ctypes.addressof(self._data), len(data)))
        header = _HEADER.pack(
            *(0, 0, ctypes.addressof(self._part), 1, ctypes.addressof(self._rights), len(self._rights), 0)
        )
        self._header = ctypes.create_string_buffer(header, len(header))
        self.address = ctypes.addressof(self._header)

    def data(self) -> bytes:
        return self._data.raw

    def descriptors(self) -> list[int]:
        """Those that came with it."""
        if _HEADER.unpack(self._header.raw)[5] < _CONTROL.size:
            return []
        length, _, kind = _CONTROL.unpack_from(self._rights)
        count = (length - _CONTROL.size) // 4 if kind == _SCM_RIGHTS else 0
        return list(struct.unpack_from(f"{count}i", self._rights, _CONTROL.size))


def pin(path: str) -> int:
    """A descriptor of what is at this path now; of the root, which is no socket, if nothing is."""
    try:
        return kernel.open_path(path)
    except OSError:
        return kernel.open_path("/")
