"""Runs inside the sandbox: the words that attempts are written in. Standard library only.

The source of this module is sent as text, followed by a call of `main`: what is tried must not
depend on what is installed, nor on which files the sandbox shows.
"""

import contextlib
import ctypes
import errno
import json
import mmap
import os
import pathlib
import platform
import shutil
import signal
import socket
import stat
import subprocess
import sys
import traceback
from types import SimpleNamespace
from typing import Any

MARK = "holdfast-outcome "  # before the one line that is for the runner

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
BAD = 1  # never the address of anything: a call that gets as far as reading it was let through

NEWNS, NEWUTS, NEWIPC = 0x00020000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET, NEWCGROUP = 0x10000000, 0x20000000, 0x40000000, 0x02000000

scene = SimpleNamespace()  # what the runner prepared, by name; filled by main
outside = workspace = locked = git = secrets = pathlib.Path()
_notes: list[str] = []
_libc = ctypes.CDLL(None, use_errno=True)


class Skip(Exception):
    """The attempt needs something that this host does not have."""


class Contained(Exception):
    """The attempt ran and gained nothing."""


def contained_unless(gained: object, detail: str = "") -> None:
    """Say that nothing was gained; what was is printed, for the one who reads the result."""
    if not gained:
        raise Contained(detail)
    _notes.append(str(gained))


def call(name: str | int, *args: object) -> int:
    """A system call by name, or by number; raises OSError."""
    if isinstance(name, str):
        if platform.machine() not in _MACHINES:
            raise Skip("the system calls of this machine have other numbers")
        name = _NUMBERS[name][_MACHINES.index(platform.machine())]
    converted = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = int(_libc.syscall(ctypes.c_long(name), *converted))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def clone(flags: int) -> None:
    """A child in new namespaces, which ends at once."""
    if call("clone", flags | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)


def opened(path: str | pathlib.Path, flags: int = os.O_WRONLY) -> None:
    """Open and close, nothing more: enough to know, and harmless if it works."""
    os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NOCTTY))


def create(path: str | pathlib.Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def show(path: str | pathlib.Path) -> None:
    """Print a file: the runner looks for its secrets in what we print."""
    sys.stdout.write(pathlib.Path(path).read_text("utf-8", "replace"))


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise Skip(f"{program} is not installed")


def run(*argv: str, **options: Any) -> str:
    """The output of a program that must succeed."""
    options = {"timeout": 30, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
    done = subprocess.run(argv, text=True, **options)  # noqa: S603 - from the table of attempts
    if done.returncode:
        raise AssertionError(f"{argv[0]} ended with {done.returncode}: {done.stdout}")
    return done.stdout or ""


def python(source: str, name: str = "script.py") -> str:
    """The output of a program in a file, which is what the start methods of multiprocessing need."""
    pathlib.Path(name).write_text(source, "utf-8")
    return run(sys.executable, name)


def status(pid: str | int = "self") -> dict[str, list[str]]:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}


def is_free(fields: dict[str, list[str]]) -> bool:
    """Does this status belong to a process that a sandbox does not hold?"""
    return not (
        fields["CapEff"] == ["0" * 16]
        and fields["CapBnd"] == ["0" * 16]
        and fields["NoNewPrivs"] == ["1"]
        and fields["Seccomp"] == ["2"]
    )


def machine_code(code: bytes) -> int:
    """Run these bytes as a function; x86_64 only."""
    if platform.machine() != "x86_64":
        raise Skip("machine code for x86_64")
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())


def set_user_id_program() -> str:
    for name in ("mount", "su", "umount", "passwd", "chsh", "sudo"):
        path = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if path and os.stat(path).st_mode & stat.S_ISUID:
            return path
    raise Skip("no set-user-id program is installed")


def tcp(address: str, port: int) -> None:
    with socket.create_connection((address, port), 3) as sock:
        sock.sendall(b"x")


def udp(address: str, port: int) -> None:
    """Twice: a refusal of the first datagram is reported to the second."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(3)
        sock.connect((address, port))
        sock.send(b"x")
        sock.send(b"x")


def litter(path: str) -> None:
    """Create a file where none is, and take it away again."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    os.unlink(path)


def writable_below(folder: str, depth: int) -> str:
    """The first file that can be opened for writing; what belongs to processes is left out, and links.

    So is /proc/pressure, where anybody may ask to be told of shortages, which changes nothing.
    """
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
        exec(script, globals())  # noqa: S102 - from the table of attempts
    except Skip as exc:
        return "skipped", str(exc)
    except Contained as exc:
        return "contained", str(exc)
    except socket.gaierror as exc:
        return "unresolved", str(exc)
    except OSError as exc:
        return errno.errorcode.get(exc.errno or 0, "failed"), f"{exc}"
    except Exception:
        return "failed", traceback.format_exc(limit=-3)
    return "done", " ".join(_notes)


def main(script: str, prepared: str) -> None:
    """Try it, and print one line of what came of it."""
    global outside, workspace, locked, git, secrets
    vars(scene).update(json.loads(prepared))
    outside, workspace = pathlib.Path(scene.outside), pathlib.Path(scene.workspace)
    locked, git, secrets = workspace / "conf/locked", workspace / ".git", workspace / "secrets"
    outcome, detail = _outcome(script)
    sys.stdout.write(f"\n{MARK}{json.dumps([outcome, detail])}\n")
    sys.stdout.flush()
