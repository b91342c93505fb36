"""Real agent CLIs on another machine, with a scripted model: what they made comes back."""

import json
from pathlib import Path

import pytest

from tests.support.agent_clis import link_clis, requires_cli
from tests.support.fleet import fleet
from tests.support.model import CONTENT, MADE, scripted_model
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("agent", ["codex", "opencode"])
async def test_what_a_real_agent_made_on_another_machine_comes_back(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requires_cli(agent)
    monkeypatch.setenv("PATH", link_clis(tmp_path / "bin"))
    monkeypatch.setenv("A_KEY", "sk-test")
    async with scripted_model() as model, fleet() as there:
        (there.work / "a").write_text("a\n")
        done = await there.command(
            *("run", "--env", "box", "--id", "one", "--provider", model.url("write"), "--key-env", "A_KEY"),
            *("--model", "gpt-5.5", agent, "make the file"),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        diff = json.loads((await there.command("diff", "one", "--json")).stdout)
        assert diff["paths"] == [f"A {MADE}"]
        assert f"+{CONTENT}\n" in diff["diff"]
        assert not (there.work / MADE).exists()
        assert "sk-test" not in "".join(
            path.read_text("utf-8", "replace") for path in (there.home / "workers/one").glob("*.json*")
        )
