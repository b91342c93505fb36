"""Workers on another machine: a second exec server with a home of its own, over a link that can be cut."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.agents.supervisor import background
from tests.support import warm
from tests.support.arena import end_exec_server, end_listener
from tests.support.cut import Way, way_to
from tests.support.git_traps import git
from tests.support.patience import patient
from tests.support.servers import ServerProcess, holdfast_server
from tests.support.tiers import asyncio_first

__all__ = ["asyncio_first"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

WAIT_S = patient(60.0)


@dataclass(frozen=True)
class Fleet:
    """This machine's home and directory, and the other machine: its home, its server, the way there."""

    home: Path
    work: Path
    far: Path
    server: ServerProcess
    way: Way

    async def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "HOLDFAST_HOME": str(self.home)}
        return await asyncio.to_thread(warm.run, ["worker", *words], cwd=self.work, env=env, timeout=WAIT_S)

    @property
    def left_there(self) -> list[str]:
        return sorted(path.name for path in (self.far / ".local/share/holdfast/carried").glob("*"))


@asynccontextmanager
async def fleet() -> AsyncIterator[Fleet]:
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    for name in ("work", "home"):
        (folder / name).mkdir(mode=0o700)
    try:
        async with holdfast_server(folder / "far") as server, way_to(server.url) as way:
            (folder / "home" / "environments.toml").write_text(
                f'[[environments]]\nid = "box"\nurl = "{way.url}"\n', "utf-8"
            )
            yield Fleet(folder / "home", folder / "work", folder / "far", server, way)
    finally:
        await end_listener(background.supervisor_socket(folder / "home"), signal.SIGTERM)
        await end_exec_server(folder / "home")
        shutil.rmtree(folder, ignore_errors=True)


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
