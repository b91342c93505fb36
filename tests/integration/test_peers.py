"""Real sockets: the kernel says who is at the other end."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.local import peers
from tests.support.patience import patient
from tests.support.root_only import root_only

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")

STRANGER = 12345
CONNECT_AS_STRANGER = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
s = socket.socket()
s.connect(("127.0.0.1", int(sys.argv[2])))
sys.stdin.readline()
"""


@contextmanager
def connection(
    family: socket.AddressFamily = socket.AF_INET, *, bind: str = "127.0.0.1", connect: str | None = None
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our accepted socket and the client's."""
    with socket.socket(family) as listener:
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((bind, 0))
        listener.listen()
        to = connect or bind
        with socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET) as client:
            client.connect((to, listener.getsockname()[1]))
            accepted, _ = listener.accept()
            with accepted:
                yield accepted, client


@pytest.fixture(params=["netlink", "table"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to ask, with the other one switched off."""
    if request.param == "netlink":
        monkeypatch.setattr(peers, "_TABLES", ())
    else:
        monkeypatch.setattr(peers, "NETLINK_SOCK_DIAG", 255)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("family", "bind", "connect"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
        (socket.AF_INET, "127.0.0.1", "::ffff:127.0.0.1"),
        (socket.AF_INET6, "::", "::ffff:127.0.0.1"),
    ],
)
def test_our_own_connection_is_ours(family: socket.AddressFamily, bind: str, connect: str) -> None:
    with connection(family, bind=bind, connect=connect) as (accepted, _):
        assert peers.uid_of_peer(accepted.getsockname(), accepted.getpeername()) == os.getuid()


@pytest.mark.usefixtures("way")
def test_a_peer_that_has_hung_up_cannot_be_told() -> None:
    with connection() as (accepted, client):
        addresses = accepted.getsockname(), accepted.getpeername()
        client.close()
        assert peers.uid_of_peer(*addresses) is None


@pytest.mark.usefixtures("way")
def test_a_connection_that_does_not_exist_has_no_owner() -> None:
    with connection() as (accepted, _):
        host, port = accepted.getpeername()
        assert peers.uid_of_peer(accepted.getsockname(), (host, port ^ 1)) is None


@pytest.mark.usefixtures("way")
def test_a_listener_on_the_peers_port_is_not_the_peer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert peers.uid_of_peer(("127.0.0.1", 9), listener.getsockname()) is None


@pytest.mark.usefixtures("way")
def test_a_socket_that_no_process_holds_yet_has_no_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())  # established, but waiting to be accepted
        assert peers.uid_of_peer(client.getsockname(), client.getpeername()) is None


def test_ends_of_different_families_are_no_connection() -> None:
    assert peers.uid_of_peer(("127.0.0.1", 9), ("::1", 9)) is None


def test_without_netlink_and_tables_nothing_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "NETLINK_SOCK_DIAG", 255)
    monkeypatch.setattr(peers, "_TABLES", ("/proc/net/no-such-table",))
    with connection() as (accepted, _):
        assert peers.uid_of_peer(accepted.getsockname(), accepted.getpeername()) is None


@pytest.mark.usefixtures("way")
@root_only("to become another user")
def test_a_stranger_is_seen_as_a_stranger() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        argv = [sys.executable, "-c", CONNECT_AS_STRANGER, str(STRANGER), str(listener.getsockname()[1])]
        with subprocess.Popen(argv, stdin=subprocess.PIPE) as child:
            listener.settimeout(patient(10))
            accepted, peer = listener.accept()
            with accepted:
                uid = peers.uid_of_peer(accepted.getsockname(), peer)
            child.communicate(b"\n")
    assert uid == STRANGER
    assert not peers.is_allowed(uid, own=os.getuid())


def test_a_unix_socket_knows_its_peer() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peers.uid_of_unix_peer(ours) == os.getuid()
