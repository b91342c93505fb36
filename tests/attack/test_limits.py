"""A command that uses too much is held or ended, and the end says which limit it was: real bombs, bounded.

Root has control groups here, an ordinary user has rlimits and is looked at; both are tried on every backend.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.client.environment import Environment
from holdfast.wire.environment import Capabilities
from tests.support import bombs
from tests.support.exec_command import Done, Place, place
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES, ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
BACKENDS = ("namespaces", "bwrap", "landlock")


@pytest.fixture(params=IDENTITIES)
def anyone(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        yield made


@pytest.fixture(params=[ROOT])
def root(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place(request.param) as made:
        yield made


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def explode(where: Place, bomb: str, *flags: str) -> Done:
    return where.run(*flags, "--", where.python, "-I", "-S", "-c", bomb)


def report(done: Done) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(done.err.splitlines()[-1])
    return told


# --- memory


def check_it_was_ended(done: Done, who: Place) -> None:
    """Where the kernel holds it, before it had all that it wanted; whoever looks may come a little later."""
    assert done.code == 137
    assert done.out in (("",) if who.uid == 0 else ("", "allocated\n"))


def test_without_a_limit_the_bombs_go_off(anyone: Place) -> None:
    assert explode(anyone, bombs.MEMORY).out == "allocated\n"
    assert explode(anyone, bombs.FORKS).out.startswith(f"{bombs.PROCESSES} 0")
    assert explode(anyone, bombs.ONE_FILE).out == "written\n"
    assert explode(anyone, bombs.FILES).out == "400\n"


def test_a_memory_bomb_is_ended_and_the_end_says_so(anyone: Place, backend: str) -> None:
    done = explode(anyone, bombs.MEMORY, "--backend", backend, "--memory", "64M", "--json")
    check_it_was_ended(done, anyone)
    told = report(done)
    assert told["limit"]["message"].startswith("killed: memory limit 64 MiB reached (peak ")
    assert told["limit"]["killed"]
    assert told["limit"]["peak"] >= 64 << 20 or anyone.uid
    held = told["enforcement"]["limits"]
    assert held == (["memory: cgroup v1"] if anyone.uid == 0 else ["memory: sampled"])
    assert any(text.startswith("memory: looked at") for text in told["enforcement"]["weakened"]) == bool(
        anyone.uid
    )


def test_a_child_that_takes_the_memory_takes_the_command_along(anyone: Place) -> None:
    done = explode(anyone, bombs.MEMORY_OF_A_CHILD, "--memory", "64M")
    assert done.code == 137
    assert "killed: memory limit 64 MiB reached" in done.err


def test_a_command_that_is_not_confined_is_limited_too(anyone: Place) -> None:
    done = explode(anyone, bombs.MEMORY, "--full-access", "--memory", "64M", "--json")
    check_it_was_ended(done, anyone)
    lifts = "limits: a command that may write everywhere may lift its own"
    assert (lifts in report(done)["enforcement"]["weakened"]) == (anyone.uid == 0)


def test_a_profile_has_limits_and_an_option_wins(anyone: Place) -> None:
    profile = anyone.top / "profile.toml"
    profile.write_text('[filesystem]\n":root" = "read"\n[limits]\nmemory = "64M"\n', "utf-8")
    anyone.own()
    assert explode(anyone, bombs.MEMORY, "--profile", str(profile)).code == 137
    assert explode(anyone, bombs.MEMORY, "--profile", str(profile), "--memory", "1G").code == 0


async def test_a_server_keeps_limits_and_says_which_was_reached() -> None:
    limits = holdfast.Limits(memory=64 << 20, pids=50, timeout_s=20.0)
    command = [sys.executable, "-I", "-S", "-c"]
    policy = holdfast.Policy.read_only()
    async with holdfast.connect([sys.executable, "-m", "holdfast", "serve", "--listen", "stdio"]) as env:
        done = await env.run([*command, bombs.MEMORY], policy=policy, limits=limits)
        assert (done.code, done.stdout) == (137, b"")
        assert done.limit is not None
        assert done.limit.message.startswith("killed: memory limit 64 MiB reached (peak ")
        assert done.enforcement is not None
        assert [held.partition(":")[0] for held in done.enforcement.limits] == ["memory", "pids", "timeout"]
        done = await env.run(["sleep", "30"], limits=holdfast.Limits(timeout_s=0.2))
        assert (done.code, done.limit and done.limit.what) == (143, "timeout")
        done = await env.run([*command, bombs.MEMORY], policy=policy)
        assert (done.code, done.limit) == (0, None)


async def test_a_server_that_keeps_no_limits_is_not_asked_to_run_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with holdfast.connect([sys.executable, "-m", "holdfast", "serve", "--listen", "stdio"]) as env:
        older = msgspec.structs.replace(env.info, capabilities=Capabilities())
        monkeypatch.setattr(Environment, "info", older)
        with pytest.raises(holdfast.InvalidRequest, match="cannot limit"):
            await env.run(["true"], limits=holdfast.Limits(pids=5))


# --- processes


def test_a_fork_bomb_gets_no_more_processes_than_it_may(anyone: Place, backend: str) -> None:
    done = explode(anyone, bombs.FORKS, "--backend", backend, "--pids", "50", "--json")
    told = report(done)["limit"]
    assert told["what"] == "pids"
    if told["killed"]:  # by whoever looked, before it could say how many it had
        assert done.code == 137
        assert told["message"].startswith("killed: process limit of 50 reached")
        return
    assert told["message"].startswith("process limit of 50 reached: further ones were refused")
    made, refused = map(int, done.out.split())
    assert refused > 0
    assert made <= 60 if anyone.uid else made == 49


# --- processors, disk, files, time


def test_a_share_of_the_processors_is_all_that_it_gets(root: Place) -> None:
    done = explode(root, bombs.SPIN, "--cpus", "0.5")
    assert float(done.out) < 0.8


def test_without_control_groups_whole_processors_are_counted(anyone: Place) -> None:
    done = anyone.run("--cpus", "0.5", "--json", "--", "nproc")
    if anyone.uid == 0:
        assert report(done)["enforcement"]["limits"] == ["cpus: cgroup v1"]
        return
    assert done.out == "1\n"
    assert report(done)["enforcement"]["limits"] == ["cpus: processor affinity"]


def test_what_is_written_is_counted_over_all_files(anyone: Place) -> None:
    done = explode(anyone, bombs.DISK, "--disk", "4M")
    assert (done.code, done.out) == (137, "")
    assert "killed: disk limit 4 MiB reached (" in done.err
    assert sum(file.stat().st_size for file in anyone.workspace.glob("filler-*")) < bombs.DISK_BYTES


def test_no_single_file_grows_beyond_what_may_be_written(anyone: Place) -> None:
    done = anyone.run("--disk", "2M", "--", "dd", "if=/dev/zero", "of=filler", "bs=1M", "count=10")
    assert done.code == 137
    assert "killed: disk limit 2 MiB reached" in done.err
    assert (anyone.workspace / "filler").stat().st_size == 2 << 20


def test_more_files_than_it_may_open_are_refused(anyone: Place, backend: str) -> None:
    done = explode(anyone, bombs.FILES, "--backend", backend, "--open-files", "200")
    number, opened = done.out.split()
    assert number == "24"
    assert int(opened) < 200


def test_after_its_time_it_is_asked_to_end_and_then_made_to(anyone: Place, backend: str) -> None:
    script = "trap 'echo asked; exit 3' TERM; while :; do sleep 0.1; done"
    done = anyone.sh(script, "--backend", backend, "--timeout", f"{patient(0.5)}s")
    assert (done.code, done.out) == (124, "asked\n")
    assert "holdfast: killed: time limit of " in done.err


def test_within_its_limits_nothing_is_said(anyone: Place) -> None:
    limits = ("--memory", "256M", "--pids", "50", "--cpus", "2", "--disk", "10M", "--open-files", "256")
    done = anyone.sh("echo fine; exit 4", *limits, "--timeout", "1m")
    assert (done.code, done.out, done.err) == (4, "fine\n", "")


def test_its_groups_go_with_it(root: Place) -> None:
    done = root.run("--memory", "64M", "--pids", "20", "--", "cat", "/proc/self/cgroup")
    made = {os.path.basename(line) for line in done.out.split() if "holdfast-" in line}
    assert len(made) == 1
    assert [path for path in Path("/sys/fs/cgroup").rglob("holdfast-*") if path.name in made] == []


# --- out of the cage


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_command_cannot_lift_its_own_limits(root: Place, backend: str) -> None:
    """Root's files, and a command that is root: neither may it write a limit nor leave its group."""
    script = """
    for place in /sys/fs/cgroup/memory /sys/fs/cgroup/pids /sys/fs/cgroup/unified; do
        for file in $(find $place -name cgroup.procs -o -name memory.limit_in_bytes -o -name pids.max); do
            sh -c "echo 0 > $file" 2>/dev/null && echo "wrote $file"
            sh -c "echo max > $file" 2>/dev/null && echo "wrote $file"
        done
    done
    mkdir /sys/fs/cgroup/memory/own 2>/dev/null && echo made
    true
    """
    done = root.sh(script, "--backend", backend, "--memory", "128M", "--pids", "60")
    assert (done.code, done.out) == (0, "")


def test_a_limit_that_makes_no_sense_is_refused_before_anything_runs(anyone: Place) -> None:
    for flags in (["--memory", "64X"], ["--memory", "1K"], ["--pids", "-1"], ["--timeout", "soon"]):
        done = anyone.run(*flags, "--", "echo", "ran")
        assert (done.code, done.out) == (2, "")
        assert "holdfast: limit " in done.err
