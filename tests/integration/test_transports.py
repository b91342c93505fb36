"""WebSocket, unix socket and stdio: what the bytes look like and who may come in."""

import asyncio
import hashlib
import http.client
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from holdfast.server.edges.address import UnixAddress
from holdfast.server.edges.auth import load
from holdfast.server.edges.binding import ServeOptions
from holdfast.server.edges.listen import Server
from holdfast.server.executor import Clocks, Executor
from tests.support.patience import patient
from tests.support.peer import Refused, connected, ready, serving
from tests.support.tiers import both_loops

__all__ = ["both_loops"]

TOKEN = "correct horse battery"


def fetch(url: str, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One HTTP request, in a thread because the server lives in our loop."""
    host, port = url.removeprefix("ws://").rsplit(":", 1)
    link = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=patient(20))
    try:
        link.request(method, path, headers=headers)
        reply = link.getresponse()
        return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
    finally:
        link.close()


async def asked(url: str, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    return await asyncio.to_thread(fetch, url, method, path, **headers)


async def test_the_http_surface() -> None:
    async with serving() as (url, _):
        for path in ("/readyz", "/healthz"):
            assert (await asked(url, "GET", path))[::2] == (200, b"")
            assert (await asked(url, "HEAD", path))[0] == 200
            status, headers, _ = await asked(url, "POST", path)
            assert (status, headers["allow"]) == (405, "GET,HEAD")
        assert (await asked(url, "GET", "/"))[::2] == (400, b"Connection header did not include 'upgrade'")
        for path in ("/other", "/metrics"):
            assert (await asked(url, "GET", path))[0] == 404
        for path in ("/", "/readyz", "/other"):
            assert (await asked(url, "GET", path, Origin="http://evil.example"))[0] == 403
            assert (await asked(url, "GET", path, Origin=""))[0] == 403


async def test_a_browser_is_refused_before_the_websocket_handshake() -> None:
    async with serving() as (url, _):
        with pytest.raises(InvalidStatus) as refused:
            async with connected(url, origin="https://evil.example"):
                pass
        assert refused.value.response.status_code == 403


async def test_bytes_that_are_not_http_are_refused() -> None:
    async with serving() as (url, _):
        for garbage in (b"\x16\x03\x01 tls?\r\n\r\n", b"x" * 20_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
            writer.write(garbage)
            async with asyncio.timeout(patient(20)):
                assert (await reader.read()).startswith(b"HTTP/1.1 400")
            writer.close()


async def test_no_extension_and_no_subprotocol_is_negotiated() -> None:
    async with serving() as (url, _), connected(url, compression="deflate", subprotocols=["x"]) as peer:
        assert peer.link.subprotocol is None
        assert peer.link.response is not None
        assert "Sec-WebSocket-Extensions" not in peer.link.response.headers


async def test_ipv6_and_a_query_string() -> None:
    async with serving(listen="ws://[::1]:0") as (url, _):
        assert url.startswith("ws://[::1]:")
        async with ready(url + "/?x=1") as peer:
            assert await peer.call("environment/status") == {"status": "ready"}


async def test_the_wrong_token_is_refused_and_the_right_one_lets_in() -> None:
    for authenticator in (
        load("capability-token", token_file_text=f"  {TOKEN}\n"),
        load("capability-token", token_sha256=hashlib.sha256(TOKEN.encode()).hexdigest()),
    ):
        async with serving(authenticator=authenticator) as (url, _):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
                with pytest.raises(InvalidStatus) as refused:
                    async with connected(url, additional_headers=headers):
                        pass
                assert refused.value.response.status_code == 401
                assert TOKEN.encode() not in (refused.value.response.body or b"")
            async with connected(url, additional_headers={"Authorization": f"bearer {TOKEN}"}) as peer:
                await peer.initialize()
            assert (await asked(url, "GET", "/readyz"))[0] == 200


async def test_a_reply_beyond_the_clients_frame_limit_comes_in_fragments(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(1024) * (20 * 1024))
    limits = (64 * 1024 * 1024, 16 * 1024 * 1024)  # the reference client's: a message, a frame
    async with serving() as (url, _), connected(url, max_size=limits) as peer:
        await peer.initialize()
        reply = await peer.call("fs/readFile", {"path": big.as_uri()})
        assert len(reply["dataBase64"]) > 16 * 1024 * 1024
        assert await peer.call("environment/status") == {"status": "ready"}


async def test_a_reply_beyond_the_message_limit_is_an_error_not_a_dead_connection(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(49 * 1024 * 1024)
    async with serving() as (url, _), ready(url) as peer:
        with pytest.raises(Refused) as refused:
            await peer.call("fs/readFile", {"path": (tmp_path / "huge").as_uri()})
        assert refused.value.code == -32600
        assert await peer.call("environment/status") == {"status": "ready"}


async def test_a_fragmented_and_a_large_message_are_taken(tmp_path: Path) -> None:
    async with serving() as (url, _), ready(url) as peer:
        text = '{"id":"f","method":"environment/status"}'
        await peer.link.send([text[:9], text[9:20], text[20:]])
        assert await peer.answer("f") == {"status": "ready"}
        data = "QUJD" * (4 * 1024 * 1024)  # one frame just below 16 MiB would be 16777216
        params = {"path": (tmp_path / "x").as_uri(), "dataBase64": data[: 15 * 1024 * 1024]}
        assert await peer.call("fs/writeFile", params) == {}
        assert (tmp_path / "x").stat().st_size == 15 * 1024 * 1024 // 4 * 3


async def test_nagle_is_off() -> None:
    async with serving() as (url, _), ready(url) as peer:
        port = peer.link.transport.get_extra_info("sockname")[1]
        assert _nodelay_of_accepted(int(url.rsplit(":", 1)[1]), port) == [1]


def _nodelay_of_accepted(port: int, peer_port: int) -> list[int]:
    """TCP_NODELAY of this process's own accepted socket between these ports."""
    options = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as sock:
                if sock.family != socket.AF_INET or sock.type != socket.SOCK_STREAM:
                    continue
                if sock.getsockname()[1] == port and sock.getpeername()[1] == peer_port:
                    options.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        except OSError:
            continue
    return options


async def test_metrics_only_when_asked_for() -> None:
    async with serving(metrics=True) as (url, _), ready(url) as peer:
        await peer.start("p", "sleep 60")
        with pytest.raises(Refused):
            await peer.call("no/such/method")
        status, headers, body = await asked(url, "GET", "/metrics")
        assert status == 200
        assert headers["content-type"].startswith("text/plain")
        assert b"holdfast_sessions 1.0" in body
        assert b"holdfast_processes_live 1.0" in body
        assert b'holdfast_request_seconds_count{code="-32601",method="unknown"} 1.0' in body
        assert b"holdfast_connections 1.0" in body
        assert b"holdfast_process_seconds_count" not in body
        for process_id, script in (("good", "true"), ("bad", "exit 3"), ("worse", "exit 4")):
            await peer.start(process_id, script)
            await peer.closed(process_id)
        await peer.aclose()
        async with ready(url):
            _, _, body = await asked(url, "GET", "/metrics")
        assert b"holdfast_connections_made_total 2.0" in body
        assert b'holdfast_process_seconds_count{result="success"} 1.0' in body
        assert b'holdfast_process_seconds_count{result="failure"} 2.0' in body


# --- unix socket


class Lines:
    """A client of the newline transports."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def call(self, method: str, params: object = None) -> dict[str, Any]:
        self.writer.write(json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\r\n")
        while True:
            async with asyncio.timeout(patient(20)):
                message: dict[str, Any] = json.loads(await self.reader.readline())
            if "id" in message:
                return message

    async def initialize(self) -> None:
        await self.call("initialize", {"clientName": "lines"})
        self.writer.write(b'\n  \n{"method":"initialized"}\n')


async def test_a_unix_socket_is_private_and_speaks_lines(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(listen=f"unix://{path}") as (url, _):
        assert url == f"unix://{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        lines = Lines(*await asyncio.open_unix_connection(path))
        await lines.initialize()
        assert (await lines.call("environment/status"))["result"] == {"status": "ready"}
        lines.writer.close()
    assert not path.exists()


async def test_a_server_that_is_idle_ends_and_leaves_its_address_to_the_next(tmp_path: Path) -> None:
    used, unused = tmp_path / "used", tmp_path / "unused"
    brief = Clocks(detached_s=0.0)
    async with asyncio.timeout(patient(30)), asyncio.TaskGroup() as group:
        servers, ends = [], []
        for path in (used, unused):
            bound = asyncio.get_running_loop().create_future()
            options = ServeOptions(UnixAddress(str(path)), idle_s=0.5)
            servers.append(Server(options, Executor(clocks=brief)))
            ends.append(group.create_task(servers[-1].serve(bound.set_result)))
            await bound
            if path is used:
                lines = Lines(*await asyncio.open_unix_connection(path))
                await lines.initialize()
        while unused.exists():
            await asyncio.sleep(0.001)
        async with serving(listen=f"unix://{unused}"):
            await ends[1]
            assert unused.exists(), "whoever listens there now is left alone"
        assert (await lines.call("environment/status"))["result"] == {"status": "ready"}
        lines.writer.close()
        await ends[0]
    assert not used.exists()


async def test_a_stale_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    from holdfast.errors import StartupError

    async with serving(listen=f"unix://{path}"):
        with pytest.raises(StartupError):
            async with serving(listen=f"unix://{path}"):
                pass
    (tmp_path / "file").write_text("mine", "utf-8")
    with pytest.raises(StartupError):
        async with serving(listen=f"unix://{tmp_path}/file"):
            pass
    assert (tmp_path / "file").read_text("utf-8") == "mine"


# --- stdio and the command line


async def run(*argv: str, data: bytes = b"", **env: str) -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", *argv),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | env,
    )
    async with asyncio.timeout(patient(40)):
        out, err = await process.communicate(data)
    assert process.returncode is not None
    return process.returncode, out, err


HELLO = b'{"id":1,"method":"initialize","params":{"clientName":"x"}}\n{"method":"initialized"}\n'


async def test_stdio_serves_answers_what_was_asked_and_ends_at_end_of_file() -> None:
    data = HELLO + b"not json\r\n" + b'{"id":"last","method":"environment/status"}'
    code, out, err = await run("serve", "--listen", "stdio", data=data)
    messages = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, b"")
    assert [message["id"] for message in messages] == [1, -1, "last"]
    assert messages[2]["result"] == {"status": "ready"}


def stdio_between(files: str, *python: str) -> tuple[int, bytes]:
    """The exit code and the errors of a server whose standard streams a shell made of `files`."""
    argv = [
        "/bin/sh",
        "-c",
        f'exec "$@" {files}',
        "sh",
        sys.executable,
        *python,
        "serve",
        "--listen",
        "stdio",
    ]
    null = subprocess.DEVNULL
    done = subprocess.run(
        argv, stdin=null, stdout=null, stderr=subprocess.PIPE, timeout=patient(40), check=False
    )
    return done.returncode, done.stderr


WITHOUT_UVLOOP = (
    "-c",
    "import sys; sys.modules['uvloop'] = None; from holdfast.entry import main; main()",
)
LOOPS = pytest.mark.parametrize("python", [("-m", "holdfast"), WITHOUT_UVLOOP], ids=["uvloop", "asyncio"])


@LOOPS
@pytest.mark.parametrize("files", ["</dev/null", "<&-", "</dev/null >&-", "<&- >&- 2>&-", "</dev/null | cat"])
def test_stdio_ends_in_order_where_there_is_nothing_to_read(files: str, python: tuple[str, ...]) -> None:
    code, err = stdio_between(files, *python)
    assert code == 0
    assert b"Traceback" not in err


@LOOPS
def test_stdio_answers_a_file_into_a_file(python: tuple[str, ...], tmp_path: Path) -> None:
    question, answer = tmp_path / "question", tmp_path / "answer"
    asked = b"".join(b'{"id":%d,"method":"environment/info"}\n' % number for number in range(2, 2000))
    question.write_bytes(HELLO + asked)
    assert stdio_between(f"<{question} >{answer}", *python) == (0, b"")
    assert [json.loads(line)["id"] for line in answer.read_bytes().splitlines()] == list(range(1, 2000))


@LOOPS
def test_stdio_whose_answers_nobody_can_keep_says_so_and_ends(
    python: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "question").write_bytes(HELLO)
    code, err = stdio_between(f"<{tmp_path / 'question'} >/dev/full", *python)
    assert code == 0
    assert b"standard output cannot be written" in err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--listen", "ws://localhost:1"], b"expected `ws://IP:PORT`"),
        (["--listen", "wss://127.0.0.1:1"], b"unsupported --listen URL"),
        (["--listen", "ws://0.0.0.0:0"], b"--ws-auth"),
        (["--listen", "ws://[::]:0"], b"--ws-auth"),
        (["--listen", "unix:///no/such/folder/s"], b"create the directory"),
        (["--listen", "stdio", "--ws-auth", "capability-token", "--ws-token-sha256", "0" * 64], b"--ws-auth"),
        (["--ws-auth", "capability-token"], b"--ws-token-file"),
        (["--ws-auth", "signed-bearer-token"], b"--ws-shared-secret-file"),
        (["--ws-auth", "capability-token", "--ws-token-file", "/no/such"], b"--ws-token-file"),
        (["--concurrent-requests", "0"], b"--concurrent-requests"),
        (["--log-format", "xml"], b"--log-format"),
        (["--nonsense"], b"--nonsense"),
    ],
)
async def test_bad_flags_say_what_to_change_and_exit_non_zero(flags: list[str], says: bytes) -> None:
    code, out, err = await run("serve", *flags)
    assert code in (1, 2)
    assert out == b""
    assert says in err
    assert b"Traceback" not in err


async def test_a_taken_port_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = await run("serve", "--listen", f"ws://127.0.0.1:{taken.getsockname()[1]}")
    assert code == 1
    assert b"in use" in err
    assert b"port 0" in err


async def test_a_home_that_nobody_can_write_does_not_matter() -> None:
    code, out, err = await run(
        "serve", "--listen", "stdio", data=HELLO, HOME="/proc/none", CODEX_HOME="/proc/none"
    )
    assert (code, err) == (0, b"")
    assert json.loads(out)["result"]["sessionId"]


async def test_a_server_whose_directory_was_removed_still_serves(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && exec "$2" -m holdfast serve --listen stdio'
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", script, "sh", str(gone), sys.executable),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(patient(40)):
        out, err = await process.communicate(HELLO)
    assert err == b""
    info = json.loads(out)["result"]["environmentInfo"]
    assert "cwd" not in info
    assert info["tempDir"].startswith("file:///")
