"""`holdfast exec` begins at once and is one small process; nothing of that makes it weaker."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from tests.support.exec_command import WAIT_S, Place

BACKENDS = ["namespaces", "bwrap", "landlock"]
HEAVY = (
    "asyncio",
    "msgspec",
    "click",
    "dataclasses",
    "inspect",
    "threading",
    "socket",
    "json",
    "subprocess",
    "typing",
    "re",
    "enum",
    "collections",
    "contextlib",
    "functools",
    "signal",
)
LOADED = f"""
import os, sys
leave = os._exit
us = os.getpid()
def told(code):
    os.getpid() == us and sys.stderr.write(" ".join(name for name in {HEAVY!r} if name in sys.modules))
    leave(code)
os._exit = told
from holdfast.entry import main
main()
"""


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place(os.getuid())
    yield made
    shutil.rmtree(made.top)


@pytest.mark.parametrize("hosts", [[], ["--allow-host", "api.test"]])
def test_a_command_that_goes_well_loads_nothing_that_it_does_not_need(place: Place, hosts: list[str]) -> None:
    """Where it may write what we are loaded from, as in a checkout below /tmp, more is loaded first."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "exec", "--read-only", *hosts, "--", "true"],
        cwd=place.workspace,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_is_started_by_the_process_itself(place: Place) -> None:
    """No second interpreter: below us is what surrounds the command, and that alone."""
    script = "echo up; read line"
    with place.start("--", "sh", "-c", script) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        threads = os.listdir(f"/proc/{child.pid}/task")
        below = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        assert (len(threads), len(below)) == (1, 1)
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(WAIT_S) == 1


@pytest.mark.parametrize("limits", [*(["--backend", name] for name in BACKENDS), ["--full-access"]])
def test_a_command_gets_no_descriptor_but_its_streams(place: Place, limits: list[str]) -> None:
    """Neither one of ours, nor one that whoever started us left open."""
    with open(place.outside / "secret", "wb") as secret:
        done = subprocess.run(
            place.argv(*limits, "--", "sh", "-c", "for fd in /proc/self/fd/*; do readlink $fd; done; :"),
            cwd=place.workspace,
            env=place.env(),
            pass_fds=(secret.fileno(),),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
    shown = [line for line in done.stdout.splitlines() if "pipe:" not in line and "/proc/" not in line]
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3
    assert shown == []


PLANTED = "import os; os.close(os.open({marker!r}, os.O_CREAT | os.O_WRONLY))\n"


@pytest.mark.parametrize("way", ["-m", "PYTHONPATH"])
def test_what_the_command_writes_is_not_imported_afterwards(place: Place, way: str) -> None:
    """Explaining a denial loads more of us, after the command could write where Python looks first."""
    marker = str(place.outside / "ran")
    planted = PLANTED.format(marker=marker)
    names = "json shutil secrets random msgspec dataclasses inspect hashlib"
    script = f'for m in {names}; do printf %s "$PLANTED" > $m.py; done; touch {place.outside}/x'
    command = [sys.executable, "-m", "holdfast", "exec", "--json", "--", "sh", "-c", script]
    env = place.env() | {"PLANTED": planted}
    env |= {"PYTHONPATH": str(place.workspace)} if way == "PYTHONPATH" else {}
    done = subprocess.run(
        command, cwd=place.workspace, env=env, capture_output=True, text=True, timeout=WAIT_S
    )
    assert json.loads(done.stderr.splitlines()[-1])["denial"]["path"] == f"{place.outside}/x"
    assert (place.workspace / "json.py").read_text() == planted
    assert not os.path.exists(marker)


def test_a_command_that_can_change_our_own_code_does_not_change_this_run(place: Place) -> None:
    """As when somebody works on Holdfast with Holdfast: what is needed later has been loaded before."""
    copied = place.workspace / "lib" / "holdfast"
    shutil.copytree(Path(holdfast.__file__).parent, copied, ignore=shutil.ignore_patterns("*.pyc.*"))
    marker = str(place.outside / "ran")
    planted = PLANTED.format(marker=marker)
    script = f"""
cd lib/holdfast
for file in sandbox/reasons/denials.py confine/verdict.py sandbox/reasons/fingerprints.py
do printf %s "$PLANTED" > $file; done; touch {place.outside}/x"""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "holdfast", "exec", "--", "sh", "-c", script],
        cwd=place.workspace,
        env=place.env() | {"PYTHONPATH": str(copied.parent), "PLANTED": planted},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert f"denies writing {place.outside}/x" in done.stderr
    assert (copied / "confine" / "verdict.py").read_text() == planted
    assert not os.path.exists(marker)


def test_a_command_that_can_change_our_own_code_does_not_say_who_serves_its_names(place: Place) -> None:
    """Whoever serves them has loaded everything before the command could write."""
    copied = place.workspace / "lib" / "holdfast"
    shutil.copytree(Path(holdfast.__file__).parent, copied, ignore=shutil.ignore_patterns("*.pyc.*"))
    marker = str(place.outside / "ran")
    script = """
for file in lib/holdfast/egress/*.py lib/holdfast/confine/*.py; do printf %s "$PLANTED" > $file; done
getent hosts api.test; printf %s "$PLANTED" > lib/holdfast/light.py"""
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "holdfast",
            "exec",
            "--allow-host",
            "api.test",
            "--",
            "sh",
            "-c",
            script,
        ],
        cwd=place.workspace,
        env=place.env() | {"PYTHONPATH": str(copied.parent), "PLANTED": PLANTED.format(marker=marker)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert (done.returncode, "api.test" in done.stdout) == (0, True), done.stderr
    assert (copied / "egress" / "broker.py").read_text() == PLANTED.format(marker=marker)
    assert not os.path.exists(marker)


@pytest.mark.parametrize("limits", [*(["--backend", name] for name in BACKENDS), ["--full-access"]])
def test_nothing_survives_our_death_wherever_it_went(place: Place, limits: list[str]) -> None:
    """A daemon, in a session of its own, when nobody is left who could end it."""
    held = place.workspace / "held"
    os.mkfifo(held)
    with place.start(*limits, "--", "sh", "-c", "setsid sleep 4711 > held & wait") as child:
        end = os.open(held, os.O_RDONLY)  # waits for the daemon, which holds the other end
        child.send_signal(signal.SIGKILL)
        assert select.select([end], [], [], WAIT_S)[0], "the daemon lives"
        assert os.read(end, 1) == b""
        os.close(end)


def test_a_reader_that_does_not_read_does_not_hold_up_the_input(place: Place) -> None:
    """Our own standard output stays as others have it: blocking."""
    read, write = os.pipe()
    script = "head -c 1000000 /dev/zero & read line; echo $line >&2; wait"
    child = subprocess.Popen(
        place.argv("--", "sh", "-c", script),
        cwd=place.workspace,
        env=place.env(),
        stdin=subprocess.PIPE,
        stdout=write,
        stderr=subprocess.PIPE,
    )
    with child:
        os.close(write)
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(b"heard\n")
        child.stdin.flush()
        assert child.stderr.readline() == b"heard\n"
        assert os.get_blocking(read)
        os.close(read)
        child.wait(WAIT_S)


def test_a_host_that_refuses_the_strongest_way_is_given_the_next(place: Place) -> None:
    """The refusal comes from the start of the command itself, and nothing has run by then."""
    refusing = """
import os, sys
from holdfast.sandbox.kernel import kernel
clone = kernel.clone
def refuse(flags):
    os.write(2, b"tried\\n")
    raise PermissionError(1, "no")
kernel.clone = refuse
sys.argv = ["holdfast", "exec", "--json", "--", "sh", "-c", "echo ran"]
from holdfast.entry import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", refusing],
        cwd=place.workspace,
        env=place.env(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "tried" in done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["enforcement"]["backend"] in ("bwrap", "landlock")


BROKEN = """
import os, sys
{broken}
sys.argv = ["holdfast", "exec", "--json", "--backend", "namespaces", "--", "sh", "-c", "echo ran"]
from holdfast.entry import main
main()
"""


def _run_broken(place: Place, broken: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BROKEN.format(broken=broken)],
        cwd=place.workspace,
        env=place.env(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


@pytest.mark.parametrize(
    "broken",
    [
        "from holdfast.sandbox.launcher import spare; spare._serve = lambda *_, **__: None",
        "from holdfast.sandbox.launcher import spare; spare._serve = lambda *_, **__: 1 / 0",
        "from holdfast.sandbox.launcher import spare\n"
        "def refuse(kind): raise OSError(1, 'no')\n"
        "spare.Spare = refuse",
        "from holdfast.sandbox.kernel import kernel, namespaces\n"
        "isolate = namespaces.isolate\n"
        "def refuse(**given):\n"
        "    if 'holdfast.exec.run' not in sys.modules: raise kernel.StageFailed('uidmap', 1)\n"
        "    return isolate(**given)\n"
        "namespaces.isolate = refuse",
    ],
    ids=["ends", "fails", "refused", "refused later"],
)
def test_what_is_begun_early_and_comes_to_nothing_is_begun_anew(place: Place, broken: str) -> None:
    done = _run_broken(place, broken)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert json.loads(done.stderr.splitlines()[-1])["enforcement"]["backend"] == "namespaces"


def test_a_set_up_that_is_killed_is_not_taken_for_the_command(place: Place) -> None:
    """Nothing but silence comes from it; it may even end with the code of success."""
    broken = "from holdfast.sandbox.kernel import namespaces; namespaces.own_mounts = lambda: os._exit(0)"
    broken += "\nfrom holdfast.sandbox.backends import confined; confined.own_mounts = namespaces.own_mounts"
    done = _run_broken(place, broken)
    assert (done.returncode, done.stdout) == (125, "")
    told = json.loads(done.stderr.splitlines()[-1])
    assert (told["enforcement"], "killed" in told["error"]["message"]) == (None, True)


def test_what_goes_away_between_the_plan_and_the_start_is_planned_anew(place: Place) -> None:
    """As protected metadata that somebody else removes at that moment: nothing has run yet."""
    named = place.workspace / ".agents"
    named.mkdir()
    broken = f"""
from holdfast.confine import starts
hold = starts.hold_names
def remove(*given):
    if os.path.isdir({str(named)!r}): os.rmdir({str(named)!r})
    return hold(*given)
starts.hold_names = remove
"""
    done = _run_broken(place, broken)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert not named.exists()
