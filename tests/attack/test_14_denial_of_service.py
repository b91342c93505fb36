"""Another local user opens many connections, or begins many requests, to keep the owner out."""

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.board.store import open_store
from holdfast.client.environment import connect
from holdfast.local.peers import Lobby
from holdfast.web.server import DashboardOptions, serve
from tests.support.jumping import JumpingLoop
from tests.support.patience import patient
from tests.support.root_only import root_only
from tests.support.tiers import ASYNCIO, Backend

WITHIN_S = patient(20)
STRANGER = 12345
SOCKETS = 1500
HALF_REQUESTS = 210
HOLD = """
import os, socket, sys
uid, port, count, data = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
held = []
for _ in range(count):
    sock = socket.socket(); sock.settimeout(5); held.append(sock)
    try:
        sock.connect(("127.0.0.1", port))
        if data: sock.send(data)
    except OSError:
        pass
print("ready", flush=True)
sys.stdin.read()
"""

pytestmark = root_only("to become another user")


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO


@contextlib.contextmanager
def held(port: int, count: int, data: str = "") -> Iterator[None]:
    """Connections of a stranger, for as long as the block lasts."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(STRANGER), str(port), str(count), data],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most)),
    ) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            stranger.communicate()


@contextlib.contextmanager
def serving(folder: Path, *more: str) -> Iterator[str]:
    argv = [sys.executable, "-m", "holdfast", "serve", "--no-hint", "--listen", "ws://127.0.0.1:0", *more]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def port_of(url: str) -> int:
    return int(url.rstrip("/").rpartition(":")[2])


@pytest.mark.parametrize("data", ["", "GET / HTTP/1.1\r\nHost: x\r\n"], ids=["silent", "half requests"])
@pytest.mark.parametrize("token", [None, "s3cret"], ids=["tokenless", "token"])
async def test_the_owner_enters_an_exec_server(tmp_path: Path, data: str, token: str | None) -> None:
    more: tuple[str, ...] = ()
    if token is not None:
        (tmp_path / "token").write_text(token, "utf-8")
        more = ("--ws-auth", "capability-token", "--ws-token-file", str(tmp_path / "token"))
    with serving(tmp_path, *more) as url, held(port_of(url), SOCKETS, data):
        async with asyncio.timeout(WITHIN_S), connect(url, token=token) as environment:
            assert (await environment.run(["echo", "in"])).stdout == b"in\n"


async def test_the_owner_sees_the_dashboard(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "board.db")) as store:
        store.create_board("b")
    announced: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    options = DashboardOptions(str(tmp_path / "board.db"), tmp_path, "me")
    dashboard = asyncio.ensure_future(serve(options, announced.set_result))
    try:
        base, _, _ = (await announced).partition("#")
        port = port_of(base)
        for count, data in ((SOCKETS, ""), (HALF_REQUESTS, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")):
            manager = held(port, count, data)
            await asyncio.to_thread(manager.__enter__)
            try:
                async with asyncio.timeout(WITHIN_S):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
                    assert (await reader.readline()).split()[1] == b"200"
                    writer.close()
            finally:
                await asyncio.to_thread(manager.__exit__, None, None, None)
    finally:
        dashboard.cancel()
        await asyncio.gather(dashboard, return_exceptions=True)


def test_a_stranger_does_not_reach_a_socket_of_a_home(tmp_path: Path) -> None:
    """It is not even accepted: neither the home nor the socket is open to others."""
    path = Path("/var/tmp") / f"holdfast-test-{tmp_path.name}.sock"
    argv = [sys.executable, "-m", "holdfast", "serve", "--no-hint", "--listen", f"unix://{path}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            program = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
            user = ["setpriv", "--reuid", str(STRANGER), "--regid", str(STRANGER), "--clear-groups"]
            refused = subprocess.run(
                [*user, "/usr/bin/env", "python3", "-c", program], capture_output=True, text=True
            )
            assert refused.returncode != 0
            with socket.socket(socket.AF_UNIX) as ours:
                ours.connect(str(path))
        finally:
            server.terminate()


async def test_whoever_waits_longest_makes_room() -> None:
    lobby = Lobby(2)
    listener = socket.create_server(("127.0.0.1", 0))
    transports: list[asyncio.Transport] = []
    loop = asyncio.get_running_loop()
    for _ in range(3):
        transport, _ = await loop.create_connection(asyncio.Protocol, *listener.getsockname())
        lobby.enter(transport)
        transports.append(transport)
    assert [transport.is_closing() for transport in transports] == [True, False, False]
    for transport in transports:
        lobby.leave(transport)
        transport.close()
    assert len(lobby) == 0
    listener.close()


UPGRADE = """
import os, socket, sys
from tests.support.tiers import ASYNCIO, Backend
uid, port, said = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if os.getuid() != uid:
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
sock = socket.socket(); sock.settimeout(WAIT_S); sock.connect(("127.0.0.1", port))
try:
    if said == "request":
        sock.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
                     b"Sec-WebSocket-Version: 13\\r\\n"
                     b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n")
    print(sock.recv(100).decode().partition("\\r\\n")[0])
except ConnectionError:
    print("")
""".replace("WAIT_S", str(patient(60)))


def asked(url: str, uid: int, said: str) -> str:
    """The first line of what a server answers this user; nothing if it hangs up."""
    argv = [sys.executable, "-c", UPGRADE, str(uid), str(port_of(url)), said]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=patient(90), check=True)
    return done.stdout.strip()


def test_a_stranger_is_turned_away_before_a_word_is_said(tmp_path: Path) -> None:
    with serving(tmp_path) as url:
        assert asked(url, os.getuid(), "request") == "HTTP/1.1 101 Switching Protocols"
        assert asked(url, STRANGER, "request") == "HTTP/1.1 401 Unauthorized"
        assert asked(url, STRANGER, "nothing") == "HTTP/1.1 401 Unauthorized", "and nobody listened"


class _Silent(asyncio.Transport):
    """A connection that nobody says anything on."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = asyncio.Event()

    def abort(self) -> None:
        self.cut.set()


def test_whoever_says_nothing_is_cut_off_in_time() -> None:
    """Also where there is room for all; whoever was let in is not."""

    async def wait() -> None:
        lobby, silent, known = Lobby(64, within_s=10.0), _Silent(), _Silent()
        lobby.enter(silent)
        lobby.enter(known)
        lobby.leave(known)
        await asyncio.wait_for(silent.cut.wait(), 11.0)
        assert not known.cut.is_set()

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(wait())
