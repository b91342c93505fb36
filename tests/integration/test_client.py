"""The client against our server: commands from their start to their end, and what can go wrong before."""

import asyncio
import base64
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import holdfast
from holdfast import Closed, Exited, Output
from holdfast.client.events import ordering
from holdfast.client.session import ClientSession
from holdfast.errors import (
    InvalidRequest,
    OperationFailed,
    ProtocolMismatch,
    SessionLost,
    TokenRefused,
    Unreachable,
    UsageError,
)
from holdfast.server.edges.auth import load
from holdfast.wire.files import WriteFileParams
from holdfast.wire.paths import PathUri
from tests.support.outwardproxy import outward_proxy
from tests.support.peer import WAIT_S, descendants_named, fresh_mark, seen_running, serving
from tests.support.recorder import Entry, Message, recording
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

TOKEN = "correct horse battery"
SERVE = [sys.executable, "-m", "holdfast", "serve", "--listen", "stdio"]


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


@pytest.fixture
async def env() -> AsyncIterator[holdfast.Environment]:
    async with serving() as (url, _), holdfast.connect(url) as environment:
        yield environment


async def gone(mark: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while descendants_named(mark):
            await asyncio.sleep(0.01)


# --- a command's life


async def test_a_result_says_how_a_command_ended_and_what_it_said(env: holdfast.Environment) -> None:
    result = await env.run(sh("echo out; echo err >&2; exit 3"))
    assert (result.code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
    assert (result.sandbox_denied, result.denial, result.dropped_bytes) == (False, None, 0)
    assert result.enforcement is not None
    assert result.enforcement.backend == "none"
    assert result.usage is not None
    assert result.usage.peak_rss_bytes > 0


async def test_events_come_in_order_once_for_every_iterator_and_also_after_the_end(
    env: holdfast.Environment,
) -> None:
    process = await env.start(sh("echo one; echo two >&2; exit 7"))
    first = [event async for event in process]
    assert [event.seq for event in first] == list(range(1, len(first) + 1))
    assert b"".join(e.data for e in first if isinstance(e, Output) and e.stream == "stdout") == b"one\n"
    assert b"".join(e.data for e in first if isinstance(e, Output) and e.stream == "stderr") == b"two\n"
    assert [e.code for e in first if isinstance(e, Exited)] == [7]
    assert isinstance(first[-1], Closed)
    assert [event async for event in process] == first
    assert (await process.wait()).stdout == b"one\n"


async def test_streams_are_read_apart_while_the_command_runs(env: holdfast.Environment) -> None:
    process = await env.start(sh("echo ready; read line; echo $line; echo err >&2"), stdin=True)
    seen = b""
    async for chunk in process.stdout:
        seen += chunk
        if seen == b"ready\n":
            await process.write(b"hello\n")
    assert seen == b"ready\nhello\n"
    assert b"".join([chunk async for chunk in process.stderr]) == b"err\n"


async def test_standard_input_is_written_and_ended(env: holdfast.Environment) -> None:
    process = await env.start(["/bin/cat"], stdin=True)
    for piece in (b"one ", b"two ", b"three"):
        await process.write(piece)
    await process.close_stdin()
    assert (await process.wait()).stdout == b"one two three"
    large = os.urandom(3_000_000)
    assert (await env.run(["/bin/cat"], input=large)).stdout == large
    assert (await env.run(["/bin/cat"], input=b"")).stdout == b""
    assert (await env.run(["/bin/true"], input=large)).code == 0


async def test_a_command_without_standard_input_takes_none(env: holdfast.Environment) -> None:
    process = await env.start(["/bin/sleep", "600"])
    with pytest.raises(InvalidRequest):
        await process.write(b"x")
    await process.terminate()
    await process.wait()


async def test_a_terminal_takes_lines_and_another_size(env: holdfast.Environment) -> None:
    process = await env.start(sh("read line; echo got $line; stty size"), tty=True)
    await process.resize(33, 101)
    await process.write(b"it\n")
    result = await process.wait()
    assert b"got it" in result.stdout
    assert b"33 101" in result.stdout
    assert result.stderr == b""
    assert b"got it" in b"".join([chunk async for chunk in process.stdout])
    with pytest.raises(UsageError):
        await process.resize(0, 10)


async def test_a_signal_reaches_the_command(env: holdfast.Environment) -> None:
    for name, code in (("SIGTERM", 41), ("SIGINT", 42)):
        process = await env.start(
            sh("trap 'exit 41' TERM; trap 'exit 42' INT; echo ready; while :; do sleep 0.05; done")
        )
        async for _ in process.stdout:
            await process.signal(name)
        assert (await process.wait()).code == code


async def test_a_terminated_command_is_reported_like_any_other(env: holdfast.Environment) -> None:
    process = await env.start(["/bin/sleep", "600"])
    await process.terminate()
    assert (await process.wait()).code == 137
    await process.terminate()


async def test_a_command_gets_the_directory_and_the_environment_asked_for(
    env: holdfast.Environment, tmp_path: Path
) -> None:
    assert (await env.run(["/bin/pwd"], cwd=tmp_path)).stdout.decode().strip() == str(tmp_path)
    assert (await env.run(sh("echo $PATH"))).stdout == b"/usr/bin:/bin\n"
    only = await env.run(["/usr/bin/env"], env={"ONLY": "this"})
    assert only.stdout == b"ONLY=this\n"


async def test_a_result_keeps_head_and_tail_of_long_output(env: holdfast.Environment) -> None:
    result = await env.run(sh("echo head; head -c 5000000 /dev/zero; echo tail"), max_output_bytes=1000)
    assert len(result.stdout) == 1000
    assert result.stdout.startswith(b"head\n")
    assert result.stdout.endswith(b"tail\n")
    assert result.dropped_bytes == 5_000_010 - 1000


async def test_the_server_says_how_it_is_and_what_it_can(env: holdfast.Environment, tmp_path: Path) -> None:
    assert await env.status() == "ready"
    assert env.info.capabilities.holdfast_resize
    assert env.info.cwd is not None
    (tmp_path / "file").write_bytes(b"text")
    assert await env.files.read(tmp_path / "file") == b"text"


# --- cancellation


async def test_a_cancelled_run_ends_its_command(env: holdfast.Environment) -> None:
    mark = fresh_mark()
    running = asyncio.ensure_future(env.run(["/bin/sleep", mark]))
    await seen_running(mark)
    await env.status()  # answered after the start, so that the run waits for the end by now
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone(mark)


async def test_a_run_out_of_time_ends_its_command(env: holdfast.Environment) -> None:
    mark = fresh_mark()
    with pytest.raises(TimeoutError):
        await env.run(["/bin/sleep", mark], timeout_s=0.2)
    await gone(mark)


async def test_a_cancelled_start_leaves_no_command_behind() -> None:
    mark = fresh_mark()
    withheld = asyncio.Event()

    def fault(entry: Entry) -> Message | None:
        if entry.method == "process/start" and entry.sender == "server":
            withheld.set()
            return None
        return entry.message

    async with (
        serving() as (url, _),
        recording(lambda: url, fault) as proxy,
        holdfast.connect(proxy.url) as env,
    ):
        starting = asyncio.ensure_future(env.start(["/bin/sleep", mark]))
        async with asyncio.timeout(WAIT_S):
            await withheld.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await gone(mark)
        assert await env.status() == "ready"


async def test_what_still_runs_when_the_block_ends_is_ended() -> None:
    mark = fresh_mark()
    async with serving() as (url, _):
        async with holdfast.connect(url) as env:
            process = await env.start(["/bin/sleep", mark])
            await seen_running(mark)
        await gone(mark)
        with pytest.raises(SessionLost):
            await process.wait()
        with pytest.raises(SessionLost):
            await env.run(["/bin/true"])


# --- what travels


async def test_a_whole_stream_costs_no_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "FIRST_LOOK_S", 3600.0)  # else a slow machine is a quiet one
    async with serving() as (url, _), recording(lambda: url) as proxy, holdfast.connect(proxy.url) as env:
        result = await env.run(sh("head -c 3000000 /dev/zero; echo err >&2; exit 5"))
        assert (result.code, len(result.stdout), result.stderr) == (5, 3_000_000, b"err\n")
        assert proxy.sent("process/read") == []
        assert len(proxy.sent("process/start", kind="request")) == 1


async def test_a_server_that_does_not_mention_denials_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "FIRST_LOOK_S", 3600.0)  # else a slow machine is a quiet one

    def fault(entry: Entry) -> Message | None:
        if entry.method == "process/exited":
            entry.params.pop("sandboxDenied")
        if entry.method == "process/read" and entry.kind == "response":
            entry.result["sandboxDenied"] = True
        return entry.message

    async with (
        serving() as (url, _),
        recording(lambda: url, fault) as proxy,
        holdfast.connect(proxy.url) as env,
    ):
        process = await env.start(sh("echo out; exit 5"))
        events = [event async for event in process]
        assert [e.sandbox_denied for e in events if isinstance(e, Exited)] == [True]
        assert isinstance(events[-1], Closed)
        assert (await process.wait()).sandbox_denied is True
        assert len(proxy.sent("process/read", kind="request")) == 1


async def test_an_old_server_is_understood() -> None:
    """One that says nothing of its sandbox, its directory or its capabilities."""

    def fault(entry: Entry) -> Message | None:
        if entry.kind != "response":
            return entry.message
        if entry.method == "initialize":
            entry.result.pop("environmentInfo")
        if entry.method == "environment/info":
            entry.message["result"] = {"shell": entry.result["shell"], "new": {"unknown": 1}}
        if entry.method == "process/start":
            entry.message["result"] = {"processId": entry.result["processId"]}
        return entry.message

    async with (
        serving() as (url, _),
        recording(lambda: url, fault) as proxy,
        holdfast.connect(proxy.url) as env,
    ):
        with pytest.raises(UsageError):
            await env.run(["/bin/true"])
        process = await env.start(["/bin/sleep", "600"], cwd="/", stdin=True)
        assert process.sandbox_type is None
        assert process.enforcement is None
        for refused in (process.close_stdin(), process.signal("SIGTERM"), process.resize(1, 1)):
            with pytest.raises(InvalidRequest):
                await refused
        with pytest.raises(InvalidRequest):
            await env.run(["/bin/cat"], cwd="/", input=b"x")
        await process.signal("SIGINT")
        assert (await process.wait()).code == 130


async def test_a_message_larger_than_a_frame_is_sent_in_pieces(
    env: holdfast.Environment, tmp_path: Path
) -> None:
    data = os.urandom(1 << 20) * 15  # as base64 more than the 16 MiB that the server takes in one frame
    path = PathUri.from_native(f"{tmp_path}/large")
    await env._session.call("fs/writeFile", WriteFileParams(path, base64.b64encode(data).decode()))
    assert (tmp_path / "large").read_bytes() == data


async def test_a_request_carries_the_trace_of_the_active_span() -> None:
    async with serving() as (url, _), recording(lambda: url) as proxy, holdfast.connect(proxy.url) as env:
        await env.run(["/bin/true"])
        with TracerProvider().get_tracer("test").start_as_current_span("build") as span:
            await env.run(["/bin/true"])
    assert not trace.get_current_span().get_span_context().is_valid
    plain, traced = (entry.message for entry in proxy.sent("process/start", kind="request"))
    context = span.get_span_context()
    assert "trace" not in plain
    assert traced["trace"]["traceparent"][:53] == f"00-{context.trace_id:032x}-{context.span_id:016x}-"


# --- a reader that does not read


async def test_a_command_whose_output_nobody_reads_waits_and_loses_nothing(tmp_path: Path) -> None:
    """On a unix socket: the kernel may keep tens of megabytes of a TCP connection itself."""
    chunk, count = 1 << 20, 40
    script = f"for i in $(seq {count}); do head -c {chunk} /dev/zero; echo $i > progress; done"
    address = f"unix://{tmp_path}/s"
    async with serving(listen=address), holdfast.connect(address) as env:
        process = await env.start(sh(script), cwd=tmp_path)
        written = await stalled(tmp_path / "progress")
        assert written * chunk < 20 << 20  # buffers of the client, the server and the pipe
        assert sum([len(piece) async for piece in process.stdout]) == count * chunk
        assert (await process.wait()).dropped_bytes > 0
        assert (tmp_path / "progress").read_text() == f"{count}\n"


async def test_a_command_whose_output_nobody_reads_can_be_ended(env: holdfast.Environment) -> None:
    process = await env.start(["/bin/cat", "/dev/zero"])
    session: ClientSession = env._session
    async with asyncio.timeout(WAIT_S):
        while not session.holding:
            await asyncio.sleep(0.01)
    await process.terminate()
    assert (await process.wait(max_output_bytes=10)).code == 137
    assert (await env.run(["/bin/true"])).code == 0


async def stalled(progress: Path) -> int:
    """The number in the file once it has stopped growing for a while."""
    seen, same = "", 0
    async with asyncio.timeout(WAIT_S):
        while same < 20:
            await asyncio.sleep(0.02)
            now = progress.read_text() if progress.exists() else ""
            same = same + 1 if now == seen and now else 0
            seen = now
    return int(seen or 0)


# --- nobody, or somebody else, at the other end


async def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    async with serving() as (url, _):
        pass
    for address in (url, f"unix://{tmp_path}/none", ["/nonexistent/program"], "ws://nowhere.invalid:1"):
        with pytest.raises(Unreachable) as caught:
            async with holdfast.connect(address):
                pass
        assert caught.value.remedy
        assert caught.value.retryable


@contextlib.asynccontextmanager
async def listening(answer: bytes | None) -> AsyncIterator[str]:
    """Somebody who answers the first bytes with `answer`, or never."""

    handlers: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
            if answer is not None:
                writer.write(answer)
                await writer.drain()
            else:
                await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(
        lambda *streams: handlers.append(asyncio.ensure_future(serve(*streams))), "127.0.0.1", 0
    )
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*handlers)


async def test_a_server_elsewhere_is_dialled_by_the_proxy_and_a_token_not_shown_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        serving() as (url, _),
        outward_proxy({"server.invalid:8000": urlsplit(url).port or 0}) as proxy,
    ):
        proxy.lead(monkeypatch)
        async with holdfast.connect("ws://server.invalid:8000") as env:
            assert (await env.run(["/bin/echo", "hi"])).stdout == b"hi\n"
        async with holdfast.connect(url):
            assert proxy.asked == ["CONNECT server.invalid:8000 HTTP/1.1"]
        with pytest.raises(Unreachable):
            async with holdfast.connect("ws://server.invalid:8000", token="SECRET"):
                pass
        assert len(proxy.asked) == 1


async def test_somebody_who_does_not_answer_is_unreachable() -> None:
    async with listening(None) as url:
        with pytest.raises(Unreachable):
            await holdfast.Environment.open(url, connect_timeout_s=0.2)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 503 Service Unavailable\r\n\r\n"])
async def test_somebody_who_hangs_up_is_unreachable(answer: bytes) -> None:
    async with listening(answer) as url:
        with pytest.raises(Unreachable):
            await holdfast.Environment.open(url)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: wrong\r\n\r\n",
        b"x" * 100_000,
    ],
)
async def test_somebody_who_speaks_otherwise_is_a_mismatch(answer: bytes) -> None:
    async with listening(answer) as url:
        with pytest.raises(ProtocolMismatch) as caught:
            await holdfast.Environment.open(url)
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "change",
    [
        {"result": {"session": 1}},
        {"error": {"code": -32601, "message": "what is initialize?"}},
        {"id": 99, "result": {}},
        {"result": {"sessionId": "s", "environmentInfo": {"shell": "bash"}}},
    ],
)
async def test_a_websocket_that_answers_otherwise_is_a_mismatch(change: Message) -> None:
    def fault(entry: Entry) -> Message | None:
        if entry.method == "initialize" and entry.sender == "server":
            return {"id": entry.message["id"], **change}
        return entry.message

    async with serving() as (url, _), recording(lambda: url, fault) as proxy:
        with pytest.raises(ProtocolMismatch):
            await holdfast.Environment.open(proxy.url)


async def test_a_server_that_never_answers_initialize_is_unreachable() -> None:
    async with serving() as (url, _), recording(lambda: url, lambda _: None) as proxy:
        with pytest.raises(Unreachable):
            await holdfast.Environment.open(proxy.url, initialize_timeout_s=0.2)


async def test_a_token_is_refused_or_accepted() -> None:
    authenticator = load("capability-token", token_file_text=TOKEN)
    async with serving(authenticator=authenticator) as (url, _):
        for wrong in (None, "wrong"):
            with pytest.raises(TokenRefused) as caught:
                await holdfast.Environment.open(url, token=wrong)
            assert caught.value.remedy
            assert TOKEN not in str(caught.value)
        async with holdfast.connect(url, token=TOKEN) as env:
            assert await env.status() == "ready"


async def test_what_makes_no_sense_is_refused_here(env: holdfast.Environment) -> None:
    no_commands: list[list[str] | str] = [[], "ls -l"]
    for argv in no_commands:
        with pytest.raises(UsageError):
            await env.run(argv)
    for cwd in ("file:///tmp", "relative"):
        with pytest.raises(UsageError) as caught:
            await env.run(["/bin/true"], cwd=cwd)
        assert caught.value.remedy
    with pytest.raises(OperationFailed):
        await env.run(["/nonexistent/program"])
    with pytest.raises(OperationFailed):
        await env.run(["/bin/true"], cwd="/nonexistent")


# --- other transports


async def test_a_unix_socket_carries_a_session(tmp_path: Path) -> None:
    async with (
        serving(listen=f"unix://{tmp_path}/s") as _,
        holdfast.connect(f"unix://{tmp_path}/s") as env,
    ):
        assert (await env.run(["/bin/cat"], input=b"x" * 300_000)).stdout == b"x" * 300_000


async def test_a_child_serves_until_the_block_ends_and_takes_everything_along() -> None:
    marks = fresh_mark(), fresh_mark()
    wrapped = sh(f"sleep {marks[0]} & exec {' '.join(SERVE)}")
    async with holdfast.connect(wrapped) as env:
        assert (await env.run(["/bin/cat"], input=b"hello")).stdout == b"hello"
        await env.start(["/bin/sleep", marks[1]])
        for mark in marks:
            await seen_running(mark)
    for mark in marks:
        await gone(mark)


async def test_a_child_that_ends_ends_the_session(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with holdfast.connect(sh(f"echo $$ > {pid}; exec {' '.join(SERVE)}")) as env:
        process = await env.start(["/bin/sleep", "600"])
        os.kill(int(pid.read_text()), signal.SIGKILL)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(SessionLost):
                await process.wait()
        assert isinstance(env.failure, SessionLost)


async def test_a_child_that_talks_nonsense_is_a_mismatch_and_ended() -> None:
    mark = fresh_mark()
    with pytest.raises(ProtocolMismatch):
        await holdfast.Environment.open(sh(f"echo hello; sleep {mark}"))
    await gone(mark)


async def test_a_child_that_ends_at_once_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        await holdfast.Environment.open(["/bin/true"])
