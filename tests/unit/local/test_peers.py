"""What the kernel says about TCP sockets and about processes; who is more confined than whom."""

import os
import socket
import struct
import subprocess
import sys

import pytest

from holdfast.local import peers
from holdfast.local.peers import Surroundings, find_excess, find_socket, is_allowed, parse_status, read_socket
from tests.support.rows import every_row

HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def word(hexadecimal: str) -> str:
    """Address bytes as the table prints them: 32-bit words in the processor's order."""
    packed = bytes.fromhex(hexadecimal)
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(part, sys.byteorder):08X}" for part in words)


def line(local: str, remote: str, *, uid: int, state: str = "01", inode: int = 77) -> str:
    return f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid:5} 0 {inode} 1 0 20\n"


V4 = word("7f000001")
V6 = word("00" * 15 + "01")
MAPPED = word("00" * 10 + "ffff7f000001")
SERVER, CLIENT = ":1F90", ":C350"  # 8080 and 50000


@pytest.mark.parametrize(
    ("printed", "local", "peer"),
    [
        (V4, ("127.0.0.1", 8080), ("127.0.0.1", 50000)),
        (V6, ("::1", 8080), ("::1", 50000)),
        (MAPPED, ("127.0.0.1", 8080), ("127.0.0.1", 50000)),
        (V4, ("::ffff:127.0.0.1", 8080), ("::ffff:127.0.0.1", 50000)),
    ],
    ids=["v4", "v6", "mapped in the table", "mapped at our end"],
)
def test_the_owner_of_the_peers_socket_is_found(
    printed: str, local: tuple[str, int], peer: tuple[str, int]
) -> None:
    ours = line(printed + SERVER, printed + CLIENT, uid=1)
    theirs = line(printed + CLIENT, printed + SERVER, uid=1000)
    assert find_socket(HEADING + ours + theirs, local, peer) == (1000, 77)


@every_row(
    "table",
    [
        HEADING,
        HEADING + line(V4 + SERVER, V4 + CLIENT, uid=1),
        HEADING + line(V4 + CLIENT, V4 + ":1F91", uid=1),
        HEADING + line(word("7f000002") + CLIENT, V4 + SERVER, uid=1),
        HEADING + line(V4 + CLIENT, word("7f000002") + SERVER, uid=1),
        HEADING + line(V4 + CLIENT, word("00000000") + ":0000", uid=1, state="0A"),
    ],
    ids=["empty", "our end", "other port", "other source", "other destination", "listener"],
)
def test_another_socket_is_not_the_peer(table: str) -> None:
    assert find_socket(table, ("127.0.0.1", 8080), ("127.0.0.1", 50000)) is None


@every_row(("state", "inode"), [("04", 0), ("05", 0), ("06", 0), ("01", 0), ("08", 77)])
def test_a_socket_nobody_holds_open_says_nothing_although_root_is_printed(state: str, inode: int) -> None:
    table = HEADING + line(V4 + CLIENT, V4 + SERVER, uid=0, state=state, inode=inode)
    assert find_socket(table, ("127.0.0.1", 8080), ("127.0.0.1", 50000)) is None


def answer(
    *,
    source: str = "7f000001",
    from_port: int = 50000,
    to_port: int = 8080,
    family: int = 2,
    kind: int = 20,
    state: int = 1,
    inode: int = 77,
) -> bytes:
    """A sock_diag answer about a socket of user 1000 that is connected to 127.0.0.1 or ::1."""
    destination = "7f000001" if family == 2 else "00" * 15 + "01"
    ends = bytes.fromhex(source).ljust(16, b"\0") + bytes.fromhex(destination).ljust(16, b"\0")
    socket_id = struct.pack("!HH", from_port, to_port) + ends + bytes(12)
    body = struct.pack("=BBBB", family, state, 0, 0) + socket_id + struct.pack("=5I", 0, 0, 0, 1000, inode)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def test_the_answer_about_the_peer_is_believed() -> None:
    assert read_socket(answer(), ("127.0.0.1", 8080), ("127.0.0.1", 50000)) == (1000, 77)
    over_ipv6 = answer(family=10, source="00" * 15 + "01")
    assert read_socket(over_ipv6, ("::1", 8080), ("::1", 50000)) == (1000, 77)


@every_row(
    "wrong",
    [
        answer(source="7f000002"),
        answer(from_port=50001),
        answer(to_port=8081),
        answer(kind=2),
        answer(state=6),
        answer(inode=0),
        answer()[:-1],
        b"",
    ],
    ids=["source", "from port", "to port", "error", "state", "nobody's", "cut", "empty"],
)
def test_an_answer_about_something_else_is_not(wrong: bytes) -> None:
    assert read_socket(wrong, ("127.0.0.1", 8080), ("127.0.0.1", 50000)) is None


@every_row(
    ("uid", "own", "expected"), [(5, 5, True), (0, 5, True), (6, 5, False), (5, 0, False), (None, 0, False)]
)
def test_only_the_same_user_and_root_may(uid: int | None, own: int, expected: bool) -> None:
    assert is_allowed(uid, own=own) is expected


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
        assert peers.find_excess_of_unix_peer(ours) is None
        assert peers.find_excess_of_holders(os.fstat(theirs.fileno()).st_ino, os.getuid()) is None


def test_a_socket_that_nobody_holds_is_nobody_s() -> None:
    assert peers.find_excess_of_holders(1, os.getuid()) == peers.UNKNOWN


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
                assert peers.find_excess_of_unix_peer(accepted) == peers.UNKNOWN


def test_asking_reads_the_peer_once_and_ourselves_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    peers._ours()
    asked: list[int | str] = []

    def counted(process: int | str) -> peers.Surroundings | None:
        asked.append(process)
        return read(process)

    read = peers.read_surroundings
    monkeypatch.setattr(peers, "read_surroundings", counted)
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        for _ in range(3):
            peers.find_excess_of_unix_peer(ours)
    assert asked == [os.getpid()] * 3
