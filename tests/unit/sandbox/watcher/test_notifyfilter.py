import os

import pytest

from holdfast.sandbox.kernel.seccomp import ALLOW, ARCHITECTURES, KILL, NOTIFY, REFUSE
from holdfast.sandbox.watcher.notifyfilter import CALLS, LISTEN, SEND, Aim, Call, list_watched, program
from tests.support.bpf import verdict
from tests.support.rows import every_row

MACHINES = sorted(ARCHITECTURES)
JUNK = 0xDEADBEEF << 32  # in the upper half, which the kernel does not read

every_machine = every_row("machine", MACHINES)


def ask(machine: str, number: int, *args: int, network: bool = True) -> int:
    code = program(machine, network=network)
    return verdict(code, number, args, arch=ARCHITECTURES[machine].audit)


def named(machine: str, name: str) -> int:
    [number] = [number for number, call in list_watched(machine).items() if call.name == name]
    return number


@every_machine
@every_row(
    ("flags", "told"),
    [
        (os.O_RDONLY, False),
        (os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_APPEND, False),
        (JUNK, False),
        (os.O_WRONLY, True),
        (os.O_RDWR | os.O_CLOEXEC, True),
        (os.O_CREAT, True),
        (os.O_TRUNC, True),
        (JUNK | os.O_WRONLY | os.O_CREAT | os.O_TRUNC, True),
    ],
)
def test_an_open_is_told_of_only_if_it_wants_to_write(machine: str, flags: int, told: bool) -> None:
    expected = NOTIFY if told else ALLOW
    assert ask(machine, named(machine, "openat"), 0, 0, flags) == expected
    if machine == "x86_64":
        assert ask(machine, named(machine, "open"), 0, flags) == expected


@every_machine
def test_every_call_without_a_condition_is_told_of(machine: str) -> None:
    watched = list_watched(machine).items()
    plain = [number for number, call in watched if call.bits is None and call is not LISTEN]
    assert len(plain) >= 15
    assert {ask(machine, number) for number in plain} == {NOTIFY}


@every_machine
def test_nothing_else_is_told_of_or_refused(machine: str) -> None:
    others = [number for number in range(480) if number not in list_watched(machine)]
    assert {ask(machine, number, *[0xFFFFFFFF] * 6) for number in others} == {ALLOW}


@every_machine
@every_row("network", [False, True])
@every_row("name", ["connect", "bind"])
def test_what_a_broker_carries_out_is_told_of_whatever_the_network(
    machine: str, network: bool, name: str
) -> None:
    assert ask(machine, named(machine, name), network=network) == NOTIFY


@every_machine
def test_a_datagram_is_told_of_if_it_has_an_address(machine: str) -> None:
    sendto = named(machine, "sendto")
    assert ask(machine, sendto, 3, 1, 1, 0, 0, 0) == ALLOW
    assert ask(machine, sendto, 3, 1, 1, 0, 1, 16) == NOTIFY
    assert ask(machine, sendto, 3, 1, 1, 0, 1, 16, network=False) == ALLOW


@every_machine
@every_row(
    ("operation", "flags", "told"),
    [(1, 8, True), (1, 8 | 32, True), (1, 0, False), (0, 8, False), (2, 8, False)],
)
def test_who_wants_a_listener_of_its_own_is_told_of(
    machine: str, operation: int, flags: int, told: bool
) -> None:
    assert ask(machine, named(machine, "seccomp"), operation, flags) == (NOTIFY if told else ALLOW)


@every_machine
def test_another_architecture_is_killed(machine: str) -> None:
    code = program(machine, network=True)
    assert {verdict(code, number, arch=0x40000003) for number in (0, 5, 257)} == {KILL}


def test_numbers_of_x32_are_refused() -> None:
    code = program("x86_64", network=True)
    assert verdict(code, 0x40000000 + 257, (0, 0, os.O_RDWR), arch=ARCHITECTURES["x86_64"].audit) == REFUSE


def test_an_unknown_architecture_has_no_filter() -> None:
    with pytest.raises(KeyError):
        program("riscv64", network=True)


@every_row("call", [*CALLS, LISTEN, SEND], ids=lambda call: call.name)
def test_every_aim_has_the_path_that_it_is_about(call: Call) -> None:
    assert len(call.places) == (0 if call.aims == (Aim.LISTEN,) else len(call.aims))


@every_machine
def test_the_numbers_are_those_of_this_machine_and_of_no_other_call(machine: str) -> None:
    numbers = [number for call in (*CALLS, LISTEN, SEND) if (number := call.number(machine)) is not None]
    assert len(numbers) == len(set(numbers)) == len(list_watched(machine))
    known = {number: name for name, number in ARCHITECTURES[machine].numbers.items()}
    shared = {call.name for call in (*CALLS, LISTEN, SEND) if call.number(machine) in known}
    assert shared == {"bind", "connect", "seccomp"}
    assert all(known.get(number, call.name) == call.name for number, call in list_watched(machine).items())
