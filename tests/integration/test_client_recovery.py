"""The client when its link is lost: what goes on, what is repeated, what fails, and how it says so."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websocket

import holdfast
from holdfast import ConnectionLost, Exited, Output, OutputLost, SessionLost
from holdfast.client import process as process_module
from holdfast.client import recovery
from holdfast.client.events import ordering
from holdfast.client.events.ordering import Pushed
from holdfast.client.links import transport
from holdfast.client.recovery import LinkState
from holdfast.server.connection import ExecConnection
from holdfast.server.executor import Clocks
from holdfast.server.processes.process import MAX_PENDING
from tests.support.peer import WAIT_S, descendants_named, fresh_mark, seen_running, serving
from tests.support.recorder import Entry, Message, Recorder, recording
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

GATE = "while [ ! -e gate ]; do sleep 0.02; done"


@pytest.fixture(autouse=True)
def nobody_looks_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads are counted here: on a slow machine a process is quiet for longer than it is elsewhere."""
    monkeypatch.setattr(ordering, "FIRST_LOOK_S", 3600.0)


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


async def until(condition: Callable[[], bool]) -> None:
    """For what only the outside world or the client's own state can show."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def offline(env: holdfast.Environment, proxy: Recorder) -> None:
    """Cut the link and keep it cut until `proxy.reachable` is set again."""
    proxy.reachable = False
    proxy.cut()
    await until(lambda: env.state is LinkState.RECOVERING)


def unanswered(method: str) -> tuple[Callable[[Entry], Message | None], asyncio.Event]:
    """A fault that loses the first answer to `method`, and says when."""
    lost = asyncio.Event()

    def fault(entry: Entry) -> Message | None:
        if entry.method == method and entry.sender == "server" and not lost.is_set():
            lost.set()
            return None
        return entry.message

    return fault, lost


def losing(method: str, seq: int) -> tuple[Callable[[Entry], Message | None], asyncio.Event]:
    """A fault that loses one notification of a command, and says when that has spoken for the first time."""
    spoke = asyncio.Event()

    def fault(entry: Entry) -> Message | None:
        if entry.method == "process/output":
            spoke.set()
        return None if entry.method == method and entry.params["seq"] == seq else entry.message

    return fault, spoke


@contextlib.asynccontextmanager
async def proxied(
    fault: Callable[[Entry], Message | None] | None = None,
) -> AsyncIterator[tuple[holdfast.Environment, Recorder]]:
    async with (
        serving() as (url, _),
        recording(lambda: url, fault) as proxy,
        holdfast.connect(proxy.url) as env,
    ):
        yield env, proxy


async def test_output_made_while_the_link_was_down_is_recovered_and_the_handle_goes_on(
    tmp_path: Path,
) -> None:
    script = f'echo one; {GATE}; echo two; echo err >&2; touch done; read line; echo "$line"; exit 4'
    async with proxied() as (env, proxy):
        process = await env.start(sh(script), cwd=tmp_path, stdin=True)
        waiting = asyncio.ensure_future(process.wait())
        events = aiter(process)
        assert await anext(events) == Output(1, "stdout", b"one\n")
        await offline(env, proxy)
        (tmp_path / "gate").touch()
        await until((tmp_path / "done").exists)
        writing = asyncio.ensure_future(process.write(b"three\n"))
        proxy.reachable = True
        await asyncio.wait_for(writing, WAIT_S)
        result = await asyncio.wait_for(waiting, WAIT_S)
        assert (result.code, result.stdout, result.stderr) == (4, b"one\ntwo\nthree\n", b"err\n")
        rest = [event async for event in events]
        assert [event.seq for event in rest] == list(range(2, len(rest) + 2))
        assert env.state is LinkState.CONNECTED
        assert len(proxy.sent("initialize", kind="request")) == 2


async def test_a_command_that_ended_while_the_link_was_down_is_reported_whole(tmp_path: Path) -> None:
    async with proxied() as (env, proxy):
        process = await env.start(sh(f"echo one; {GATE}; echo two; (touch done) & exit 6"), cwd=tmp_path)
        async for _ in process.stdout:
            break
        await offline(env, proxy)
        (tmp_path / "gate").touch()
        await until((tmp_path / "done").exists)
        proxy.reachable = True
        result = await asyncio.wait_for(process.wait(), WAIT_S)
        assert (result.code, result.stdout, result.sandbox_denied) == (6, b"one\ntwo\n", False)
        assert result.usage is not None


async def test_a_write_whose_answer_was_lost_is_repeated_under_its_id_and_arrives_once() -> None:
    fault, lost = unanswered("process/write")
    async with proxied(fault) as (env, proxy):
        process = await env.start(["/bin/cat"], stdin=True)
        writing = asyncio.ensure_future(process.write(b"once\n"))
        await asyncio.wait_for(lost.wait(), WAIT_S)
        proxy.cut()
        await asyncio.wait_for(writing, WAIT_S)
        await process.write(b"more\n")
        await process.close_stdin()
        assert (await process.wait()).stdout == b"once\nmore\n"
        ids = [entry.params["writeId"] for entry in proxy.sent("process/write", kind="request")]
        assert ids[0] == ids[1] != ids[2]
        assert len(ids) == 3


@pytest.mark.parametrize("method", ["process/signal", "process/terminate", "fs/getMetadata"])
async def test_a_call_that_was_under_way_fails_and_is_not_repeated(method: str) -> None:
    fault, lost = unanswered(method)
    async with proxied(fault) as (env, proxy):
        process = await env.start(["/bin/sleep", "600"])
        calls: dict[str, Callable[[], Coroutine[None, None, object]]] = {
            "process/signal": lambda: process.signal("SIGURG"),
            "process/terminate": process.terminate,
            "fs/getMetadata": lambda: env.files.stat("/"),
        }
        calling = asyncio.ensure_future(calls[method]())
        await asyncio.wait_for(lost.wait(), WAIT_S)
        proxy.cut()
        with pytest.raises(ConnectionLost) as caught:
            await asyncio.wait_for(calling, WAIT_S)
        assert "may or may not have happened" in str(caught.value)
        assert caught.value.remedy
        await until(lambda: env.state is LinkState.CONNECTED)
        assert len(proxy.sent(method, kind="request")) == 1
        await process.terminate()
        await process.wait()


async def test_a_start_whose_answer_was_lost_fails_and_its_command_is_ended() -> None:
    mark = fresh_mark()
    fault, lost = unanswered("process/start")
    async with proxied(fault) as (env, proxy):
        starting = asyncio.ensure_future(env.start(["/bin/sleep", mark]))
        await asyncio.wait_for(lost.wait(), WAIT_S)
        await seen_running(mark)
        proxy.cut()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(starting, WAIT_S)
        await until(lambda: not descendants_named(mark))
        assert (await env.run(["/bin/true"])).code == 0


async def test_the_end_of_a_lost_start_does_not_end_what_is_started_under_its_name_later() -> None:
    """The first start never reached the server; what its clean-up ends is nothing, whoever comes next."""
    sent = asyncio.Event()

    def fault(entry: Entry) -> Message | None:
        if entry.method == "process/start" and entry.kind == "request" and not sent.is_set():
            sent.set()
            return None
        return entry.message

    async with proxied(fault) as (env, proxy):
        starting = asyncio.ensure_future(env.start(["/bin/cat"], stdin=True, process_id="job"))
        await asyncio.wait_for(sent.wait(), WAIT_S)
        await offline(env, proxy)
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(starting, WAIT_S)
        again = asyncio.ensure_future(env.start(["/bin/cat"], stdin=True, process_id="job"))
        await asyncio.sleep(0)
        proxy.reachable = True
        process = await asyncio.wait_for(again, WAIT_S)
        await proxy.until(lambda: len(proxy.sent("process/terminate", by="server")) == 1)
        await process.write(b"alive")
        await process.close_stdin()
        result = await asyncio.wait_for(process.wait(), WAIT_S)
        assert (result.code, result.stdout) == (0, b"alive")


async def test_a_session_that_was_taken_over_makes_names_that_its_processes_do_not_have() -> None:
    async with serving() as (url, _):
        first = await holdfast.Environment.open(url)
        process = await first.start(["/bin/sleep", "600"])
        await first.leave()
        second = await holdfast.Environment.open(url, resume=first.session_id)
        try:
            assert (await asyncio.wait_for(second.run(["/bin/echo", "hi"]), WAIT_S)).stdout == b"hi\n"
            adopted = await second.adopt(process.process_id)
            await adopted.terminate()
            await asyncio.wait_for(adopted.wait(), WAIT_S)
        finally:
            await second.aclose()


async def test_calls_made_while_the_link_is_down_wait_and_a_status_does_not() -> None:
    async with proxied() as (env, proxy):
        await offline(env, proxy)
        running = asyncio.ensure_future(env.run(["/bin/echo", "hi"]))
        with pytest.raises(ConnectionLost):
            await env.status()
        assert not running.done()
        proxy.reachable = True
        assert (await asyncio.wait_for(running, WAIT_S)).stdout == b"hi\n"
        assert await env.status() == "ready"


async def test_a_run_cancelled_while_the_link_is_down_is_ended_on_the_next() -> None:
    mark = fresh_mark()
    async with proxied() as (env, proxy):
        running = asyncio.ensure_future(env.run(["/bin/sleep", mark]))
        await seen_running(mark)
        await env.status()  # answered after the start, so that is known too
        await offline(env, proxy)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        proxy.reachable = True
        await until(lambda: not descendants_named(mark))


async def test_output_beyond_what_the_server_keeps_fails_that_command_and_no_other(tmp_path: Path) -> None:
    mark = fresh_mark()
    noisy = f"echo one; {GATE}; head -c 3000000 /dev/zero; touch done; sleep {mark}"
    async with proxied() as (env, proxy):
        loud = await env.start(sh(noisy), cwd=tmp_path)
        quiet = await env.start(["/bin/cat"], stdin=True)
        events = aiter(loud)
        await anext(events)
        await offline(env, proxy)
        (tmp_path / "gate").touch()
        await until((tmp_path / "done").exists)
        proxy.reachable = True
        with pytest.raises(OutputLost):
            await asyncio.wait_for(loud.wait(), WAIT_S)
        with pytest.raises(OutputLost):
            await asyncio.wait_for(anext(events), WAIT_S)
        await until(lambda: not descendants_named(mark))
        await quiet.write(b"still here")
        await quiet.close_stdin()
        assert (await quiet.wait()).stdout == b"still here"


@pytest.mark.parametrize(("method", "seq"), [("process/output", 1), ("process/exited", 3)])
async def test_a_lost_notification_is_made_up_for_by_the_next_read(method: str, seq: int) -> None:
    """The link lives on: nothing but the numbers says that something is missing."""

    fault, spoke = losing(method, seq)
    async with proxied(fault) as (env, proxy):
        process = await env.start(sh("echo one; read line; echo two; exec >&- 2>&-; exit 5"), stdin=True)
        waiting = asyncio.ensure_future(process.wait())
        await asyncio.wait_for(spoke.wait(), WAIT_S)
        await process.write(b"\n")
        result = await asyncio.wait_for(waiting, WAIT_S)
        assert (result.code, result.stdout) == (5, b"one\ntwo\n")
        [read] = proxy.sent("process/read", kind="request")
        assert read.params["afterSeq"] == seq - 1
        assert proxy.connections == 1


@pytest.mark.parametrize(
    "lost",
    [
        {"process/closed"},
        {"process/exited", "process/closed"},
        {"process/output", "process/exited", "process/closed"},
    ],
    ids=len,
)
async def test_lost_events_that_none_follows_are_read_when_the_process_is_quiet(
    monkeypatch: pytest.MonkeyPatch, lost: set[str]
) -> None:
    monkeypatch.setattr(ordering, "FIRST_LOOK_S", 0.05)
    async with proxied(lambda entry: None if entry.method in lost else entry.message) as (env, proxy):
        process = await env.start(sh("echo one; exit 5"))
        result = await asyncio.wait_for(process.wait(), WAIT_S)
        assert (result.code, result.stdout) == (5, b"one\n")
        assert proxy.connections == 1


async def test_a_process_is_read_only_when_nothing_came_since_the_last_look() -> None:
    async with proxied() as (env, proxy):
        process = await env.start(sh("read line; echo one; read line; exit 3"), stdin=True)
        await process.write(b"\n")
        assert await anext(aiter(process)) == Output(1, "stdout", b"one\n")
        process._check_quiet()
        await env.status()  # answered after whatever was asked before
        assert proxy.sent("process/read") == []
        process._check_quiet()
        await proxy.until(lambda: len(proxy.sent("process/read", by="server")) == 1)
        await process.write(b"\n")
        assert (await asyncio.wait_for(process.wait(), WAIT_S)).code == 3
        assert len(proxy.sent("process/read", kind="request")) == 1


async def test_a_lost_end_that_the_server_has_forgotten_fails_that_command() -> None:
    closed = asyncio.Event()

    def fault(entry: Entry) -> Message | None:
        if entry.method != "process/closed":
            return entry.message
        closed.set()
        return None

    async with (
        serving(clocks=Clocks(closed_s=0.0)) as (url, _),
        recording(lambda: url, fault) as proxy,
        holdfast.connect(proxy.url) as env,
    ):
        process = await env.start(["/bin/true"])
        await asyncio.wait_for(closed.wait(), WAIT_S)
        assert isinstance(await anext(aiter(process)), Exited)
        process._check_quiet()
        process._check_quiet()
        with pytest.raises(OutputLost):
            await asyncio.wait_for(process.wait(), WAIT_S)


async def test_events_that_overtake_each_other_are_put_in_order_without_a_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_module, "OVERTAKING_S", 3600.0)
    fault, spoke = losing("process/output", 1)
    async with proxied(fault) as (env, proxy):
        process = await env.start(sh("echo one; read line; echo two"), stdin=True)
        await asyncio.wait_for(spoke.wait(), WAIT_S)
        await process.write(b"\n")
        await until(lambda: process._ordering.missing == 1)
        await env.status()  # answered after whatever was asked before
        process.take(Pushed(process.process_id, Output(1, "stdout", b"one\n")))
        assert (await asyncio.wait_for(process.wait(), WAIT_S)).stdout == b"one\ntwo\n"
        assert proxy.sent("process/read") == []


async def test_a_gap_of_an_abandoned_command_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "OVERTAKING_S", 3600.0)
    fault, spoke = losing("process/output", 1)
    async with proxied(fault) as (env, proxy):
        process = await env.start(sh("echo one; read line; echo two; read line"), stdin=True)
        await asyncio.wait_for(spoke.wait(), WAIT_S)
        await process.write(b"\n")
        await until(lambda: process._ordering.missing == 1)
        process.abandon()
        await env.status()  # answered after whatever was asked before
        assert proxy.sent("process/read") == []


async def test_a_gap_that_the_server_cannot_fill_fails_that_command_after_one_read() -> None:
    mark = fresh_mark()
    lose, spoke = losing("process/output", 1)

    def fault(entry: Entry) -> Message | None:
        if entry.method == "process/read" and entry.kind == "response":
            return {**entry.message, "result": {**entry.result, "chunks": [], "nextSeq": 1}}
        return lose(entry)

    async with proxied(fault) as (env, proxy):
        process = await env.start(sh(f"echo one; read line; echo two; sleep {mark}"), stdin=True)
        await asyncio.wait_for(spoke.wait(), WAIT_S)
        await process.write(b"\n")
        with pytest.raises(OutputLost):
            await asyncio.wait_for(process.wait(), WAIT_S)
        assert len(proxy.sent("process/read", kind="request")) == 1
        await until(lambda: not descendants_named(mark))
        assert (await env.run(["/bin/true"])).code == 0


async def test_a_message_that_is_none_costs_the_link_and_not_the_session() -> None:
    spoiled = asyncio.Event()

    def fault(entry: Entry) -> Message | None:
        if entry.method == "process/output" and not spoiled.is_set():
            spoiled.set()
            entry.params["chunk"] = "*"
        return entry.message

    async with proxied(fault) as (env, proxy):
        assert (await asyncio.wait_for(env.run(["/bin/echo", "hi"]), WAIT_S)).stdout == b"hi\n"
        assert proxy.connections == 2


async def test_an_answer_that_somebody_in_between_lost_the_server_counts_as_a_loss() -> None:
    lied = asyncio.Event()

    def fault(entry: Entry) -> Message | None:
        if entry.method == "process/write" and entry.sender == "server" and not lied.is_set():
            lied.set()
            return {
                "id": entry.message["id"],
                "error": {"code": -32000, "message": "JSON-RPC transport closed"},
            }
        return entry.message

    async with proxied(fault) as (env, proxy):
        process = await env.start(["/bin/cat"], stdin=True)
        await asyncio.wait_for(process.write(b"once"), WAIT_S)
        await process.close_stdin()
        assert (await process.wait()).stdout == b"once"
        assert proxy.connections == 2


@pytest.mark.parametrize("way", ["restarted", "window"])
async def test_a_session_that_cannot_be_resumed_fails_every_handle_with_the_same_error(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as (url, _), serving() as (other, _):
        upstream = [url]
        async with recording(lambda: upstream[0]) as proxy, holdfast.connect(proxy.url) as env:
            process = await env.start(["/bin/cat"], stdin=True)
            waits = [
                asyncio.ensure_future(process.wait()),
                asyncio.ensure_future(anext(aiter(process))),
                asyncio.ensure_future(anext(process.stdout)),
            ]
            await asyncio.sleep(0)
            if way == "window":
                monkeypatch.setattr(recovery, "WINDOW_S", 0.3)
                proxy.reachable = False
            upstream[0] = other
            proxy.cut()
            await until(lambda: env.state is not LinkState.CONNECTED)
            late = [asyncio.ensure_future(process.write(b"x")), asyncio.ensure_future(env.run(["/bin/true"]))]
            for failing in (*waits, *late):
                with pytest.raises(SessionLost) as caught:
                    await asyncio.wait_for(failing, WAIT_S)
                assert caught.value.remedy
            assert env.state is LinkState.FAILED
            assert isinstance(env.failure, SessionLost)
            with pytest.raises(SessionLost):
                await env.status()
            with pytest.raises(SessionLost):
                await process.wait()


async def test_a_unix_socket_is_dialled_again(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/s"
    async with serving(listen=address) as (_, executor), holdfast.connect(address) as env:
        process = await env.start(["/bin/cat"], stdin=True)
        [session] = executor.sessions
        assert isinstance(session.listener, ExecConnection)
        first = session.listener
        first._wire.abort()
        await until(lambda: session.listener not in (None, first))
        await process.write(b"hello")
        await process.close_stdin()
        assert (await asyncio.wait_for(process.wait(), WAIT_S)).stdout == b"hello"


async def test_a_full_backlog_does_not_keep_the_session_from_recovering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link that is not read shows its death only to whoever writes; the ping does."""
    monkeypatch.setattr(transport, "PING_S", 0.3)
    async with proxied() as (env, proxy):
        process = await env.start(sh("head -c 30000000 /dev/zero; echo end"))
        await until(lambda: env._session.holding)
        proxy.cut()
        await until(lambda: proxy.connections == 2 and env.state is LinkState.CONNECTED)
        with contextlib.suppress(OutputLost):  # more than 1 MiB may have been on its way when the link died
            await asyncio.wait_for(process.wait(), WAIT_S)
        assert (await asyncio.wait_for(env.run(["/bin/true"]), WAIT_S)).code == 0


class Tunnel:
    """A TCP proxy that can fall silent in both directions without closing anything."""

    def __init__(self, host: str, port: int) -> None:
        self.silent = False
        self.url = ""
        self._upstream = host, port
        self._tasks: list[asyncio.Task[None]] = []

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._upstream)
        both = [
            asyncio.ensure_future(self._pump(reader, back)),
            asyncio.ensure_future(self._pump(there, writer)),
        ]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for stream in (writer, back):
            stream.close()
        await asyncio.gather(*both)
        for stream in (writer, back):
            with contextlib.suppress(ConnectionError):
                await stream.wait_closed()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.silent = False
        self._tasks.append(asyncio.ensure_future(self.carry(reader, writer)))

    async def finish(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*self._tasks)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if not self.silent:
                    writer.write(data)
                    await writer.drain()


async def test_a_peer_that_falls_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PING_S", 0.3)
    async with serving() as (url, _):
        host, port = url.removeprefix("ws://").split(":")
        tunnel = Tunnel(host, int(port))
        server = await asyncio.start_server(tunnel.accept, "127.0.0.1", 0)
        async with server:
            address = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with holdfast.connect(address) as env:
                process = await env.start(["/bin/cat"], stdin=True)
                tunnel.silent = True
                await asyncio.wait_for(process.write(b"hello"), WAIT_S)
                await process.close_stdin()
                result = await asyncio.wait_for(process.wait(), WAIT_S)
                assert result.stdout == b"hello"
        await tunnel.finish()


async def test_a_stuck_server_is_dropped_so_that_a_command_can_be_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that works one request at a time waits in a write; a terminate needs another link."""
    monkeypatch.setattr("holdfast.client.session.CLEANUP_S", 1.0)
    monkeypatch.setattr("holdfast.client.process.WRITE_BYTES", 4096)
    mark = fresh_mark()
    async with proxied() as (env, proxy):
        running = asyncio.ensure_future(env.run(["/bin/sleep", mark], input=bytes(2 << 20)))
        queued = MAX_PENDING + 65536 // 4096  # and what the pipe holds; one more and the server waits
        await proxy.until(lambda: len(proxy.sent("process/write", kind="request")) > queued)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: not descendants_named(mark))


async def test_no_exit_is_lost_when_the_verdict_is_asked_on_a_dying_link() -> None:
    fault, lost = unanswered("process/read")

    def forgetful(entry: Entry) -> Message | None:
        if entry.method == "process/exited":
            entry.params.pop("sandboxDenied")
        return fault(entry)

    async with proxied(forgetful) as (env, proxy):
        process = await env.start(sh("exit 9"))
        await asyncio.wait_for(lost.wait(), WAIT_S)
        proxy.cut()
        events = await asyncio.wait_for(_all(process), WAIT_S)
        assert [event.sandbox_denied for event in events if isinstance(event, Exited)] == [False]


async def _all(process: holdfast.Process) -> list[object]:
    return [event async for event in process]


async def test_events_that_come_before_the_answer_to_the_handshake_are_not_lost() -> None:
    """A resumed session pushes at once, and more than any queue would hold."""
    count = 1000
    pushed = [_output(seq) for seq in range(2, count + 1)]
    visits = 0

    async def serve(link: ServerConnection) -> None:
        nonlocal visits
        visits += 1
        async for raw in link:
            message = json.loads(raw)
            match message["method"]:
                case "initialize":
                    if visits == 2:
                        for note in pushed:
                            await link.send(note)
                    info = {"shell": {"name": "sh", "path": "/bin/sh"}, "cwd": "file:///"}
                    await _answer(link, message, {"sessionId": "s", "environmentInfo": info})
                case "process/start":
                    await _answer(link, message, {"processId": message["params"]["processId"]})
                    await link.send(_output(1))
                case "environment/status":
                    link.transport.abort()
                case "process/read":
                    page = {"chunks": [], "nextSeq": count + 3, "exited": True, "exitCode": 0, "closed": True}
                    await _answer(link, message, page)

    async with serve_websocket(serve, "127.0.0.1", 0, close_timeout=1) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with holdfast.connect(f"ws://127.0.0.1:{port}") as env:
            process = await env.start(["/bin/true"])
            events = aiter(process)
            assert isinstance(await anext(events), Output)
            with pytest.raises(ConnectionLost):
                await env.status()
            seen = [event.seq async for event in events]
            assert seen == list(range(2, count + 3))
            assert (await process.wait()).stdout == b"x" * count


def _output(seq: int) -> str:
    params = {"processId": "p1", "seq": seq, "stream": "stdout", "chunk": "eA=="}
    return json.dumps({"method": "process/output", "params": params}, separators=(",", ":"))


async def _answer(link: ServerConnection, message: Message, result: object) -> None:
    await link.send(json.dumps({"id": message["id"], "result": result}))
