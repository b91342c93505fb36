"""Whose socket it is, as the kernel's tables say."""

import os
import socket

from holdfast.sandbox.kernel import sockowner
from holdfast.sandbox.kernel.sockowner import find_program, parse_inodes, show_name
from tests.support.rows import every_row

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:9C40 0100007F:0035 01 00000000:00000000 00:00000000 00000000  1000        0 4711 2 0 20 4 30
   1: 0100007F:9C41 0100007F:0035 06 00000000:00000000 00:00000000 00000000     0        0 0 3 0
   2: 0100007F:0035 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4712 2 0
"""


def test_a_line_of_a_table_is_known_by_its_own_port() -> None:
    lines = TABLE.splitlines()
    assert parse_inodes(lines, 40000) == {4711}
    assert parse_inodes(lines, 40001) == set()  # it is nobody's any more
    assert parse_inodes(lines, 40002) == set()


@every_row(
    ("path", "shown"),
    [
        ("/usr/bin/curl", "/usr/bin/curl"),
        ("/tmp/\x1b[2Jx\n\u202e", "/tmp/?[2Jx??"),
        ("/usr/bin/cürl (deleted)", "/usr/bin/c?rl (deleted)"),
        ("/" + "a" * 300, "..." + "a" * sockowner.MAX_NAME),
    ],
)
def test_a_name_is_fit_to_be_shown(path: str, shown: str) -> None:
    assert show_name(path) == shown


def test_an_own_socket_is_ours_and_a_closed_one_is_nobodys() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = find_program(server, "tcp", port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", 0))
            assert find_program(server, "udp", other.getsockname()[1]) == found
    if os.geteuid() == 0:  # the namespace is not ours to ask about otherwise
        assert found == os.path.realpath("/proc/self/exe")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        assert find_program(held, "tcp", port) is None
