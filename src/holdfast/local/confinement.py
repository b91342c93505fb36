"""Whether the process at the other end of a socket is more confined than we are.

A user id says whose a process is, not what it may do: a confined command has the same one. What the kernel
says of it does tell: a command that we, or anybody, confined has more seccomp filters, no new privileges or
other namespaces. We are the measure ourselves, so that a daemon in a container serves its neighbours.

A process is looked at by a descriptor (pidfd) and must still live once it was read, so that nothing is read
of another one that got its number. What cannot be read is taken for confined.
"""

import errno
import functools
import os
import select
import socket
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from holdfast.errors import PeerRefused

SO_PEERPIDFD: Final = 77  # linux 6.5; asm-generic/socket.h
NAMESPACES: Final = ("user", "mnt", "pid", "net", "ipc")

UNKNOWN: Final = "the kernel does not tell which process it is"
REMEDY: Final = (
    "run it outside of the sandbox; a worker reports with `holdfast handoff`, and cannot start other workers"
)


class Surroundings(NamedTuple):
    """What the kernel says of how confined a process is."""

    no_new_privileges: bool
    filters: int  # of seccomp; each adds to those before it
    namespaces: tuple[str, ...]


class HasOptions(Protocol):
    """A socket, or what a transport shows of it."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...


def find_excess(ours: Surroundings, theirs: Surroundings | None) -> str | None:
    """In what they are more confined than we, in words; None when in nothing."""
    if theirs is None:
        return UNKNOWN
    if theirs.no_new_privileges and not ours.no_new_privileges:
        return "it may not gain privileges"
    if theirs.filters > ours.filters:
        return "it has more seccomp filters"
    differing = [
        name
        for name, mine, other in zip(NAMESPACES, ours.namespaces, theirs.namespaces, strict=True)
        if mine != other
    ]
    return f"it is in another {' and '.join(differing)} namespace" if differing else None


def refuse_confined(excess: str | None) -> None:
    """Raises PeerRefused for a process that is more confined than we."""
    if excess is not None:
        raise PeerRefused(f"a process that is more confined may not use this one: {excess}", remedy=REMEDY)


def parse_status(text: str, namespaces: tuple[str, ...]) -> Surroundings | None:
    """From /proc/PID/status; None where it does not say."""
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    try:
        filtered = int(fields["Seccomp"]) != 0
        filters = int(fields["Seccomp_filters"]) if filtered else 0
        return Surroundings(int(fields["NoNewPrivs"]) != 0, filters, namespaces)
    except (KeyError, ValueError):
        return None


def read_surroundings(process: int | str) -> Surroundings | None:
    """Of a process by its number, or of "self"; None where that cannot be told."""
    try:
        with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as file:
            text = file.read()
        return parse_status(text, tuple(os.readlink(f"/proc/{process}/ns/{name}") for name in NAMESPACES))
    except OSError:
        return None


@functools.cache
def _ours() -> Surroundings:
    found = read_surroundings("self")
    if found is None:
        raise AssertionError("/proc tells nothing of ourselves")
    return found


def find_excess_of_unix_peer(sock: HasOptions) -> str | None:
    """In what the process that connected this unix socket is more confined than we; None when in nothing."""
    pid, _, _ = struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if pid <= 0:
        return UNKNOWN  # of a process that our namespace does not show
    try:
        fd = _peer_descriptor(sock, pid)
    except OSError:
        return UNKNOWN
    try:
        return _judge(fd, pid)
    finally:
        os.close(fd)


def find_excess_of_holders(inode: int, uid: int) -> str | None:
    """The same of every process of a user that holds the socket with this inode; there must be one."""
    reasons = [_judge_holder(pid, path, inode) for pid, path in find_holders(inode, uid)]
    if not reasons:
        return UNKNOWN
    return next((reason for reason in reasons if reason is not None), None)


def _peer_descriptor(sock: HasOptions, pid: int) -> int:
    """Raises OSError when it is gone."""
    try:
        return int(struct.unpack("=i", sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4))[0])
    except OSError as exc:
        if exc.errno != errno.ENOPROTOOPT:
            raise  # by its number somebody else might be found, who got it since
        return os.pidfd_open(pid)  # an older kernel


def _judge(fd: int, pid: int) -> str | None:
    found = read_surroundings(pid)
    ended, _, _ = select.select([fd], [], [], 0)
    return UNKNOWN if ended else find_excess(_ours(), found)


def _judge_holder(pid: int, path: str, inode: int) -> str | None:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return UNKNOWN
    try:
        # Again, now that its number cannot become another's.
        return _judge(fd, pid) if os.readlink(path) == f"socket:[{inode}]" else UNKNOWN
    except OSError:
        return UNKNOWN
    finally:
        os.close(fd)


def find_holders(inode: int, uid: int) -> Iterator[tuple[int, str]]:
    """Processes of this user with the socket among their descriptors, and which; those we may look into."""
    wanted = f"socket:[{inode}]"
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        folder = f"/proc/{name}/fd"
        try:
            if os.stat(f"/proc/{name}").st_uid != uid:
                continue
            for descriptor in os.listdir(folder):
                path = f"{folder}/{descriptor}"
                if read_link(path) == wanted:
                    yield int(name), path
                    break
        except OSError:
            continue  # it ended, or is not ours to look into


def read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # closed meanwhile
