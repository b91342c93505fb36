"""Namespaces and privileges: the isolation around the view, before it is built and after.

    fork        into new namespaces: the child is PID 1 inside
    isolate     the child sets up the namespaces that do not concern files; a spare is ready up to here
    build_view  (view.py) it turns its own mounts into what the plan describes
    drop        it gives up everything that could undo this: privileges, calls, paths

Standard library only, and little of it: this runs in a forked child of the launcher.
"""

import errno
import fcntl
import os
import struct

from holdfast.light import Final, suppress
from holdfast.sandbox.kernel import kernel, landlock, seccomp
from holdfast.sandbox.kernel.kernel import Stage, StageFailed
from holdfast.sandbox.kernel.view import SHARED_MEMORY
from holdfast.sandbox.plan.grants import (
    DEVICES,
    LIST,
    READ,
    REFER_ABI,
    SCOPE_ABI,
    WRITE,
    TooManyGrants,
    read_around,
)
from holdfast.sandbox.plan.plan import Base, Plan, StepKind

_MACHINE: Final = os.uname().machine

_SIOCSIFFLAGS: Final = 0x8914  # linux/sockios.h
_IFF_UP_RUNNING: Final = 0x1 | 0x40  # linux/if.h

# Words for what is weaker than the plan requires, where the host does not allow more.
NO_LANDLOCK: Final = "landlock"  # the second layer is missing
NO_LOOPBACK: Final = "loopback"  # a server inside cannot be reached from inside


def fork(*, userns: bool) -> int:
    """Fork a child that is PID 1 of a new PID namespace. Without `userns` the caller must be privileged.

    Raises:
        StageFailed: the host does not allow it.
    """
    try:
        return kernel.clone(kernel.CLONE_NEWPID | (kernel.CLONE_NEWUSER if userns else 0))
    except OSError as exc:
        stage = "userns" if userns and not _user_namespaces_work() else "pidns"
        raise StageFailed(stage, exc.errno or errno.EIO) from exc


def _user_namespaces_work() -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            kernel.unshare(kernel.CLONE_NEWUSER)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def isolate(*, uid: int, gid: int, userns: bool, network_off: bool) -> tuple[str, ...]:
    """Map this user in the new user namespace and leave the host's network; return what came out weaker.

    Raises:
        StageFailed: the host does not allow it.
    """
    if userns:
        map_ids(uid=uid, gid=gid)
    if not network_off:
        return ()
    with Stage("netns"):
        kernel.unshare(kernel.CLONE_NEWNET)
    try:
        raise_loopback()
    except OSError:
        return (NO_LOOPBACK,)
    return ()


def raise_loopback() -> None:
    """Make 127.0.0.1 usable in a new network namespace; raises OSError."""
    fd = kernel.datagram_socket()
    try:
        fcntl.ioctl(fd, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP_RUNNING))
    finally:
        os.close(fd)


def own_mounts() -> None:
    """Make a mount namespace of our own, which starts as a copy of the host's mounts.

    Raises:
        StageFailed: the host does not allow it.
    """
    with Stage("mountns"):
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)


def map_ids(*, uid: int, gid: int) -> None:
    """Map this user in the user namespace that we have just entered.

    Raises:
        StageFailed: the host does not allow it.
    """
    with Stage("uidmap"):
        kernel.write_file("/proc/self/setgroups", "deny")
        kernel.write_file("/proc/self/uid_map", f"{uid} {uid} 1")
        kernel.write_file("/proc/self/gid_map", f"{gid} {gid} 1")


def warm() -> None:
    """Build once, before any fork, the filter that every confined start needs."""
    with suppress(KeyError):  # an unknown machine; the start will report it
        seccomp.program(_MACHINE, seccomp.Sockets.BROKERED)


def drop(plan: Plan) -> tuple[str, ...]:
    """Give up privileges, paths and system calls permanently; return what came out weaker.

    Unix sockets can still be made afterwards: the caller must add a listener, or a filter that refuses them.

    Raises:
        StageFailed: something could not be given up.
    """
    with Stage("capabilities"):
        kernel.drop_capabilities()
    with Stage("nnp"):
        kernel.refuse_new_privileges()
    abi = landlock.abi()
    weakened = () if _second_layer(plan, abi) else (NO_LANDLOCK,)
    if _MACHINE not in seccomp.ARCHITECTURES:
        raise StageFailed("seccomp", errno.ENOSYS)
    with Stage("seccomp"):
        kernel.install_filter(seccomp.program(_MACHINE, seccomp.Sockets.BROKERED))
    return weakened


def _second_layer(plan: Plan, abi: int) -> bool:
    """Apply the plan's grants a second time, by Landlock, which works independently of mounts."""
    files = plan.base is not Base.UNTOUCHED
    if abi < (REFER_ABI if files else SCOPE_ABI):
        return False
    try:
        landlock.restrict(_grants(plan), abi=abi, files=files, unix=True)
    except (OSError, TooManyGrants):
        return False
    return True


def _grants(plan: Plan) -> list[tuple[str, int]]:
    grants = read_around(plan, _list) if plan.base is Base.HOST else [("/", LIST)]
    grants += [("/dev", DEVICES), (SHARED_MEMORY, WRITE), ("/proc", READ)]
    if plan.by_name:
        from holdfast.sandbox.kernel import resolver

        grants += ((path, READ) for path in resolver.shown())
    for step in plan.steps:
        if step.kind is StepKind.WRITABLE:
            grants.append((step.path, WRITE))
        elif step.kind in (StepKind.READABLE, StepKind.READ_ONLY):
            grants.append((step.path, READ))
    return grants


def _list(folder: str) -> list[str]:
    """The names in a directory except links; empty if we cannot read it, since the command cannot either."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.is_symlink()]
    except OSError:
        return []
