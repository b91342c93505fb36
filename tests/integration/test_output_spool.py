"""A child whose client does not read: it gets rid of its output and ends, and all of it arrives later."""

import asyncio
import json
import os
import pty
import subprocess
import sys
import tty
from base64 import b64decode
from typing import Any, Final

import pytest

from holdfast.confine.starts import Exit
from holdfast.server.processes import spool
from holdfast.server.processes.process import SessionProcess
from tests.support.patience import patient
from tests.support.tiers import ASYNCIO, Backend

MIB: Final = 1 << 20
SIZE: Final = 16 * MIB  # what one answer of a real CLI had
WRITE: Final = "import sys\nfor n in range(16): sys.stdout.write(chr(97 + n) * (1 << 20))"
END: Final = Exit(0, 0, 0, 0)


class Client:
    """What it was told, in order."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def push(self, message: bytes) -> None:
        self.told.append(json.loads(message))

    @property
    def output(self) -> bytes:
        return b"".join(b64decode(one["params"]["chunk"]) for one in self.told if "chunk" in one["params"])

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(one["method"] for one in self.told))


def make(client: Client, *, spooled: bool = True) -> SessionProcess:
    return SessionProcess("p", push=client.push, on_closed=lambda _: None, extended=False, spooled=spooled)


async def wait_until_ended(child: subprocess.Popen[bytes], limit_s: float = 30.0) -> bool:
    try:
        async with asyncio.timeout(patient(limit_s)):
            while child.poll() is None:
                await asyncio.sleep(0.01)
    except TimeoutError:
        child.kill()
        child.wait()
        return False
    return True


def start(process: SessionProcess, *, on_terminal: bool = False) -> subprocess.Popen[bytes]:
    if on_terminal:
        master, slave = pty.openpty()
        tty.setraw(slave)
        child = subprocess.Popen([sys.executable, "-c", WRITE], stdout=slave)
        os.close(slave)
        process.attach_terminal(master)
        return child
    ours, theirs = os.pipe()
    errors, unused = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", WRITE], stdout=theirs)
    os.close(theirs)
    os.close(unused)
    process.attach_pipes(ours, errors, None)
    return child


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO


@pytest.mark.anyio
@pytest.mark.parametrize("on_terminal", [False, True])
async def test_a_child_ends_without_its_reader_and_its_output_comes_in_order(on_terminal: bool) -> None:
    client = Client()
    process = make(client)
    child = start(process, on_terminal=on_terminal)
    process.pause()
    assert await wait_until_ended(child)
    process.on_exited(END)
    assert client.told == []
    process.resume()
    assert len(client.output) == SIZE
    assert client.output[::MIB] == b"abcdefghijklmnop"
    assert client.methods == ["process/output", "process/exited", "process/closed"]
    assert [one["params"]["seq"] for one in client.told] == list(range(1, len(client.told) + 1))


@pytest.mark.anyio
async def test_a_reader_that_stops_again_is_told_the_rest_later() -> None:
    client = Client()
    process = make(client)
    child = start(process)
    process.pause()
    assert await wait_until_ended(child)
    process.on_exited(END)

    def push_once(message: bytes) -> None:
        client.push(message)
        process.pause()

    process._push = push_once
    process.resume()
    assert client.methods == ["process/output"]
    process._push = client.push
    process.resume()
    assert len(client.output) == SIZE
    assert client.methods[-1] == "process/closed"


@pytest.mark.anyio
async def test_a_disk_without_room_makes_the_child_wait_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool, "MAX_SPOOL_BYTES", 2 * MIB)
    client = Client()
    process = make(client)
    child = start(process)
    process.pause()
    while not process._spool or not process._spool.full:
        await asyncio.sleep(0.01)
    assert child.poll() is None
    process.resume()
    assert await wait_until_ended(child)
    process.on_exited(END)
    assert len(client.output) == SIZE
    process.discard()


@pytest.mark.anyio
async def test_without_a_spool_the_child_waits() -> None:
    client = Client()
    process = make(client, spooled=False)
    child = start(process)
    process.pause()
    assert not await wait_until_ended(child, limit_s=0.5)
    process.discard()
