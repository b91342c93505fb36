"""The real Codex CLI with its sandbox on: its policy is enforced by the exec server, its user is asked.

What counts is on disk: what may not be written is not there, whatever was said about it. The Codex CLI's own
server sits the same examination (`-k theirs`).
"""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.codex import AppServer, CodexClient, requires_codex
from tests.support.provider import command, patch, turns
from tests.support.recorder import Recorder
from tests.support.stage import ExamServer, Stage, write_below
from tests.support.tcp import tcp_server

ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "May I write outside?"}
COMMAND_ASKED = "item/commandExecution/requestApproval"
PATCH_ASKED = "item/fileChange/requestApproval"
CONFINED = ("linuxSeccomp", True, False)
CONFINED_DENIED = ("linuxSeccomp", False, True)
FREE = ("none", True, False)


@pytest.fixture
def stage(server: ExamServer) -> Iterator[Stage]:
    """Not below a temporary directory of the system: sandboxes leave those writable."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="holdfast-") as folder:
        base = Path(folder).resolve()
        (base / "outside").mkdir()
        yield Stage(CodexClient(requires_codex(), base), server.process, ours=server.ours)


def outside(stage: Stage, name: str) -> Path:
    return stage.workspace.parent / "outside" / name


def ends(recorder: Recorder) -> list[tuple[str, bool, bool]]:
    """Of each command: its sandbox, whether it succeeded, whether the sandbox was the reason."""
    started = {
        entry.message["id"]: entry.params["processId"]
        for entry in recorder.sent("process/start", kind="request")
    }
    kinds = {
        started[entry.message["id"]]: entry.result["sandboxType"]
        for entry in recorder.sent("process/start", by="server", kind="response")
    }
    exits = {
        entry.params["processId"]: entry.params for entry in recorder.sent("process/exited", by="server")
    }
    return [
        (kinds[name], exits[name]["exitCode"] == 0, exits[name]["sandboxDenied"]) for name in started.values()
    ]


async def turn(
    stage: Stage,
    app: AppServer,
    recorder: Recorder,
    policy: str,
    *decisions: str,
    sandbox: str | None = "workspace-write",
) -> list[str]:
    """One turn in this sandbox, or by the permissions of the configuration, answered so; the questions."""
    app.decisions = list(decisions)
    await app.call("environment/add", {"environmentId": "ext", "execServerUrl": recorder.url})
    await app.take_turn(
        await app.start_thread("ext", stage.workspace, sandbox=sandbox, approvalPolicy=policy)
    )
    assert app.decisions == [], "not asked as often as expected"
    return [question["method"] for question in app.questions]


async def test_read_only_refuses_every_write_and_says_that_the_sandbox_was_the_reason(stage: Stage) -> None:
    write_below(stage.workspace, {"seen.txt": "visible\n"})
    script = turns([command("c1", "cat seen.txt; touch inside.txt")], [command("c2", "cat seen.txt")])
    model, recorder = await stage.play(script, sandbox="read-only")
    assert not (stage.workspace / "inside.txt").exists()
    assert ends(recorder) == [CONFINED_DENIED, CONFINED]
    assert (model.exit_code("c1"), model.exit_code("c2")) == (1, 0)
    assert "visible\n" in model.output("c1")


async def test_the_workspace_is_writable_its_metadata_and_what_is_outside_are_not(stage: Stage) -> None:
    write_below(stage.workspace, {".git/config": "[core]\n"})
    ask = """
        echo x > inside.txt && echo inside-written
        (echo x > .git/config) 2>/dev/null || echo git-denied
        ln ../outside/there.txt linked.txt 2>/dev/null || echo link-denied
        echo x > ../outside/no.txt
    """
    outside(stage, "there.txt").write_text("theirs\n", "utf-8")
    model, recorder = await stage.play(turns([command("c1", ask)]), sandbox="workspace-write")
    said = model.output("c1")
    assert all(text in said for text in ("inside-written", "git-denied", "link-denied")), said
    assert (stage.workspace / "inside.txt").read_text("utf-8") == "x\n"
    assert (stage.workspace / ".git" / "config").read_text("utf-8") == "[core]\n"
    assert not outside(stage, "no.txt").exists()
    assert ends(recorder) == [CONFINED_DENIED]


async def test_without_network_a_listener_of_this_machine_is_out_of_reach(stage: Stage) -> None:
    accepted = asyncio.Event()

    async def accept(*_: object) -> None:
        accepted.set()

    async with tcp_server(accept) as port:
        ask = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo CONNECTED'"
        model, recorder = await stage.play(turns([command("c1", ask)]), sandbox="workspace-write")
    assert not accepted.is_set()
    assert model.exit_code("c1") not in (0, None)
    [started] = recorder.sent("process/start", kind="request")
    assert started.params["sandbox"]["permissions"]["network"] == "restricted"


async def test_a_patch_is_applied_inside_the_workspace_and_refused_outside(stage: Stage) -> None:
    write_below(stage.workspace, {"a.txt": "one\n"})
    inside = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch"
    beyond = "*** Begin Patch\n*** Add File: ../outside/no.txt\n+no\n*** End Patch"
    script = turns([patch("c1", inside)], [patch("c2", beyond)])
    _, recorder = await stage.play(script, sandbox="workspace-write")
    assert (stage.workspace / "a.txt").read_text("utf-8") == "two\n"
    assert not outside(stage, "no.txt").exists()
    writes = recorder.sent("fs/writeFile", kind="request")
    assert {entry.params["sandbox"]["permissions"]["type"] for entry in writes} == {"managed"}


async def test_an_approved_escalation_runs_outside_the_sandbox_and_only_that_one(stage: Stage) -> None:
    script = turns(
        [command("c1", "echo x > ../outside/yes.txt && echo written", **ESCALATED)],
        [command("c2", "echo x > ../outside/no.txt")],
    )
    async with stage.connected(script) as (model, recorder), stage.client.app_server() as app:
        assert await turn(stage, app, recorder, "on-request", "accept") == [COMMAND_ASKED]
    assert ends(recorder) == [FREE, CONFINED_DENIED]
    assert "written" in model.output("c1")
    assert outside(stage, "yes.txt").read_text("utf-8") == "x\n"
    assert not outside(stage, "no.txt").exists()


async def test_an_approved_escalation_writes_everywhere_and_still_reads_nothing_that_is_denied(
    stage: Stage,
) -> None:
    """Announced as `linuxApprovedRootWritePreservesRestrictions`; else the client does not run it so."""
    secret = outside(stage, "secret")
    secret.write_text("PERSIMMON")
    config = '[permissions.mine]\nextends = ":workspace"\n[permissions.mine.filesystem]\n'
    script = turns(
        [command("c1", "echo x > ../outside/yes.txt && echo written; cat ../outside/secret", **ESCALATED)],
        [command("c2", "cat ../outside/secret; echo x > ../outside/no.txt")],
    )
    linked = stage.connected(script, config=f'{config}"{secret}" = "deny"\n', profile="mine")
    async with linked as (model, recorder), stage.client.app_server() as app:
        asked = await turn(stage, app, recorder, "on-request", "accept", sandbox=None)
        assert asked == [COMMAND_ASKED]
    assert [kind for kind, _, _ in ends(recorder)] == ["linuxSeccomp", "linuxSeccomp"]
    assert "written" in model.output("c1")
    assert "PERSIMMON" not in model.output("c1") + model.output("c2")
    assert outside(stage, "yes.txt").read_text("utf-8") == "x\n"
    assert not outside(stage, "no.txt").exists()


async def test_a_declined_escalation_starts_nothing_and_the_turn_goes_on(stage: Stage) -> None:
    script = turns(
        [command("c1", "echo x > ../outside/no.txt", **ESCALATED)], [command("c2", "echo carried-on")]
    )
    async with stage.connected(script) as (model, recorder), stage.client.app_server() as app:
        assert await turn(stage, app, recorder, "on-request", "decline") == [COMMAND_ASKED]
    assert not outside(stage, "no.txt").exists()
    assert ends(recorder) == [CONFINED]
    assert "carried-on" in model.output("c2")


async def test_an_approved_command_that_the_sandbox_denies_is_run_again_without_it(stage: Stage) -> None:
    """The client asks once, tries it confined, and repeats it because the server says why it failed."""
    script = turns(
        [command("c1", "echo x >> ../outside/yes.txt && echo written")], [command("c2", "touch in")]
    )
    async with stage.connected(script) as (model, recorder), stage.client.app_server() as app:
        recorder.at_once = True
        assert await turn(stage, app, recorder, "untrusted", "accept", "accept") == [COMMAND_ASKED] * 2
    assert ends(recorder) == [CONFINED_DENIED, FREE, CONFINED]
    assert model.exit_code("c1") == 0
    assert outside(stage, "yes.txt").read_text("utf-8") == "x\n"
    assert (stage.workspace / "in").exists()


async def test_a_command_that_fails_by_itself_is_not_run_again(stage: Stage) -> None:
    script = turns([command("c1", "echo once >> tries.txt; exit 3")])
    async with stage.connected(script) as (model, recorder), stage.client.app_server() as app:
        recorder.at_once = True
        assert await turn(stage, app, recorder, "untrusted", "accept") == [COMMAND_ASKED]
    assert ends(recorder) == [(CONFINED[0], False, False)]
    assert model.exit_code("c1") == 3
    assert (stage.workspace / "tries.txt").read_text("utf-8") == "once\n"


async def test_an_approved_patch_is_written_outside_and_a_declined_one_is_not(stage: Stage) -> None:
    made = "*** Begin Patch\n*** Add File: ../outside/{0}.txt\n+{0}\n*** End Patch"
    script = turns([patch("c1", made.format("yes"))], [patch("c2", made.format("no"))])
    async with stage.connected(script) as (_, recorder), stage.client.app_server() as app:
        asked = await turn(stage, app, recorder, "on-request", "accept", "decline")
    assert asked == [PATCH_ASKED] * 2
    assert outside(stage, "yes.txt").read_text("utf-8") == "yes\n"
    assert not outside(stage, "no.txt").exists()
