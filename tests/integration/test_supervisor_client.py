"""What the dispatcher makes of a supervisor's answers; the supervisor is played on its real socket."""

from pathlib import Path
from typing import Final

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

    async def status(asked: messages.WorkerParams, _peer: Peer) -> messages.WorkerReport:
        raise NotFound(f"no worker {asked.worker}")

    async def changes(_asked: messages.ListParams, _peer: Peer) -> list[messages.WorkerReport]:
        return []

    monkeypatch.setattr(supervisorclient, "PATIENCE_S", patient(5.0))
    monkeypatch.setattr(daemons, "find_by_role", lambda *_: [])  # nor is this process replaced by another
    supervisor = RpcServer(
        RpcLimits(messages.MAX_LINE, messages.MAX_LINE, 9, 9), token=lambda: homekey.access_token(tmp_path)
    )
    supervisor.answer(messages.RUN, run)
    supervisor.answer(messages.STATUS, status)
    supervisor.answer(messages.CHANGES, changes)
    listening = supervisor.listening(background.supervisor_socket(tmp_path))
    async with listening, SupervisorClient.open(tmp_path) as client:
        with pytest.raises(lost, match="closed the connection") as told:
            await client.start(WISH)
        assert not isinstance(told.value, PeerGone)
        assert await client.find("one") is None
