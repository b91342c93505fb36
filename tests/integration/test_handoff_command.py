"""`holdfast handoff` as a worker types it, free and inside the real sandbox."""

import asyncio
import functools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.board.rules.transitions import TaskStatus
from holdfast.board.store import Store, open_store
from holdfast.handoff import outbox
from tests.support import identity, warm
from tests.support.boards import made
from tests.support.exec_command import Done, Place, place
from tests.support.handoff import ingesting, serving, started
from tests.support.patience import patient

WAIT_S = patient(60.0)

pytestmark = pytest.mark.timeout(300)  # many processes, each of which starts an interpreter

confined = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "board.db")


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with open_store(address) as opened:
        opened.create_board("b")
        yield opened


@pytest.fixture
def sandboxed() -> Iterator[Place]:
    with place(identity.SELF) as made:
        yield made


def handoff(workspace: Path, *args: str) -> Done:
    done = warm.run(["handoff", *args], env=os.environ, cwd=workspace, timeout=WAIT_S)
    return Done(done.returncode, done.stdout, done.stderr)


def in_sandbox(place: Place, network: str, *args: str, granted: Path | None = None) -> Done:
    """The worker's command, confined to its workspace, with no other root that it may write."""
    sockets = () if granted is None else ("--allow-socket", str(granted))
    flags = ("--workspace-write", "--network", network, *sockets)
    return place.run(*flags, "--", sys.executable, "-m", "holdfast", "handoff", *args)


def test_a_run_is_reported_from_the_command_line(store: Store, address: str, tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    parent = made(store, "before")
    task, _ = started(store, ws)
    store.comment(task.id, "mind the gap")
    (ws / "plot.png").write_bytes(b"png")
    with ingesting(address, [ws]):
        shown = handoff(ws, "show")
        assert (shown.code, "mind the gap" in shown.out) == (0, True)
        assert handoff(ws, "heartbeat", "--note", "half way").code == 0
        assert handoff(ws, "comment", "look").code == 0
        assert handoff(ws, "attach", "plot.png").code == 0
        child = json.loads(handoff(ws, "create", "next", "--parent", parent.id, "--json").out)["task"]
        assert handoff(ws, "link", made(store).id, child["id"]).code == 0
        assert json.loads(handoff(ws, "show", child["id"], "--json").out)["detail"]["task"]["title"] == "next"
        metadata = ("--metadata", '{"files": 3}')
        done = handoff(ws, "complete", "all of it", *metadata, "--id", "e", "--json")
        again = handoff(ws, "complete", "all of it", *metadata, "--id", "e", "--json")
        assert (done.code, json.loads(done.out)["task"]["status"]) == (0, "done")
        assert (again.code, again.out) == (0, done.out)
    [run] = store.runs(task.id)
    assert (run.outcome, run.summary, run.metadata) == ("completed", "all of it", {"files": 3})
    assert [file.name for file in store.attachments(task.id)] == ["plot.png"]


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (("block", "which?", "--option", "a", "--option", "b", "--for", "ann"), TaskStatus.WAITING_HUMAN),
        (("review", "have a look"), TaskStatus.REVIEW),
    ],
    ids=["block", "review"],
)
def test_a_person_is_asked_from_the_command_line(
    args: tuple[str, ...], status: TaskStatus, store: Store, address: str, tmp_path: Path
) -> None:
    task, _ = started(store, tmp_path / "ws")
    with ingesting(address, [tmp_path / "ws"]):
        assert handoff(tmp_path / "ws", *args).code == 0
    assert store.task(task.id).status is status


def test_exit_codes_are_those_of_the_board_and_errors_are_json_too(
    store: Store, address: str, tmp_path: Path
) -> None:
    ws = tmp_path / "ws"
    task, grant = started(store, ws)

    def error(*args: str) -> tuple[int, str]:
        done = handoff(ws, *args, "--json")
        assert grant.token not in done.out + done.err
        return done.code, json.loads(done.out)["error"]["kind"]

    assert error("complete") == (2, "UsageError")
    assert error("complete", "x", "--metadata", "[") == (2, "UsageError")
    assert error("comment", " ") == (2, "UsageError")
    assert error("complete", "x", "--id", "../up") == (2, "UsageError")
    assert error("complete", "x", "--channel", "socket") == (5, "Unreachable")
    with ingesting(address, [ws]):
        assert error("create", "next", "--parent", "t_none") == (3, "NotFound")
        assert error("show", made(store).id) == (1, "InvalidRequest")
        assert handoff(ws, "complete", "done").code == 0
        assert error("block", "or not?") == (4, "StaleRun")
    run_json = ws / ".holdfast" / "run.json"
    run_json.write_bytes(run_json.read_bytes().replace(grant.token.encode(), b"0" * 64))
    with ingesting(address, [ws]):
        assert error("heartbeat") == (1, "TokenRefused")
    run_json.unlink()
    assert error("heartbeat") == (3, "NotFound")
    assert store.task(task.id).result == "done"


# --- inside the real sandbox


@confined
def test_a_worker_without_network_completes_through_the_outbox(
    store: Store, address: str, tmp_path: Path, sandboxed: Place
) -> None:
    """By itself: the socket is refused, so it takes the outbox."""
    task, _ = started(store, sandboxed.workspace, tmp_path / "s")

    async def work() -> None:
        async with serving(address, tmp_path / "s", [sandboxed.workspace]):
            refused = await asyncio.to_thread(
                in_sandbox, sandboxed, "off", "complete", "x", "--channel", "socket"
            )
            assert refused.code == 5, refused
            done = await asyncio.to_thread(in_sandbox, sandboxed, "off", "complete", "from inside", "--json")
            assert done.code == 0, done
            assert json.loads(done.out)["task"]["status"] == "done"

    asyncio.run(work())
    assert store.task(task.id).result == "from inside"


@confined
@pytest.mark.parametrize("network", ["on", "off"])
def test_a_worker_completes_over_a_socket_that_it_is_granted(
    store: Store, address: str, tmp_path: Path, sandboxed: Place, network: str
) -> None:
    task, _ = started(store, sandboxed.workspace, tmp_path / "s")

    async def work() -> None:
        async with serving(address, tmp_path / "s"):
            done = await asyncio.to_thread(
                functools.partial(in_sandbox, granted=tmp_path / "s"),
                *(sandboxed, network, "complete", "from inside", "--channel", "socket"),
            )
            assert done.code == 0, done

    asyncio.run(work())
    assert store.task(task.id).result == "from inside"


@confined
def test_a_worker_that_cannot_write_at_all_is_told_so(store: Store, tmp_path: Path, sandboxed: Place) -> None:
    task, _ = started(store, sandboxed.workspace, tmp_path / "s")
    done = sandboxed.run("--read-only", "--", sys.executable, "-m", "holdfast", "handoff", "complete", "x")
    assert done.code == 5, done
    assert store.task(task.id).status is TaskStatus.RUNNING


@confined
def test_links_planted_from_inside_lead_nowhere(
    store: Store, address: str, tmp_path: Path, sandboxed: Place
) -> None:
    """The dispatcher may write where the worker may not; it must not be made to do so."""
    task, grant = started(store, sandboxed.workspace)
    kept = sandboxed.outside / "kept"
    kept.write_text("kept", "utf-8")
    script = f"""
        ln -s {kept} .holdfast/answers/e.json
        ln -s {kept} .holdfast/outbox/e.json
        mv .holdfast/run.json run.json.old && ln -s {kept} .holdfast/run.json
        mv .holdfast/answers answers.old && ln -s {sandboxed.outside} .holdfast/answers
        ln -s {sandboxed.outside} .holdfast/outbox/f.json
    """
    assert sandboxed.sh(script, "--workspace-write", "--network", "off").code == 0
    with ingesting(address, [sandboxed.workspace]):
        outbox.lay_out(sandboxed.workspace, grant)
        done = in_sandbox(sandboxed, "off", "complete", "after all")
        assert done.code == 0, done
    assert store.task(task.id).result == "after all"
    assert [entry.name for entry in sandboxed.outside.iterdir()] == ["kept"]
    assert kept.read_text("utf-8") == "kept"
