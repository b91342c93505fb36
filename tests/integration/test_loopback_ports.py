"""Ports of the host's loopback that a confined command may reach, and nothing besides."""

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
import socket
import struct
import sys
import textwrap
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.confine import launch, loopback
from tests.support.accounting import settled
from tests.support.exec_command import Place, place
from tests.support.httpd import httpd, reply
from tests.support.patience import patient
from tests.support.peer import WAIT_S, Peer, Refused, ready, serving
from tests.support.root_only import IDENTITIES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

MIB = 1024 * 1024
LIMITED = {
    "permissions": {
        "type": "managed",
        "file_system": {
            "type": "restricted",
            "entries": [{"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}],
        },
        "network": "restricted",
    },
    "cwd": "file:///",
    "workspaceRoots": [],
    "windowsSandboxLevel": "disabled",
}
PROXY = {
    "proxy": {
        "enabled": True,
        "enableSocks5": True,
        "enableSocks5Udp": False,
        "allowUpstreamProxy": False,
        "dangerouslyAllowAllUnixSockets": False,
        "allowLocalBinding": False,
        "mode": "full",
    }
}
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def service(talk: Talk, sock: socket.socket | None = None) -> AsyncIterator[int]:
    """Somebody on the host's loopback who talks like that to each client; yields the port."""
    tasks: set[asyncio.Task[None]] = set()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await talk(reader, writer)
        writer.close()

    where: dict[str, Any] = {"sock": sock} if sock else {"host": "127.0.0.1", "port": 0}
    server = await asyncio.start_server(connection, **where)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


def managed(*ports: int, **more: Any) -> dict[str, Any]:
    network = {"loopbackPorts": list(ports), **more}
    return {"sandbox": LIMITED, "enforceManagedNetwork": True, "managedNetwork": network}


async def start(peer: Peer, code: str, *args: object, **more: Any) -> str:
    """A confined Python script; its process id."""
    name = uuid.uuid4().hex
    script = "import errno, os, socket, sys\n" + textwrap.dedent(code)
    await peer.start(name, "/usr/bin/python3", "-c", script, *map(str, args), **more)
    return name


async def run(peer: Peer, code: str, *args: object, **more: Any) -> str:
    """What a confined Python script prints; it has to succeed."""
    name = await start(peer, code, *args, **more)
    await peer.closed(name)
    text = peer.output(name).decode()
    assert peer.exit_code(name) == 0, text
    return text


# Prints for each (address, port) whether it can be reached: 0, or the errno.
REACH = """
for address, port in zip(sys.argv[1::2], sys.argv[2::2]):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
        sock.settimeout(WAIT_S)
        print(sock.connect_ex((address, int(port))))
""".replace("WAIT_S", str(patient(5)))


# --- what gets through


@pytest.mark.parametrize("network", ["restricted", "enabled"])
async def test_the_service_answers_at_its_own_address(network: str) -> None:
    code = """
    import urllib.request
    get = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    for address in ("127.0.0.1", "[::1]", "localhost"):
        print(get(f"http://{address}:{sys.argv[1]}/page", timeout=60).read())
    """
    allowed = managed()
    allowed["sandbox"] = LIMITED | {"permissions": {**LIMITED["permissions"], "network": network}}  # type: ignore[dict-item]
    async with httpd({"/page": reply(body=b"hello")}) as web, serving() as (url, _), ready(url) as peer:
        allowed["managedNetwork"] = {"loopbackPorts": [web.port]}
        assert await run(peer, code, web.port, **allowed) == "b'hello'\n" * 3
        assert [request.target for request in web.received] == ["/page"] * 3


async def test_much_passes_both_ways_at_once_and_unchanged() -> None:
    code = """
    import hashlib, threading
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    data = os.urandom(1 << 20) * 16
    def send():
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
    threading.Thread(target=send).start()
    back = b"".join(iter(lambda: sock.recv(1 << 16), b""))
    print(len(back), back == data)
    """
    async with service(echo) as port, serving() as (url, _), ready(url) as peer:
        assert await run(peer, code, port, **managed(port)) == f"{16 * MIB} True\n"


async def test_either_side_may_end_first_and_still_hear_the_other() -> None:
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline() == b"you first\n":
            writer.write_eof()
            heard.append(await reader.read())
        else:
            heard.append(await reader.read())
            writer.write(b"late answer")

    code = """
    first = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    first.sendall(b"you first\\n")
    assert first.recv(1) == b""
    first.sendall(b"late word")
    first.close()
    second = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    second.sendall(b"me first\\nquestion")
    second.shutdown(socket.SHUT_WR)
    print(b"".join(iter(lambda: second.recv(100), b"")))
    """
    async with service(talk) as port, serving() as (url, _), ready(url) as peer:
        assert await run(peer, code, port, **managed(port)) == "b'late answer'\n"
        await settled(lambda: len(heard) == 2, WAIT_S, lambda: heard)
        assert sorted(heard) == [b"late word", b"question"]


async def test_fifty_connections_are_open_at_once() -> None:
    here: list[object] = []
    everybody = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here.append(writer)
        if len(here) == 50:
            everybody.set()
        await everybody.wait()
        writer.write(await reader.readexactly(2))

    code = """
    socks = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(50)]
    for number, sock in enumerate(socks):
        sock.sendall(b"%02d" % number)
    print([int(sock.recv(2)) for sock in socks] == list(range(50)))
    """
    async with service(talk) as port, serving() as (url, _), ready(url) as peer:
        assert await run(peer, code, port, **managed(port)) == "True\n"


@pytest.mark.parametrize("limit", ["MAX_CONNECTIONS", "MAX_TOTAL"])
async def test_connections_beyond_the_limit_wait_for_their_turn(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, limit, 2)
    open_now, most = 0, 0
    two_at_once = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        if open_now == 2:
            two_at_once.set()
        await two_at_once.wait()  # else one may be over before the next begins
        await echo(reader, writer)
        open_now -= 1

    code = """
    socks = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(9)]
    for sock in socks:
        sock.sendall(b"word")
    for sock in socks:
        print(sock.recv(4).decode(), end=" ")
        sock.close()
    """
    async with service(talk) as port, serving() as (url, _), ready(url) as peer:
        assert await run(peer, code, port, **managed(port)) == "word " * 9
        assert most == 2


async def test_what_is_sent_right_before_the_end_arrives() -> None:
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set_result(hashlib.sha256(await reader.read()).digest())

    code = """
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    sock.sendall(b"x" * (1 << 20))
    os._exit(0)
    """
    async with service(talk) as port, serving() as (url, _), ready(url) as peer:
        await run(peer, code, port, **managed(port))
        async with asyncio.timeout(WAIT_S):
            assert await heard == hashlib.sha256(b"x" * MIB).digest()


async def test_a_broken_connection_is_broken_for_the_other_side_too() -> None:
    broken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    linger = struct.pack("ii", 1, 0)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline() == b"break it\n":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return
        writer.write(b"go on\n")
        try:
            await reader.read()
        except ConnectionResetError:
            broken.set_result(True)
        else:
            broken.set_result(False)

    code = """
    import struct
    first = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    first.sendall(b"break it\\n")
    try:
        first.recv(1)
    except ConnectionResetError:
        print("reset")
    second = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    second.sendall(b"I shall\\n")
    second.recv(6)
    second.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    second.close()
    """
    async with service(talk) as port, serving() as (url, _), ready(url) as peer:
        assert await run(peer, code, port, **managed(port)) == "reset\n"
        async with asyncio.timeout(WAIT_S):
            assert await broken


async def test_a_service_may_come_later_than_the_command() -> None:
    code = """
    def ask():
        sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        try:
            sock.sendall(b"word")
            return sock.recv(4)
        except ConnectionError:
            return None
    print(ask(), flush=True)
    sys.stdin.readline()
    print(ask())
    """
    sock = socket.socket()  # bound but not listening: nobody else can be there, and we are not yet
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    async with serving() as (url, _), ready(url) as peer:
        name = await start(peer, code, port, **managed(port), pipeStdin=True)
        await peer.output_has(name, b"None\n")
        async with service(echo, sock):
            assert await peer.write(name, b"\n", "1") == "accepted"
            await peer.closed(name)
        assert peer.output(name) == b"None\nb'word'\n"


# --- what does not


async def test_no_other_port_and_no_other_address_is_reached() -> None:
    async with service(echo) as port, service(echo) as other, serving() as (url, _), ready(url) as peer:
        with socket.create_server(("127.0.0.2", port)):
            targets = ("127.0.0.1", port, "127.0.0.1", other, "::1", other, "127.0.0.2", port)
            told = await run(peer, REACH, *targets, "192.0.2.1", port, **managed(port))
    refused = errno.ECONNREFUSED
    assert [int(code) for code in told.split()] == [0, refused, refused, refused, errno.ENETUNREACH]


async def test_datagrams_do_not_pass() -> None:
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.bind(("127.0.0.1", 0))
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))
        udp.setblocking(False)
        code = """
        sock = socket.socket(type=socket.SOCK_DGRAM)
        print(sock.sendto(b"word", ("127.0.0.1", int(sys.argv[1]))))
        """
        async with serving() as (url, _), ready(url) as peer:
            assert await run(peer, code, port, **managed(port)) == "4\n"
        with pytest.raises(BlockingIOError):
            udp.recv(10)


async def test_commands_do_not_reach_each_others_ports() -> None:
    code = REACH + "print('tried', flush=True); sys.stdin.readline()"
    async with service(echo) as one, service(echo) as two, serving() as (url, _), ready(url) as peer:
        targets = ("127.0.0.1", one, "127.0.0.1", two, "::1", one, "::1", two)
        names = [
            await start(peer, code, *targets, **managed(*ports), pipeStdin=True)
            for ports in ([one], [two], [one, two], [])
        ]
        for name in names:  # all of them run until the last has tried
            await peer.output_has(name, b"tried")
        told = [[word == b"0" for word in peer.output(name).split()[:4]] for name in names]
    assert told == [[True, False] * 2, [False, True] * 2, [True] * 4, [False] * 4]


async def test_a_command_cannot_listen_on_the_port_itself() -> None:
    code = """
    for option in (None, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        for address in ("127.0.0.1", "", "::1"):
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            if option is not None:
                sock.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                sock.bind((address, int(sys.argv[1])))
                sock.listen()
            except OSError as exc:
                print(exc.errno == errno.EADDRINUSE)
    socket.create_server(("127.0.0.1", 0)).close()
    """
    async with service(echo) as port, serving() as (url, _), ready(url) as peer:
        assert await run(peer, code, port, **managed(port)) == "True\n" * 9


async def test_without_enforcement_the_ports_mean_nothing() -> None:
    async with service(echo) as port, serving() as (url, _), ready(url) as peer:
        more = managed(port) | {"enforceManagedNetwork": False}
        assert await run(peer, REACH, "127.0.0.1", port, **more) == f"{errno.ECONNREFUSED}\n"


@pytest.mark.parametrize(
    "more",
    [
        {"sandbox": None},
        {"managedNetwork": None},
        {"networkProxy": {"proxy": {}}},
        {"sandbox": None, "networkProxy": PROXY},
        managed(0),
        managed(*range(1, 66)),
        managed(80, dangerouslyAllowAllUnixSockets=True),
    ],
)
async def test_what_cannot_be_enforced_runs_nothing(more: dict[str, Any], tmp_path: Path) -> None:
    async with serving() as (url, _), ready(url) as peer:
        with pytest.raises(Refused) as refused:
            await peer.start("p", f"touch {tmp_path}/ran", **(managed(80) | more))
        assert refused.value.code == -32602
        assert not (tmp_path / "ran").exists()


async def test_without_a_loopback_inside_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _, main = launch._BOOT.partition("; from holdfast")
    broken = (
        "import holdfast.sandbox.kernel.namespaces as n\ndef no(): raise OSError(1)\nn.raise_loopback = no"
    )
    monkeypatch.setattr(launch, "_BOOT", f"{path}\n{broken}\nfrom holdfast{main}")
    async with serving() as (url, _), ready(url, holdfast=True) as peer:
        told = await peer.start("p", "true", sandbox=LIMITED)
        assert told["enforcement"]["weakened"]
        with pytest.raises(Refused, match="loopback"):
            await peer.start("q", f"touch {tmp_path}/ran", **managed(80))
        assert not (tmp_path / "ran").exists()


# --- what is left


def descriptors(pid: int) -> list[str]:
    """What a process has open."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def connections_to(port: int) -> set[str]:
    """The sockets of this host that somebody holds and that lead to this port; a busy table is read askew."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    return {row[9] for row in rows if int(row[2].split(":")[1], 16) == port and row[9] != "0"}


HOLD = """
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.sendall(b"word")
sock.recv(4)
print("up", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["by itself", "terminated"])
async def test_nothing_is_left_when_the_command_has_ended(end: str) -> None:
    async with service(echo) as port, serving() as (url, executor), ready(url) as peer:
        await run(peer, "pass", **managed(port))
        current = executor.launcher._current
        assert current is not None
        before = [len(descriptors(pid)) for pid in (os.getpid(), current.process.pid)]
        name = await start(peer, HOLD, port, **managed(port, 81), pipeStdin=True)
        await peer.output_has(name, b"up")
        assert len(descriptors(os.getpid())) > before[0]
        assert len(descriptors(current.process.pid)) == before[1]
        if end == "terminated":
            await peer.call("process/terminate", {"processId": name})
        else:
            await peer.write(name, b"\n", "1")
        await peer.closed(name)

        def left() -> list[int]:
            return [len(descriptors(pid)) for pid in (os.getpid(), current.process.pid)]

        await settled(lambda: left() == before, WAIT_S, left)


@pytest.mark.parametrize("silent", [False, True])
async def test_a_server_that_stops_leaves_no_connection(
    silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "DRAIN_S", 0.2)
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    released = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(await reader.read(4))
            await reader.read()
            if silent:  # as a service does that never ends a connection by itself
                await released.wait()
        finally:
            gone.set_result(None)

    async with service(talk) as port:
        async with serving() as (url, _), ready(url) as peer:
            name = await start(peer, HOLD, port, **managed(port), pipeStdin=True)
            await peer.output_has(name, b"up")
            await settled(lambda: len(connections_to(port)) == 1, WAIT_S, lambda: connections_to(port))
        assert connections_to(port) == set()
        released.set()
        async with asyncio.timeout(WAIT_S):
            await gone


# --- for people


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        yield made


@contextlib.contextmanager
def answered() -> Iterator[int]:
    """A port of the host where each connection is taken and ended; one that nobody takes is waited for."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taking = threading.Thread(target=end_each, args=(server,))
        taking.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            taking.join()


def end_each(server: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it was shut down
        while True:
            server.accept()[0].close()


@pytest.mark.parametrize("backend", ["namespaces", "bwrap"])
def test_exec_lets_exactly_these_ports_through(anyone: Place, backend: str) -> None:
    if backend == "bwrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    with answered() as one, answered() as two:
        ports = [one, two]
        targets = [word for port in ports for word in ("127.0.0.1", str(port))]
        command = ("--", "/usr/bin/python3", "-c", "import socket, sys\n" + REACH, *targets)
        for flags in ((), ("--full-access",)):
            given = ("--backend", backend, "--loopback-port", str(ports[0]), "--loopback-port", "7", *flags)
            assert anyone.run(*given, *command).out == f"0\n{errno.ECONNREFUSED}\n"


def test_exec_delivers_what_was_sent_right_before_the_end(anyone: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as reading:
        server.settimeout(WAIT_S)
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port})).sendall(b'x' * 100_000)"
        flags = ("--loopback-port", str(port))
        heard = reading.submit(hear, server)
        assert anyone.run(*flags, "--", "/usr/bin/python3", "-c", code).code == 0
        assert heard.result(WAIT_S) == b"x" * 100_000


def hear(server: socket.socket) -> bytes:
    """All that the next client sends."""
    connection, _ = server.accept()
    with connection:
        connection.settimeout(WAIT_S)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_plan_names_the_ports_and_a_network_that_is_on_has_none(anyone: Place) -> None:
    told = anyone.run("--loopback-port", "3128", "--print-plan").out.splitlines()
    assert "TCP port 3128 of the host's loopback is reachable" in told
    assert anyone.run("--network", "on", "--loopback-port", "3128", "--", "true").code == 2
    assert anyone.run("--loopback-port", "65536", "--", "true").code == 2
