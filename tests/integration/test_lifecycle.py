"""What runs for a home: started once, shown, ended with all that it started, and replaced when it is old."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from holdfast.agents.supervisor import background, daemons
from holdfast.agents.supervisor.daemons import ProcessInfo
from holdfast.board.rules.rows import NewTask
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import open_store
from tests.support import warm
from tests.support.home import WAIT_S, command, environment, home, started, until
from tests.support.patience import patient
from tests.support.tiers import ASYNCIO, Backend

__all__ = ["home"]

HASTE_S: Final = patient(20)  # much less than `up` leaves to a teardown
SLEEPS: Final = "echo up\nexec sleep 1000"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO  # the commands bring their own loops


def asked(home: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the answer of a command that ends by itself."""
    done = warm.run([*words, "--json"], env=environment(home), cwd=os.getcwd(), timeout=WAIT_S)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def ran(argv: list[str], env: dict[str, str]) -> str:
    """What it said on standard error."""
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


async def ended(process: "subprocess.Popen[str]") -> int:
    return await asyncio.to_thread(process.wait, WAIT_S)


def of_ours(home: Path) -> list[str]:
    """Every process of this machine that has to do with the home, by all that the kernel shows of it."""
    name, found = os.fsencode(home), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if daemons.find_process(int(entry.name)) is None:
                continue
            seen = [(entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()]
            seen.append(os.fsencode(os.readlink(entry / "cwd")))
            for fd in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    seen.append(os.fsencode(os.readlink(fd)))
            if any(name in one for one in seen):
                found.append(f"{entry.name} {seen[0][:200]!r}")
    return found


async def working(home: Path, count: int = 1, assignee: str = "script") -> list[ProcessInfo]:
    """Put tasks on the board that never end; all processes of the home once their workers have begun."""
    with open_store(str(home / "board.db"), create=False) as store:
        for number in range(count):
            new = NewTask(title=f"never ends {number}", assignee=assignee, body=SLEEPS, max_attempts=1)
            store.create("main", new)
    async with asyncio.timeout(WAIT_S):
        while len(list((home / "workers").glob("*/output.log"))) < count:
            await asyncio.sleep(0.02)
        while sum(path.stat().st_size > 0 for path in (home / "workers").glob("*/output.log")) < count:
            await asyncio.sleep(0.02)
    return processes_of(home)


def processes_of(home: Path) -> list[ProcessInfo]:
    """Every process of the home: its daemons and all that descends from them."""
    return sorted(background.with_descendants({one.process for one in daemons.find(home)}))


def tasks(home: Path) -> Sequence[tuple[str, int]]:
    with open_store(str(home / "board.db"), create=False) as store:
        return [(task.status, task.attempts) for task in store.page("main").tasks]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
async def test_after_ctrl_c_no_process_of_ours_exists(home: Path, signum: signal.Signals) -> None:
    with started(home, "up", "--web-port", "0") as process:
        await until(process, "ready")
        there = await working(home, 2)
        assert len(there) > 6
        assert len(of_ours(home)) > 6
        os.killpg(process.pid, signum)
        said = await until(process, "left")
        assert (said["ended"], said["left"]) == (2, [])
        assert await ended(process) == 0
    assert [one for one in there if daemons.is_alive(one)] == []
    assert of_ours(home) == []
    assert tasks(home) == [(TaskStatus.WAITING_SYSTEM, 0)] * 2


async def test_a_task_that_was_cut_short_is_taken_on_again_by_the_next(home: Path) -> None:
    with started(home, "up", "--no-web") as process:
        await until(process, "ready")
        await working(home)
        process.send_signal(signal.SIGTERM)
        assert await ended(process) == 0
    with started(home, "up", "--no-web") as process:
        again = await until(process, "began")
        with open_store(str(home / "board.db"), create=False) as store:
            before, now = sorted(store.runs(again["task"]), key=lambda run: run.generation)
            assert (before.outcome, now.id) == ("lost", again["run"])
            assert store.file(again["task"], before.id, "output") == b"up\n"


async def test_a_second_ctrl_c_hastens(home: Path) -> None:
    teardown = 'teardown = "touch torn; sleep 1000"'
    (home / "worker-profiles.toml").write_text(
        f'[slow]\ncommand = ["sh", "-c", "{{prompt}}"]\nprompt = "{{body}}"\n{teardown}\n', "utf-8"
    )
    with started(home, "up", "--no-web") as process:
        await until(process, "ready")
        there = await working(home, assignee="slow")
        os.killpg(process.pid, signal.SIGINT)
        async with asyncio.timeout(WAIT_S):
            while not list((home / "board").glob("*/torn")):
                await asyncio.sleep(0.02)
        there += processes_of(home)
        os.killpg(process.pid, signal.SIGINT)
        assert await asyncio.to_thread(process.wait, HASTE_S) == 0
    assert [one for one in there if daemons.is_alive(one)] == []
    assert of_ours(home) == []


async def test_workers_that_somebody_else_started_are_left_and_named(home: Path) -> None:
    with started(home, "up", "--no-web") as process:
        await until(process, "ready")
        argv = command(
            "worker", "run", "shell", "--detach", "--id", "mine", "--cwd", str(home.parent), "sleep 1000"
        )
        ran(argv, environment(home))
        process.send_signal(signal.SIGINT)
        assert (await until(process, "left"))["left"] == ["mine"]
        assert await ended(process) == 0
    code, said = asked(home, "status")
    assert (code, said["workers"]) == (0, ["mine"])
    assert {one["role"] for one in said["daemons"]} == {"supervisor", "worker server"}
    code, said = asked(home, "down", "--workers")
    assert (code, said["workers"]) == (0, ["mine"])
    assert of_ours(home) == []


async def test_a_second_up_says_so_and_changes_nothing(home: Path) -> None:
    with started(home, "up", "--web-port", "0") as process:
        address = (await until(process, "web"))["address"].partition("#")[0]
        await until(process, "ready")
        for words in (["up", "--demo", "--board", "other"], ["up", "--demo", "--detach"]):
            code, said = asked(home, *words)
            assert (code, said["error"]["kind"]) == (4, "Conflict")
            assert address in said["error"]["message"]
            assert said["error"]["remedy"] == "holdfast status"  # which says how to open and to end it
        with open_store(str(home / "board.db"), create=False) as store:
            assert [board.slug for board in store.boards()] == ["main"]
        assert process.poll() is None
        process.terminate()
        assert await ended(process) == 0


async def test_up_is_refused_beside_a_dispatcher(home: Path) -> None:
    with open_store(str(home / "board.db")) as store:
        store.create_board("main")
    with started(home, "dispatch", "--board", "main"):
        async with asyncio.timeout(WAIT_S):
            while not daemons.find_by_role(home, daemons.DISPATCHER):
                await asyncio.sleep(0.02)
        code, said = asked(home, "up", "--board", "other")
        assert (code, "holdfast dispatch" in said["error"]["message"]) == (4, True)
        with open_store(str(home / "board.db"), create=False) as store:
            assert [board.slug for board in store.boards()] == ["main"]


async def test_detached_it_returns_when_all_is_there_and_down_ends_it(home: Path) -> None:
    code, said = asked(home, "up", "--detach", "--web-port", "0", "--listen", "ws://127.0.0.1:0")
    assert code == 0
    code, shown = asked(home, "status")
    roles = {one["role"]: one for one in shown["daemons"]}
    assert code == 0
    assert set(roles) >= {"up", "dispatcher", "exec server", "dashboard", "supervisor"}
    assert roles["up"]["pid"] == said["pid"]
    assert [roles["dashboard"]["address"]] == said["dashboard"]
    for one in shown["daemons"]:
        assert (one["version"], one["place"]) == (daemons.origin().version, str(daemons.PLACE))
        assert one["differs"] is None
        assert one["rss"] >= one["pss"] > 1 << 20
        assert one["since"] > 0
    code, gone = asked(home, "down")
    assert (code, {one["role"] for one in gone["ended"]} >= set(roles)) == (0, True)
    assert of_ours(home) == []
    code, gone = asked(home, "down")
    assert (code, gone["ended"]) == (0, [])
    code, shown = asked(home, "status")
    assert (code, shown["running"], shown["daemons"]) == (3, False, [])


async def test_what_does_not_start_detached_is_said(home: Path) -> None:
    code, said = asked(home, "up", "--detach", "--listen", "ws://192.0.2.1:1")
    assert code == 71
    assert "192.0.2.1" in said["error"]["message"]
    assert of_ours(home) == []


def test_a_home_whose_sockets_would_have_too_long_names_is_told_in_one_sentence(tmp_path: Path) -> None:
    home = tmp_path / ("h" * (100 - len(str(tmp_path))))
    told = "supervisor.sock is too long for a socket"
    for words in (["up", "--detach", "--no-web"], ["worker", "run", "shell", "true"]):
        done = warm.run(words, env=environment(home), cwd=os.getcwd(), timeout=WAIT_S)
        first, second = done.stderr.splitlines()
        assert (done.returncode, first.count(told), "\ufffd" in first, "token" in first) == (
            71,
            1,
            False,
            False,
        )
        assert second == "  try: set HOLDFAST_HOME to a shorter path"
    assert of_ours(home) == []


async def test_without_the_dashboard_s_packages_everybody_says_what_to_install(
    home: Path, tmp_path: Path
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    text = "raise ModuleNotFoundError('No module named starlette', name='starlette')\n"
    (hidden / "starlette.py").write_text(text, "utf-8")
    env = {**environment(home), "PYTHONPATH": str(hidden)}
    told = "the dashboard is not installed"

    def say(*words: str) -> str:
        argv = [sys.executable, "-P", "-m", "holdfast", *words]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False)
        return done.stdout + done.stderr

    try:
        assert f"dashboard    none: {told}; pip install 'holdfast-agents[web]'" in say("up", "--detach")
        assert "holdfast open" not in say("status")
        assert re.search(rf"{told}\n  try: pip install", say("open"))
    finally:
        say("down")
    assert of_ours(home) == []


async def test_down_refuses_while_workers_run_and_names_them(home: Path) -> None:
    with started(home, "up", "--no-web") as process:
        await until(process, "ready")
        await working(home)
        [worker] = asked(home, "status")[1]["workers"]
        code, said = asked(home, "down")
        assert (code, worker in said["error"]["message"]) == (4, True)
        assert "holdfast down --workers" in said["error"]["remedy"]
        assert process.poll() is None
        assert asked(home, "status")[1]["workers"] == [worker]
        code, said = asked(home, "down", "--workers")
        assert (code, said["workers"]) == (0, [worker])
        assert await ended(process) == 0
    assert of_ours(home) == []
    assert tasks(home) == [(TaskStatus.WAITING_SYSTEM, 0)]


async def test_down_gives_back_the_tasks_of_a_dispatcher_that_would_leave_its_workers(home: Path) -> None:
    with open_store(str(home / "board.db")) as store:
        store.create_board("main")
    with started(home, "dispatch", "--board", "main") as process:
        await working(home)
        assert asked(home, "down", "--workers")[0] == 0
        assert await ended(process) == 0
    assert of_ours(home) == []
    assert tasks(home) == [(TaskStatus.WAITING_SYSTEM, 0)]


async def test_the_last_error_is_shown(home: Path) -> None:
    with started(home, "up", "--no-web") as process:
        await until(process, "ready")
        (home / "workers").rename(home / "elsewhere")
        (home / "workers").write_text("in the way", "utf-8")
        with open_store(str(home / "board.db"), create=False) as store:
            store.create("main", NewTask(title="x", assignee="script", body="true"))
        async with asyncio.timeout(WAIT_S):
            while (error := asked(home, "status")[1]["lastError"]) is None:
                await asyncio.sleep(0.05)
        assert error["message"]
        (home / "workers").unlink()
        (home / "elsewhere").rename(home / "workers")


# --- daemons of other code


@contextlib.contextmanager
def another_installation(home: Path) -> Iterator[Path]:
    """A copy of the package elsewhere, of which daemons are started."""
    place = home.with_name(home.name + "-other")
    # With what is compiled: it holds as long as the times of the sources do, which are copied, too.
    shutil.copytree(daemons.PLACE, place / "holdfast", ignore=shutil.ignore_patterns("*.pyc.*"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def listed(home: Path, place: Path | None = None) -> str:
    """What `worker list` says on standard error, of this installation or another."""
    return ran(
        command("worker", "list"),
        environment(home) | ({} if place is None else {"PYTHONPATH": str(place)}),
    )


def supervisor(home: Path) -> daemons.Daemon:
    [found] = daemons.find_by_role(home, daemons.SUPERVISOR)
    return found


async def test_an_idle_daemon_of_another_installation_is_replaced(home: Path) -> None:
    with another_installation(home) as place:
        listed(home, place)
        old = supervisor(home)
        assert old.card is not None
        assert old.card.origin.place == str(place / "holdfast")
        assert "installed in" in asked(home, "status")[1]["daemons"][0]["differs"]
        assert listed(home) == ""
        new = supervisor(home)
        assert new.card is not None
        assert (new.card.origin, daemons.is_alive(old.process)) == (daemons.origin(), False)
        listed(home)
        assert supervisor(home).process == new.process


async def test_a_daemon_whose_installation_is_gone_is_noticed_and_replaced(home: Path) -> None:
    with another_installation(home) as place:
        listed(home, place)
        shutil.rmtree(place)
        assert "which is gone" in asked(home, "status")[1]["daemons"][0]["differs"]
        listed(home)
        found = supervisor(home).card
        assert found is not None
        assert found.origin == daemons.origin()


async def test_an_upgrade_in_place_is_noticed(home: Path) -> None:
    with another_installation(home) as place:
        listed(home, place)
        old = supervisor(home)
        listed(home, place)
        assert supervisor(home).process == old.process
        file = place / "holdfast" / "__init__.py"
        file.write_text(file.read_text("utf-8") + "\n", "utf-8")
        listed(home, place)
        assert supervisor(home).process != old.process


async def test_a_daemon_with_workers_stays_and_its_user_is_told_what_to_type(home: Path) -> None:
    with another_installation(home) as place:
        argv = command(
            "worker", "run", "shell", "--detach", "--id", "w", "--cwd", str(home.parent), "sleep 1000"
        )
        env = environment(home) | {"PYTHONPATH": str(place)}
        ran(argv, env)
        old, owner = supervisor(home), daemons.find_by_role(home, daemons.OWNER)
        told = listed(home)
        assert "holdfast down --workers" in told
        assert (supervisor(home), daemons.find_by_role(home, daemons.OWNER)) == (old, owner)
        assert asked(home, "down", "--workers")[0] == 0
        assert of_ours(home) == []


async def test_an_exec_server_of_another_installation_is_replaced_once_it_owns_nothing(home: Path) -> None:
    with another_installation(home) as place:
        argv = command("worker", "run", "shell", "--id", "w", "--cwd", str(home.parent), "true")
        env = environment(home) | {"PYTHONPATH": str(place)}
        ran(argv, env)
        [old] = daemons.find_by_role(home, daemons.OWNER)
        listed(home)
        assert not daemons.is_alive(old.process)


async def test_a_card_is_believed_only_of_the_process_that_holds_it(home: Path) -> None:
    with daemons.registered(home, daemons.DASHBOARD, "http://127.0.0.1:1/"):
        [found] = daemons.find(home)
        assert (found.role, found.process.pid) == (daemons.DASHBOARD, os.getpid())
        [path] = (home / daemons.FOLDER).iterdir()
        text = path.read_bytes()
    assert daemons.find(home) == []
    path.write_bytes(text)  # as left by one that was killed: nobody holds its lock
    assert daemons.find(home) == []
    assert not path.exists()
    fd, path = daemons.prepare(home, daemons.DASHBOARD)
    try:
        daemons.fill(fd, path, daemons.DASHBOARD, os.getpid())
        card = msgspec.json.decode(path.read_bytes(), type=daemons.DaemonCard)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(card, began=card.began + 1)))
        assert daemons.find(home) == []  # another process of that number
    finally:
        os.close(fd)
