"""The listener of a confined command: made inside, and handed out to the process that serves it.

The listener leaves the sandbox on a socket that came with the order. It goes to the owner of the command,
whose broker carries out some calls, or to the watcher, which does that too. A watcher also gets a descriptor
of the root directory as the command sees it, and one of the command's mounts. Without these the mounts would
vanish with the last process, and writable files would look read-only to a watcher that judges the last
calls.

Nothing here waits for another process, but calls of the command wait for an answer. For a watched command
with a terminal this includes the very first one, which opens the terminal.

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

NO_BROKER: Final = "sockets"  # the word for a weaker result: no process carries out calls on unix sockets
_MACHINE: Final = os.uname().machine
_ANSWER: Final = struct.Struct("<i")  # an errno, or 0 with the descriptors
_MAX_HANDED: Final = 3  # listener, root, mounts
_CHANNEL: Final = (socket.AF_UNIX, socket.SOCK_SEQPACKET, 0)


def pair() -> tuple[int, int]:
    """Make a channel for `hand_out`: two ends, both close-on-exec. Raises OSError."""
    ours, theirs = socket.socketpair(*_CHANNEL)
    return ours.detach(), theirs.detach()


def broker_out(channel: int, *, watched: bool, network_off: bool) -> tuple[str, ...]:
    """Send a listener on this channel, which is closed; return the word for its absence if that fails.

    Without a broker a filter refuses unix sockets.

    Raises:
        StageFailed: not even the filter is possible.
    """
    if channel >= 0 and hand_out(channel, watched=watched, network_off=network_off):
        return ()
    with Stage("seccomp"):
        kernel.install_filter(seccomp.no_unix_program(_MACHINE))
    return (NO_BROKER,)


def hand_out(channel: int, *, watched: bool, network_off: bool) -> bool:
    """Install a listener for our calls and send it on the channel, which is closed.

    If it cannot be installed, the errno is sent instead, and the result is False.

    Raises:
        StageFailed: the other end of the channel is gone.
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
    """Send descriptors of our current user and mount namespaces. The channel is closed.

    Raises:
        StageFailed: the other end of the channel is gone.
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
    """Build once, before any fork, the filters that every start needs."""
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
    """Receive what `hand_out` sent: the listener (if watched also root and mounts), or the namespaces.

    Raises:
        DescriptorsLost: we have no room for the descriptors.
        OSError: there is no listener, with the reason; EPIPE if nothing was sent at all; EAGAIN if not yet.
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
    """A descriptor of what is at this path now; if nothing is, one of the root, which is no socket."""
    try:
        return kernel.open_path(path)
    except OSError:
        return kernel.open_path("/")
