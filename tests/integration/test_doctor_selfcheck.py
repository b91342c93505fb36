"""`holdfast doctor selfcheck`: the escape suite as a command, on sandboxes that hold and one that fails."""

import json
import os
import pty
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.doctor.escape import checkup
from holdfast.doctor.escape.selfcheck import PARALLEL
from holdfast.errors import UsageError
from tests.support import identity
from tests.support.faults import Fault
from tests.support.patience import patient
from tests.support.root_only import root_only
from tests.support.rooted import REASON, rooted


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
    pytest.mark.timeout(250),
]

NAME: Final = _name(identity.SELF)
WAIT_S: Final = patient(100.0)  # a few seconds, on a busy machine many
FEW: Final = ("--only", "create-outside", "--only", "secret-read", "--only", "use-reading")

# A bubblewrap that mounts everything writable, as a bad package or a clever friend might.
LENIENT: Final = """#!/usr/bin/python3 -IS
import os, sys
if "--args" in sys.argv:
    fd = int(sys.argv[sys.argv.index("--args") + 1])
    words = os.pread(fd, 1 << 24, 0).split(b"\\0")
    words = [b"--bind" if word == b"--ro-bind" else word for word in words]
    kept = os.memfd_create("arguments", 0)
    text = b"\\0".join(words)
    assert os.write(kept, text) == len(text)
    os.lseek(kept, 0, os.SEEK_SET)
    os.dup2(kept, fd)
    os.close(kept)
os.execv(REAL, ["bwrap", *sys.argv[1:]])
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Where the workspaces are; nothing may be left in it."""
    yield tmp_path
    assert [path.name for path in tmp_path.iterdir() if "selfcheck" in path.name] == []


def command(*args: str, python: str = sys.executable) -> list[str]:
    return [python, "-m", "holdfast", "doctor", "selfcheck", *args]


def selfcheck(
    home: Path,
    *args: str,
    before: tuple[str, ...] = (),
    python: str = sys.executable,
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, *command(*args, python=python)],
        env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": "", **environ},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def cells(tree: Any, guarantee: str) -> list[str]:
    [row] = [row for row in tree["guarantees"] if row["id"] == guarantee]
    return [cell["state"] for cell in row["cells"]]


def test_every_backend_is_tried_and_told_in_one_table(home: Path) -> None:
    done = selfcheck(home, *FEW)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[:6] == [NAME, NAME, NAME, "namespaces", "bwrap", "landlock"]
    assert "9 attempts: everything holds as declared" in done.stdout
    assert done.stderr.splitlines() == [
        f"{backend} as {NAME}: 3 of 3 attempts" for backend in ("namespaces", "bwrap", "landlock")
    ]


def test_the_tree_has_a_cell_for_each_backend_and_declared_shortfalls_are_not_failures(home: Path) -> None:
    done = selfcheck(home, "--json", "--only", "create-outside", "--only", "chmod-outside")
    tree = json.loads(done.stdout)
    assert (done.returncode, tree["schemaVersion"], tree["escapes"]) == (0, 1, [])
    assert [column["backend"] for column in tree["columns"]] == ["namespaces", "bwrap", "landlock"]
    assert cells(tree, "write-outside") == ["held", "held", "held"]
    assert cells(tree, "metadata") == ["held", "held", "not held"]
    assert cells(tree, "denied") == ["not tried"] * 3


@root_only("to become another user")
def test_another_user_is_tried_as_well(home: Path) -> None:
    few = ("--only", "create-outside", "--only", "none-left")
    done = selfcheck(
        home,
        "--json",
        "--backend",
        "landlock",
        "--user",
        "nobody",
        *few,
        python=identity.python(identity.USER),
    )
    tree = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [column["user"] for column in tree["columns"]] == ["root", "nobody"]
    assert cells(tree, "write-outside") == ["held", "held"]
    assert cells(tree, "privileges") == ["held", "not held"], "only root can empty its bounding set"


@root_only(REASON)
def test_a_sandbox_that_does_not_hold_is_found_out(home: Path) -> None:
    real = shutil.which("bwrap")
    assert real is not None
    with rooted() as folder:
        tool = folder / "bwrap"
        tool.write_text(LENIENT.replace("REAL", repr(real)))
        tool.chmod(0o755)
        done = selfcheck(home, "--backend", "bwrap", *FEW, PATH=f"{folder}:{os.environ['PATH']}")
    assert done.returncode == 1, done.stdout + done.stderr
    table = [line.split() for line in done.stdout.splitlines()]
    assert ["write-outside", "BROKEN"] in table
    assert ["denied", "held"] in table, "this one did not break everything"
    assert f"bwrap as {NAME}: create-outside: " in done.stdout
    assert "outside/new" in done.stdout, "the witnesses saw it too"
    assert "1 not as they should be" in done.stderr


def test_a_backend_that_does_not_work_here_says_why_and_the_others_are_tried(home: Path) -> None:
    script = (
        'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -all --inh-caps -all "$@"'
    )
    before = ("unshare", "-Ur", "sh", "-c", script, "sh")
    done = selfcheck(home, "--json", "--only", "create-outside", before=before)
    tree = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    reasons = {column["backend"]: column["reason"] for column in tree["columns"]}
    assert "ENOSPC" in reasons["namespaces"]
    assert reasons["landlock"] is None
    assert tree["columns"][0]["remedy"]
    assert cells(tree, "write-outside") == ["not tried", "not tried", "held"]
    done = selfcheck(home, "--backend", "namespaces", "--only", "create-outside", before=before)
    assert done.returncode == 2
    assert "ENOSPC" in done.stdout
    assert "nothing could be tried" in done.stdout


def test_what_a_container_takes_away_is_declared_and_no_escape(home: Path) -> None:
    before = tuple(
        Fault(covered=("/proc/version",)).wrap(identity.SELF, [])
    )  # so that no fresh /proc is allowed
    few = ("--only", "processes-seen", "--only", "mem-of-outside", "--only", "fd-of-outside")
    done = selfcheck(home, "--json", *few, before=before)
    tree = json.loads(done.stdout)
    assert (done.returncode, tree["escapes"]) == (0, [])
    assert cells(tree, "processes-seen") == ["partly"] * 3
    assert cells(tree, "processes-read") == ["partly"] * 3


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("impatient", [False, True])
def test_a_signal_ends_it_and_nothing_is_left(home: Path, signum: signal.Signals, impatient: bool) -> None:
    child = subprocess.Popen(
        command("--backend", "namespaces"),
        env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + WAIT_S
        while len(list(home.glob("holdfast-selfcheck-*"))) < PARALLEL:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.send_signal(signum)
        while impatient and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
            child.send_signal(signum)
        code = child.wait(WAIT_S)
    finally:
        child.kill()
        child.wait()
    assert impatient or code == 128 + signum
    assert list(home.glob("holdfast-selfcheck-*")) == []
    assert processes_below(home) == []


def processes_below(folder: Path) -> list[str]:
    """The neighbours that were laid out as bait stand in their workspace."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            where = os.readlink(link)
        except OSError:
            continue
        if where.startswith(str(folder)):
            found.append(str(link))
    return found


def test_on_a_terminal_progress_is_one_line_that_changes(home: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            command("--backend", "namespaces", *FEW),
            env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": ""},
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            timeout=WAIT_S,
            check=False,
        )
        shown = os.read(ours, 4096).decode()
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.returncode == 0
    assert f"\rnamespaces as {NAME}: 1 of 3 attempts\rnamespaces as {NAME}: 2 of 3 attempts" in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    "args", [("--only", "nonsense"), ("--user", "no-such-user"), ("--backend", "seatbelt")]
)
def test_bad_input_is_one_line_and_exit_code_2(home: Path, args: tuple[str, ...]) -> None:
    done = selfcheck(home, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("holdfast: ")


@root_only("to become another user")
def test_a_user_who_cannot_read_our_code_is_told_so_before_anything_is_tried(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hidden = tmp_path_factory.mktemp("hidden")
    package = Path(sys.modules["holdfast"].__file__ or "").parent
    shutil.copytree(package, hidden / "holdfast")
    hidden.chmod(stat.S_IRWXU)
    done = selfcheck(home, "--user", "nobody", "--only", "create-outside", PYTHONPATH=str(hidden))
    assert (done.returncode, done.stdout) == (2, "")
    closed = next(path for path in reversed((hidden / "x").parents) if not path.stat().st_mode & stat.S_IXOTH)
    assert f"--user nobody: {closed} may not be searched by this user" in done.stderr
    assert f"{hidden}/holdfast/sandbox/launcher/launcher.py leads there" in done.stderr
    assert "install Holdfast where every user can read it" in done.stderr


@root_only("to become another user")
@pytest.mark.parametrize("older", [True, False])
def test_a_user_who_cannot_reach_our_interpreter_gets_another_or_is_told(
    monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    try:
        folder.chmod(stat.S_IRWXU)
        (folder / "venv").symlink_to(folder / "base")
        shutil.copyfile("/bin/true", folder / "base")
        (folder / "base").chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(folder / "venv"))
        monkeypatch.setattr(checkup, "_obstacle", _only_the_interpreter(checkup._obstacle))
        monkeypatch.setattr(checkup, "_is_recent", lambda _python: not older)
        entry = pwd.getpwnam("nobody")
        if older:
            with pytest.raises(UsageError, match=f"{folder} may not be searched by this user"):
                checkup._refuse_out_of_reach(entry)
        else:
            checkup._refuse_out_of_reach(entry)
    finally:
        shutil.rmtree(folder)


def _only_the_interpreter(obstacle: Callable[[str, int], str | None]) -> Callable[[str, int], str | None]:
    """Wherever these tests lie, our code is in reach."""
    return lambda path, access: obstacle(path, access) if path == sys.executable else None
