"""The listener of a watched command: made inside, handed out to whoever watches.

It leaves the sandbox on a socket that came with the order, together with a descriptor of the root
directory as the command sees it, and one of its mounts: with the last process they would go away, and
what was writable would look read-only to a watcher that judges the last calls.

Nothing waits for the watcher here, but calls of the command do: with a terminal already the first one,
which opens it.

Standard library only: this runs in a forked child of the launcher.
"""

import errno
import os
import socket
import struct
from typing import Final

from holdfast.sandbox.kernel import kernel, seccomp
from holdfast.sandbox.kernel.kernel import Stage
from holdfast.sandbox.protocol.orders import receive_with_fds
from holdfast.sandbox.watcher import notifyfilter

_MACHINE: Final = os.uname().machine
_PROGRAMS: Final = {  # by whether the network is off; made once, before the fork
    network: notifyfilter.program(_MACHINE, network=network)
    for network in (False, True)
    if _MACHINE in seccomp.ARCHITECTURES
}
_ANSWER: Final = struct.Struct("<i")  # an errno, or 0 with the descriptors
_HANDED: Final = 3  # listener, root, mounts


def hand_out(channel: int, *, network_off: bool) -> None:
    """From here on our calls are told of. The channel is closed. Where that cannot be, it is said there.

    Raises:
        StageFailed: nobody is at the other end any more.
    """
    with socket.socket(fileno=channel) as sock, Stage("watch"):
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            listener = kernel.install_listener(_program(network_off))
        except OSError as exc:
            sock.send(_ANSWER.pack(exc.errno or errno.EIO))
        else:
            socket.send_fds(sock, [_ANSWER.pack(0)], (listener, root, mounts))
            os.close(listener)
        os.close(root)
        os.close(mounts)


def _program(network_off: bool) -> bytes:
    if network_off not in _PROGRAMS:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return _PROGRAMS[network_off]


def take(sock: socket.socket) -> tuple[int, int, int]:
    """What `hand_out` sent: listener, root and mounts.

    Raises:
        OSError: there is no listener, and why; EPIPE when nothing was sent at all.
    """
    data, fds = receive_with_fds(sock, _ANSWER.size, _HANDED)
    if len(fds) == _HANDED:
        return fds[0], fds[1], fds[2]
    for fd in fds:
        os.close(fd)
    code = _ANSWER.unpack(data)[0] if len(data) == _ANSWER.size else errno.EPIPE
    raise OSError(code, os.strerror(code))
