"""Find which program of a network namespace has a socket, from outside of the namespace.

The namespace is identified by a socket of it that we hold. Its processes are found in /proc, and their
descriptors show which of them has the socket. The result is only for display, and no decision relies on it:
a program is named after the file that it was started from, and a process that we may not inspect stays
unknown.
"""

import os
import socket
from collections.abc import Iterable, Iterator
from fcntl import ioctl
from typing import Final, Literal, TypeAlias

MAX_NAME: Final = 200  # characters of a program's path in a report; of a longer path, its end
_GET_NAMESPACE: Final = 0x894C  # linux/sockios.h: SIOCGSKNS
_LOCAL, _INODE = 1, 9  # fields of a line of the tables

Kind: TypeAlias = Literal["tcp", "udp"]


def find_program(held: socket.socket, kind: Kind, port: int) -> str | None:
    """The program that has the socket at this port, in the namespace of our socket; None if unknown."""
    try:
        inside = list(_find_processes(_find_namespace(held)))
        wanted = {f"socket:[{inode}]" for inode in _find_inodes(inside[0], kind, port)} if inside else set()
    except OSError:
        return None
    for pid in inside:
        try:
            folder = f"/proc/{pid}/fd"
            if wanted and any(os.readlink(f"{folder}/{fd}") in wanted for fd in os.listdir(folder)):
                return show_name(os.readlink(f"/proc/{pid}/exe"))
        except OSError:
            continue  # it ended, closed a descriptor, or we may not inspect it
    return None


def _find_namespace(held: socket.socket) -> str:
    """The namespace in the form of /proc links. Raises OSError."""
    fd = ioctl(held.fileno(), _GET_NAMESPACE)
    try:
        return f"net:[{os.fstat(fd).st_ino}]"
    finally:
        os.close(fd)


def _find_processes(namespace: str) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if os.readlink(f"/proc/{name}/ns/net") == namespace:
                    yield int(name)
            except OSError:
                continue


def _find_inodes(pid: int, kind: Kind, port: int) -> set[int]:
    """The inodes of the sockets at this port in the network of a process. Raises OSError."""
    found: set[int] = set()
    for table in (kind, f"{kind}6"):
        try:
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
                found |= parse_inodes(lines, port)
        except FileNotFoundError:
            continue  # no IPv6 here
    return found


def parse_inodes(lines: Iterable[str], port: int) -> set[int]:
    """The inodes at this port, from /proc/net/tcp and the like, without 0 (a socket without an owner)."""
    ending = f":{port:04X}"
    rows = (line.split() for line in lines)
    return {int(row[_INODE]) for row in rows if len(row) > _INODE and row[_LOCAL].endswith(ending)} - {0}


def show_name(path: str) -> str:
    """A name that the command could have chosen, made safe for a sentence: short, printable ASCII."""
    plain = "".join(char if char.isascii() and char.isprintable() else "?" for char in path)
    return plain if len(plain) <= MAX_NAME else f"...{plain[-MAX_NAME:]}"
