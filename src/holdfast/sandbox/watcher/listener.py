"""The listener of a confined command: made inside, handed out to whoever serves it.

It leaves the sandbox on a socket that came with the order: to the owner of the command, whose broker carries
out some calls, or to whoever watches, who does that too. A watcher gets also a descriptor of the root
directory as the command sees it, and one of its mounts: with the last process they would go away, and what
was writable would look read-only to a watcher that judges the last calls.

Nothing waits for anybody here, but calls of the command do: of a watched one with a terminal already the
first, which opens it.

Standard library only, and little of it: this runs in a forked child of the launcher, and in that of `exec`.
"""

import _socket as socket
import errno
import os
import struct

from holdfast.light import Final
from holdfast.sandbox.kernel import kernel, seccomp
from holdfast.sandbox.kernel.kernel import Stage
from holdfast.sandbox.protocol.orders import receive_all_fds

NO_BROKER: Final = "sockets"  # what came out weaker: nobody carries out calls on unix sockets
_MACHINE: Final = os.uname().machine
_ANSWER: Final = struct.Struct("<i")  # an errno, or 0 with the descriptors
_MAX_HANDED: Final = 3  # listener, root, mounts
_CHANNEL: Final = (socket.AF_UNIX, socket.SOCK_SEQPACKET, 0)


def pair() -> tuple[int, int]:
    """Two ends of a channel for `hand_out`, of which neither survives exec. Raises OSError."""
    ours, theirs = socket.socketpair(*_CHANNEL)
    return ours.detach(), theirs.detach()


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
            _send(channel, fds)
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
            _send(channel, fds)
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
        DescriptorsLost: we have no room for it.
        OSError: there is no listener, and why; EPIPE when nothing was sent at all; EAGAIN for not yet.
    """
    sock = socket.socket(*_CHANNEL, channel)
    try:
        data, fds = receive_all_fds(sock, _ANSWER.size, _MAX_HANDED, socket.MSG_DONTWAIT)
    finally:
        sock.detach()
    if fds:
        return fds
    code = _ANSWER.unpack(data)[0] if len(data) == _ANSWER.size else errno.EPIPE
    raise OSError(code, os.strerror(code))


def _send(channel: int, fds: list[int]) -> None:
    sock = socket.socket(*_CHANNEL, channel)
    try:
        rights = struct.pack(f"{len(fds)}i", *fds)
        sock.sendmsg([_ANSWER.pack(0)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    finally:
        sock.detach()


def pin(path: str) -> int:
    """A descriptor of what is at this path now; of the root, which is no socket, if nothing is."""
    try:
        return kernel.open_path(path)
    except OSError:
        return kernel.open_path("/")
