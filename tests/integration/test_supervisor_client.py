"""What the dispatcher makes of a supervisor's answers; the supervisor is played on its real socket."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Final, NoReturn

import pytest

from holdfast.agents.supervisor import background, daemons, messages
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.dispatch import supervisorclient
from holdfast.dispatch.supervisorclient import SupervisorClient
from holdfast.errors import ConnectionLost, NotFound, Unreachable
from holdfast.local import homekey
from holdfast.unixrpc.client import PeerGone
from holdfast.unixrpc.server import Peer, RpcLimits, RpcServer
from tests.support.patience import patient
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

WISH: Final = WorkerSpec(agent="shell", cwd="/", env={}, id="one")


@pytest.mark.parametrize("lost", [ConnectionLost, Unreachable])
async def test_an_exec_server_that_the_supervisor_lost_is_told_at_once_and_the_supervisor_asked_on(
    lost: type[ConnectionLost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(_wish: WorkerSpec, _peer: Peer) -> messages.WorkerReport:
        raise lost("the server closed the connection")

    supervisor = _play(tmp_path, monkeypatch)
    supervisor.answer(messages.RUN, run)
    listening = supervisor.listening(background.supervisor_socket(tmp_path))
    async with listening, SupervisorClient.open(tmp_path) as client:
        with pytest.raises(lost, match="closed the connection") as told:
            await client.start(WISH)
        assert not isinstance(told.value, PeerGone)
        assert await client.find("one") is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN, errno.ENOSPC, errno.EROFS])
async def test_a_supervisor_that_could_not_be_started_for_a_while_is_reached_once_it_is_there(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = asyncio.Event()

    def spawn(*_: object) -> NoReturn:
        tried.set()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(supervisorclient, "AGAIN_S", 0.05)
    monkeypatch.setattr(background, "_spawn", spawn)
    place = background.supervisor_socket(tmp_path)
    async with _play(tmp_path, monkeypatch).listening(place):
        opened = SupervisorClient.open(tmp_path)
        client = await opened.__aenter__()
        assert await client.find("one") is None
    try:
        async with asyncio.timeout(patient(10.0)):
            await tried.wait()
        async with _play(tmp_path, monkeypatch).listening(place):
            assert await client.find("one") is None
    finally:
        await opened.__aexit__(None, None, None)


def _play(home: Path, monkeypatch: pytest.MonkeyPatch) -> RpcServer:
    """A supervisor without workers."""

    async def status(asked: messages.WorkerParams, _peer: Peer) -> messages.WorkerReport:
        raise NotFound(f"no worker {asked.worker}")

    async def changes(_asked: messages.ListParams, _peer: Peer) -> list[messages.WorkerReport]:
        return []

    monkeypatch.setattr(supervisorclient, "PATIENCE_S", patient(5.0))
    monkeypatch.setattr(daemons, "find_by_role", lambda *_: [])  # nor is this process replaced by another
    supervisor = RpcServer(
        RpcLimits(messages.MAX_LINE, messages.MAX_LINE, 9, 9), token=lambda: homekey.access_token(home)
    )
    supervisor.answer(messages.STATUS, status)
    supervisor.answer(messages.CHANGES, changes)
    return supervisor
