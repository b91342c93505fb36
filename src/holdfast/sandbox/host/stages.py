"""The stages of a sandbox, each tried alone in a throw-away child: what this host lets us do.

This runs in a process of its own. It forks one child for each stage, all at once. A child that takes too
long is killed, with every process that it started. The results go to standard output, one JSON array per
line, each as soon as it is known. So a host on which one stage hangs still reports the others:

    ["reading", name, text or null]
    ["names", those of everything that will be tried]
    ["stage", name, the stage it is about, the stage that failed or "", errno, detail]

Each child does what a confined start does, with the same functions, and only as far as its stage needs.
Standard library only.
"""

import contextlib
import errno
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, NoReturn

from holdfast.sandbox.backends import bwraptool
from holdfast.sandbox.kernel import kernel, landlock, namespaces, seccomp
from holdfast.sandbox.kernel.kernel import Stage, StageFailed

MAX_READING: Final = 4096  # bytes of one file; we look for a number or a few lines
MAX_LINE: Final = 4096  # bytes of one child's answer: no more than a pipe takes in one write
FILES: Final = (
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/kernel/unprivileged_userns_clone",
    *(f"/proc/sys/user/max_{kind}_namespaces" for kind in ("user", "mnt", "pid", "net")),
    "/proc/self/attr/current",
    "/sys/fs/selinux/enforce",
    "/proc/self/status",
    "/proc/self/cgroup",
    "/proc/version",
    "/.dockerenv",
    "/run/.containerenv",
)


class Probe(NamedTuple):
    """The attempt, and the name of the stage that it tests; the attempt returns a detail to report."""

    stage: str
    attempt: Callable[[], str]


def _user_namespace() -> str:
    with Stage("userns"):
        kernel.unshare(kernel.CLONE_NEWUSER)
    return ""


def _uid_map() -> str:
    uid, gid = os.getuid(), os.getgid()
    _user_namespace()
    namespaces.map_ids(uid=uid, gid=gid)
    kernel.die_with_parent(signal.SIGKILL)  # the kernel forgets this setting whenever privileges grow
    return ""


class _Inside:
    """Attempts of a privileged process: in a user namespace of its own, or as root without one."""

    def __init__(self, *, userns: bool) -> None:
        self._userns = userns

    def _enter(self, stage: str, flag: int) -> None:
        if self._userns:
            _uid_map()
        with Stage(stage):
            kernel.unshare(flag)

    def propagation(self) -> str:
        self._enter("mountns", kernel.CLONE_NEWNS)
        with Stage("propagation"):
            kernel.make_private(kernel.open_path("/"))
        return ""

    def mounts(self) -> str:
        self.propagation()
        with Stage("mount"):
            root = kernel.open_path("/")
            kernel.set_attributes_below(kernel.copy_tree(root), kernel.READ_ONLY)
            kernel.put_tree(kernel.new_filesystem("tmpfs", kernel.NO_SUID), root)
        return ""

    def pid_namespace(self) -> str:
        if namespaces.fork(userns=self._userns) == 0:
            os._exit(0)
        return ""

    def proc(self) -> str:
        self.propagation()
        with Stage("pidns"):
            kernel.unshare(kernel.CLONE_NEWPID)
        with Stage("proc"):
            kernel.in_child(_mount_proc)
        return ""

    def network(self) -> str:
        self._enter("netns", kernel.CLONE_NEWNET)
        return ""

    def loopback(self) -> str:
        self.network()
        with Stage("loopback"):
            namespaces.raise_loopback()
        return ""


def _mount_proc() -> None:
    target = kernel.open_path("/proc")
    kernel.put_tree(kernel.new_filesystem("proc", kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC), target)


def _no_new_privileges() -> None:
    with Stage("nnp"):
        kernel.refuse_new_privileges()


def _seccomp() -> str:
    _no_new_privileges()
    machine = os.uname().machine
    if machine not in seccomp.ARCHITECTURES:
        raise StageFailed("seccomp", errno.ENOSYS)
    with Stage("seccomp"):
        kernel.install_filter(seccomp.program(machine, seccomp.Sockets.NONE))
    return ""


def _landlock() -> str:
    _no_new_privileges()
    abi = landlock.abi()
    with Stage("landlock"):
        landlock.restrict((), abi=max(abi, 1))
    return str(abi)


def _bwrap(path: str) -> str:
    try:
        tool = bwraptool.find(path)
    except bwraptool.Unusable as exc:
        raise StageFailed(exc.stage, exc.errno, " ".join(exc.lacking)) from None
    reader, writer = os.pipe()
    os.posix_spawn(
        tool,
        (tool, "--version"),
        {},
        file_actions=((os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_CLOSE, reader)),
    )
    os.close(writer)
    version = os.read(reader, MAX_READING).decode("utf-8", "replace").split()
    return f"{version[-1] if version else ''} {tool}"


def probes(path: str, *, root: bool) -> dict[str, Probe]:
    """All probes; `path` is the search path for bubblewrap."""
    found = {
        "user namespace": Probe("userns", _user_namespace),
        "uid map": Probe("uidmap", _uid_map),
    }
    for suffix, inside in (("", _Inside(userns=True)), *((" as root", _Inside(userns=False)),) * root):
        found |= {
            f"mount propagation{suffix}": Probe("propagation", inside.propagation),
            f"mount calls{suffix}": Probe("mount", inside.mounts),
            f"pid namespace{suffix}": Probe("pidns", inside.pid_namespace),
            f"fresh proc{suffix}": Probe("proc", inside.proc),
            f"net namespace{suffix}": Probe("netns", inside.network),
            f"loopback{suffix}": Probe("loopback", inside.loopback),
        }
    found["seccomp"] = Probe("seccomp", _seccomp)
    found["landlock"] = Probe("landlock", _landlock)
    found["bwrap"] = Probe("bwrap", lambda: _bwrap(path))
    return found


def _be(attempt: Callable[[], str], report: int) -> NoReturn:
    """Run as the child that tries one thing."""
    said: tuple[str, int, str] = ("internal", errno.EIO, "")
    try:
        os.setpgid(0, 0)
        kernel.die_with_parent(signal.SIGKILL)
        said = ("", 0, attempt())
    except StageFailed as exc:
        said = (exc.stage, exc.errno, exc.path)
    except OSError as exc:
        said = ("internal", exc.errno or errno.EIO, "")
    finally:
        os.write(report, json.dumps(said).encode()[:MAX_LINE])
        os._exit(0)


def try_all(wanted: Mapping[str, Probe], *, limit_s: float, tell: Callable[[list[object]], None]) -> None:
    """Try everything at once, each for at most `limit_s`; no process is left afterwards."""
    running: dict[int, tuple[int, str]] = {}
    try:
        for name, probe in wanted.items():
            reader, writer = os.pipe2(os.O_CLOEXEC)
            pid = os.fork()
            if pid == 0:
                _be(probe.attempt, writer)
            os.close(writer)
            running[reader] = (pid, name)
        for name, (stage, code, detail) in _answers(running, limit_s):
            tell(["stage", name, wanted[name].stage, stage, code, detail])
        for _, name in running.values():
            tell(["stage", name, wanted[name].stage, wanted[name].stage, errno.ETIMEDOUT, ""])
    finally:
        for pid, _ in running.values():
            _end(pid)


def _answers(
    running: dict[int, tuple[int, str]], limit_s: float
) -> Iterator[tuple[str, tuple[str, int, str]]]:
    """The children's answers, in the order in which they arrive; a child that answered is ended."""
    poll = select.poll()
    for reader in running:
        poll.register(reader, select.POLLIN)
    deadline = time.monotonic() + limit_s
    while running and (left := deadline - time.monotonic()) > 0:
        for reader, _ in poll.poll(left * 1000):
            data = os.read(reader, MAX_LINE)
            pid, name = running.pop(reader)
            poll.unregister(reader)
            os.close(reader)
            _end(pid)
            yield name, json.loads(data) if data else ("internal", errno.EIO, "")


def _end(pid: int) -> None:
    """End a child and the processes that it started. One that hangs in the kernel is left to our reaper."""
    _kill(pid, signal.SIGSTOP)  # it cannot start more processes while we look
    started = (read(f"/proc/{pid}/task/{pid}/children") or "").split()
    for process in (*map(int, started), pid):
        _kill(process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _kill(pid: int, signum: int) -> None:
    for kill in (os.killpg, os.kill):  # the second call is for a child that leads no group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signum)


def read(path: str) -> str | None:
    """The beginning of a file; None if it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(MAX_READING).decode("utf-8", "replace")
    except OSError:
        return None


def main() -> None:
    """Try everything; the arguments are the search path for bubblewrap, and the limit in seconds."""

    def tell(line: list[object]) -> None:
        os.write(1, json.dumps(line).encode() + b"\n")

    path, limit_s = sys.argv[-2:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # runs the finally clauses, which end all children
    kernel.die_with_parent(signal.SIGTERM)
    for name in FILES:
        tell(["reading", name, read(name)])
    wanted = probes(path, root=os.geteuid() == 0)
    tell(["names", list(wanted)])
    try_all(wanted, limit_s=float(limit_s), tell=tell)
