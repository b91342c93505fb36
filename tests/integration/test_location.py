"""Where Holdfast and the programs of workers lie does not matter, also where a worker's sandbox hides it."""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.agents.supervisor import background
from holdfast.agents.worker.launching import WorkerSpec, prepare
from holdfast.board.rules.rows import NewTask
from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import open_store
from holdfast.client.environment import connect
from holdfast.client.policy import Policy
from holdfast.errors import UsageError
from tests.support.arena import end_exec_server, end_listener
from tests.support.dispatch import Yard, home_fixture, yard_fixture
from tests.support.patience import patient
from tests.support.tiers import ASYNCIO, Backend

__all__ = ["home_fixture", "yard_fixture"]

WAIT_S: Final = patient(60.0)
PACKAGE: Final = Path(sys.modules["holdfast"].__file__ or "").parent
SHARED: Final = "/tmp"


@pytest.fixture
def anyio_backend() -> Backend:
    return ASYNCIO  # where things lie has nothing to do with a loop


@pytest.fixture
def below_tmp() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="location é ", dir=SHARED))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def installed(below_tmp: Path) -> AsyncIterator[Path]:
    """As `make run` makes it: sources, and a virtual environment that names them; below /tmp."""
    shutil.copytree(PACKAGE, below_tmp / "src" / "holdfast", ignore=shutil.ignore_patterns("*.pyc.*"))
    venv.create(below_tmp / ".venv", with_pip=False, symlinks=True)
    [site] = (below_tmp / ".venv" / "lib").glob("python*/site-packages")
    lines = [str(below_tmp / "src"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    (site / "sources.pth").write_text("\n".join(dict.fromkeys(lines)), "utf-8")
    try:
        yield below_tmp
    finally:
        await end_listener(background.supervisor_socket(below_tmp / "home"), signal.SIGTERM)
        await end_exec_server(below_tmp / "home")


def command(installed: Path) -> list[str]:
    return [str(installed / ".venv" / "bin" / "python"), "-m", "holdfast"]


async def example(argv: list[str], home: Path, *others: str, **more: str) -> list[TaskStatus]:
    """The three outcomes of `holdfast up --demo`; it goes on until what else was asked for is done."""
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "HOLDFAST_HOME": str(home)} | more
    words = ["up", "--json", "--demo", "--no-web", "--max-load", "0"]
    process = await asyncio.to_thread(
        lambda: subprocess.Popen([*argv, *words], env=environment, cwd="/", stdout=subprocess.PIPE, text=True)
    )
    try:
        ids = (await _told(process, "demo"))["tasks"]
        with open_store(str(home / "board.db"), create=False) as store:
            async with asyncio.timeout(WAIT_S):
                while any(store.task(id).status is not TaskStatus.DONE for id in others):
                    await asyncio.to_thread(store.changed, 0.1)
            return [store.task(id).status for id in ids]
    finally:
        process.terminate()
        await asyncio.to_thread(process.communicate)


async def _told(process: "subprocess.Popen[str]", kind: str) -> dict[str, Any]:
    assert process.stdout is not None
    last: dict[str, Any] = {}
    async with asyncio.timeout(WAIT_S):
        while line := await asyncio.to_thread(process.stdout.readline):
            said: dict[str, Any] = json.loads(line)
            if said.get("kind") == kind:
                return said
            last = said
    raise AssertionError(f"it ended: {last}")


OUTCOMES: Final = [TaskStatus.DONE, TaskStatus.FAILED, TaskStatus.WAITING_HUMAN]


async def test_the_example_ends_below_the_shared_temporary_directory_as_elsewhere(installed: Path) -> None:
    assert await example(command(installed), installed / "home") == OUTCOMES


async def test_it_ends_so_from_sources_that_only_an_environment_variable_names(installed: Path) -> None:
    [site] = (installed / ".venv" / "lib").glob("python*/site-packages")
    (site / "sources.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n", "utf-8"
    )
    sources = str(installed / "src")
    assert await example(command(installed), installed / "home", PYTHONPATH=sources) == OUTCOMES


async def test_a_worker_sees_the_programs_there_and_nothing_beside_them(installed: Path) -> None:
    home = installed / "home"
    home.mkdir()
    (installed / "secret").write_text("s", "utf-8")
    wanted = [installed / "secret", home / "board.db", home / "handoff.key", *(home / n for n in ("board",))]
    tries = "; ".join(f"ls {shlex.quote(str(path))} && cat {shlex.quote(str(path))}" for path in wanted)
    report = f"{shlex.join([*command(installed)])} handoff complete ok"
    body = f"ls {shlex.quote(str(installed))}; ({tries}; ls {SHARED}) > seen.txt 2> refused.txt; {report}"
    with open_store(str(home / "board.db")) as store:
        store.create_board("main")
        task = store.create("main", NewTask(title="look", body=body, assignee="script", max_attempts=1))
    await example(command(installed), home, task.id)
    place = home / "board" / task.id
    assert (place / "seen.txt").read_text("utf-8") == ""
    assert (place / "refused.txt").read_text("utf-8").count("ls:") == len(wanted) + 1


async def test_confined_file_calls_work_from_there_where_their_policy_hides_it(installed: Path) -> None:
    file = installed / "work" / "a.txt"
    file.parent.mkdir()
    file.write_text("text", "utf-8")
    policy = Policy.workspace_write(str(file.parent)).deny(SHARED).allow_write(str(file.parent))
    async with connect([*command(installed), "serve", "--listen", "stdio"]) as environment:
        assert await environment.files.read_text(str(file), policy=policy) == "text"
        with pytest.raises(Exception, match="Permission denied"):
            await environment.files.read(str(installed / "src/holdfast/__init__.py"), policy=policy)


@contextlib.contextmanager
def a_shell(place: Path) -> Iterator[Path]:
    """A program that is named by a link, and tells where it was started from."""
    (place / "real").mkdir(parents=True)
    program = place / "real" / "shell"
    program.write_text('#!/bin/sh\necho "from $0"\nexec /bin/sh "$@"\n', "utf-8")
    program.chmod(0o755)
    (place / "tools").mkdir()
    (place / "tools" / "sh").symlink_to(program)
    yield place / "tools"


async def test_a_program_of_a_worker_may_lie_below_what_is_hidden_from_it(
    yard: Yard, below_tmp: Path
) -> None:
    (below_tmp / "key").write_text("k", "utf-8")
    yard.profile("agent", agent="shell", prompt="{body}", success="exit", network=False, setup="echo set up")
    with a_shell(below_tmp) as folder:
        yard.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        task = yard.create(f"cat {shlex.quote(str(below_tmp / 'key'))} && exit 3; exit 0", assignee="agent")
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
    [run] = yard.store.runs(task.id)
    assert yard.store.task(task.id).status is TaskStatus.DONE, run.error
    started = f"from {below_tmp / 'real' / 'shell'}"
    assert started in yard.store.file(task.id, run.id, "output").decode()
    assert f"{started}\nset up" in yard.store.file(task.id, run.id, "setup").decode()


async def test_nothing_among_credentials_is_shown_whatever_a_program_names(yard: Yard) -> None:
    """What a program needs is read from files that an earlier worker may have written: its first line."""
    secret = yard.user / ".ssh" / "bin"
    secret.mkdir(parents=True)
    (secret / "python3").write_text("#!/bin/sh\n", "utf-8")
    (secret / "python3").chmod(0o755)
    yard.program("tool", "true")
    (yard.bin / "tool").write_text(f"#!{secret}/python3\n", "utf-8")
    yard.profile("agent", command=["tool"], prompt="{body}", success="exit", network=False)
    task = yard.create("true", assignee="agent", max_attempts=1)
    async with yard.dispatching(once=True) as serving:
        await yard.over(serving)
    [run] = yard.store.runs(task.id)
    assert f"inside {secret.parent}, which is denied" in (run.error or "")


async def test_what_cannot_be_shown_is_named_with_its_rule_before_anything_starts(
    yard: Yard, below_tmp: Path
) -> None:
    yard.profile("agent", command=["tool"], prompt="{body}", success="exit", network=False)
    with a_shell(below_tmp) as folder:
        (folder / "tool").symlink_to(below_tmp / "real" / "shell")
        yard.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        task = yard.create("true", assignee="agent", max_attempts=1)
        async with yard.dispatching(once=True) as serving:
            await yard.over(serving)
    [run] = yard.store.runs(task.id)
    assert f"{folder / 'tool'} cannot be read: inside {SHARED}, which is denied" in (run.error or "")


def test_a_program_that_is_denied_itself_is_refused(tmp_path: Path) -> None:
    with a_shell(tmp_path) as folder:
        program = str(tmp_path / "real" / "shell")
        wish = WorkerSpec(
            agent="shell", cwd="/", env={"PATH": str(folder)}, prompt="true", unreadable=[program]
        )
        with pytest.raises(UsageError, match=f"{program} cannot be read: it is denied"):
            prepare(wish, state=str(tmp_path / "state"))
