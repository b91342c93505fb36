"""Who is more confined than whom; and what the kernel says of real processes."""

import os
import socket
import subprocess
import sys
import time

import pytest

from holdfast.local import confinement
from holdfast.local.confinement import Surroundings, find_excess, parse_status

HERE = ("user:[1]", "mnt:[2]", "pid:[3]", "net:[4]", "ipc:[5]")
PLAIN = Surroundings(False, 0, HERE)
CONTAINER = Surroundings(True, 2, HERE)
STATUS = "Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n"


@pytest.mark.parametrize("both", [PLAIN, CONTAINER])
def test_neighbours_are_served(both: Surroundings) -> None:
    assert find_excess(both, both) is None


def test_whoever_is_less_confined_in_the_same_place_is_served() -> None:
    assert find_excess(CONTAINER, PLAIN) is None


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (PLAIN, None),
        (PLAIN, PLAIN._replace(no_new_privileges=True)),
        (PLAIN, PLAIN._replace(filters=1)),
        (CONTAINER, CONTAINER._replace(filters=3)),
        *(
            (PLAIN, PLAIN._replace(namespaces=(*HERE[:at], "other:[9]", *HERE[at + 1 :])))
            for at in range(len(HERE))
        ),
    ],
)
def test_whoever_is_more_confined_is_not(ours: Surroundings, theirs: Surroundings | None) -> None:
    assert find_excess(ours, theirs) is not None


def test_a_status_is_read() -> None:
    assert parse_status(STATUS, HERE) == Surroundings(True, 3, HERE)
    assert parse_status(STATUS.replace("Seccomp:\t2", "Seccomp:\t0"), HERE) == Surroundings(True, 0, HERE)


@pytest.mark.parametrize("missing", ["NoNewPrivs", "Seccomp:", "Seccomp_filters"])
def test_what_a_status_does_not_say_is_not_guessed(missing: str) -> None:
    assert parse_status(STATUS.replace(missing, "Other"), HERE) is None


def test_we_are_not_more_confined_than_ourselves() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert confinement.find_excess_of_unix_peer(ours) is None
        assert confinement.find_excess_of_holders(os.fstat(theirs.fileno()).st_ino, os.getuid()) is None


def test_a_socket_that_nobody_holds_is_nobody_s() -> None:
    assert confinement.find_excess_of_holders(1, os.getuid()) == confinement.UNKNOWN


def test_a_peer_that_ended_is_nobody_though_its_child_holds_the_connection() -> None:
    program = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
if os.fork(): os._exit(0)
sys.stdin.read()
"""
    with socket.socket(socket.AF_UNIX) as listener:
        name = f"\0holdfast-test-{os.getpid()}"
        listener.bind(name)
        listener.listen()
        argv = [sys.executable, "-c", program.replace("sys.argv[1]", repr(name))]
        with subprocess.Popen(argv, stdin=subprocess.PIPE) as child:
            accepted, _ = listener.accept()
            child.wait()
            with accepted:
                assert confinement.find_excess_of_unix_peer(accepted) == confinement.UNKNOWN


def test_asking_costs_little() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        begun = time.thread_time()
        for _ in range(100):
            confinement.find_excess_of_unix_peer(ours)
        assert (time.thread_time() - begun) / 100 < 0.001
