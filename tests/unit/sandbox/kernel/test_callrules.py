"""What the filter refuses where it stands alone, run as the kernel runs it."""

import errno

from holdfast.sandbox.kernel.callrules import ALONE
from holdfast.sandbox.kernel.seccomp import ABSENT, ALLOW, ARCHITECTURES, REFUSE, Sockets, program
from tests.support.bpf import verdict
from tests.support.rows import every_row

every_machine = every_row("machine", sorted(ARCHITECTURES))
UNSUPPORTED = 0x50000 | errno.EOPNOTSUPP
JUNK = 0xDEADBEEF << 32
MINUS_ONE = (1 << 64) - 1


def ask(machine: str, numbers: tuple[int, int], *args: int, alone: bool = True) -> int:
    code = program(machine, Sockets.NO_UNIX, alone=alone)
    number = numbers[0 if machine == "x86_64" else 1]
    return verdict(code, number, args, arch=ARCHITECTURES[machine].audit)


SHMGET, SHMAT, MQ_OPEN, KILL, PRLIMIT = (29, 194), (30, 196), (240, 180), (62, 129), (302, 261)
SETPRIORITY, IOPRIO, AFFINITY, FCHMOD, FCHMODAT = (141, 140), (251, 30), (203, 122), (91, 52), (268, 53)
SETXATTR, FILE_SETATTR, IOCTL = (188, 5), (469, 469), (16, 29)


@every_machine
@every_row(
    ("numbers", "args", "expected"),
    [
        (SHMGET, (0, 1), REFUSE),
        (SHMAT, (0,), REFUSE),
        (MQ_OPEN, (), REFUSE),
        (KILL, (MINUS_ONE, 9), REFUSE),
        (KILL, (0xFFFFFFFF, 9), REFUSE),
        (KILL, (7, 9), ALLOW),
        (KILL, (MINUS_ONE - 6, 9), ALLOW),  # a group
        (PRLIMIT, (0, 7), ALLOW),
        (PRLIMIT, (JUNK, 7), ALLOW),
        (PRLIMIT, (1, 7), REFUSE),
        (SETPRIORITY, (0, 0, 5), ALLOW),
        (SETPRIORITY, (1, 0, 5), ALLOW),
        (SETPRIORITY, (2, 0, 5), REFUSE),  # every process of the user
        (SETPRIORITY, (0, 7, 5), REFUSE),
        (IOPRIO, (1, 0), ALLOW),
        (IOPRIO, (3, 0), REFUSE),
        (IOPRIO, (1, 7), REFUSE),
        (AFFINITY, (0,), ALLOW),
        (AFFINITY, (7,), REFUSE),
        (FCHMOD, (3, 0o755), ALLOW),
        (FCHMOD, (3, 0o4755), REFUSE),
        (FCHMODAT, (3, 0, 0o1777), ALLOW),
        (FCHMODAT, (3, 0, 0o2755), REFUSE),
        (SETXATTR, (), UNSUPPORTED),
        (FILE_SETATTR, (), ABSENT),
        (IOCTL, (3, 0x40086602), REFUSE),
        (IOCTL, (3, JUNK | 0x401C5820), REFUSE),
        (IOCTL, (3, 0x5412), REFUSE),  # what is always refused still is
        (IOCTL, (3, 0x5413), ALLOW),
    ],
)
def test_what_namespaces_would_have_held_is_refused(
    machine: str, numbers: tuple[int, int], args: tuple[int, ...], expected: int
) -> None:
    assert ask(machine, numbers, *args) == expected


def test_chmod_has_a_number_only_on_old_machines() -> None:
    assert ask("x86_64", (90, 0), 0, 0o4755) == REFUSE
    assert [rule for rule in ALONE if rule.number("aarch64") is None] == [
        rule for rule in ALONE if rule.number("x86_64") == 90
    ]


@every_machine
@every_row("numbers", [SHMGET, KILL, PRLIMIT, SETXATTR, FCHMOD])
def test_with_namespaces_none_of_it_is_refused(machine: str, numbers: tuple[int, int]) -> None:
    assert ask(machine, numbers, MINUS_ONE, 0o6000, alone=False) == ALLOW


@every_machine
@every_row("sockets", Sockets)
def test_what_no_rule_names_is_the_same_as_with_namespaces(machine: str, sockets: Sockets) -> None:
    named = {rule.number(machine) for rule in ALONE}
    plain, alone = program(machine, sockets), program(machine, sockets, alone=True)
    arch = ARCHITECTURES[machine].audit
    assert [n for n in range(500) if n not in named and _differ(plain, alone, n, arch)] == []


def _differ(plain: bytes, alone: bytes, number: int, arch: int) -> bool:
    return verdict(plain, number, arch=arch) != verdict(alone, number, arch=arch)
