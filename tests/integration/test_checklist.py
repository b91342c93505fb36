"""Lines of the protocol's checklist that no other module tests, seen from the client's side."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from holdfast.local.peers import PeerSocket
from holdfast.server.connection import ExecConnection
from holdfast.server.executor import Clocks, Executor
from holdfast.wire import rpc
from tests.support.httpd import Script, httpd, reply
from tests.support.patience import patient
from tests.support.peer import ENV, WAIT_S, Peer, Refused, connected, ready, serving

STRANGER: Final = 54_321  # a user id that is neither ours nor root's
HELLO: Final = b'{"id":1,"method":"initialize","params":{"clientName":"x"}}\n{"method":"initialized"}\n'
LARGEST_BYTES: Final = 64 * 1024 * 1024  # of a message, as the protocol says
STDIO: Final = [sys.executable, "-m", "holdfast", "serve", "--listen", "stdio"]


async def resumed(peer: Peer, session: str) -> None:
    """As a client does: again while the server has not noticed the loss."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await peer.initialize(resume=session)
                return
            except Refused as refused:
                assert refused.code == -32010


async def forgotten(peer: Peer, process_id: str) -> None:
    """Wait until the server does not know the process any more."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await peer.call("process/read", {"processId": process_id})
            except Refused as refused:
                assert refused.message == f"unknown process id {process_id}"
                return


# --- transport


class RawSocket:
    """A WebSocket client that sees control frames and answers a ping only when told to."""

    def __init__(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.protocol = ClientProtocol(parse_uri(url))

    async def handshake(self) -> None:
        self.protocol.send_request(self.protocol.connect())
        self.flush()
        self.protocol.receive_data(await self._reader.readuntil(b"\r\n\r\n"))
        assert self.protocol.handshake_exc is None

    async def initialize(self) -> str:
        """The session id."""
        self.protocol.send_text(HELLO.splitlines()[0])
        self.flush()
        async for frame in self.frames():
            if frame.opcode is Opcode.TEXT:
                session_id: str = json.loads(bytes(frame.data))["result"]["sessionId"]
                return session_id
        raise ConnectionError("the server closed the connection")

    def flush(self) -> None:
        self._writer.write(b"".join(self.protocol.data_to_send()))

    async def frames(self) -> AsyncIterator[Frame]:
        """What comes, until the server closes."""
        async with asyncio.timeout(WAIT_S):
            while data := await self._reader.read(65_536):
                self.protocol.receive_data(data)
                for event in self.protocol.events_received():
                    if isinstance(event, Frame):
                        yield event


@contextlib.asynccontextmanager
async def raw_socket(url: str) -> AsyncIterator[RawSocket]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    try:
        client = RawSocket(url, reader, writer)
        await client.handshake()
        yield client
    finally:
        writer.close()


async def test_pings_come_again_and_again_and_pongs_are_no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.edges.websocket.PING_S", 0.02)
    async with serving() as (url, executor), raw_socket(url) as client:
        pings = 0
        async for frame in client.frames():
            pings += frame.opcode is Opcode.PING
            client.protocol.send_pong(b"unasked")
            client.flush()
            if pings == 4:
                break
        assert await client.initialize()
        assert executor.sessions.next_expiry() is None
        client.protocol.send_close()
        client.flush()
        async for _ in client.frames():
            pass
        async with asyncio.timeout(WAIT_S):
            while executor.sessions.next_expiry() is None:  # the close detaches the session
                await asyncio.sleep(0)


async def test_a_peer_that_answers_no_ping_is_dropped_and_may_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.edges.websocket.PING_S", 0.02)
    monkeypatch.setattr("holdfast.server.edges.websocket.PONG_S", 0.1)
    async with serving() as (url, _), raw_socket(url) as client:
        session = await client.initialize()
        pings = 0
        with contextlib.suppress(ConnectionError):
            async for frame in client.frames():  # what the library wants to answer is never sent
                pings += frame.opcode is Opcode.PING
        assert pings > 1
        async with connected(url) as again:
            await resumed(again, session)


async def test_nothing_is_lost_while_the_peer_lags_and_goes_on_talking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = asyncio.Event()
    pause = ExecConnection.on_writing_paused

    def paused(connection: ExecConnection) -> None:
        blocked.set()
        pause(connection)

    monkeypatch.setattr(ExecConnection, "on_writing_paused", paused)
    count = 2_000_000
    script = {"argv": ["/usr/bin/seq", str(count)], "cwd": "file:///", "env": {}, "tty": False}
    async with serving() as (url, _), ready(url) as peer:
        peer.link.transport.pause_reading()
        start = await peer.ask("process/start", {"processId": "p", **script})
        async with asyncio.timeout(WAIT_S):
            await blocked.wait()
        pongs = [await peer.link.ping() for _ in range(3)]
        asked = [await peer.ask("environment/status") for _ in range(5)]
        peer.link.transport.resume_reading()
        await peer.answer(start)
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*pongs)
        for number in asked:
            assert await peer.answer(number) == {"status": "ready"}
        events = await peer.closed("p")
        assert [event["params"]["seq"] for event in events] == list(range(1, len(events) + 1))
        assert peer.output("p") == b"".join(b"%d\n" % number for number in range(1, count + 1))


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_line_at_the_size_limit_is_taken_on_stdio(ending: bytes) -> None:
    head, tail = b'{"id":2,"method":"environment/status","padding":"', b'"}'
    message = head + b"x" * (LARGEST_BYTES - len(head) - len(tail)) + tail
    done = subprocess.run(
        STDIO, input=HELLO + message + ending, capture_output=True, timeout=patient(30), check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"] == {"status": "ready"}


def test_a_line_over_the_size_limit_ends_stdio_before_it_ends_itself() -> None:
    with subprocess.Popen(STDIO, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(HELLO)
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        with contextlib.suppress(BrokenPipeError):
            server.stdin.write(b"x" * (LARGEST_BYTES + 2))
            server.stdin.flush()
        assert server.stdout.read() == b""  # the end of it, although our side is still open
        server.wait(timeout=WAIT_S)
        with contextlib.suppress(BrokenPipeError):
            server.stdin.close()


def test_standard_output_holds_the_bound_address_and_nothing_else() -> None:
    argv = [sys.executable, "-m", "holdfast", "serve"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        line = server.stdout.readline().decode()
        server.terminate()
        assert server.stdout.read() == b""
    address = parse_uri(line.strip())
    assert address.host == "127.0.0.1"
    assert address.port > 0


async def test_another_user_is_refused_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.local.peers.socket_of_peer", lambda *_: PeerSocket(STRANGER, 1))
    async with serving() as (url, _):
        there = parse_uri(url)
        reader, writer = await asyncio.open_connection(there.host, there.port)
        async with asyncio.timeout(WAIT_S):
            assert (await reader.read()).startswith(b"HTTP/1.1 401 ")  # before it has said a word
        writer.close()


async def test_another_user_is_refused_on_a_unix_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("holdfast.local.peers.uid_of_unix_peer", lambda _: STRANGER)
    async with serving(listen=f"unix://{tmp_path}/s"):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        async with asyncio.timeout(WAIT_S):
            assert b'"PeerRefused"' in await reader.read()
        writer.close()


# --- dispatch and sessions


async def test_pipelined_requests_are_answered_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    path = {"path": (tmp_path / "file").as_uri()}
    kinds = [
        ("environment/status", None),
        ("fs/getMetadata", path),
        ("fs/canonicalize", path),
        ("no/such", {}),
    ]
    async with serving() as (url, _), ready(url) as peer:
        numbers = [await peer.ask(*kinds[turn % len(kinds)]) for turn in range(60)]
        await peer.until(lambda: numbers[-1] in peer.answers)
        assert list(peer.answers) == numbers


async def test_with_slots_a_long_poll_holds_nobody_up() -> None:
    async with serving(slots=2) as (url, _), ready(url) as peer:
        await peer.start("p", "sleep 60")
        poll = await peer.ask("process/read", {"processId": "p", "waitMs": 600_000})
        await peer.start("q", "/bin/sleep", "60")
        more = [await peer.ask("process/read", {"processId": "q", "waitMs": 600_000}) for _ in range(3)]
        assert (await peer.call("environment/info"))["platformOs"]
        assert await peer.call("process/signal", {"processId": "q", "signal": "interrupt"}) == {}
        for number in more:
            assert (await peer.answer(number))["exitCode"] == 130
        assert poll not in peer.answers


async def test_an_absurd_number_of_slots_still_serves() -> None:
    async with serving(slots=10**30) as (url, _), ready(url) as peer:
        assert await peer.call("environment/status") == {"status": "ready"}


async def test_the_texts_a_client_may_compare() -> None:
    async with serving() as (url, _), ready(url) as owner, connected(url) as other:
        texts = {owner.session_id: "session {} is already attached to another connection"}
        texts["nobody"] = "unknown session id {}"
        for session, text in texts.items():
            with pytest.raises(Refused) as refused:
                await other.initialize(resume=session)
            assert refused.value.message == text.format(session)
        with pytest.raises(Refused) as foreign:
            await owner.start("p", "true", cwd="file:///C:/x")
        assert foreign.value.message.startswith(
            "cwd URI `file:///C:/x` is not valid on this exec-server host"
        )


def running(executor: Executor) -> int:
    return sum(session.processes.live() for session in executor.sessions)


async def test_what_happens_while_nobody_listens_is_kept(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    async with serving() as (url, executor):
        async with ready(url) as peer:
            await peer.start("p", f"echo one; read x < {tmp_path}/gate; echo two; exit 5")
            await peer.output_has("p", b"one\n")
        async with asyncio.timeout(WAIT_S):
            while executor.sessions.next_expiry() is None:
                await asyncio.sleep(0)
            await asyncio.to_thread((tmp_path / "gate").write_bytes, b"\n")
            while running(executor):
                await asyncio.sleep(0)
        async with connected(url) as again:
            await resumed(again, peer.session_id)
            page = await again.call("process/read", {"processId": "p", "afterSeq": 1, "waitMs": 8000})
            assert [b64decode(chunk["chunk"]) for chunk in page["chunks"]] == [b"two\n"]
            page = await again.call("process/read", {"processId": "p", "afterSeq": 3, "waitMs": 8000})
            assert (page["exitCode"], page["closed"], page["nextSeq"]) == (5, True, 5)


# --- processes


async def test_a_process_id_may_have_any_length() -> None:
    async with serving() as (url, _), ready(url) as peer:
        for name in ("", "x" * 100_000):
            await peer.start(name, "echo hello")
            await peer.closed(name)
            assert peer.output(name) == b"hello\n"


async def test_without_a_pipe_standard_input_is_at_its_end() -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "cat; echo end")
        await peer.closed("p")
        assert peer.output("p") == b"end\n"


@pytest.mark.parametrize("tty", [False, True])
async def test_a_command_runs_exactly_as_it_was_given(tty: bool, tmp_path: Path) -> None:
    place = tmp_path / "a b%é"
    place.mkdir()
    words = ["", "two words", "$HOME", "*", 'quo"te', "é"]
    script = 'pwd; echo "$0/$#/$A"; for word; do echo "<$word>"; done'
    async with serving() as (url, _), ready(url) as peer:
        argv = ["/bin/sh", "-c", script, "name", *words]
        await peer.start("p", *argv, cwd=place.as_uri(), env={"A": "b=c"}, tty=tty)
        await peer.closed("p")
    lines = peer.output("p").decode().replace("\r\n", "\n").splitlines()
    assert lines == [str(place), f"name/{len(words)}/b=c", *(f"<{word}>" for word in words)]


async def test_late_output_is_kept_beyond_the_retention_of_closed_processes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    async with serving(clocks=Clocks(closed_s=0.05)) as (url, _), ready(url) as peer:
        await peer.start("p", f"(read x < {tmp_path}/gate; echo late) & echo early")
        await peer.until(lambda: "process/exited" in peer.methods("p"))
        await peer.start("q", "true")
        await peer.closed("q")
        await forgotten(peer, "q")  # it closed after the other exited, so the other's time would be over too
        page = await peer.call("process/read", {"processId": "p"})
        assert (page["exited"], page["closed"]) == (True, False)
        await asyncio.to_thread((tmp_path / "gate").write_bytes, b"\n")
        await peer.closed("p")
        assert peer.output("p") == b"early\nlate\n"
        await forgotten(peer, "p")


async def test_a_replay_is_bounded_by_chunks_and_fits_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.processes.process.READ_BYTES", 1)
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "head -c 50100 /dev/zero")
        await peer.closed("p")
        page = await peer.call("process/read", {"processId": "p"})
        assert len(page["chunks"]) == 50_000
        assert page["chunks"][0]["seq"] == 101
        assert rpc.decode(rpc.response(1, page))  # not too many values


async def test_a_chunk_holds_up_to_64_kib() -> None:
    async with serving() as (url, _), ready(url) as peer:
        await peer.start("p", "/bin/dd", "if=/dev/zero", "bs=1M", "count=4", "status=none")
        events = await peer.closed("p")
        sizes = [len(b64decode(event["params"].get("chunk", ""))) for event in events]
        assert 8192 < max(sizes) <= 64 * 1024


async def test_closed_processes_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.processes.processes.MAX_CLOSED", 2)
    async with serving() as (url, _), ready(url) as peer:
        for name in ("a", "b", "c"):
            await peer.start(name, "true")
            await peer.closed(name)
        await forgotten(peer, "a")
        for name in ("b", "c"):
            assert (await peer.call("process/read", {"processId": name}))["closed"] is True


@pytest.mark.parametrize("tty", [False, True])
@pytest.mark.parametrize(
    ("shell", "profile", "greeting"),
    [("bash", ".bash_profile", "greet() { echo hi; }"), ("sh", ".profile", "alias greet='echo hi'")],
)
async def test_start_up_files_run_once_for_many_commands(
    shell: str, profile: str, greeting: str, tty: bool, tmp_path: Path
) -> None:
    (tmp_path / profile).write_text(f"echo x >> $HOME/runs; export FROM=profile; {greeting}\n", "utf-8")
    snapshot = {"scopeId": "s", "shell": {"name": shell, "path": f"/bin/{shell}"}}
    async with serving() as (url, _), ready(url) as peer:
        for name in ("a", "b"):
            argv = [f"/bin/{shell}", "-lc", "greet; echo $FROM; ls /proc/self/fd | wc -l"]
            await peer.start(name, *argv, env=ENV | {"HOME": str(tmp_path)}, tty=tty, shellSnapshot=snapshot)
            await peer.closed(name)
            assert peer.output(name).split() == [b"hi", b"profile", b"4"]
    assert (tmp_path / "runs").read_text("utf-8") == "x\n"
    assert {path.name for path in tmp_path.iterdir()} == {profile, "runs"}


# --- files, environment, discovery


async def test_files_over_the_wire(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"\xff\x00")

    def at(name: str) -> dict[str, str]:
        return {"path": (tmp_path / name).as_uri()}

    async with serving() as (url, _), ready(url) as peer:
        assert await peer.call("fs/createDirectory", at("a/b")) == {}
        data = {"dataBase64": b64encode(b"text").decode()}
        assert await peer.call("fs/writeFile", at("a/b/c") | data) == {}
        assert (await peer.call("fs/getMetadata", at("a/b/c")))["size"] == 4
        copy = {"sourcePath": at("a")["path"], "destinationPath": at("z")["path"], "recursive": True}
        assert await peer.call("fs/copy", copy) == {}
        assert b64decode((await peer.call("fs/readFile", at("z/b/c")))["dataBase64"]) == b"text"
        assert b64decode((await peer.call("fs/readFile", at("bad.txt")))["dataBase64"]) == b"\xff\x00"
        assert await peer.call("fs/remove", at("a")) == {}
        bounds = {"maxDepth": 9, "maxDirectories": 9, "maxEntries": 9, "followDirectorySymlinks": False}
        walk = await peer.call("fs/walk", at("z") | {"options": bounds})
        assert [entry["path"] for entry in walk["entries"]] == [at("z/b")["path"], at("z/b/c")["path"]]
        with pytest.raises(Refused) as gone:
            await peer.call("fs/readFile", at("a"))
        assert gone.value.code == -32004


async def test_open_files_belong_to_the_connection_not_to_the_session(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    block = {"handleId": "h", "offset": 1, "len": 9}
    async with serving() as (url, _):
        async with ready(url) as peer:
            await peer.call("fs/open", {"handleId": "h", "path": (tmp_path / "f").as_uri()})
            assert b64decode((await peer.call("fs/readBlock", block))["chunk"]) == b"bc"
        async with connected(url) as again:
            await resumed(again, peer.session_id)
            with pytest.raises(Refused) as refused:
                await again.call("fs/readBlock", block)
            assert refused.value.code == -32004


@pytest.mark.parametrize(
    ("environ", "listed", "used"),
    [
        ({}, [], Path("/tmp")),
        ({"TMPDIR": "/var/tmp"}, [Path("/var/tmp")], Path("/var/tmp")),
        ({"TMPDIR": "rel/./x/.."}, [Path.cwd() / "rel"], Path.cwd() / "rel"),
    ],
)
async def test_information_names_the_temporary_directories(
    environ: dict[str, str], listed: list[Path], used: Path
) -> None:
    async with serving(environ=ENV | environ) as (url, _), ready(url) as peer:
        info = await peer.call("environment/info")
        assert info["cwd"] == Path.cwd().as_uri()
        assert info["shell"]["path"].startswith("/")
        assert info["temporaryDirectories"] == [path.as_uri() for path in listed]
        assert info["tempDir"] == used.as_uri()
        assert info["executorVersion"].startswith("0.166.0+holdfast.")


async def test_configuration_over_the_wire(tmp_path: Path) -> None:
    codex = tmp_path / ".codex"
    codex.mkdir()
    (codex / "config.toml").write_text('model = "m"\nsecret = "s"\n', "utf-8")
    environ = ENV | {"HOME": str(tmp_path), "CODEX_HOME": str(codex)}
    question = {"cwd": tmp_path.as_uri(), "configPaths": [["model"]], "requirementsPaths": []}
    async with serving(environ=environ) as (url, _), ready(url) as peer:
        result = await peer.call("environmentConfig/read", question)
        assert (result["userHomeDir"], result["codexHomeDir"]) == (tmp_path.as_uri(), codex.as_uri())
        texts = [layer["toml"] for layer in result["config"]["layers"]]
        assert any('model = "m"' in text for text in texts)
        assert "secret" not in "".join(texts)


async def test_discovery_over_the_wire(tmp_path: Path) -> None:
    root = tmp_path / "plug"
    texts = {".cursor-plugin/plugin.json": '{"name":"p"}', ".mcp.json": "{}", ".app.json": "[]"}
    texts["skills/s/SKILL.md"] = "---\nname: s\ndescription: d\n---\n"
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    (tmp_path / "home").mkdir()
    environ = ENV | {"HOME": str(tmp_path / "home")}
    async with serving(environ=environ) as (url, _), ready(url) as peer:
        roots = {"roots": [{"id": "r", "path": root.as_uri()}]}
        [found] = (await peer.call("capabilityRoots/discoverV1", roots))["roots"]
        assert found["error"] is None
        files = [found["plugin"][key]["contents"] for key in ("manifest", "mcpConfig", "appsConfig")]
        assert files == ['{"name":"p"}', "{}", "[]"]
        assert [skill["instructions"]["contents"] for skill in found["skills"]] == [
            texts["skills/s/SKILL.md"]
        ]
        nothing: dict[str, object] = {"plugins": [], "skills": [], "warnings": []}
        assert await peer.call("capabilities/discoverV2", {"cwd": tmp_path.as_uri()}) == nothing


# --- HTTP


def deltas(peer: Peer) -> list[dict[str, Any]]:
    return [note["params"] for note in peer.others if note["method"] == "http/request/bodyDelta"]


def chunked(pieces: list[bytes], release: asyncio.Event) -> Script:
    """The first piece at once, the others when released; then wait until the client is gone."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await release.wait()
        writer.write(b"0\r\n\r\n")
        await reader.read()

    return script


async def test_a_buffered_body_over_the_wire() -> None:
    async with (
        httpd({"/x": reply(404, b"no", ("X-A", "1"))}) as web,
        serving() as (url, _),
        ready(url) as peer,
    ):
        params = {"method": "GET", "url": web.url("/x#fragment"), "requestId": "r", "timeoutMs": None}
        result = await peer.call("http/request", params)
        assert (result["status"], b64decode(result["bodyBase64"])) == (404, b"no")
        assert {"name": "x-a", "value": "1"} in result["headers"]
        assert web.received[0].target == "/x"


async def test_a_streamed_body_comes_after_its_answer_and_holds_nobody_up() -> None:
    release = asyncio.Event()
    script = chunked([b"one", b"two"], release)
    async with httpd({"/": script}) as web, serving() as (url, _), ready(url) as peer:
        params = {"method": "GET", "url": web.url(), "requestId": "r", "streamResponse": True}
        assert (await peer.call("http/request", params))["bodyBase64"] == ""
        await peer.until(lambda: deltas(peer))
        with pytest.raises(Refused) as taken:
            await peer.call("http/request", params)
        assert taken.value.code == -32602
        release.set()
        await peer.until(lambda: deltas(peer)[-1]["done"])
        assert [delta["seq"] for delta in deltas(peer)] == list(range(1, len(deltas(peer)) + 1))
        assert b"".join(b64decode(delta["deltaBase64"]) for delta in deltas(peer)) == b"onetwo"
        assert deltas(peer)[-1]["error"] is None


async def test_a_stream_ends_with_its_connection() -> None:
    hung_up = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nbegun")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        hung_up.set()

    async with httpd({"/": script}) as web, serving() as (url, _):
        async with ready(url) as peer:
            params = {"method": "GET", "url": web.url(), "requestId": "r", "streamResponse": True}
            await peer.call("http/request", params)
            await peer.until(lambda: deltas(peer))
        async with asyncio.timeout(WAIT_S):
            await hung_up.wait()
