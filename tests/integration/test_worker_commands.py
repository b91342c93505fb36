"""`holdfast worker` and `holdfast.Workers`, with the real supervisor and exec server in the background."""

import asyncio
import json
import os
import secrets
import shlex
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

from holdfast.agents import sdk
from holdfast.agents.sdk import Workers
from holdfast.agents.supervisor import background
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.errors import InvalidRequest, NotFound
from holdfast.wire.permissions import AllowedHosts
from tests.support import warm
from tests.support.arena import end_exec_server, end_listener
from tests.support.git_traps import git
from tests.support.pane import shows, tmux_server
from tests.support.pane import tmux as tell
from tests.support.patience import patient
from tests.support.tiers import asyncio_first
from tests.support.webhosts import web_hosts

__all__ = ["asyncio_first"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

WAIT_S = patient(30.0)


@dataclass(frozen=True)
class Place:
    home: Path
    work: Path

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "HOLDFAST_HOME": str(self.home)}
        return warm.run(["worker", *words], cwd=self.work, env=env, timeout=WAIT_S)


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    """A home of its own whose background processes are ended whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    (folder / "work").mkdir()
    here = Place(folder / "home", folder / "work")
    try:
        yield here
    finally:
        await end_listener(background.supervisor_socket(here.home), signal.SIGTERM)
        await end_exec_server(here.home)
        shutil.rmtree(folder, ignore_errors=True)


async def _state(changes: AsyncIterator[WorkerReport], wanted: str) -> WorkerReport:
    async with asyncio.timeout(WAIT_S):
        async for change in changes:
            if wanted in (change.state, f"{change.state}({change.detail})"):
                return change
    raise AssertionError(f"it never was {wanted}")


async def test_a_worker_is_followed_to_its_end_and_explained() -> None:
    async with place() as here:
        done = await asyncio.to_thread(here.command, "run", "shell", "--id", "one", "echo said; exit 0")
        assert done.returncode == 0, done.stderr
        assert "completed" in done.stdout.splitlines()[-1]
        assert "said" in done.stdout.splitlines()[:-1]
        quiet = await asyncio.to_thread(
            here.command, "run", "shell", "--id", "hush", "--quiet", "echo said; exit 0"
        )
        assert "said" not in quiet.stdout.splitlines()
        assert "completed" in quiet.stdout.splitlines()[-1]
        failed = await asyncio.to_thread(
            here.command, "run", "shell", "--id", "two", "--json", "mkdir /no; exit 3"
        )
        assert failed.returncode == 1
        last = json.loads(failed.stdout.splitlines()[-1])
        assert (last["state"], last["failure"], last["schemaVersion"]) == ("failed", "sandbox", 1)
        assert "/no" in last["about"]
        listed = await asyncio.to_thread(here.command, "list", "--all", "--json")
        assert [report["id"] for report in json.loads(listed.stdout)] == ["one", "hush", "two"]
        assert json.loads((await asyncio.to_thread(here.command, "list", "--json")).stdout) == []
        why = await asyncio.to_thread(here.command, "why", "two")
        assert "rule exit-denied" in why.stdout
        assert (await asyncio.to_thread(here.command, "logs", "one")).stdout == "said\n"


async def test_what_a_worker_changed_is_told_as_a_patch_of_its_work_tree() -> None:
    async with place() as here:
        (here.work / ".gitignore").write_text("*.o\n")
        for name in ("kept", "changed"):
            (here.work / name).write_text(f"{name}\n")
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
            git(here.work, *words)
        (here.work / "kept").write_text("changed before\n")
        script = "echo more >> changed; echo x > made.o; echo new > new; git status --short > /dev/null"
        done = await asyncio.to_thread(here.command, "run", "shell", "--id", "one", script)
        assert done.returncode == 0, done.stderr
        said = await asyncio.to_thread(here.command, "diff", "one")
        assert said.stdout.startswith(
            "# ! made.o (ignored: 1 files, 2 bytes)\ndiff --git a/changed b/changed\n"
        )
        assert "changed before" not in said.stdout, "that was not the worker"
        (here.work / "made.o").unlink()
        (here.home / "patch").write_text(said.stdout)
        git(here.work, "apply", "--reverse", str(here.home / "patch"))
        assert git(here.work, "status", "--short") == " M kept\n"
        again = await asyncio.to_thread(here.command, "diff", "one", "--json")
        assert json.loads(again.stdout)["paths"] == []
        (here.home / "workers" / "one" / "baseline.json").unlink()
        unknown = await asyncio.to_thread(here.command, "diff", "one")
        assert "nobody looked at" in unknown.stderr


async def test_a_short_id_means_the_one_worker_that_begins_so() -> None:
    async with place() as here:
        for name in ("shell-1f2e3d", "shell-2a3b4c"):
            await asyncio.to_thread(here.command, "run", "shell", "--id", name, "exit 0")
        for given in ("shell-1f2e3d", "shell-1", "1f2e"):
            said = await asyncio.to_thread(here.command, "status", given)
            assert said.stdout.startswith("shell-1f2e3d "), said.stderr
        several = await asyncio.to_thread(here.command, "status", "shell-")
        assert several.returncode == 2
        assert "shell-1f2e3d, shell-2a3b4c" in several.stderr


async def test_what_cannot_be_meant_is_said_in_one_line() -> None:
    async with place() as here:
        for words, code, text in (
            (("run", "nobody", "hi"), 2, "no agent `nobody`"),
            (("status", "nobody-1"), 3, "no worker nobody-1"),
            (("status", "../../etc"), 2, "not a worker's id"),
            (("run", "shell", "--cwd", "/no/such", "true"), 2, "/no/such"),
        ):
            done = await asyncio.to_thread(here.command, *words)
            assert done.returncode == code, (words, done.stderr)
            assert text in done.stderr
            assert len(done.stderr.splitlines()) <= 2


async def test_a_program_starts_watches_answers_and_stops_a_worker() -> None:
    async with place() as here, Workers.connect(here.home) as workers:
        worker = await workers.run(
            "shell", cwd=str(here.work), prompt="read x; echo got $x; sleep 60", tty=True
        )
        changes = worker.changes()
        waiting = await _state(changes, "waiting(prompt)")
        assert waiting.backend == "namespaces"
        assert await worker.send("hello") == "submitted"
        assert (await _state(changes, "running")).id == worker.id
        with pytest.raises(InvalidRequest):
            await worker.send("not now")
        ended = await worker.stop(grace_s=1)
        assert (ended.state, ended.failure) == ("failed", "killed")
        with pytest.raises(NotFound):
            await workers.find("shell-000000")


async def test_nothing_is_typed_at_a_password_prompt() -> None:
    async with place() as here, Workers.connect(here.home) as workers:
        prompt = "stty -echo; read x; stty echo; echo done"
        worker = await workers.run("shell", cwd=str(here.work), prompt=prompt, tty=True)
        await _state(worker.changes(), "waiting(password)")
        with pytest.raises(InvalidRequest):
            await worker.send("secret")
        await worker.stop(grace_s=0)


async def test_secrets_are_nowhere_on_disk() -> None:
    secret = secrets.token_hex(16)
    async with place() as here, Workers.connect(here.home) as workers:
        env = {"PATH": os.environ["PATH"], "MY_TOKEN": secret}
        worker = await workers.run("shell", cwd=str(here.work), prompt='test -n "$MY_TOKEN"', env=env)
        assert (await worker.wait()).state == "completed"
        found = [
            path for path in here.home.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
        ]
        assert found == []
        record = json.loads((here.home / "workers" / worker.id / "record.json").read_text("utf-8"))
        assert "MY_TOKEN" in record["environment"]


async def test_a_person_attaches_by_the_beginning_of_an_id() -> None:
    async with place() as here, Workers.connect(here.home) as workers, tmux_server() as socket:
        worker = await workers.run(
            "shell", cwd=str(here.work), prompt="echo up; read x", tty=True, id="shell-1f2e3d"
        )
        await _state(worker.changes(), "waiting(prompt)")
        argv = [sys.executable, "-P", "-m", "holdfast", "worker", "attach", "1f2e", "--home", str(here.home)]
        pane = await tell(socket, "new-session", "-d", "-P", "-F", "#{pane_id}", shlex.join(argv))
        await shows(socket, pane.strip(), "up")
        await worker.stop(grace_s=0)


async def test_a_pane_shows_the_worker_and_owns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it run what the worker left in its directory under our own name."""
    async with place() as here, Workers.connect(here.home) as workers, tmux_server() as socket:
        (here.work / "holdfast").mkdir()
        for name in ("__init__", "__main__"):
            (here.work / "holdfast" / f"{name}.py").write_text("open('planted', 'w')", "utf-8")
        monkeypatch.chdir(here.work)
        worker = await workers.run(
            "shell", cwd=str(here.work), prompt="echo up; read x; echo $x; sleep 60", tty=True
        )
        await _state(worker.changes(), "waiting(prompt)")
        pane = await sdk.show_in_pane(here.home, worker.id, socket=socket)
        assert pane.startswith("%")
        await shows(socket, pane, "up")
        await tell(socket, "send-keys", "-t", pane, "typed", "Enter")
        await shows(socket, pane, "typed\ntyped")
        await tell(socket, "kill-server")
        assert not (await worker.status()).state.ended
        assert not (here.work / "planted").exists()
        await worker.stop(grace_s=0)


async def test_a_worker_waits_while_somebody_is_asked_about_a_host(tmp_path: Path) -> None:
    """Its status says so, `approve` answers it once, and only the host that was meant is reached."""
    with web_hosts(tmp_path) as hosts:
        port = hosts.ports["plain"]
        places = {"api.test": "127.0.0.1", "evil.test": "127.0.0.1"}
        asking = AllowedHosts(
            [f"known.test:{port}"], private=True, addresses=places, ask_timeout_ms=round(WAIT_S * 1000)
        )
        script = f"curl -sS http://api.test:{port}/a; curl -sS --fail http://evil.test:{port}/b; exit 0"
        async with place() as here, Workers.connect(here.home) as workers:
            worker = await workers.run("shell", cwd=str(here.work), prompt=script, hosts=asking)
            changes = worker.changes()
            first = await _state(changes, "waiting(network)")
            assert first.asks is not None
            assert first.about.endswith(f"/curl wants to reach api.test:{port}")
            assert [option.id for option in first.asks.options] == ["host", "no"]
            request = ["approve", worker.id, "--request", first.asks.request]
            done = await asyncio.to_thread(here.command, *request)
            assert (done.returncode, f"api.test:{port}" in done.stdout) == (0, True), done
            async with asyncio.timeout(WAIT_S):
                async for second in changes:
                    if second.asks is not None and "evil.test" in second.asks.question:
                        break
            replayed = await asyncio.to_thread(here.command, *request)
            assert (replayed.returncode, "any more: allowed" in replayed.stderr) == (1, True), replayed
            given = await worker.deny()
            assert (given.denied, given.option) == (True, "no")
            assert (await worker.wait()).state == "completed"
        arrived = [seen.data.split(b" ")[1] for seen in hosts.seen if seen.data]
        assert arrived == [b"/a"]
