"""The spare: a confined command that finds half its way gone already, and is confined all the same."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import patient
from tests.support.peer import Peer, fresh_mark, ready, seen_running
from tests.support.root_only import root_only
from tests.support.servers import holdfast_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

WAIT_S = patient(30.0)


def _policy(workspace: Path, network: str = "restricted") -> dict[str, Any]:
    kinds = [("root", "read"), ("project_roots", "write")]
    entries = [
        {"path": {"type": "special", "value": {"kind": kind}}, "access": access} for kind, access in kinds
    ]
    return {
        "permissions": {
            "type": "managed",
            "file_system": {"type": "restricted", "entries": entries},
            "network": network,
        },
        "cwd": workspace.as_uri(),
        "workspaceRoots": [workspace.as_uri()],
        "windowsSandboxLevel": "disabled",
    }


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    return [int(word) for word in text.split()]


async def _confined(peer: Peer, name: str, script: str, workspace: Path, **more: Any) -> int:
    await peer.start(name, script, cwd=workspace.as_uri(), sandbox=_policy(workspace, **more))
    await peer.closed(name)
    return peer.exit_code(name)


async def _spare_of(launcher: int) -> int:
    """The only child of a launcher without commands, once it waits for its order."""
    async with asyncio.timeout(WAIT_S):
        while True:
            children = _children(launcher)
            if len(children) == 1 and _waits(children[0]):
                return children[0]
            await asyncio.sleep(0.01)


def _waits(pid: int) -> bool:
    return set(os.listdir(f"/proc/{pid}/fd")) == {"0", "1", "2", "3"}


async def test_a_spare_becomes_the_process_around_the_next_command(tmp_path: Path) -> None:
    mark = fresh_mark()
    async with holdfast_server(tmp_path / "home") as server, ready(server.url) as peer:
        assert await _confined(peer, "first", "true", tmp_path) == 0
        [launcher] = _children(server.pid)
        spare = await _spare_of(launcher)
        await peer.start("second", f"exec sleep {mark}", cwd=tmp_path.as_uri(), sandbox=_policy(tmp_path))
        [command] = await seen_running(mark)
        assert _children(spare) == [command]
        await peer.call("process/terminate", {"processId": "second"})
        await peer.closed("second")


async def test_commands_without_a_sandbox_make_no_spare(tmp_path: Path) -> None:
    async with holdfast_server(tmp_path / "home") as server, ready(server.url) as peer:
        await peer.start("p", "true")
        await peer.closed("p")
        [launcher] = _children(server.pid)
        await peer.start("q", "sleep 0.05")
        await peer.closed("q")
        assert _children(launcher) == []


@pytest.mark.parametrize("is_ready", [False, True], ids=["at once", "once it waits"])
async def test_what_runs_in_a_spare_is_confined_as_ever(tmp_path: Path, is_ready: bool) -> None:
    (tmp_path / "ws").mkdir()
    script = f"echo x > {tmp_path}/out; echo y > in; wc -l < /proc/net/dev; exit 4"
    async with holdfast_server(tmp_path / "home") as server, ready(server.url) as peer:
        seen: list[Any] = []
        for name in ("fresh", "spare"):
            if is_ready and seen:
                [launcher] = _children(server.pid)
                await _spare_of(launcher)
            assert await _confined(peer, name, script, tmp_path / "ws") == 4
            seen.append((peer.output(name, "stdout"), peer.output(name, "stderr")))
        assert seen[0] == seen[1]
        assert not (tmp_path / "out").exists()
        assert (tmp_path / "ws" / "in").read_text("utf-8") == "y\n"


async def test_a_spare_without_network_is_not_used_for_a_command_with_it(tmp_path: Path) -> None:
    async with holdfast_server(tmp_path / "home") as server, ready(server.url) as peer:
        assert await _confined(peer, "off", "true", tmp_path) == 0
        [launcher] = _children(server.pid)
        spare = await _spare_of(launcher)
        script = "readlink /proc/self/ns/net"
        assert await _confined(peer, "on", script, tmp_path, network="enabled") == 0
        assert peer.output("on").decode().strip() == os.readlink("/proc/self/ns/net")
        assert spare in _children(launcher)


async def test_a_spare_that_was_killed_costs_nothing(tmp_path: Path) -> None:
    async with holdfast_server(tmp_path / "home") as server, ready(server.url) as peer:
        assert await _confined(peer, "first", "true", tmp_path) == 0
        [launcher] = _children(server.pid)
        spare = await _spare_of(launcher)
        os.kill(spare, signal.SIGKILL)
        async with asyncio.timeout(WAIT_S):
            while _children(launcher):
                await asyncio.sleep(0.01)
        assert await _confined(peer, "second", "exit 3", tmp_path) == 3


async def test_a_spare_ends_with_its_launcher(tmp_path: Path) -> None:
    async with holdfast_server(tmp_path / "home") as server, ready(server.url) as peer:
        assert await _confined(peer, "first", "true", tmp_path) == 0
        [launcher] = _children(server.pid)
        spare = await _spare_of(launcher)
        os.kill(launcher, signal.SIGKILL)
        async with asyncio.timeout(WAIT_S):
            while Path(f"/proc/{spare}").exists():
                await asyncio.sleep(0.01)


# A spare is made, then something is mounted, then it is used: does the command see the mount?
LATER_MOUNT = """
import os, subprocess, sys, time
from holdfast.sandbox.launcher.spare import Spare
from holdfast.sandbox.plan import plan
from holdfast.sandbox.protocol import orders
from holdfast.sandbox.protocol.orders import ConfinementKind
from holdfast.sandbox.plan.plan import Base, Plan, encode
from holdfast.sandbox.watcher import listener
folder = sys.argv[1]
made = Spare(ConfinementKind(False, True))
while sorted(os.listdir(f"/proc/{made.pid}/fd")) != ["0", "1", "2", "3"]:
    time.sleep(0.005)
subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
open(f"{folder}/later", "w").close()
view = encode(Plan(base=Base.HOST, steps=(), cwd=folder, network_off=True))
order = orders.Order(orders.START, program=b"/bin/ls", argv=(b"ls",), cwd=folder.encode(), plan=view)
status, report = os.pipe2(os.O_CLOEXEC)
ours, theirs = listener.pair()
made.use(order, (0, 1, 2, theirs), status_fd=report)
os.close(report)
print(os.read(status, 4096), file=sys.stderr)
os.waitpid(made.pid, 0)
"""


@root_only("to mount something in sight of a spare that is not in a user namespace")
def test_a_spare_shows_what_was_mounted_after_it_was_made(tmp_path: Path) -> None:
    argv = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        sys.executable,
        "-c",
        LATER_MOUNT,
        str(tmp_path),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.stdout, done.stderr) == ("later\n", "b'runs\\x00'\n")
