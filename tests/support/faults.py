"""Makes a host refuse things, for one command and its descendants; changes nothing else.

    python FAULTS.PY FAULT -- COMMAND…

FAULT is one JSON object, `Fault` below. Every kind of refusal that containers and hardened hosts are
known for is real here: the kernel itself answers, not a stand-in. An ordinary user makes them in a user
namespace of its own, where its id is the same; only root can take capabilities away from root.
"""

import ctypes
import errno
import json
import os
import struct
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

if sys.platform == "linux":
    from holdfast.sandbox.kernel import kernel, landlock

# asm/unistd.h, by machine
_NUMBERS: Final = {
    "x86_64": {
        "ioctl": 16, "socket": 41, "sendto": 44, "bind": 49, "clone": 56, "capset": 126, "pivot_root": 155,
        "prctl": 157, "mount": 165, "unshare": 272, "seccomp": 317,
    },
    "aarch64": {
        "ioctl": 29, "mount": 40, "pivot_root": 41, "capset": 91, "unshare": 97, "prctl": 167, "socket": 198,
        "bind": 200, "sendto": 206, "clone": 220, "seccomp": 277,
    },
}  # fmt: skip
_SAME_EVERYWHERE: Final = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432, "clone3": 435, "mount_setattr": 442,
    "landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip
_INSTRUCTION: Final = struct.Struct("<HBBI")  # struct sock_filter
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # linux/bpf_common.h
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # linux/seccomp.h
_NR, _ARGS = 0, 16  # struct seccomp_data
_READ, _EVERYTHING = 0b1101, (1 << 16) - 1  # linux/landlock.h: execute, read files and directories; all
_MOST_IDS: Final = 65536
_CAPABILITIES: Final = {"net_raw": 13}  # linux/capability.h
_CAPABILITY_VERSION_3: Final = 0x20080522
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2


@dataclass(frozen=True, slots=True)
class Rule:
    """One call that fails: always, or when an argument equals a value or has any bit of a mask."""

    call: str
    errno: int
    argument: int = 0
    equals: int = -1
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """What is refused. The parts are applied in the order of the fields."""

    limits: tuple[str, ...] = ()  # user.max_NAME_namespaces that are 0, in a user namespace of its own
    read_only: tuple[str, ...] = ()  # mount points and directories
    covered: tuple[str, ...] = ()  # an empty directory or file is mounted over each
    replaced: tuple[tuple[str, str], ...] = ()  # a path, and what is mounted over it
    landlock: tuple[str, ...] = ()  # Landlock sandboxes around everything: "read", "write" or "scope"
    calls: tuple[Rule, ...] = ()
    without: tuple[str, ...] = ()  # capabilities that nobody here can have
    ambient: tuple[str, ...] = ()  # capabilities that an ordinary user keeps

    def wrap(self, uid: int, command: list[str]) -> list[str]:
        """The command line that runs a command as this user under the fault, for root or that user to run."""
        drop = [f"-{name}" for name in self.without]
        keep = [f"+{name}" for name in self.ambient]
        who = ["setpriv"]
        if os.getuid() != 0:
            if drop or uid != os.getuid():
                raise ValueError("only root can become another user or lose what only root has")
            return [sys.executable, str(Path(__file__)), json.dumps(asdict(self)), "--", *command]
        if drop:
            who += ["--bounding-set", ",".join(drop), "--inh-caps", ",".join(drop)]
        if keep:
            who += ["--inh-caps", ",".join(keep), "--ambient-caps", ",".join(keep)]
        if uid:
            who += ["--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
        as_user = [*who, *command] if len(who) > 1 else command
        return [sys.executable, str(Path(__file__)), json.dumps(asdict(self)), "--", *as_user]

    @property
    def needs_exec(self) -> bool:
        """Whether a part of it takes hold when a program is started, and not before.

        An ordinary user who makes faults has privileges in a user namespace until then.
        """
        made_inside = self.limits or self.read_only or self.covered or self.replaced
        return bool(self.without or self.ambient or (made_inside and os.getuid() != 0))


NONE: Final = Fault()


def parse(text: str) -> Fault:
    """What `json.dumps(asdict(fault))` made."""
    given = json.loads(text)
    return Fault(**given | {"calls": tuple(Rule(**rule) for rule in given["calls"])})


def filter_of(rules: tuple[Rule, ...], machine: str) -> bytes:
    """A filter that lets everything else pass."""
    numbers = _NUMBERS[machine] | _SAME_EVERYWHERE
    code = []
    for rule in rules:
        fail = (_RETURN, 0, 0, _ERRNO | rule.errno)
        test: list[tuple[int, int, int, int]] = []
        if rule.equals >= 0:
            test = [(_LOAD, 0, 0, _ARGS + 8 * rule.argument), (_EQUAL, 0, 1, rule.equals)]
        elif rule.bits:
            test = [(_LOAD, 0, 0, _ARGS + 8 * rule.argument), (_ANY_BIT, 0, 1, rule.bits)]
        body = [*test, fail]
        code += [(_LOAD, 0, 0, _NR), (_EQUAL, 0, len(body), numbers[rule.call]), *body]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(_INSTRUCTION.pack(*one) for one in code)


def enter_own_user_namespace() -> None:
    """As an ordinary user: be allowed to mount and to set limits until the next exec, with the same id."""
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text, "ascii")


def _enter_user_namespace_of_root() -> None:
    """Enter one with every user id in it."""
    entered, go = os.pipe()
    mapped, done = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:  # somebody outside must write the maps of more than one id
        os.read(entered, 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{parent}/{name}").write_text(f"0 0 {_MOST_IDS}", "ascii")
        os.write(done, b"x")
        os._exit(0)
    kernel.unshare(kernel.CLONE_NEWUSER)
    os.write(go, b"x")
    os.read(mapped, 1)
    os.waitpid(child, 0)


def _own_mounts(fault: Fault) -> None:
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.make_private(kernel.open_path("/"))
    for path in fault.covered:
        if os.path.isdir(path):
            kernel.put_tree(kernel.new_filesystem("tmpfs", 0, mode="0755"), kernel.open_path(path))
        else:
            kernel.put_tree(kernel.copy_tree(kernel.open_path("/dev/null")), kernel.open_path(path))
    for path, other in fault.replaced:
        kernel.put_tree(kernel.copy_tree(kernel.open_path(other)), kernel.open_path(path))
    for path in fault.read_only:
        if not os.path.ismount(path):
            kernel.put_tree(kernel.copy_tree(kernel.open_path(path)), kernel.open_path(path))
        kernel.set_attributes(kernel.open_path(path), kernel.READ_ONLY)


def _keep_over_exec(names: tuple[str, ...]) -> None:
    """Make capabilities ambient that we have."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    numbers = [_CAPABILITIES[name] for name in names]
    done = libc.capget(header, data)
    data[2] |= sum(1 << number for number in numbers)  # the first word of the inheritable ones
    done |= libc.capset(header, data)
    for number in numbers:
        raised = (ctypes.c_ulong(value) for value in (_PR_CAP_AMBIENT_RAISE, number, 0, 0))
        done |= libc.prctl(_PR_CAP_AMBIENT, *raised)
    if done != 0:
        raise OSError(ctypes.get_errno(), "ambient capabilities")


def _around(access: str) -> None:
    """A Landlock sandbox such as another tool puts around us; devices stay usable, as they all have it."""
    grants = [("/", _EVERYTHING if access == "write" else _READ), ("/dev", _EVERYTHING)]
    files = access != "scope"
    # Without its scopes where it is about files: a signal to ourselves from within must arrive.
    landlock.restrict(grants, abi=min(landlock.abi(), 5) if files else landlock.abi(), files=files)


def apply(fault: Fault) -> None:
    """Put the calling process under a fault."""
    as_root = os.getuid() == 0
    mounts = fault.read_only or fault.covered or fault.replaced
    if not as_root and (fault.limits or mounts or fault.ambient):
        enter_own_user_namespace()
    elif fault.limits:
        _enter_user_namespace_of_root()
    for name in fault.limits:
        Path(f"/proc/sys/user/max_{name}_namespaces").write_text("0", "ascii")
    if mounts:
        _own_mounts(fault)
    if fault.ambient and not as_root:
        _keep_over_exec(fault.ambient)
    if fault.landlock or (fault.calls and not as_root):
        kernel.refuse_new_privileges()
    for access in fault.landlock:
        _around(access)
    if fault.calls:
        kernel.install_filter(filter_of(fault.calls, os.uname().machine))


def run(fault: Fault, uid: int, *command: str, timeout_s: float = 20.0) -> "subprocess.CompletedProcess[str]":
    """Run a program as this user under the fault; its output is text."""
    return subprocess.run(
        fault.wrap(uid, list(command)),
        capture_output=True,
        text=True,
        errors="replace",
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
        check=False,
    )


def refused(call: str, code: int, **when: int) -> tuple[Rule, ...]:
    return (Rule(call, code, **when),)


def no_new(flag: int, code: int) -> tuple[Rule, ...]:
    """New namespaces of this kind are refused; clone3, which hides its flags, is not there."""
    absent = Rule("clone3", errno.ENOSYS)
    return (Rule("clone", code, bits=flag), Rule("unshare", code, bits=flag), absent)


if __name__ == "__main__":
    apply(parse(sys.argv[1]))
    os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606 - that is what it is for
