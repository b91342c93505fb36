"""`holdfast mcp` as a process, driven by the official SDK's own client."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from holdfast.agents.sdk import Workers
from holdfast.agents.supervisor import background
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import open_store
from holdfast.errors import NotFound
from holdfast.wire.permissions import AllowedHosts
from tests.support.arena import end_exec_server, end_listener
from tests.support.assigned import Assigned, assigned
from tests.support.patience import patient
from tests.support.tiers import asyncio_first
from tests.support.webhosts import web_hosts

__all__ = ["asyncio_first"]

COMMAND: Final = (sys.executable, "-m", "holdfast")
WAIT_S: Final = patient(60.0)  # the machine may be busy, and the SDK takes its time to import

pytestmark = pytest.mark.timeout(180)


@asynccontextmanager
async def tools(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> AsyncIterator[Client]:
    """A client of `holdfast mcp` with these arguments."""
    parameters = StdioServerParameters(
        command=COMMAND[0],
        args=[*COMMAND[1:], "mcp", *arguments],
        env={"PYTHONPATH": os.pathsep.join(sys.path), "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}
        | (env or {}),
        cwd=cwd,
    )
    async with Client(stdio_client(parameters), read_timeout_seconds=WAIT_S) as client:
        yield client


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """What the tool answers; that it failed is a member `error`. Over workers its text is words."""
    result = await client.call_tool(name, arguments)
    [content] = result.content
    assert content.type == "text"
    answer: dict[str, Any]
    if name.startswith("worker_"):
        assert result.structured_content is not None
        answer = result.structured_content
        assert answer["says"] == content.text
    else:
        answer = json.loads(content.text)
    assert result.is_error is ("error" in answer)
    assert answer.get("ok", False) is not result.is_error
    return answer


@pytest.fixture
def run(tmp_path: Path) -> Assigned:
    return assigned(tmp_path)


async def test_a_worker_reads_its_task_and_completes_it_once(run: Assigned, tmp_path: Path) -> None:
    async with run.serving(), tools("--run", str(run.run_file), cwd=tmp_path) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {
            *("kanban_show", "kanban_complete", "kanban_block", "kanban_heartbeat"),
            *("kanban_comment", "kanban_create", "kanban_link"),
        }
        assert client.instructions is not None
        assert run.grant.task in client.instructions
        shown = await call(client, "kanban_show")
        assert (shown["task"]["id"], shown["task"]["title"]) == (run.grant.task, "do it")
        assert (await call(client, "kanban_heartbeat", note="half"))["task_id"] == run.grant.task
        assert (await call(client, "kanban_comment", task_id=run.grant.task, body="hm"))["comment_id"] == 1
        child = await call(client, "kanban_create", title="next", assignee="coder", tenant="t", priority="2")
        assert (child["status"], child["ignored"]) == ("todo", ["tenant"])
        other = await call(client, "kanban_create", title="then", assignee="coder", idempotency_key="k")
        assert (
            await call(client, "kanban_create", title="then", assignee="coder", idempotency_key="k") == other
        )
        linked = {"parent_id": child["task_id"], "child_id": other["task_id"]}
        assert (await call(client, "kanban_link", **linked))["ok"]
        done = await call(client, "kanban_complete", summary="made it", metadata={"tests_run": 3})
        assert (done["task_id"], done["run_id"], done["status"]) == (run.grant.task, run.grant.run, "done")
        assert await call(client, "kanban_complete", summary="made it", metadata={"tests_run": 3}) == done
        refused = await call(client, "kanban_complete", summary="something else")
        assert run.grant.token not in json.dumps(refused)
    detail = run.detail()
    assert (detail.task.status, detail.task.result) == (TaskStatus.DONE, "made it")
    assert len(detail.children) == 2
    [attempt] = detail.runs
    assert (attempt.outcome, attempt.metadata["tests_run"]) == ("completed", 3)


async def test_a_worker_in_its_workspace_needs_no_arguments_and_no_socket(run: Assigned) -> None:
    with run.ingesting():
        async with tools(cwd=run.workspace) as client:
            blocked = await call(client, "kanban_block", reason="which colour?", options=["red", "blue"])
            assert blocked["status"] == "waiting_human"
    task = run.detail().task
    assert (task.question, task.options) == ("which colour?", ["red", "blue"])


async def test_what_is_wrong_with_a_call_is_an_error_of_the_tool_with_a_way_out(
    run: Assigned, tmp_path: Path
) -> None:
    async with run.serving(), tools("--run", str(run.run_file), cwd=tmp_path) as client:
        for name, arguments in (
            ("kanban_complete", {}),
            ("kanban_complete", {"summary": "x", "metadata": "no object"}),
            ("kanban_complete", {"summary": "x", "task_id": "t_other"}),
            ("kanban_block", {}),
            ("kanban_comment", {"body": "x" * 300_000}),
            ("kanban_list", {}),
        ):
            answer = await call(client, name, **arguments)
            assert answer["remedy"], name
    assert run.detail().task.status is TaskStatus.RUNNING


async def test_a_supervising_agent_tells_and_a_worker_hears_with_any_answer(
    run: Assigned, tmp_path: Path
) -> None:
    env = {"HOLDFAST_HOME": str(run.home)}
    async with (
        run.serving(),
        tools("--run", str(run.run_file), cwd=tmp_path) as worker,
        tools("--board", "b", cwd=tmp_path, env=env) as boss,
    ):
        assert "messages" not in await call(worker, "kanban_show")
        told = await call(boss, "kanban_tell", task_id=run.grant.task, body="use tabs")
        assert (told["message_id"], told["run_id"]) == (1, run.grant.run)
        [heard] = (await call(worker, "kanban_heartbeat"))["messages"]
        assert heard.endswith(": use tabs")
        await call(boss, "kanban_tell", task_id=run.grant.task, body="not that one")
        refused = await call(worker, "kanban_link", parent_id=run.grant.task, child_id=run.grant.task)
        [heard] = refused["messages"]
        assert heard.endswith(": not that one")
        shown = await call(boss, "kanban_show", task_id=run.grant.task)
        assert [message["state"] for message in shown["messages"]] == ["seen", "delivered"]
        assert "messages" not in await call(worker, "kanban_show")
        assert (await call(worker, "kanban_complete", summary="with tabs"))["status"] == "done"
        assert (await call(boss, "kanban_tell", task_id=run.grant.task, body="thanks"))["remedy"]


async def test_a_supervising_agent_has_the_boards_authority(run: Assigned, tmp_path: Path) -> None:
    env = {"HOLDFAST_HOME": str(run.home)}
    async with tools("--board", "b", cwd=tmp_path, env=env) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"kanban_list", "kanban_unblock", "worker_run", "worker_watch", "worker_explain"} <= names
        made = await call(client, "kanban_create", title="one", assignee="coder", idempotency_key="k")
        again = await call(client, "kanban_create", title="one", assignee="coder", idempotency_key="k")
        assert made == again
        two = await call(client, "kanban_create", title="two", assignee="coder", parents=made["task_id"])
        assert two["status"] == "todo"
        why = await call(client, "kanban_why", task_id=two["task_id"])
        assert made["task_id"] in why["why"]
        await call(client, "kanban_link", parent_id=run.grant.task, child_id=two["task_id"])
        await call(client, "kanban_comment", task_id=two["task_id"], body="soon")
        shown = await call(client, "kanban_show", task_id=two["task_id"])
        assert [link["parent"] for link in shown["parents"]] == sorted([made["task_id"], run.grant.task])
        await call(client, "kanban_block", task_id=made["task_id"], reason="wait")
        listed = await call(client, "kanban_list", status="blocked")
        assert [row["id"] for row in listed["tasks"]] == [made["task_id"]]
        await call(client, "kanban_unblock", task_id=made["task_id"])
        done = await call(
            client, "kanban_complete", task_id=made["task_id"], summary="by hand", metadata={"n": 1}
        )
        assert (done["status"], done["ignored"]) == ("done", ["metadata"])  # there is no run to keep it with
        page = await call(client, "kanban_list", limit=2)
        assert (page["count"], page["truncated"]) == (2, True)
        rest = await call(client, "kanban_list", limit=2, cursor=page["cursor"])
        assert (rest["count"], rest["truncated"]) == (1, False)
        for name, arguments in (
            ("kanban_show", {"task_id": "t_nobody"}),
            ("kanban_show", {}),
            ("kanban_list", {"board": "nowhere"}),
            ("kanban_list", {"status": "odd"}),
            ("kanban_unblock", {"task_id": made["task_id"]}),
        ):
            assert "error" in await call(client, name, **arguments), name
    with open_store(run.address, create=False) as store:
        assert store.task(made["task_id"]).result == "by hand"


async def test_a_supervising_agent_runs_watches_explains_and_ends_workers(tmp_path: Path) -> None:
    home, work = tmp_path / "h", tmp_path / "work"
    work.mkdir()
    try:
        async with tools("--board", "b", cwd=tmp_path, env={"HOLDFAST_HOME": str(home)}) as client:
            started = await call(
                client, "worker_run", agent="shell", prompt="exec sleep 600", cwd=str(work), id="w1"
            )
            assert started["worker"]["id"] == "w1"
            listed = await call(client, "worker_list")
            assert [row["id"] for row in listed["workers"]] == ["w1"]
            first = await call(client, "worker_watch", worker="w1", seen="never", timeout_seconds=10)
            assert first["changed"]
            stopped = await call(client, "worker_stop", worker="w1", grace_seconds=0)
            assert stopped["worker"]["state"] == "failed"
            after = await call(client, "worker_watch", worker="w1", seen=first["mark"], timeout_seconds=10)
            assert after["changed"]
            assert after["workers"][0]["state"] == "failed"
            nothing = await call(client, "worker_watch", worker="w1", seen=after["mark"], timeout_seconds=0)
            assert nothing["changed"] is (nothing["mark"] != after["mark"])
            explained = await call(client, "worker_explain", worker="w1")
            assert explained["why"]
            for name, arguments in (
                ("worker_run", {"agent": "nobody", "prompt": "x", "cwd": str(work)}),
                ("worker_send", {"worker": "w1", "text": "too late"}),
                ("worker_stop", {"worker": "w2"}),
                ("worker_watch", {"timeout_seconds": 3600}),
            ):
                assert "error" in await call(client, name, **arguments), name
    finally:
        await end_supervisor(home)


async def test_a_supervising_agent_starts_waits_sees_the_denial_grants_and_reviews(tmp_path: Path) -> None:
    home, work, more = tmp_path / "h", tmp_path / "work", Path(tempfile.mkdtemp(dir="/var/tmp"))
    work.mkdir()
    (work / "plan").write_text("one\n")
    script = f"echo ready; echo $$ > mine; while ! echo kept > {more}/note; do sleep 0.1; done; rm plan"
    script += "; echo all is well"
    try:
        async with tools("--board", "b", cwd=tmp_path, env={"HOLDFAST_HOME": str(home)}) as client:
            await call(client, "worker_run", agent="shell", prompt=script, cwd=str(work), id="w1")
            waited = await call(client, "worker_wait", worker="w1", until="blocked", timeout_seconds=40)
            assert (waited["reached"], waited["workers"][0]["detail"]) == (["w1"], "sandbox-path")
            assert f"worker_grant with allow_write: {more}" in waited["says"]
            assert "ready" in (await call(client, "worker_output", worker="w1"))["output"]
            granted = await call(client, "worker_grant", worker="w1", allow_write=str(more))
            assert (granted["worker"]["id"], granted["worker"]["after"]) == ("w1-r2", "w1")
            ended = await call(client, "worker_wait", worker=["w1-r2"], until="ended", timeout_seconds=40)
            assert ended["workers"][0]["state"] == "completed"
            result = await call(client, "worker_result", worker="w1-r2")
            assert result["worker"]["answer"].endswith("all is well")
            assert (more / "note").read_text() == "kept\n"
            changed = await call(client, "worker_diff", worker="w1-r2")
            assert (changed["since"], changed["count"]) == ("w1", 2), "the review is of the whole job"
            assert changed["paths"] == ["A mine", "D plan"]
            assert "-one" in changed["says"].splitlines()
            cut = await call(client, "worker_diff", worker="w1-r2", max_bytes=10)
            assert (len(cut["diff"]), cut["cut"]) == (10, True)
            assert "holdfast worker diff w1-r2" in cut["says"]
            nothing = await call(client, "worker_grant", worker="w1-r2")
            assert nothing["remedy"]
    finally:
        await end_supervisor(home)
        shutil.rmtree(more)


async def test_a_supervising_agent_answers_a_question_and_types(tmp_path: Path) -> None:
    home, work = tmp_path / "h", tmp_path / "work"
    work.mkdir()
    script = "printf 'your name? '; read -r name; echo hello $name"
    try:
        async with tools("--board", "b", cwd=tmp_path, env={"HOLDFAST_HOME": str(home)}) as client:
            more = {"tty": True, "network": False, "pass": "LANG"}
            await call(client, "worker_run", agent="shell", prompt=script, cwd=str(work), id="w1", **more)
            sent: dict[str, Any] = {}
            while (
                sent.get("outcome") != "submitted"
            ):  # it may be told as waiting a moment before it is believed
                waited = await call(client, "worker_wait", until="waiting", timeout_seconds=40)
                assert waited["workers"][0]["state"] == "waiting", waited
                assert "worker_send" in waited["says"]
                shown = await call(client, "worker_output", worker="w1")
                assert "error" in await call(client, "worker_approve", worker="w1", option="yes")
                sent = await call(client, "worker_send", worker="w1", text="Ada")
            assert "your name?" in shown["output"]
            ended = await call(client, "worker_wait", worker="w1", until=["ended"], timeout_seconds=40)
            assert ended["workers"][0]["state"] == "completed", ended
            assert "hello Ada" in (await call(client, "worker_result", worker="w1"))["worker"]["screen"]
            told = await call(client, "worker_equivalence", worker="w1")
            assert told["equivalence"]
            assert told["says"].splitlines()
    finally:
        await end_supervisor(home)


async def test_a_supervising_agent_decides_about_hosts_that_a_worker_waits_for(tmp_path: Path) -> None:
    """One that it started itself is refused; one that may reach the loopback gets through."""
    home, work = tmp_path / "h", tmp_path / "work"
    work.mkdir()
    wait: Any = {"until": "waiting", "timeout_seconds": 40}
    try:
        async with tools("--board", "b", cwd=tmp_path, env={"HOLDFAST_HOME": str(home)}) as client:
            script = "curl -sS --fail http://api.test/"
            asks: Any = {"agent": "shell", "cwd": str(work), "ask_network": True}
            await call(client, "worker_run", prompt=f"! {script}", id="w1", **asks)
            waited = await call(client, "worker_wait", worker="w1", **wait)
            [row] = waited["workers"]
            assert (row["state"], row["detail"]) == ("waiting", "network"), waited
            assert "worker_approve answers it" in waited["says"]
            asked = row["asks"]
            assert asked["question"].endswith("curl wants to reach api.test:80")
            said = {"worker": "w1", "request": asked["request"], "deny": True}
            assert (await call(client, "worker_approve", **said))["answered"]["denied"]
            assert "any more: refused" in (await call(client, "worker_approve", **said))["error"]

            with web_hosts(tmp_path) as hosts:
                port = hosts.ports["plain"]
                at = {"one.wild.test": "127.0.0.1", "two.wild.test": "127.0.0.1"}
                rules = AllowedHosts(
                    [f"known.test:{port}"], private=True, addresses=at, ask_timeout_ms=60_000
                )
                both = [f"curl -sS --fail http://{name}:{port}/" for name in at]
                async with Workers.connect(home) as workers:
                    script = f"{both[0]} & first=$!; {both[1]} && wait $first"
                    script += " && until test -e go; do sleep 0.1; done"
                    await workers.run("shell", cwd=str(work), prompt=script, id="w2", hosts=rules)
                while "and 1 more" not in waited["says"]:
                    waited = await call(client, "worker_wait", worker="w2", **wait)
                given = await call(client, "worker_approve", worker="w2", option="pattern")
                assert given["answered"]["kind"] == "allow_always"
                assert (await call(client, "worker_status", worker="w2"))["worker"]["asks"] is None
                (work / "go").touch()
                ended = await call(
                    client, "worker_wait", worker=["w1", "w2"], until="ended", timeout_seconds=40
                )
                while len(ended["reached"]) < 2:
                    ended = await call(client, "worker_wait", worker=["w1", "w2"], until="ended")
                assert [row["state"] for row in ended["workers"]] == ["completed"] * 2, ended
    finally:
        await end_supervisor(home)


async def test_what_is_left_of_ended_workers_is_removed_and_those_that_run_are_not(tmp_path: Path) -> None:
    home, work = tmp_path / "h", tmp_path / "work"
    work.mkdir()
    try:
        async with Workers.connect(home) as workers:
            ended = await workers.run("shell", cwd=str(work), prompt="echo x > $TMPDIR/left", id="ended")
            assert (await ended.wait()).state == "completed"
            first = await workers.run("shell", cwd=str(work), prompt="exec sleep 600", id="one")
            await workers.run("shell", cwd=str(work), prompt="exec sleep 600", id="two")
            assert await workers.prune() == []  # it ended a moment ago
            assert [one.id for one in await workers.prune(kept_s=0.0)] == ["ended"]
            assert not (home / "workers" / "ended").exists()
            with pytest.raises(NotFound):
                await workers.find("ended")
            assert not (await first.status()).state.ended
            stopped = await workers.stop(["one", "two"], grace_s=0.0)
            assert [report.failure for report in stopped] == ["killed", "killed"]
            assert len(await workers.prune(kept_s=0.0)) == 2
    finally:
        await end_supervisor(home)


async def end_supervisor(home: Path) -> None:
    await end_listener(background.supervisor_socket(home), signal.SIGTERM)
    await end_exec_server(home)


def test_a_workers_server_loads_neither_an_event_loop_nor_a_command_line() -> None:
    heavy = "{'mcp', 'mcp_types', 'asyncio', 'click', 'logging', 'sqlite3', 'ssl'}"
    program = (
        f"import sys, holdfast.mcp.reports, holdfast.mcp.server; sys.exit(bool({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=WAIT_S, check=False)
    assert done.returncode == 0


def test_a_worker_cannot_also_supervise(run: Assigned) -> None:
    done = subprocess.run(
        [*COMMAND, "mcp", "--run", str(run.run_file), "--board", "b"],
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_run_that_is_not_there_is_said_before_anything_is_served(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "mcp", "--run", str(tmp_path / "run.json")],
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, b"")
