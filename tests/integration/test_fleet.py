"""Workers on another machine: a second exec server with a home of its own, over a link that can be cut."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from holdfast.agents.supervisor import background
from tests.support.arena import end_listener
from tests.support.fleet import WAIT_S, Fleet, fleet
from tests.support.git_traps import git
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


def commit_all(work: Path) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        git(work, *words)


async def test_a_work_tree_is_carried_over_and_what_changed_comes_back() -> None:
    async with fleet() as there:
        (there.work / ".gitignore").write_text("*.o\nsecret\n")
        (there.work / "sub").mkdir()
        for name in ("kept", "changed", "gone", "sub/deep"):
            (there.work / name).write_text(f"{name}\n")
        commit_all(there.work)
        (there.work / "kept").write_text("changed before\n")  # in no commit
        (there.work / "new").write_text("new before\n")
        (there.work / "secret").write_text("ignored\n")
        script = (
            "pwd; cat kept new; test ! -e secret && git log --oneline | wc -l; git status --short;"
            " echo more >> changed; rm gone; mkdir made; echo x > made/file; chmod +x changed; echo y > b.o"
        )
        done = await there.command("run", "--env", "box", "--id", "one", "shell", script)
        assert done.returncode == 0, done.stderr + done.stdout
        lines = (await there.command("logs", "one")).stdout.splitlines()
        assert lines[0].startswith(str(there.far)), "it worked on the other machine"
        assert lines[1:6] == ["changed before", "new before", "1", " M kept", "?? new"]
        assert git(there.work, "status", "--short") == " M kept\n?? new\n", "nothing is changed here yet"
        said = await there.command("diff", "one", "--json")
        assert said.returncode == 0, said.stderr
        assert json.loads(said.stdout)["paths"] == ["M changed", "D gone", "A made/file"]
        assert there.left_there == []
        report = json.loads((await there.command("status", "one", "--json")).stdout)
        assert (report["host"], report["source"], report["pid"]) == ("box", str(there.work), None)
        assert report["backend"], "what that server says that it enforced"
        assert any("secret" in note for note in report["notes"]), "what was not carried is said"
        assert any("b.o" in note for note in report["notes"]), "and what was not brought back"
        branch = await there.command("apply", "one", "--branch", "try")
        assert branch.returncode == 0, branch.stderr
        assert git(there.work, "diff", "--name-status", "HEAD", "try") == (
            "M\tchanged\nD\tgone\nM\tkept\nA\tmade/file\nA\tnew\n"
        )
        applied = await there.command("apply", "one")
        assert applied.returncode == 0, applied.stderr
        assert (there.work / "changed").read_text() == "changed\nmore\n"
        assert (there.work / "changed").stat().st_mode & 0o111
        assert git(there.work, "status", "--short") == " M changed\n D gone\n M kept\n?? made/\n?? new\n"
        again = await there.command("apply", "one")
        assert again.returncode != 0
        assert "changed here too" in again.stderr


WAITING = "echo one; while [ ! -e go ]; do sleep 0.1; done; rm go; echo two > result; echo two"


async def _until_said(there: Fleet, worker: str, text: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while text not in (await there.command("logs", worker)).stdout:
            await asyncio.sleep(0.1)


async def test_a_worker_goes_on_over_a_link_that_is_cut_and_a_supervisor_that_is_killed() -> None:
    async with fleet() as there:
        (there.work / "a").write_text("a\n")
        done = await there.command("run", "--env", "box", "--id", "one", "--detach", "shell", WAITING)
        assert done.returncode == 0, done.stderr
        await _until_said(there, "one", "one")
        there.way.cut()
        await _until_said(there, "one", "one")
        await end_listener(background.supervisor_socket(there.home), signal.SIGKILL)
        (there.far / ".local/share/holdfast/carried/one/work/go").touch()
        ended = await there.command("wait", "one")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "completed" in ended.stdout
        assert (await there.command("logs", "one")).stdout == "one\ntwo\n", "nothing lost, nothing twice"
        diff = await there.command("diff", "one", "--json")
        assert json.loads(diff.stdout)["paths"] == ["A result"]


async def test_a_machine_that_forgot_its_session_makes_a_worker_lost_and_not_failed() -> None:
    async with fleet() as there:
        with (there.home / "environments.toml").open("a", encoding="utf-8") as file:
            file.write('[[environments]]\nid = "nobody"\nurl = "ws://127.0.0.1:9"\n')
            file.write(f'[[environments]]\nid = "direct"\nurl = "{there.server.url}"\n')
        refused = await there.command("run", "--env", "nobody", "--id", "none", "shell", "true")
        assert refused.returncode != 0
        assert "127.0.0.1:9" in refused.stderr
        assert (await there.command("list", "--all")).stdout == "", "nothing was started, so nothing failed"
        (there.work / "a").write_text("a\n")
        missing = await there.command("run", "--env", "direct", "--id", "one", "qwen", "do it")
        assert missing.returncode != 0
        assert "qwen is not on the PATH of" in missing.stderr
        assert there.left_there == []
        (there.work / "a").write_text("the same id again, with another content\n")
        begun = f"echo half > half; {WAITING}"
        started = await there.command("run", "--env", "direct", "--id", "one", "--detach", "shell", begun)
        assert started.returncode == 0, started.stderr
        await _until_said(there, "one", "one")
        await there.server.crash()
        await there.server.start()
        ended = await there.command("wait", "one", "--json")
        report = json.loads(ended.stdout)
        assert (report["state"], report["failure"], report["exitCode"]) == ("lost", None, None)
        assert "is not known" in report["about"]
        assert (report["unreturned"], report["place"]) == (None, "")
        diff = json.loads((await there.command("diff", "one", "--json")).stdout)
        assert diff["paths"] == ["A half"], "what it had done by then came back"
        assert there.left_there == []
        await there.command("prune", "--all")
        left = there.far / ".local/share/holdfast/carried/one/work"
        left.mkdir(parents=True)
        again = await there.command("run", "--env", "direct", "--id", "one", "shell", "true")
        assert again.returncode != 0
        assert left.exists(), "what a lost worker left is not written over"


async def test_of_what_comes_back_nothing_is_put_where_it_would_be_obeyed() -> None:
    async with fleet() as there:
        (there.work / "a").write_text("a\n")
        (there.work / "was-a-link").symlink_to("a")
        script = f"{WAITING}; echo changed > a"
        done = await there.command("run", "--env", "box", "--id", "one", "--detach", "shell", script)
        assert done.returncode == 0, done.stderr
        far = there.far / ".local/share/holdfast/carried/one/work"
        (far / "deep/.codex").mkdir(parents=True)
        (far / "deep/.codex/config.toml").write_text("obey me\n")
        (far / "sub").symlink_to(there.work)
        (far / "was-a-link").unlink()
        (far / "was-a-link").write_text("a file\n")
        (far / "go").touch()
        assert (await there.command("wait", "one")).returncode == 0
        shown = json.loads((await there.command("diff", "one", "--json")).stdout)["paths"]
        assert shown == ["M a", "A deep/.codex/config.toml", "A result", "A sub", "M was-a-link"]
        applied = json.loads((await there.command("apply", "one", "--json")).stdout)
        assert applied["paths"] == ["a", "result"]
        assert [path.split(" ")[0] for path in applied["leftOut"]] == [
            "deep/.codex/config.toml",
            "sub",
            "was-a-link",
        ]
        assert sorted(path.name for path in there.work.iterdir()) == ["a", "result", "was-a-link"]
        assert (there.work / "was-a-link").is_symlink()
        assert (there.work / "a").read_text() == "changed\n"
        branch = await there.command("apply", "one", "--branch", "x")
        assert branch.returncode != 0
        assert "no git work tree" in branch.stderr


@pytest.mark.deep  # the client dials for 25 s before it gives the session up
async def test_one_that_is_stopped_while_its_machine_is_away_is_lost_and_says_so() -> None:
    async with fleet() as there:
        done = await there.command("run", "--env", "box", "--id", "one", "--detach", "shell", WAITING)
        assert done.returncode == 0, done.stderr
        await there.server.freeze()
        there.way.cut()
        async with asyncio.timeout(WAIT_S):
            while "stalled(unreachable)" not in (await there.command("status", "one")).stdout:
                await asyncio.sleep(0.1)
        stopped = await there.command("stop", "one", "--json")
        report = json.loads(stopped.stdout)
        await there.server.crash()
        assert report["state"] == "lost", report
        assert "is not known" in report["about"]
