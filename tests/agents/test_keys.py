"""Every CLI of the catalogue with a placeholder for its key: TLS to its provider ends at our broker.

None of them is told of a certificate but by the variables that runtimes read.
"""

import asyncio
import os
from pathlib import Path
from secrets import token_hex
from typing import Final

import pytest

from holdfast.agents.evidence.evidence import WorkerState
from holdfast.agents.sdk import Workers
from holdfast.wire.permissions import AllowedHosts
from tests.support.codex import requires_codex
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.model import MADE, digest, scripted_model
from tests.support.patience import patient
from tests.support.webhosts import make_context
from tools.get_agents import installed

__all__ = ["home_fixture", "yard_fixture"]

MODELS: Final = {
    "codex": "gpt-5.5",
    **dict.fromkeys(("claude", "opencode", "gemini", "qwen"), "test-model"),
}


@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MODELS)
async def test_a_cli_works_with_a_key_that_it_does_not_have(yard: Yard, tmp_path: Path, name: str) -> None:
    program = requires_codex() if name == "codex" else installed(name)
    if program is None:
        pytest.skip(f"NO {name}: `python -m tools.get_agents {name}` installs it")
    real = f"sk-proj-{token_hex(12)}"
    env = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(yard.user),
        "SSL_CERT_FILE": str(tmp_path / "authority.pem"),
    }
    workspace = yard.folder / "ws"
    workspace.mkdir()
    async with scripted_model() as model, Workers.connect(yard.home) as workers:
        secure = await asyncio.start_server(
            model.serve, "127.0.0.1", 0, limit=1 << 22, ssl=make_context(tmp_path)
        )
        async with secure, asyncio.timeout(patient(150)):
            worker = await workers.run(
                name,
                cwd=str(workspace),
                prompt="Make it.",
                model=MODELS[name],
                env=env,
                base=f"https://tls.test:{secure.sockets[0].getsockname()[1]}/s/write",
                key=real,
                hosts=AllowedHosts([], [], private=True, addresses={"tls.test": "127.0.0.1"}),
            )
            async for _ in worker.changes():
                pass
    assert worker.report.state is WorkerState.COMPLETED, worker.report
    assert (workspace / MADE).is_file()
    assert {asked.credential for asked in model.requests} == {digest(real)}
    assert ["it is replaced in headers of requests to tls.test" in line for line in worker.report.keys] == [
        True
    ]
    kept = yard.home / "workers" / worker.id
    assert not [path for path in kept.rglob("*") if path.is_file() and real.encode() in path.read_bytes()]
