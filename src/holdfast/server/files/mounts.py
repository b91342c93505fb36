"""Whether a file call on this host can hang: only if a mounted file system waits for something else.

A network or FUSE mount may block a call for minutes, and a link may lead into it from anywhere. While no such
mount exists, short file calls are safe on the event loop. The kernel reports changes of the mount table
through poll, so a check costs one system call.
"""

import os
import select
from typing import Final

# File systems whose calls end by themselves: disks, memory and the kernel's own.
LOCAL: Final = frozenset(
    {
        "bcachefs", "binfmt_misc", "bpf", "btrfs", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
        "devtmpfs", "efivarfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fusectl", "hugetlbfs",
        "iso9660", "mqueue", "nsfs", "overlay", "proc", "pstore", "ramfs", "rootfs", "securityfs",
        "selinuxfs", "squashfs", "sysfs", "tmpfs", "tracefs", "vfat", "xfs", "zfs",
    }
)  # fmt: skip


def types_in(mountinfo: str) -> set[str]:
    """Parse the file system types from the text of a mountinfo file."""
    return {line.partition(" - ")[2].split(" ", 1)[0] for line in mountinfo.splitlines()}


class Mounts:
    """The mount table of this process, read again only after a change."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._fd = -1
        self._local = False
        try:
            self._fd = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # no such table: every call goes to a thread
        self._poll.register(self._fd, select.POLLPRI | select.POLLERR)
        self._look()

    def all_local(self) -> bool:
        """Return True while no mounted file system can make a call hang."""
        if self._fd >= 0 and self._poll.poll(0):
            self._look()
        return self._local

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._local = False

    def _look(self) -> None:
        with open(os.dup(self._fd), encoding="utf-8", errors="surrogateescape") as file:
            file.seek(0)
            self._local = types_in(file.read()) <= LOCAL
