"""Explain mode: strace around real workers in the real sandbox, and workers that go on without it."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from holdfast.agents.evidence.evidence import Denied
from holdfast.agents.supervisor import background
from holdfast.agents.supervisor.messages import WorkerReport
from holdfast.agents.supervisor.service import build_report
from holdfast.agents.supervisor.supervisor import Supervisor
from holdfast.agents.worker import explaining, launching, procwatch
from holdfast.agents.worker.explaining import Explaining, held
from holdfast.agents.worker.launching import WorkerSpec
from holdfast.agents.worker.worker import FollowedWorker
from holdfast.client.policy import Policy
from tests.support.arena import end_exec_server, end_listener
from tests.support.exec_command import place as place_of
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's"),
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]

WAIT_S: Final = patient(30.0)
LOOK_S: Final = 0.02
_CONNECT: Final = "import socket; socket.socket().connect(('192.0.2.1', 443))"
_UNTIL_GO: Final = "mkdir ready; until test -e go; do sleep 0.05; done"


class Home:
    """A supervisor in this process, and where its workers work."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir()
        self.supervisor = Supervisor(folder / "h")

    async def run(self, script: str, *, path: str = os.environ["PATH"], **more: Any) -> FollowedWorker:
        env = {"PATH": path, "HOME": str(self.folder)}
        return await self.supervisor.run(
            WorkerSpec(agent="shell", cwd=str(self.work), env=env, prompt=script, trace=True, **more)
        )

    async def ended(self, worker: FollowedWorker) -> WorkerReport:
        async with asyncio.timeout(WAIT_S):
            await worker.done.wait()
        return build_report(worker)

    async def restart(self) -> None:
        await self.supervisor.aclose()
        self.supervisor = Supervisor(self.folder / "h")
        await self.supervisor.open()


@asynccontextmanager
async def home() -> AsyncIterator[Home]:
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))  # what is below /tmp is never refused
    try:
        here = Home(folder)
        await here.supervisor.open()
        try:
            yield here
        finally:
            for worker in here.supervisor.alive:
                worker.stop(grace_s=0)
                await here.ended(worker)
            await here.supervisor.aclose()
            await end_exec_server(folder / "h")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _when(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not met():
            await asyncio.sleep(LOOK_S)


def _denials(told: WorkerReport) -> dict[str, Denied]:
    return {denied.path: denied for denied in told.denials}


def _is(denied: Denied, **members: object) -> bool:
    return {name: getattr(denied, name) for name in members} == members


def _tracer(worker: FollowedWorker) -> int:
    main = procwatch.look(worker.record.pid or 0).main
    status = Path(f"/proc/{main.pid}/status").read_text("utf-8") if main else "TracerPid: 0"
    return int(status.partition("TracerPid:")[2].split()[0])


@pytest.mark.parametrize("uid", IDENTITIES)
async def test_refused_calls_are_told_as_they_were(uid: int) -> None:
    with place_of(uid) as made:
        where = made.top / "h"
        script = f'mkdir {made.outside}/d; cd {made.outside}; mkdir here; "$PYTHON" -c "{_CONNECT}"; exit 3'
        words = ("run", "shell", "--trace", "--network", "off", "--json", "--pass", "PYTHON", script)
        argv = [made.python, "-m", "holdfast", "worker", *words, "--home", str(where)]
        try:
            done = await asyncio.to_thread(
                subprocess.run,
                made.as_user(argv),
                cwd=made.workspace,
                env={**made.env(), "PYTHON": made.python},
                capture_output=True,
                timeout=WAIT_S,
                check=False,
            )
        finally:
            await end_listener(background.supervisor_socket(where), signal.SIGTERM)
            await end_exec_server(where)
    assert done.stdout, done.stderr
    told = msgspec.json.decode(done.stdout.splitlines()[-1], type=WorkerReport)
    assert (told.trace, told.untraced, told.failure) == (True, None, "sandbox"), told
    found = _denials(told)
    made_there = found[f"{made.outside}/d"]
    assert _is(made_there, access="create", syscall="mkdir", errno="EROFS", count=1)
    assert (made_there.grant, made_there.pid > 0) == (f"--allow-write {made.outside}", True)
    assert "outside the writable roots" in made_there.rule
    # Where a relative path leads only the watcher knows, which looks while the call waits.
    assert _is(found[f"{made.outside}/here"], access="create", errno="EROFS")
    unreached = found["192.0.2.1:443"]
    assert _is(unreached, access="connect", syscall="connect", errno="ENETUNREACH")
    assert _is(unreached, rule="the network is off", grant="--network on", count=1)


async def test_refused_reading_is_told_with_the_rule_and_the_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    async with home() as here:
        secret = here.folder / "secret"
        secret.mkdir()
        (secret / "key").write_text("x", "utf-8")
        plain = launching._policy

        def policy(wish: WorkerSpec, state: str) -> Policy:
            return plain(wish, state).deny(str(secret))

        monkeypatch.setattr(launching, "_policy", policy)
        told = await here.ended(await here.run(f"ls {secret}; cat {secret}/key; exit 1"))
        assert told.untraced is None
        # A denied path itself stays denied whatever is allowed; what is below it can be.
        for path, rule, grant in (
            (f"{secret}", f"{secret} is denied", ""),
            (f"{secret}/key", f"inside {secret}, which is denied", f"--allow-read {secret}/key"),
        ):
            denied = _denials(told)[path]
            assert _is(denied, access="read", errno="EACCES", host=False)
            assert _is(denied, rule=rule, grant=grant)
        assert told.failure == "sandbox"


@pytest.mark.parametrize("backend", ["namespaces", "bwrap", "landlock"])
async def test_strace_joins_through_every_backend(backend: str) -> None:
    with place_of(os.getuid()) as made:
        environment = made.env()
        explaining = Explaining(
            Policy.workspace_write(made.workspace), cwd=str(made.workspace), environment=environment
        )
        argv = held(("/bin/sh", "-c", f"mkdir {made.outside}/d; cd ..; mkdir here; exit 3"), environment)
        with made.start("--backend", backend, "--", *argv, stderr=subprocess.DEVNULL) as child:
            await explaining.begin(child.pid, watched=False)
            code = await asyncio.to_thread(child.wait, WAIT_S)
            await explaining.settled()
        found = {denied.path: denied for denied in explaining.take()}
        assert (code, explaining.off) == (3, None)
        assert found[f"{made.outside}/d"].errno == ("EACCES" if backend == "landlock" else "EROFS")
        assert (found["here"].grant, "does not say where" in found["here"].rule) == ("", True)
        assert found[f"{made.outside}/d"].grant == f"--allow-write {made.outside}"


async def test_a_worker_that_is_ended_takes_its_strace_along() -> None:
    async with home() as here:
        worker = await here.run(f"{_UNTIL_GO}; exit 0")
        await _when((here.work / "ready").exists)
        tracer = _tracer(worker)
        worker.stop(grace_s=0)
        assert (await here.ended(worker)).untraced is None
        assert not Path(f"/proc/{tracer}").exists()


async def test_repeated_refusals_are_counted_once_each() -> None:
    async with home() as here:
        told = await here.ended(await here.run("for i in 1 2 3 4 5; do mkdir /no; done; exit 1"))
        denied = [one.claim for one in here.supervisor.find(told.id).evidence() if "/no" in one.seen]
        assert sum(getattr(claim, "count", 0) for claim in denied) == 5


async def test_a_traced_worker_is_not_taken_for_a_stopped_one() -> None:
    async with home() as here:
        worker = await here.run(f"{_UNTIL_GO}; exit 0")
        await _when((here.work / "ready").exists)
        states = set()

        def note(changed: FollowedWorker) -> None:
            states.add(changed.status.state.value)

        forget = here.supervisor.hear(note)
        for _ in range(200):
            worker.tick()
        forget()
        (here.work / "go").touch()
        assert (await here.ended(worker)).state == "completed"
        assert "blocked" not in states


async def test_without_strace_a_worker_is_watched_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "find_program", lambda *_: None)
    async with home() as here:
        told = await here.ended(await here.run("mkdir /no; exit 1"))
        assert told.untraced == "strace is not installed, or only where workers could replace it"
        assert _is(_denials(told)["/no"], errno="EROFS")


async def test_where_strace_may_not_join_a_worker_is_watched_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with home() as here:
        refusing = here.folder / "bin" / "strace"
        refusing.parent.mkdir()
        refusing.write_text("#!/bin/sh\necho 'strace: attach: not permitted' >&2; exit 1\n", "utf-8")
        refusing.chmod(0o755)
        monkeypatch.setattr(explaining, "find_program", lambda *_: str(refusing))
        told = await here.ended(await here.run("mkdir /no; exit 1"))
        assert told.untraced == "strace ended: attach: not permitted"
        assert _is(_denials(told)["/no"], errno="EROFS")


async def test_a_worker_whose_strace_is_killed_goes_on_watched() -> None:
    async with home() as here:
        worker = await here.run(f"{_UNTIL_GO}; mkdir /no; exit 0")
        await _when((here.work / "ready").exists)
        os.kill(_tracer(worker), signal.SIGKILL)
        await _when(lambda: worker.record.untraced is not None)
        assert _tracer(worker) == 0
        (here.work / "go").touch()
        told = await here.ended(worker)
        assert (told.state, told.untraced) == ("completed", "strace ended: exit code -9")
        assert _is(_denials(told)["/no"], errno="EROFS")


async def test_after_a_restart_explain_mode_is_off_and_says_so() -> None:
    async with home() as here:
        worker = await here.run(f"{_UNTIL_GO}; exit 0")
        await _when((here.work / "ready").exists)
        await here.restart()
        again = here.supervisor.find(worker.record.id)
        assert "started anew" in (again.record.untraced or "")
        assert _tracer(again) == 0
        (here.work / "go").touch()
        assert (await here.ended(again)).state == "completed"


async def test_a_worker_that_a_dying_supervisor_left_stopped_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with home() as here:
        begun = asyncio.Event()

        async def begin(_self: Explaining, _leader: int, *, watched: bool) -> None:
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(Explaining, "begin", begin)
        running = asyncio.get_running_loop().create_task(here.run("exit 0"))
        async with asyncio.timeout(WAIT_S):
            await begun.wait()
        [worker] = here.supervisor.alive
        await _when(lambda: any(p.state == "T" for p in procwatch.tree(worker.record.pid or 0)))
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await here.restart()
        assert (await here.ended(here.supervisor.find(worker.record.id))).state == "completed"
