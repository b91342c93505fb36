"""An agent that supervises another one: plans, starts it where a person can look, answers, grants, reviews.

Codex drives OpenCode with nothing but the tools of `holdfast mcp`. Both CLIs, the supervisor, the sandbox and
tmux are real, and OpenCode is configured as its users do; only the two models are scripted. That takes most
of a minute: every run of the tests has the part without a denial, with Gemini, which starts sooner.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.agents.evidence.evidence import WorkerState
from holdfast.agents.supervisor import background
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import open_store
from tests.support.agent_clis import link_clis, requires_cli
from tests.support.arena import PLACE, PROMPT, Bench, end_exec_server, end_listener
from tests.support.codex import CodexClient, requires_codex
from tests.support.git_traps import git
from tests.support.logins import set_up
from tests.support.model import CONTENT, MADE, digest, scripted_model
from tests.support.patience import patient
from tests.support.provider import Item, Provider, call, command, scripted

LIMIT_S: Final = patient(150)
MAX_TURNS: Final = 12  # of the supervising model, in one round of the other
TOOLS: Final = "mcp__holdfast"


@pytest.fixture
async def place() -> AsyncIterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="boss-", dir=PLACE))
    try:
        yield folder
    finally:
        env = os.environ | {"TMUX_TMPDIR": str(folder / "sockets")}
        await asyncio.to_thread(subprocess.run, ["tmux", "kill-server"], env=env, check=False)
        await end_listener(background.supervisor_socket(folder / "h"), signal.SIGTERM)
        await end_exec_server(folder / "h")
        shutil.rmtree(folder, ignore_errors=True)


class Supervisor:
    """The script of the model that supervises: what it does follows from what the tools tell it."""

    def __init__(self, agent: str, bench: Bench, outside: Path, *, grants: bool) -> None:
        self._agent, self._bench, self._outside, self._grants = agent, bench, outside, grants
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.questions: list[str] = []

    def answers(self, tool: str) -> list[dict[str, Any]]:
        return [told for name, told in self.told if name == tool]

    async def play(self, seen: Provider) -> AsyncIterator[list[Item]]:
        yield self._ask("kanban_create", title="write the note", assignee=self._agent, triage=True)
        task = self._hear(seen)["task_id"]
        where = {"agent": self._agent, "cwd": str(self._bench.work), "id": "helper"}
        yield self._ask("worker_run", tmux=True, ask=True, **where)
        self._hear(seen)
        async for items in self._instruct(seen, "helper"):
            yield items
        last = "helper"
        if self._grants:
            yield self._ask("worker_explain", worker=last)
            self._hear(seen)
            yield self._ask("worker_grant", worker=last, allow_write=str(self._outside))
            last = self._hear(seen)["worker"]["id"]
            async for items in self._instruct(seen, last):
                yield items
        yield self._ask("worker_diff", worker=last)
        self._hear(seen)
        made = f"{self._bench.work}/{MADE}" + (f" {self._outside}/note" if self._grants else "")
        yield [command("verified", f"grep '{CONTENT}' {made}")]
        yield self._ask("worker_stop", worker=last)
        self._hear(seen)
        yield self._ask("kanban_complete", task_id=task, summary="reviewed and verified")
        self._hear(seen)

    async def _instruct(self, seen: Provider, worker: str) -> AsyncIterator[list[Item]]:
        """Type the task when it waits for one, and allow what it asks for, until it waits for another.

        Where it asked for nothing since, it has not begun: a CLI on a busy machine shows its prompt for long.
        """
        typed = asked = False
        for _ in range(MAX_TURNS):
            yield self._ask("worker_wait", worker=[worker], until=["waiting"], timeout_seconds=45)
            [now] = self._hear(seen)["workers"]
            if now["state"] == "waiting" and now["detail"] == "decision":
                asked = True
                yield self._ask("worker_output", worker=worker)
                self.questions.append(self._hear(seen)["output"])
                yield self._ask("worker_approve", worker=worker)
                self._hear(seen)
            elif now["state"] == "waiting" and not typed:
                yield self._ask("worker_send", worker=worker, text=PROMPT)
                typed = self._hear(seen).get("outcome") == "submitted"
                if not typed:  # it shows nothing yet to type into
                    yield self._ask("worker_watch", worker=worker, timeout_seconds=10)
                    self._hear(seen)
            elif (asked and now["state"] == "waiting") or WorkerState(now["state"]).ended:
                return
            elif now["state"] == "waiting":
                yield self._ask("worker_watch", worker=worker, timeout_seconds=10)
                self._hear(seen)

    def _ask(self, tool: str, **arguments: Any) -> list[Item]:
        self.told.append((tool, {}))
        return [call(f"{tool}-{len(self.told)}", tool, arguments, namespace=TOOLS)]

    def _hear(self, seen: Provider) -> dict[str, Any]:
        tool, _ = self.told[-1]
        text = seen.output(f"{tool}-{len(self.told)}")
        self.told[-1] = tool, json.loads(text[text.index("{") :])
        return self.told[-1][1]


class Story:
    """One supervising run of codex; what came of it."""

    def __init__(self, place: Path, agent: str, login: str, *, grants: bool) -> None:
        self.bench, self.outside = Bench(place / "project"), place / "outside"
        for folder in (self.outside, place / "sockets"):
            folder.mkdir()
        self._place, self._login, self._grants = place, login, grants
        self._address = str(place / "board.db")
        self.script = Supervisor(agent, self.bench, self.outside, grants=grants)

    async def play(self) -> Provider:
        place, client = self._place, CodexClient(requires_codex(), self._place)
        with open_store(self._address) as store:
            store.create_board("b")
        server = {
            "HOME": str(self.bench.home),
            "PATH": link_clis(place / "bin"),
            "HOLDFAST_HOME": str(place / "h"),
            "TMUX_TMPDIR": str(place / "sockets"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        async with scripted_model() as model, scripted(self.script.play) as boss:
            key = set_up(self._login, self.bench.home, model.url("write"))
            if self._grants:
                model.command = f"echo '{CONTENT}' | tee {MADE} > {self.outside}/note"
            client.configure(boss.url, more=_mcp_server(server, self._address))
            await client.execute(limit_s=LIMIT_S)
            used = {request.credential for request in model.requests}
            assert used == {digest(key)}, ("not as its user is logged in", self.script.told)
        return boss

    def check(self, boss: Provider) -> None:
        """What is so after every such story."""
        with open_store(self._address, create=False) as store:
            [planned] = store.page("b", limit=10).tasks
            assert (planned.title, planned.status) == ("write the note", TaskStatus.DONE)
        [run] = self.script.answers("worker_run")
        assert run["worker"]["pane"], "a person can look"
        assert [told for told in self.script.answers("worker_approve") if not told.get("ok")] == []
        [review] = self.script.answers("worker_diff")
        assert review["paths"] == [f"A {MADE}"], self.script.told
        assert f"+{CONTENT}" in review["diff"].splitlines()
        assert boss.exit_code("verified") == 0
        assert git(self.bench.work, "status", "--short") == f"?? {MADE}\n"


@pytest.mark.timeout(LIMIT_S + patient(30))
async def test_codex_plans_starts_answers_and_reviews_over_mcp(place: Path) -> None:
    requires_cli("gemini")
    story = Story(place, "gemini", "gemini-key", grants=False)
    story.check(await story.play())
    assert [MADE in question for question in story.script.questions] == [True], "it was asked before"


@pytest.mark.deep
@pytest.mark.timeout(LIMIT_S + patient(30))
async def test_codex_drives_opencode_from_the_plan_to_the_review_over_mcp(place: Path) -> None:
    requires_cli("opencode")
    story = Story(place, "opencode", "opencode", grants=True)
    story.check(await story.play())
    script = story.script
    [granted], [review] = script.answers("worker_grant"), script.answers("worker_diff")
    assert (granted["worker"]["after"], review["since"]) == ("helper", "helper")
    assert [MADE in question for question in script.questions] == [True, True], "it was asked before each"
    [explained] = script.answers("worker_explain")
    [denied] = [one for one in explained["denials"] if one["access"] != "connect"]  # its provider aside
    assert (denied["path"], denied["errno"]) == (f"{story.outside}/note", "EROFS")
    assert f"Enough: worker_grant with allow_write: {denied['grant'].split()[1]}." in explained["says"]


def _mcp_server(env: dict[str, str], store: str) -> str:
    words = ", ".join(f'"{name}" = {json.dumps(value)}' for name, value in env.items())
    return (
        f"[mcp_servers.holdfast]\ncommand = {json.dumps(sys.executable)}\n"
        f'args = ["-m", "holdfast", "mcp", "--board", "b", "--store", {json.dumps(store)}]\n'
        "required = true\nstartup_timeout_sec = 60\n"
        f'default_tools_approval_mode = "approve"\nenv = {{ {words} }}\n'
    )
