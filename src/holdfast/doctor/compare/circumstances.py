"""Runs where the command will run: what a program sees of its surroundings. Standard library only.

The source of this module is sent as text, followed by a call of `main`, like that of `inside`: the result
must not depend on what is installed. It leaves nothing behind. It prints only values of variables that are
known to be harmless; of other values it prints a digest with a key that is then discarded.
"""

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import pwd
import resource
import secrets
import socket
import stat
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

MARK = "holdfast-circumstances "  # precedes the one line for the observer
UNLIMITED = (1 << 63) - 1
NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time")
_WAIT_S = 1.0  # for a connection on this machine
_LIMITS = {
    "limit on open files": "NOFILE",
    "limit on processes": "NPROC",
    "limit on memory": "AS",
    "limit on locked memory": "MEMLOCK",
    "limit on file size": "FSIZE",
    "limit on core files": "CORE",
    "limit on stack": "STACK",
    "limit on CPU time": "CPU",
}


def look(at: Callable[[], Any]) -> Any:
    """The result of `at`, or None if that is refused."""
    try:
        return at()
    except (OSError, KeyError, ValueError):
        return None


def works(what: Callable[[], Any]) -> bool:
    try:
        what()
    except OSError:
        return False
    return True


def text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def opened(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))


def mapped(fd: int) -> None:
    os.ftruncate(fd, mmap.PAGESIZE)
    mmap.mmap(fd, mmap.PAGESIZE).close()


def abilities(path: str, *, quiet: bool) -> list[str]:
    """What can be done with a file, or in a directory; tried with a temporary file.

    With `quiet` that file never has a name, for a directory in which other processes are at work.
    """
    if not os.path.lexists(path):
        return ["missing"]
    found = []
    if not os.path.isdir(path):
        ways = (("read", os.O_RDONLY), ("write", os.O_WRONLY))
        return [word for word, flags in ways if works(partial(opened, path, flags))]
    if works(lambda: os.listdir(path)):
        found.append("read")
    if not look(lambda: os.statvfs(path).f_flag & os.ST_NOEXEC):
        found.append("run")
    own = os.path.join(path, f".holdfast-compare-{secrets.token_hex(8)}")
    if quiet:
        fd = look(lambda: os.open(path, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600))
    else:
        fd = look(lambda: os.open(own, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if fd is None:
        # A file system without nameless files may still allow named ones.
        return [*found, "create"] if quiet and os.access(path, os.W_OK | os.X_OK) else found
    try:
        found.append("create")
        if works(lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)):
            found.append("lock")
        if works(partial(mapped, fd)):
            found.append("map")
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(own)
            found.append("remove")
    return found


def mounts() -> str:
    lines = text("/proc/self/mountinfo").splitlines()
    return f"{sum('ro' in line.split()[5].split(',') for line in lines)} of {len(lines)}"


def files(paths: list[str], *, quiet: bool) -> dict[str, Any]:
    return {
        **{path: look(partial(abilities, path, quiet=quiet)) for path in paths},
        "read-only mounts": look(mounts),
        "devices": look(lambda: sorted(os.listdir("/dev"))),
    }


def own_loopback() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with socket.create_connection(server.getsockname(), _WAIT_S):
            pass


def unix(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_WAIT_S)
        sock.connect(address)


def families() -> list[str]:
    return [name for name in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK") if works(partial(made, name))]


def made(name: str) -> None:
    kind = socket.SOCK_RAW if name == "AF_NETLINK" else socket.SOCK_STREAM
    socket.socket(getattr(socket, name), kind).close()


def name_servers() -> list[str]:
    lines = (line.split() for line in text("/etc/resolv.conf").splitlines())
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]


def network(port: int, abstract: str) -> dict[str, Any]:
    return {
        "families": look(families),
        "interfaces": look(lambda: sorted(name for _, name in socket.if_nameindex())) or [],
        "default route": look(
            lambda: any(line.split()[1] == "00000000" for line in text("/proc/net/route").splitlines()[1:])
        ),
        "name servers": look(name_servers),
        "own loopback": works(own_loopback),
        "loopback of the host": works(lambda: socket.create_connection(("127.0.0.1", port), _WAIT_S).close()),
        "abstract sockets of the host": works(lambda: unix(f"\0{abstract}")),
    }


def environment(key: bytes, harmless: list[str]) -> dict[str, str]:
    """The environment as this process received it: an interpreter may have added to its own."""
    with open("/proc/self/environ", "rb") as file:
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if entry]
    found = {}
    for name, _, value in pairs:
        variable = os.fsdecode(name)
        digest = hashlib.blake2b(value, key=key, digest_size=16).hexdigest()
        found[variable] = os.fsdecode(value) if variable in harmless else f"#{digest}"
    return found


def ssh_agent() -> str:
    address = os.environ.get("SSH_AUTH_SOCK")
    if not address:
        return "none"
    return "reachable" if works(lambda: unix(address)) else "out of reach"


def identity() -> dict[str, Any]:
    return {
        "user": f"{os.getuid()} {look(lambda: pwd.getpwuid(os.getuid()).pw_name) or ''}".strip(),
        "group": str(os.getgid()),
        "groups": sorted(map(str, os.getgroups())),
        "host name": socket.gethostname(),
        "time zone": " ".join(time.tzname),
        "ssh agent": look(ssh_agent),
    }


def kind(fd: int) -> str:
    if os.isatty(fd):
        return "terminal"
    mode = os.fstat(fd).st_mode
    return "pipe" if stat.S_ISFIFO(mode) else "device" if stat.S_ISCHR(mode) else "other"


def new_terminal() -> None:
    for fd in os.openpty():
        os.close(fd)


def terminal() -> dict[str, Any]:
    return {
        "streams": ", ".join(str(look(partial(kind, fd))) for fd in range(3)),
        "controlling terminal": works(partial(opened, "/dev/tty", os.O_RDWR)),
        "new terminals": works(new_terminal),
    }


def limit(name: str) -> int:
    soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def descriptors() -> list[str]:
    return [name for name in sorted(os.listdir("/proc/self/fd")) if works(partial(os.fstat, int(name)))]


def process() -> dict[str, Any]:
    return {
        "working directory": look(os.getcwd),
        "session of its own": os.getsid(0) == os.getpid(),
        "open descriptors": look(descriptors),
        "priority": -os.getpriority(os.PRIO_PROCESS, 0),
        "processors": look(lambda: len(os.sched_getaffinity(0))),
        "control group": look(lambda: text("/proc/self/cgroup").strip()),
        **{field: look(partial(limit, name)) for field, name in _LIMITS.items()},
    }


def confinement(observer: int) -> dict[str, Any]:
    return {
        **{f"{kind} namespace": look(partial(os.readlink, f"/proc/self/ns/{kind}")) for kind in NAMESPACES},
        "user numbers": look(lambda: " ".join(text("/proc/self/uid_map").split())),
        "group numbers": look(lambda: " ".join(text("/proc/self/gid_map").split())),
        "first process": look(lambda: text("/proc/1/comm").strip()),
        # A Landlock domain is visible in nothing else.
        "sees the processes outside": works(partial(os.readlink, f"/proc/{observer}/ns/mnt")),
    }


def main(asked: str) -> None:
    """Observe, and print the result in one line."""
    question = json.loads(asked)
    seen = {
        "process": process(),
        "files": files(question["paths"], quiet=question["quiet"]),
        "network": network(question["port"], question["abstract"]),
        "environment": look(lambda: environment(bytes.fromhex(question["key"]), question["harmless"])),
        "identity": identity(),
        "terminal": terminal(),
        "confinement": confinement(question["observer"]),
    }
    sys.stdout.write(f"\n{MARK}{json.dumps(seen)}\n")
    sys.stdout.flush()
