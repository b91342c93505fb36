"""Runs inside the sandbox: the functions that attempts use. Standard library only.

The source of this module is sent as text, followed by a call of `main` or `main_together`: the attempts must
not depend on what is installed, nor on which files the sandbox shows. Modules are imported only where they
are needed: importing all takes longer than most attempts, of which there are hundreds.
"""

from __future__ import annotations

import errno
import os
import sys
from types import SimpleNamespace

TYPE_CHECKING = False  # importing that of `typing` would take time
if TYPE_CHECKING:
    import pathlib
    from typing import Any

MARK = "holdfast-outcome "  # precedes the one line for the runner

_NUMBERS = {  # asm/unistd.h: x86_64, aarch64
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "clone": (56, 220),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "adjtimex": (159, 171),
    "acct": (163, 89),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "renameat2": (316, 276),
    "linkat": (265, 37),
    "shmget": (29, 194),
    "setxattr": (188, 5),
    "fanotify_init": (300, 262),
    "prlimit64": (302, 261),
    "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "pidfd_open": (434, 434),
    "clone3": (435, 435),
    "pidfd_getfd": (438, 438),
    "mount_setattr": (442, 442),
    "quotactl_fd": (443, 443),
}
_MACHINES = ("x86_64", "aarch64")
HERE = -100  # AT_FDCWD
BAD = 1  # never a valid address: a call that fails on reading it was let through

NEWNS, NEWUTS, NEWIPC = 0x00020000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET, NEWCGROUP = 0x10000000, 0x20000000, 0x40000000, 0x02000000

_MODULES = {  # that a script may use without importing them
    "contextlib", "ctypes", "mmap", "multiprocessing", "pathlib", "platform", "shutil", "signal", "socket",
    "stat", "subprocess", "traceback",
}  # fmt: skip
_PLACES = {  # that a script may use: the directory of the scene, and the path below it
    "outside": ("outside", ""),
    "workspace": ("workspace", ""),
    "locked": ("workspace", "conf/locked"),
    "git": ("workspace", ".git"),
    "secrets": ("workspace", "secrets"),
}
scene = SimpleNamespace()  # what the runner prepared, by name; filled by main
_notes: list[str] = []


class Words(dict[str, object]):
    """The names of a script; a module or a path is created on first use."""

    def __missing__(self, name: str) -> object:
        if name in _MODULES:
            self[name] = __import__(name)
        elif name in _PLACES:
            import pathlib

            folder, below = _PLACES[name]
            self[name] = pathlib.Path(getattr(scene, folder), below)
        elif name == "libc":
            import ctypes

            self[name] = ctypes.CDLL(None, use_errno=True)
        else:
            raise KeyError(name)
        return self[name]


class Skip(Exception):
    """The attempt needs something that this host does not have."""


class Contained(Exception):
    """The attempt ran and gained nothing."""


def contained_unless(gained: object, detail: str = "") -> None:
    """Report that nothing was gained; otherwise print what was, for the reader of the result."""
    if not gained:
        raise Contained(detail)
    _notes.append(str(gained))


def call(name: str | int, *args: object) -> int:
    """Make a system call by name or number; raises OSError."""
    import ctypes

    if isinstance(name, str):
        machine = os.uname().machine
        if machine not in _MACHINES:
            raise Skip("the system calls of this machine have other numbers")
        name = _NUMBERS[name][_MACHINES.index(machine)]
    converted = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(name), *converted))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def clone(flags: int) -> None:
    """Start a child in new namespaces, which ends at once."""
    import signal

    if call("clone", flags | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)


def opened(path: str | pathlib.Path, flags: int = os.O_WRONLY) -> None:
    """Open and close, nothing more: enough to know, and harmless if it works."""
    os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NOCTTY))


def create(path: str | pathlib.Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def show(path: str | pathlib.Path) -> None:
    """Print a file: the runner searches our output for its secrets."""
    with open(path, encoding="utf-8", errors="replace") as file:
        sys.stdout.write(file.read())


def need(*programs: str) -> None:
    import shutil

    for program in programs:
        if shutil.which(program) is None:
            raise Skip(f"{program} is not installed")


def run(*argv: str, **options: Any) -> str:
    """The output of a program that must succeed."""
    import subprocess

    options = {"timeout": 30, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
    done = subprocess.run(argv, text=True, **options)  # noqa: S603 - from the table of attempts
    if done.returncode:
        raise AssertionError(f"{argv[0]} ended with {done.returncode}: {done.stdout}")
    return done.stdout or ""


def python(source: str, name: str = "script.py") -> str:
    """The output of a program in a file, as the start methods of multiprocessing need it."""
    with open(name, "w", encoding="utf-8") as file:
        file.write(source)
    return run(sys.executable, name)


def status(pid: str | int = "self") -> dict[str, list[str]]:
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        lines = file.read().splitlines()
    return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}


def is_free(fields: dict[str, list[str]]) -> bool:
    """Whether this status belongs to a process that no sandbox confines."""
    return not (
        fields["CapEff"] == ["0" * 16]
        and fields["CapBnd"] == ["0" * 16]
        and fields["NoNewPrivs"] == ["1"]
        and fields["Seccomp"] == ["2"]
    )


def machine_code(code: bytes) -> int:
    """Run these bytes as a function; x86_64 only."""
    import ctypes
    import mmap

    if os.uname().machine != "x86_64":
        raise Skip("machine code for x86_64")
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())


def set_user_id_program() -> str:
    import shutil
    import stat

    for name in ("mount", "su", "umount", "passwd", "chsh", "sudo"):
        path = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if path and os.stat(path).st_mode & stat.S_ISUID:
            return path
    raise Skip("no set-user-id program is installed")


def tcp(address: str, port: int) -> None:
    import socket

    with socket.create_connection((address, port), 3) as sock:
        sock.sendall(b"x")


def udp(address: str, port: int) -> None:
    """Send twice: the refusal of the first datagram is reported to the second."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(3)
        sock.connect((address, port))
        sock.send(b"x")
        sock.send(b"x")


def litter(path: str) -> None:
    """Create a file where none is, and remove it again."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    os.unlink(path)


def writable_below(folder: str, depth: int) -> str:
    """The first file that can be opened for writing, without those of processes, and without links.

    /proc/pressure is left out, too: any user may subscribe to shortages there, which changes nothing.
    """
    import contextlib

    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.isdigit() or entry.name == "pressure" or entry.is_symlink():
            continue
        with contextlib.suppress(OSError):
            if not entry.is_dir():
                opened(entry.path, os.O_WRONLY | os.O_NONBLOCK)
                return entry.path
            if depth > 1 and (found := writable_below(entry.path, depth - 1)):
                return found
    return ""


def _outcome(script: str) -> tuple[str, str]:
    try:
        exec(script, Words(globals()))  # noqa: S102 - from the table of attempts
    except Skip as exc:
        return "skipped", str(exc)
    except Contained as exc:
        return "contained", str(exc)
    except OSError as exc:
        if type(exc).__name__ == "gaierror":  # of `socket`, which few attempts need
            return "unresolved", str(exc)
        return errno.errorcode.get(exc.errno or 0, "failed"), f"{exc}"
    except Exception:
        import traceback

        return "failed", traceback.format_exc(limit=-3)
    return "done", " ".join(_notes)


def main(script: str, prepared: dict[str, str | int]) -> None:
    """Make the attempt, and print its result in one line: two strings, as Python writes them in ASCII."""
    vars(scene).update(prepared)
    outcome = _outcome(script)
    sys.stdout.write(f"\n{MARK}{outcome!a}\n")
    sys.stdout.flush()


def main_together(scripts: list[str], prepared: dict[str, str | int]) -> None:
    """Make attempts one after the other, each in a child; print a line with number and result for each.

    No attempt may find traces of another: after one that left something where it may write, the rest is not
    run.
    """
    import signal

    vars(scene).update(prepared)
    before = _left()
    for number, script in enumerate(scripts):
        sys.stdout.flush()
        child = os.fork()
        if not child:
            try:
                _tell(number, *_outcome(script))
            finally:
                os._exit(0)
        _, how = os.waitpid(child, 0)
        if os.WIFSIGNALED(how):
            _tell(number, signal.Signals(os.WTERMSIG(how)).name, "")
        if _left() != before:
            return


def _tell(number: int, outcome: str, detail: str) -> None:
    sys.stdout.write(f"\n{MARK}{(number, outcome, detail)!a}\n")
    sys.stdout.flush()


def _left() -> list[tuple[str, int, int, int]]:
    """Everything visible where an attempt may write, with the values that reveal a change."""
    found = []
    for top in (scene.workspace, scene.tmp):
        for folder, folders, files in os.walk(top):
            for name in (".", *folders, *files):
                path = os.path.join(folder, name)
                try:
                    facts = os.lstat(path)
                except OSError:
                    continue
                found.append((path, facts.st_mode, facts.st_ino, facts.st_ctime_ns))
    return found
