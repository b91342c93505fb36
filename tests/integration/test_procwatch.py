"""Who waits for the terminal or for stdin, seen from /proc alone, as root and as an ordinary user."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from holdfast.agents.worker import procwatch
from tests.support import identity, watched
from tests.support.exec_command import place
from tests.support.patience import patient
from tests.support.root_only import IDENTITIES

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's"),
    pytest.mark.timeout(180),  # some thirty programs are started
]


def seen_by(uid: int) -> dict[str, watched.Seen]:
    """What a watcher with this identity saw of programs with this identity."""
    with place(uid) as made:
        watched.add_closed_program(made.workspace, as_root=identity.AS_ROOT)
        done = subprocess.run(
            made.as_user([made.python, "-m", "tests.support.watched", str(made.workspace)]),
            cwd=identity.top(uid),
            env=made.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=patient(170),
            check=True,
        )
    return msgspec.convert(json.loads(done.stdout), dict[str, watched.Seen])


@pytest.mark.parametrize("uid", IDENTITIES)
def test_programs_are_seen_to_wait_for_what_they_wait_for(uid: int) -> None:
    """One test for all cases: they are started once, all together."""
    seen = seen_by(uid)
    expected = {
        name: [(case.reader, not case.pipe)] if case.reader else [] for name, case in watched.CASES.items()
    }
    if uid == 0:
        expected["closed program"] = [("closed-cat", True)]  # closed to others only
    assert {name: values.waiting for name, values in seen.items()} == expected
    assert {name for name, values in seen.items() if values.nobody_reads} == {
        *("sleep", "busy loop", "pipeline", "socket", "poll in the background"),
        *(
            "command in a session of its own",
            "pipe that nobody reads",
            "bubblewrap, sleep",
            "our sandbox, sleep",
        ),
    }
    assert {name: values.stopped for name, values in seen.items() if values.stopped} == {
        "read in the background": ["cat"]
    }
    assert [name for name, values in seen.items() if values.password] == ["password"]
    assert seen["cat"].canonical is True
    assert [seen[name].canonical for name in ("interactive shell", "pager", "readline in node")] == [
        False
    ] * 3
    assert {name: values.commands for name, values in seen.items() if values.commands} == {
        "command in a session of its own": ["sleep"]
    }
    assert seen["bubblewrap"].main == seen["our sandbox"].main == "cat"
    assert seen["closed program"].hidden == ([] if uid == 0 else ["closed-cat"])
    assert seen["closed program"].canonical is True, "its terminal can be read all the same"


def test_what_is_gone_is_nothing_and_everything_at_once_is_bounded() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert procwatch.look(child.pid) == procwatch.ProcessSnapshot()
    assert len(procwatch.look(1).processes) <= procwatch.MAX_PROCESSES


def test_typed_bytes_that_nobody_reads_are_counted(tmp_path: Path) -> None:
    with watched.started(watched.Case(("sleep", "600")), tmp_path) as (child, master):
        os.write(master, b"typed\n")
        deadline = time.monotonic() + watched.WAIT_S
        while (terminal := procwatch.look(child.pid).terminal) is None or not terminal.unread:
            assert time.monotonic() < deadline
        assert terminal.unread == len(b"typed\n")
