"""The system-call filter: what a command may ask the kernel for, as a BPF program. Pure module.

The default is to allow a call; a refused call fails with EPERM. The program is classic BPF over the kernel's
`struct seccomp_data {int nr; u32 arch; u64 ip; u64 args[6];}`. It first kills a process that uses another
architecture's call numbers (a 32-bit program dies with SIGSYS, exit 159), because we could not tell which
calls they mean.

Only the lower half of an argument is compared, because the kernel reads no more of the arguments that we
compare. A comparison of all 64 bits could be evaded with junk in the upper half. The filter cannot follow
pointers. So clone3, whose flags are in memory, fails with ENOSYS: every C library then uses clone, whose
flags are in a register.

Unix sockets reach services of the host by path, even from another network namespace. So they can be made
only where a broker process carries out `connect` and `bind` for the command (`Sockets.BROKERED`,
`watcher/broker.py`). A `socketpair` of streams has no address and is always possible. Datagrams are refused,
as sockets and as pairs: they are sent to any address without a `connect`.
"""

import errno
import struct

from holdfast.light import TYPE_CHECKING, Enum, Final, cache, value

if TYPE_CHECKING:
    from holdfast.sandbox.kernel.callrules import CallRule

# linux/bpf_common.h
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_IF_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_IF_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_IF_ANY_BIT: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_INSTRUCTION: Final = struct.Struct("<HBBI")
# linux/seccomp.h
ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000  # SECCOMP_RET_KILL_PROCESS
_ERRNO: Final = 0x00050000
REFUSE: Final = _ERRNO | errno.EPERM
NOTIFY: Final = 0x7FC00000  # SECCOMP_RET_USER_NOTIF: the listener answers
TAKEN: Final = _ERRNO | errno.EBUSY  # the kernel's own error: a process tree has one listener
ABSENT: Final = _ERRNO | errno.ENOSYS
_NR, _ARCH, _ARGS = 0, 4, 16  # offsets in struct seccomp_data
# sched.h, asm-generic/ioctls.h, linux/socket.h, linux/netlink.h
_CLONE_NEWUSER: Final = 0x10000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # they type into the terminal of the user who started us
# A lease (or Linux 6.19's delegation) blocks writers of a file; F_NOTIFY dates from the same time.
_LEASES: Final = (1024, 1026, 1040)  # F_SETLEASE, F_NOTIFY, F_SETDELEG
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE: Final = 0
_CONNECTIONLESS: Final = 2  # the bit of SOCK_DGRAM and of SOCK_RAW, which is the same for unix sockets
_SET_FILTER, _NEW_LISTENER = 1, 1 << 3  # of seccomp(2)

_X32_BIT: Final = 0x40000000  # on x86_64: the same calls with other numbers


class Sockets(Enum):
    """Which sockets a command may make."""

    BROKERED = "brokered"  # IP, routing, and unix streams whose connect and bind a broker carries out
    NO_UNIX = "no-unix"  # the same without a broker: of unix sockets only pairs
    NONE = "none"  # no sockets in the host's network


@value
class Architecture:
    """An architecture's audit identifier in the kernel, and its call numbers."""

    audit: int  # linux/audit.h
    numbers: dict[str, int]  # asm/unistd.h
    x32: bool = False


ARCHITECTURES: Final = {
    "x86_64": Architecture(
        0xC000003E,
        {
            "ioctl": 16,
            "socket": 41,
            "connect": 42,
            "bind": 49,
            "socketpair": 53,
            "clone": 56,
            "execve": 59,
            "fcntl": 72,
            "ptrace": 101,
            "init_module": 175,
            "delete_module": 176,
            "kexec_load": 246,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "unshare": 272,
            "perf_event_open": 298,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "finit_module": 313,
            "seccomp": 317,
            "kexec_file_load": 320,
            "bpf": 321,
            "execveat": 322,
            "userfaultfd": 323,
            "io_uring_setup": 425,
            "io_uring_enter": 426,
            "io_uring_register": 427,
            "clone3": 435,
            "pidfd_getfd": 438,
        },
        x32=True,
    ),
    "aarch64": Architecture(
        0xC00000B7,
        {
            "fcntl": 25,
            "ioctl": 29,
            "unshare": 97,
            "kexec_load": 104,
            "init_module": 105,
            "delete_module": 106,
            "ptrace": 117,
            "socket": 198,
            "socketpair": 199,
            "bind": 200,
            "connect": 203,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "clone": 220,
            "execve": 221,
            "perf_event_open": 241,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "finit_module": 273,
            "seccomp": 277,
            "bpf": 280,
            "execveat": 281,
            "userfaultfd": 282,
            "kexec_file_load": 294,
            "io_uring_setup": 425,
            "io_uring_enter": 426,
            "io_uring_register": 427,
            "clone3": 435,
            "pidfd_getfd": 438,
        },
    ),
}

ALWAYS_REFUSED: Final = (
    "ptrace",  # affects other processes
    "process_vm_readv",
    "process_vm_writev",
    "pidfd_getfd",
    "io_uring_setup",  # its requests go through memory, where this filter cannot see them
    "io_uring_enter",
    "io_uring_register",
    "bpf",  # large attack surface, needed by no build or test
    "perf_event_open",
    "userfaultfd",
    "add_key",  # keyrings are not separated by namespaces
    "request_key",
    "keyctl",
    "kexec_load",  # affect the kernel itself; privileged, and refused all the same
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
)

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def ret(action: int) -> list[Instruction]:
    return [(_RETURN, 0, 0, action)]


def when(number: int, body: list[Instruction]) -> list[Instruction]:
    """Code for this call only. `body` ends in a return or with the number loaded, as it is before."""
    return [(_IF_EQUAL, 0, len(body), number), *body]


def when_any_bit(bits: int, body: list[Instruction]) -> list[Instruction]:
    """Code for a loaded word with one of these bits only; `body` as in `when`."""
    return [(_IF_ANY_BIT, 0, len(body), bits), *body]


def load_number() -> list[Instruction]:
    return [(_LOAD, 0, 0, _NR)]


def load_arg(index: int) -> list[Instruction]:
    return [(_LOAD, 0, 0, _ARGS + 8 * index)]


def native_only(architecture: Architecture) -> list[Instruction]:
    """The beginning of every program: kill or refuse foreign call numbers, then load the call's number."""
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_IF_EQUAL, 1, 0, architecture.audit),
        *ret(KILL),
        (_LOAD, 0, 0, _NR),
    ]
    return [*code, (_IF_AT_LEAST, 0, 1, _X32_BIT), *ret(REFUSE)] if architecture.x32 else code


def assemble(code: list[Instruction]) -> bytes:
    """The program in the kernel's form: an array of `struct sock_filter`."""
    return b"".join(_INSTRUCTION.pack(*one) for one in code)


def _allow_only(values: tuple[int, ...]) -> list[Instruction]:
    """Allow when the loaded word is one of the values, refuse otherwise."""
    tests: list[Instruction] = [
        (_IF_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)
    ]
    return [*tests, *ret(REFUSE), *ret(ALLOW)]


def _refuse_only(values: tuple[int, ...]) -> list[Instruction]:
    tests: list[Instruction] = [
        (_IF_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)
    ]
    return [*tests, *ret(ALLOW), *ret(REFUSE)]


def _no_user_namespace() -> list[Instruction]:
    return [*load_arg(0), (_IF_ANY_BIT, 0, 1, _CLONE_NEWUSER), *ret(REFUSE), *ret(ALLOW)]


def _streams_only() -> list[Instruction]:
    return [*load_arg(1), (_IF_ANY_BIT, 0, 1, _CONNECTIONLESS), *ret(REFUSE), *ret(ALLOW)]


def _sockets(numbers: dict[str, int], sockets: Sockets) -> list[Instruction]:
    pair = when(numbers["socketpair"], [*load_arg(0), *when(_AF_UNIX, _streams_only()), *ret(REFUSE)])
    if sockets is Sockets.NONE:
        return [*when(numbers["socket"], ret(REFUSE)), *pair]
    # Netlink only for routing: getifaddrs needs it.
    routing = [*load_arg(2), *_allow_only((_NETLINK_ROUTE,))]
    body = [*load_arg(0), *when(_AF_NETLINK, routing), *_allow_only((_AF_INET, _AF_INET6))]
    if sockets is Sockets.BROKERED:
        body[1:1] = when(_AF_UNIX, _streams_only())
    return [*when(numbers["socket"], body), *pair]


def _refusal(rule: "CallRule") -> list[Instruction]:
    """Instructions that refuse the rule's call if it matches; otherwise fall through, number loaded."""
    refuse = ret(_ERRNO | rule.errno)
    code: list[Instruction] = []
    for place, values in rule.unless:
        tests = [(_IF_EQUAL, len(values) - nth, 0, value) for nth, value in enumerate(values)]
        code += [*load_arg(place), *tests, *refuse]
    if rule.bits is not None:
        code += [*load_arg(rule.bits[0]), (_IF_ANY_BIT, 0, 1, rule.bits[1]), *refuse]
    if rule.value is not None:
        code += [*load_arg(rule.value[0]), (_IF_EQUAL, 0, 1, rule.value[1]), *refuse]
    return [*code, (_LOAD, 0, 0, _NR)] if code else refuse


def instructions(machine: str, sockets: Sockets, *, alone: bool = False) -> list[Instruction]:
    """The filter for this architecture; `alone` if there are no namespaces around the command.

    Raises:
        KeyError: the architecture's numbers are unknown.
    """
    architecture = ARCHITECTURES[machine]
    numbers = architecture.numbers
    code = native_only(architecture)
    for name in ALWAYS_REFUSED:
        code += when(numbers[name], ret(REFUSE))
    if alone:
        from holdfast.sandbox.kernel.callrules import ALONE
    for rule in ALONE if alone else ():
        if (number := rule.number(machine)) is not None:
            code += when(number, _refusal(rule))
    code += when(numbers["clone3"], ret(ABSENT))
    code += when(numbers["clone"], _no_user_namespace())
    code += when(numbers["unshare"], _no_user_namespace())
    code += when(numbers["ioctl"], [*load_arg(1), *_refuse_only((_TIOCSTI, _TIOCLINUX))])
    code += when(numbers["fcntl"], [*load_arg(1), *_refuse_only(_LEASES)])
    code += _sockets(numbers, sockets)
    return [*code, *ret(ALLOW)]


@cache  # built once in the launcher, inherited by every child that it forks
def program(machine: str, sockets: Sockets, *, alone: bool = False) -> bytes:
    """The filter in the kernel's form: an array of `struct sock_filter`.

    Raises:
        KeyError: the architecture's numbers are unknown.
    """
    return assemble(instructions(machine, sockets, alone=alone))


def no_other_listener(numbers: dict[str, int], action: int) -> list[Instruction]:
    """Code against a second listener: the command could use one to allow calls that a broker would refuse.

    The kernel refuses a second listener only as long as the first one exists.
    """
    inner = [*load_arg(1), *when_any_bit(_NEW_LISTENER, ret(action))]
    return when(numbers["seccomp"], [*load_arg(0), *when(_SET_FILTER, inner), *load_number()])


@cache
def broker_program(machine: str) -> bytes:
    """The filter that notifies a broker of the calls which it carries out.

    Raises:
        KeyError: the architecture's numbers are unknown.
    """
    architecture = ARCHITECTURES[machine]
    numbers = architecture.numbers
    code = native_only(architecture)
    for name in ("connect", "bind"):
        code += when(numbers[name], ret(NOTIFY))
    code += no_other_listener(numbers, TAKEN)
    return assemble([*code, *ret(ALLOW)])


@cache
def no_unix_program(machine: str) -> bytes:
    """The filter that denies unix sockets, except pairs, to a command whose broker could not be set up.

    Raises:
        KeyError: the architecture's numbers are unknown.
    """
    architecture = ARCHITECTURES[machine]
    code = native_only(architecture)
    code += when(architecture.numbers["socket"], [*load_arg(0), *_refuse_only((_AF_UNIX,))])
    return assemble([*code, *ret(ALLOW)])


@cache
def no_programs(machine: str) -> bytes:
    """The filter of a broker process, which never executes another program.

    Raises:
        KeyError: the architecture's numbers are unknown.
    """
    architecture = ARCHITECTURES[machine]
    code = native_only(architecture)
    for name in ("execve", "execveat"):
        code += when(architecture.numbers[name], ret(REFUSE))
    return assemble([*code, *ret(ALLOW)])
