"""However the server or its launcher ends, nothing it started is left behind."""

import asyncio
import contextlib
import os
import signal
import socket
import uuid
from pathlib import Path

import pytest

from tests.support.patience import patient
from tests.support.peer import Peer, descendants_named, ready, seen_running, serving
from tests.support.proc import command_line
from tests.support.servers import holdfast_server

GONE_S = patient(30.0)


def _mark() -> str:
    """A sleep time nobody else uses."""
    return f"7{uuid.uuid4().int % 10**7:07}"


async def _gone(mark: str) -> None:
    async with asyncio.timeout(GONE_S):
        while descendants_named(mark):
            await asyncio.sleep(0.01)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    return [int(word) for word in text.split()]


# A plain child, one in the background, one in a session of its own, one that lost its parent.
SCRIPT = (
    "sleep {0} & setsid sh -c 'sleep {0} & exec sleep {0}' & (setsid sleep {0} &); echo up; exec sleep {0}"
)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_a_polite_stop_ends_every_process_and_exits_zero(how: signal.Signals, tmp_path: Path) -> None:
    mark = _mark()
    async with holdfast_server(tmp_path / "home") as server, ready(server.url) as peer:
        await peer.start("p", SCRIPT.format(mark))
        await peer.start("t", SCRIPT.format(mark), tty=True)
        await peer.output_has("p", b"up")
        await peer.output_has("t", b"up")
        os.kill(server.pid, how)
        assert server._process is not None
        async with asyncio.timeout(GONE_S):
            assert await server._process.wait() == 0
        assert not descendants_named(mark)
        assert server.log == ""


async def test_a_killed_server_leaves_no_orphan(tmp_path: Path) -> None:
    mark = _mark()
    async with holdfast_server(tmp_path / "home") as server, ready(server.url) as peer:
        await peer.start("p", SCRIPT.format(mark))
        await peer.start("t", SCRIPT.format(mark), tty=True)
        await peer.output_has("p", b"up")
        await peer.output_has("t", b"up")
        [launcher] = _children(server.pid)
        await server.crash()
        await _gone(mark)
        async with asyncio.timeout(GONE_S):
            while Path(f"/proc/{launcher}").exists():
                await asyncio.sleep(0.01)


async def test_a_killed_launcher_loses_its_commands_but_not_the_server(tmp_path: Path) -> None:
    mark = _mark()
    async with holdfast_server(tmp_path / "home") as server, ready(server.url) as peer:
        await peer.start("p", f"echo up; exec sleep {mark}")
        await peer.output_has("p", b"up")
        [launcher] = _children(server.pid)
        os.kill(launcher, signal.SIGKILL)
        await peer.closed("p")
        assert peer.exit_code("p") == -1
        assert peer.output("p") == b"up\n"
        await _gone(mark)
        await peer.start("q", "echo again")
        await peer.closed("q")
        assert peer.output("q") == b"again\n"
        assert _children(server.pid) != [launcher]


async def test_a_session_that_nobody_resumes_ends_what_it_ran() -> None:
    from holdfast.server.executor import Clocks

    mark = _mark()
    async with serving(clocks=Clocks(detached_s=0.1)) as (url, executor):
        async with ready(url) as peer:
            # The second outlives its command and holds no pipe: it belongs to the session all the same.
            await peer.start("p", f"echo up; exec sleep {mark}")
            await peer.start("q", f"sleep {mark} >/dev/null 2>&1 & exit 0")
            await peer.output_has("p", b"up")
            await peer.closed("q")
            assert len(await seen_running(mark, 2)) == 2
        await _gone(mark)
        assert len(executor.sessions) == 0


async def test_a_client_that_stops_reading_pauses_the_child_and_bounds_our_memory(tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    script = f"i=0; while :; do head -c 1000000 /dev/zero; i=$((i+1)); echo $i > {progress}; done"
    async with holdfast_server(tmp_path / "home") as server, ready(server.url) as peer:
        before = _private_kib(server.pid)
        peer.link.transport.pause_reading()
        await peer.ask(
            "process/start",
            {
                "processId": "p",
                "argv": ["/bin/sh", "-c", script],
                "cwd": "file:///tmp",
                "env": {"PATH": "/usr/bin:/bin"},
                "tty": False,
            },
        )
        async with asyncio.timeout(GONE_S):
            steady = 0
            last = b""
            while steady < 20:
                await asyncio.sleep(0.02)
                now = progress.read_bytes() if progress.exists() else b""
                steady = steady + 1 if now == last and now else 0
                last = now
        assert int(last) < 64
        assert _private_kib(server.pid) - before < 32 * 1024


async def test_a_client_that_never_reads_answers_is_not_read_from(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1024 * 1024))
    read = {"id": 1, "method": "fs/readFile", "params": {"path": (tmp_path / "file").as_uri()}}
    params = {"path": (tmp_path / "new").as_uri(), "dataBase64": "A" * 1024 * 1024}
    write = {"id": 2, "method": "fs/writeFile", "params": params}

    async def flood(peer: Peer) -> None:
        for message in [read] * 50 + [write] * 150:
            await peer.send(message)

    async with holdfast_server(tmp_path / "home") as server, ready(server.url) as peer:
        before = _private_kib(server.pid)
        peer.link.transport.pause_reading()
        flooding = asyncio.ensure_future(flood(peer))
        async with asyncio.timeout(GONE_S):
            while not flooding.done() and not _is_left_unread(peer, server.pid):
                await asyncio.sleep(0.01)
        assert not flooding.done()
        assert _private_kib(server.pid) - before < 48 * 1024
        flooding.cancel()
        peer.link.transport.abort()  # a goodbye would wait for an answer that nobody reads


async def test_a_paused_child_goes_on_when_its_slow_client_is_gone(tmp_path: Path) -> None:
    done, gate, count = tmp_path / "done", tmp_path / "gate", f"3{_mark()[1:]}"
    os.mkfifo(gate)
    async with holdfast_server(tmp_path / "home") as server:
        async with ready(server.url) as peer:
            # Started and answered before anything is left unread: a start that nobody waits for is undone.
            await peer.start("p", f"read go < {gate}; head -c {count} /dev/zero; echo > {done}")
            peer.link.transport.pause_reading()
            await asyncio.to_thread(gate.write_text, "go\n")
            async with asyncio.timeout(GONE_S):
                while not done.exists() and not (_is_asleep(server.pid) and _stuck_writing(count)):
                    await asyncio.sleep(0.01)
            assert not done.exists()
            peer.link.transport.abort()
        async with asyncio.timeout(GONE_S):
            while not done.exists():
                await asyncio.sleep(0.01)


def _is_asleep(pid: int) -> bool:
    """Whether no thread of it runs or wants to: then it does not want what it could read either."""
    return {_state(task) for task in Path(f"/proc/{pid}/task").iterdir()} == {"S"}


def _state(task: Path) -> str:
    with contextlib.suppress(OSError):
        return (task / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    return ""


def _stuck_writing(argument: str) -> bool:
    """Whether `head` with this argument sleeps: it does when its pipe is full."""
    found = [pid for pid in descendants_named(argument) if command_line(pid).startswith("head ")]
    return [_state(Path(f"/proc/{pid}")) for pid in found] == ["S"]


def _is_left_unread(peer: Peer, pid: int) -> bool:
    """Whether the server sleeps although its socket has something from this peer."""
    before = _unread(peer)
    return before > 0 and _is_asleep(pid) and _unread(peer) == before and _is_asleep(pid)


def _unread(peer: Peer) -> int:
    """How many bytes of this peer the server has not taken from its socket."""
    ours = peer.link.transport.get_extra_info("sockname")[1]
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        words = line.split()
        if int(words[2].rpartition(":")[2], 16) == ours:
            return int(words[4].rpartition(":")[2], 16)
    return 0


def _private_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_"))


async def test_many_starts_and_drops_leak_no_descriptor(tmp_path: Path) -> None:
    async with holdfast_server(tmp_path / "home") as server:

        def open_files() -> int:
            return len(os.listdir(f"/proc/{server.pid}/fd"))

        async with ready(server.url) as peer:
            await peer.start("warm", "true")
            await peer.closed("warm")
        async with ready(server.url) as peer:
            before = open_files()
            for number in range(40):
                name = f"p{number}"
                await peer.start(name, "true", tty=number % 2 == 1, pipeStdin=number % 3 == 0)
                await peer.closed(name)
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1]))):
                    pass
            async with asyncio.timeout(GONE_S):
                while open_files() > before:
                    await asyncio.sleep(0.01)
