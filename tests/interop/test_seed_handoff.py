"""The first report: a worker in Codex's own sandbox, without network, that has to tell the board it is done.

The sandbox is the CLI's `workspace-write` as it comes: no writable root besides the workspace, and the board
is not below a temporary directory, which that mode leaves writable.
"""

import json
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.agents.catalog.agent import launch
from holdfast.agents.catalog.codex import CODEX
from holdfast.board.rules.rows import Run, Task
from holdfast.board.rules.transitions import TaskStatus
from tests.support.arena import PLACE
from tests.support.assigned import Assigned, assigned
from tests.support.codex import CodexClient, requires_codex
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.provider import Item, Provider, call, command, scripted, turns

__all__ = ["home_fixture", "yard_fixture"]

YIELD_MS: Final = 30_000  # for a command that starts an interpreter on a busy machine
SUMMARY: Final = "made what was asked for"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def client() -> Iterator[CodexClient]:
    place = Path(tempfile.mkdtemp(prefix="seed-", dir=PLACE))
    try:
        yield CodexClient(requires_codex(), place)
    finally:
        shutil.rmtree(place)


@pytest.fixture
def run(client: CodexClient) -> Assigned:
    return assigned(client.workspace.parent, client.workspace)


async def play(client: CodexClient, run: Assigned, *items: Item, options: tuple[str, ...] = ()) -> Provider:
    """One turn for each item, in the sandbox, after the worker made something and tried the board's file."""
    made = command("made", "echo it > made.txt", yield_time_ms=YIELD_MS)
    reached = command("reached", f"echo x >> {shlex.quote(run.address)}", yield_time_ms=YIELD_MS)
    async with scripted(turns([made], [reached], *([item] for item in items))) as model:
        client.configure(model.url)
        async with run.serving():
            contexts = await client.execute_confined(*options)
    assert_confined(contexts, client.workspace)
    assert model.exit_code("made") == 0
    assert model.exit_code("reached") not in (None, 0)
    return model


def assert_confined(contexts: list[dict[str, Any]], workspace: Path) -> None:
    """What Codex itself says it enforced: nothing was widened for the report's sake."""
    assert contexts
    for context in contexts:
        policy = context["sandbox_policy"]
        assert policy["type"] == "workspace-write"
        assert policy.get("writable_roots", []) == []
        assert policy["network_access"] is False
        rules = context["permission_profile"]
        assert rules["network"] == "restricted"
        writable = [
            rule["path"].get("path") for rule in rules["file_system"]["entries"] if rule["access"] == "write"
        ]
        assert [path for path in writable if path is not None] == [
            str(workspace)
        ]  # the others are /tmp, TMPDIR


def assert_done(run: Assigned) -> None:
    detail = run.detail()
    assert (detail.task.status, detail.task.result) == (TaskStatus.DONE, SUMMARY)
    assert [attempt.outcome for attempt in detail.runs] == ["completed"]
    assert (run.workspace / "made.txt").read_text("utf-8") == "it\n"


def said(model: Provider, call_id: str) -> dict[str, Any]:
    """The JSON that a tool or a command answered."""
    text = model.output(call_id)
    found: dict[str, Any] = json.loads(text[text.index("{") :])
    return found


def handoff(run: Assigned, call_id: str, *words: str) -> Item:
    line = shlex.join([*run.grant.command, "handoff", *words, "--json"])
    return command(call_id, line, yield_time_ms=YIELD_MS)


async def test_a_worker_completes_its_task_by_a_tool(client: CodexClient, run: Assigned) -> None:
    given = launch(CODEX, state=None, prompt="p", mcp=run.server).arguments
    at = next(number for number, word in enumerate(given) if word.startswith("mcp_servers."))
    model = await play(
        client,
        run,
        call("show", "kanban_show", {}, namespace="mcp__holdfast"),
        call("complete", "kanban_complete", {"summary": SUMMARY}, namespace="mcp__holdfast"),
        options=given[at - 1 : at + 1],
    )
    assert run.grant.task in model.prompts[0]  # the server's own words reach the model with its first turn
    assert said(model, "show")["task"]["id"] == run.grant.task
    assert said(model, "complete")["status"] == "done"
    assert_done(run)


async def test_a_worker_completes_its_task_by_a_command_though_its_sandbox_refuses_sockets(
    client: CodexClient, run: Assigned
) -> None:
    model = await play(
        client,
        run,
        handoff(run, "socket", "comment", "by the socket", "--channel", "socket"),
        handoff(run, "auto", "complete", SUMMARY),
    )
    assert (model.exit_code("socket"), said(model, "socket")["error"]["kind"]) == (5, "Unreachable")
    assert model.exit_code("auto") == 0, model.output("auto")
    assert run.detail().comments == []  # so the other one came through a file
    assert_done(run)


async def test_a_worker_completes_its_task_by_a_file(client: CodexClient, run: Assigned) -> None:
    model = await play(client, run, handoff(run, "file", "complete", SUMMARY, "--channel", "outbox"))
    assert model.exit_code("file") == 0, model.output("file")
    assert_done(run)
    assert list(Path(run.grant.outbox).iterdir()) == []


async def test_a_worker_that_says_nothing_has_not_completed_its_task(
    client: CodexClient, run: Assigned
) -> None:
    await play(client, run)
    detail = run.detail()
    assert (detail.task.status, detail.task.result) == (TaskStatus.RUNNING, None)


async def dispatched(yard: Yard, *items: Item) -> tuple[Task, Run]:
    """What the dispatcher makes of a Codex that makes something and then does this; its only run."""
    (yard.bin / "codex").symlink_to(requires_codex())
    made = command("made", "echo it > made.txt", yield_time_ms=YIELD_MS)
    async with scripted(turns([made], *([item] for item in items))) as model:
        key = {"variables.HOLDFAST_PROVIDER_KEY": "unused"}
        base = model.url.removesuffix("/v1")
        yard.profile("codex", agent="codex", model="gpt-5.5", provider=base, channel="mcp", **key)
        task = yard.create("Make it.", assignee="codex", max_attempts=1)
        async with yard.dispatching(once=True) as serving:
            await serving
    [only] = yard.store.runs(task.id)
    assert b"+it\n" in yard.store.file(task.id, only.id, "diff.patch")
    return yard.store.task(task.id), only


async def test_a_dispatched_worker_completes_its_task_by_a_tool(yard: Yard) -> None:
    task, only = await dispatched(
        yard, call("complete", "kanban_complete", {"summary": SUMMARY}, namespace="mcp__holdfast")
    )
    assert (task.status, task.result) == (TaskStatus.DONE, SUMMARY)
    assert only.outcome == "completed"


async def test_a_dispatched_worker_whose_report_never_comes_keeps_its_work_and_its_attempt(
    yard: Yard,
) -> None:
    task, only = await dispatched(yard)
    assert (task.status, task.attempts) == (TaskStatus.HANDOFF_FAILED, 0)
    assert (only.outcome, only.failure) == ("handoff_failed", "handoff")
    assert only.error
