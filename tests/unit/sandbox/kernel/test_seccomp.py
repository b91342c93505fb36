import errno

import pytest

from holdfast.sandbox.kernel.seccomp import (
    ABSENT,
    ALLOW,
    ALWAYS_REFUSED,
    ARCHITECTURES,
    KILL,
    NOTIFY,
    REFUSE,
    TAKEN,
    Sockets,
    broker_program,
    no_programs,
    no_unix_program,
    program,
)
from tests.support.bpf import verdict
from tests.support.rows import every_row

UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK = 1, 2, 10, 16, 17, 38, 40
ROUTE, UEVENT = 0, 15
NEWUSER, NEWNET, THREAD_FLAGS = 0x10000000, 0x40000000, 0x3D0F00
TIOCSTI, TIOCLINUX, TIOCGWINSZ = 0x5412, 0x541C, 0x5413
JUNK = 0xDEADBEEF << 32  # in the upper half, which the kernel does not read

MACHINES = sorted(ARCHITECTURES)
every_machine = every_row("machine", MACHINES)
every_socket_rule = every_row("sockets", Sockets, ids=lambda rule: rule.value)


def ask(machine: str, sockets: Sockets, name: str, *args: int) -> int:
    architecture = ARCHITECTURES[machine]
    return verdict(program(machine, sockets), architecture.numbers[name], args, arch=architecture.audit)


def test_refusals_are_errors_and_not_deaths() -> None:
    assert REFUSE == 0x50000 | errno.EPERM
    assert ABSENT == 0x50000 | errno.ENOSYS


@every_machine
@every_socket_rule
@every_row("name", ALWAYS_REFUSED)
def test_some_calls_are_always_refused(machine: str, sockets: Sockets, name: str) -> None:
    assert ask(machine, sockets, name) == REFUSE


@every_machine
@every_socket_rule
def test_what_no_rule_names_is_allowed(machine: str, sockets: Sockets) -> None:
    architecture = ARCHITECTURES[machine]
    code = program(machine, sockets)
    unnamed = [number for number in range(470) if number not in architecture.numbers.values()]
    refused = [number for number in unnamed if verdict(code, number, arch=architecture.audit) != ALLOW]
    assert refused == []


@every_machine
@every_socket_rule
@every_row("arch", [0x40000003, 0x40000028, 0])
def test_another_architecture_is_killed_whatever_it_calls(machine: str, sockets: Sockets, arch: int) -> None:
    code = program(machine, sockets)
    assert {verdict(code, number, arch=arch) for number in (0, 1, 60, 0x40000000)} == {KILL}


@every_socket_rule
@every_row("number", [0x40000000, 0x40000001, 0x40000000 + 521, 0xFFFFFFFF])
def test_x32_numbers_are_refused(sockets: Sockets, number: int) -> None:
    code = program("x86_64", sockets)
    assert verdict(code, number, arch=ARCHITECTURES["x86_64"].audit) == REFUSE


@every_machine
@every_socket_rule
@every_row("name", ["clone", "unshare"])
@every_row(
    ("flags", "expected"),
    [
        (0, ALLOW),
        (THREAD_FLAGS, ALLOW),
        (NEWNET, ALLOW),  # needs privileges that nobody inside has
        (NEWUSER, REFUSE),
        (NEWUSER | NEWNET | 17, REFUSE),
        (JUNK | NEWUSER, REFUSE),
        (JUNK, ALLOW),
    ],
)
def test_a_nested_user_namespace_is_refused(
    machine: str, sockets: Sockets, name: str, flags: int, expected: int
) -> None:
    assert ask(machine, sockets, name, flags) == expected


@every_machine
@every_socket_rule
def test_clone3_does_not_exist_so_that_libraries_use_clone(machine: str, sockets: Sockets) -> None:
    assert ask(machine, sockets, "clone3") == ABSENT


@every_machine
@every_socket_rule
@every_row(
    ("request_code", "expected"),
    [
        (TIOCSTI, REFUSE),
        (TIOCLINUX, REFUSE),
        (JUNK | TIOCSTI, REFUSE),
        (JUNK | TIOCLINUX, REFUSE),
        (TIOCGWINSZ, ALLOW),
        (0, ALLOW),
    ],
)
def test_typing_into_a_terminal_is_refused(
    machine: str, sockets: Sockets, request_code: int, expected: int
) -> None:
    assert ask(machine, sockets, "ioctl", 0, request_code) == expected


ALLOWED_FAMILIES = {
    Sockets.BROKERED: {INET, INET6, NETLINK, UNIX},
    Sockets.NO_UNIX: {INET, INET6, NETLINK},
    Sockets.NONE: set(),
}


@every_machine
@every_socket_rule
@every_row("family", [UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK])
@every_row("upper", [0, JUNK])
def test_sockets_by_family(machine: str, sockets: Sockets, family: int, upper: int) -> None:
    expected = ALLOW if family in ALLOWED_FAMILIES[sockets] else REFUSE
    assert ask(machine, sockets, "socket", upper | family, 1, ROUTE) == expected


@every_machine
@every_row("sockets", [Sockets.BROKERED, Sockets.NO_UNIX])
def test_of_netlink_only_routing_is_allowed(machine: str, sockets: Sockets) -> None:
    assert ask(machine, sockets, "socket", NETLINK, 3, ROUTE) == ALLOW
    assert ask(machine, sockets, "socket", NETLINK, 3, UEVENT) == REFUSE


@every_machine
@every_socket_rule
@every_row("family", [UNIX, INET])
def test_a_unix_socket_pair_is_always_allowed(machine: str, sockets: Sockets, family: int) -> None:
    expected = ALLOW if family == UNIX else REFUSE
    assert ask(machine, sockets, "socketpair", family, 1, 0) == expected


@every_machine
@every_socket_rule
@every_row("kind", [2, 3, 2 | 0o2000000], ids=["datagram", "raw", "with-a-flag"])
@every_row("name", ["socket", "socketpair"])
def test_a_unix_socket_that_sends_without_a_connection_is_refused(
    machine: str, sockets: Sockets, kind: int, name: str
) -> None:
    assert ask(machine, sockets, name, UNIX, kind, 0) == REFUSE
    assert ask(machine, sockets, name, UNIX, JUNK | kind, 0) == REFUSE


@every_machine
@every_row("kind", [1, 5, 1 | 0o2000000 | 0o4000], ids=["stream", "seqpacket", "with-flags"])
def test_a_broker_is_needed_for_unix_sockets_with_connections(machine: str, kind: int) -> None:
    assert ask(machine, Sockets.BROKERED, "socket", UNIX, kind, 0) == ALLOW
    assert ask(machine, Sockets.NO_UNIX, "socket", UNIX, kind, 0) == REFUSE


@every_machine
@every_socket_rule
@every_row(
    ("command", "expected"),
    [(1024, REFUSE), (1026, REFUSE), (1040, REFUSE), (JUNK | 1024, REFUSE), (1025, ALLOW), (1030, ALLOW)],
    ids=["lease", "notify", "delegation", "junk", "get-lease", "dup-cloexec"],
)
def test_nobody_outside_waits_for_a_lease(
    machine: str, sockets: Sockets, command: int, expected: int
) -> None:
    assert ask(machine, sockets, "fcntl", 3, command, 0) == expected


@every_machine
def test_a_broker_hears_of_what_it_carries_out_and_of_nothing_else(machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    code = broker_program(machine)
    told = {number for number in range(480) if verdict(code, number, arch=architecture.audit) == NOTIFY}
    assert told == {architecture.numbers["connect"], architecture.numbers["bind"]}


@every_machine
@every_row(
    ("operation", "flags", "expected"),
    [(1, 8, TAKEN), (1, 8 | 32, TAKEN), (JUNK | 1, JUNK | 8, TAKEN), (1, 0, ALLOW), (0, 8, ALLOW)],
)
def test_a_command_with_a_broker_gets_no_listener_of_its_own(
    machine: str, operation: int, flags: int, expected: int
) -> None:
    architecture = ARCHITECTURES[machine]
    number = architecture.numbers["seccomp"]
    assert verdict(broker_program(machine), number, (operation, flags), arch=architecture.audit) == expected


@every_machine
def test_where_no_broker_came_about_unix_sockets_are_taken_away(machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    number = architecture.numbers["socket"]
    code = no_unix_program(machine)
    verdicts = {
        family: verdict(code, number, (family, 1, 0), arch=architecture.audit)
        for family in (UNIX, JUNK | UNIX, INET)
    }
    assert verdicts == {UNIX: REFUSE, JUNK | UNIX: REFUSE, INET: ALLOW}


@every_machine
def test_a_broker_itself_never_becomes_another_program(machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    code = no_programs(machine)
    refused = {number for number in range(480) if verdict(code, number, arch=architecture.audit) == REFUSE}
    assert refused == {architecture.numbers["execve"], architecture.numbers["execveat"]}


@every_row(
    ("machine", "sockets", "length"),
    [
        ("x86_64", Sockets.BROKERED, 92),
        ("x86_64", Sockets.NONE, 78),
        ("x86_64", Sockets.NO_UNIX, 87),
        ("aarch64", Sockets.BROKERED, 90),
    ],
)
def test_the_program_has_its_known_length(machine: str, sockets: Sockets, length: int) -> None:
    assert len(program(machine, sockets)) == 8 * length


def test_an_unknown_architecture_has_no_filter() -> None:
    with pytest.raises(KeyError):
        program("riscv64", Sockets.BROKERED)
