"""Which listening sockets are on a port, and whose."""

import socket

import pytest

from holdfast.errors import UsageError
from holdfast.local import listeners
from holdfast.local.listeners import Listener, parse_listeners

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 77 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000 0 78 1 0 100 0 0 10 0
   2: 00000000:11F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000    0 0 79 1 0 100 0 0 10 0
"""


def test_only_who_listens_on_that_port_is_found() -> None:
    assert parse_listeners(TABLE.splitlines(), 0x1F90) == [Listener(1000, 77)]
    assert parse_listeners(TABLE.splitlines(), 0x1F91) == []


def test_a_socket_of_ours_is_known_by_its_mark() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        assert not listeners.is_ours(port)
        listeners.refuse_own_ports([port])
    with socket.socket() as sock, listeners.mark_listener(sock):
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        with pytest.raises(UsageError, match="a daemon of Holdfast"):
            listeners.refuse_own_ports([sock.getsockname()[1]])


def test_the_kernel_and_its_tables_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as plain,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as other,
    ):
        ports = [sock.getsockname()[1] for sock in (plain, other)]
        asked = [listeners._find_listeners(port) for port in ports]
        monkeypatch.setattr(listeners, "_SOCK_DIAG", 31)  # where nobody answers, as in some containers
        assert asked == [listeners._find_listeners(port) for port in ports]
        assert all(len(found) == 1 for found in asked)


def test_a_socket_is_recalled_once_it_was_looked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        assert listeners.recall(port) is None
        assert not listeners.is_ours(port)
        assert listeners.recall(port) is False
    assert listeners.recall(port) is False  # nobody listens
    with socket.socket() as sock, listeners.mark_listener(sock):
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        assert (listeners.recall(port), listeners.is_ours(port), listeners.recall(port)) == (None, True, True)
