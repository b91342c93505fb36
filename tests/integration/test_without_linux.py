"""The orchestrator's side where nothing of Linux exists, as on a Mac: parts of its own suites, run there.

The interpreter is that of `without_linux`; the servers that the clients use run on Linux, as they would. No
real Mac was tried.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest

from tests.support import postgres, without_linux
from tests.support.patience import patient
from tests.support.tiers import sizes
from tests.support.without_linux import CHECKOUT

WAIT_S: Final = patient(600.0)  # all of them, one after another
UNITS: Final = (
    "tests/unit/agentconfig",
    "tests/unit/board",
    "tests/unit/client",
    "tests/unit/commands",
    "tests/unit/doctor/explain",
    "tests/unit/exec",
    "tests/unit/rendezvous",
    "--ignore=tests/unit/board/database/test_sqlite.py",  # inotify is Linux's
    "--ignore=tests/unit/board/rules/test_budget.py",  # imports the dispatcher
    "--ignore=tests/unit/commands/daemons/test_status.py",  # imports the daemons
    "--ignore=tests/unit/client/events/test_ordering.py",  # imports the server
    "--ignore=tests/unit/client/installing/test_farside.py",  # is run on the other machine, which has Linux
    "--ignore=tests/unit/doctor/explain/test_explanation.py",  # imports the probes of a host
)
# One or two of each kind: what travels, the terminal, signals, files, both databases, the commands.
SUITES: Final = {
    "board_command": "through_its_life or task_and_comes_back",
    "board_store": "completion_is_one_change or claimed_first or hinted_at",
    "client": "how_a_command_ended or another_size or signal_reaches or unix_socket or by_the_proxy",
    "client_files": "written_seen or policy_confines_files",
    "config_command": "writes_nothing or what_makes_no_sense",
    "copying": "every_name or says_what_it_did",
    "doctor": "explain_reads_a_file or explain_says",
    "environments": "first_file or once_for_everybody",
    "exec_elsewhere": "(commands_own or a_terminal_there or signal_to_us or denial_is_told) and ws",
    "remote_relay": "goes_on",
    "ssh_environments": "added_checked",
    "sync": "result_is_returned or written_to or running_and_not_its_own",
}
# A server in the test's own process, or in the same one by the name `local`; the rest of the doctor.
OF_LINUX: Final = (
    "nobody_was_given or this_machine_is or a_name_means or there_is_a_bar or absolute_path or which_board"
    " or environment_that_makes_no_sense or (test_doctor.py and not explain)"
)
NEEDS: Final = (
    r"holdfast: .+ needs Linux, whose kernel confines commands; this machine runs macOS\n  try: .+\n"
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return without_linux.make_interpreter(tmp_path_factory.mktemp("darwin") / "venv")


def run(python: Path, *words: str, cwd: Path = CHECKOUT) -> "subprocess.CompletedProcess[str]":
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [python, *words], cwd=cwd, env=environ, capture_output=True, text=True, timeout=WAIT_S, check=False
    )


def check_suite(python: Path, words: list[str], least: int) -> None:
    plain = ("-q", "--no-header", "-p", "no:xdist", "-p", "no:randomly")
    with tempfile.TemporaryDirectory(prefix="hf-mac-") as folder:  # short, because sockets lie there
        done = run(python, "-m", "pytest", *plain, f"--basetemp={folder}/t", *words)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert (done.returncode, passed is not None) == (0, True), done.stdout[-6000:] + done.stderr[-2000:]
    assert passed is not None
    assert int(passed[1]) >= least, done.stdout[-2000:]


def test_it_has_nothing_of_linux(python: Path) -> None:
    look = (
        "import asyncio, ctypes, os, select, socket, sys\n"
        "print(sys.platform, os.uname().sysname, os.path.exists('/proc/self'),"
        " *(hasattr(os, name) for name in ('pipe2', 'pidfd_open', 'memfd_create', 'O_PATH', 'eventfd')),"
        " *(hasattr(select, name) for name in ('epoll', 'EPOLLIN')),"
        " *(hasattr(socket, name) for name in ('SO_PEERCRED', 'SOCK_CLOEXEC', 'AF_NETLINK')),"
        " hasattr(ctypes.CDLL(None), 'prctl'))\n"
        "try: open('/proc/self/status')\n"
        "except FileNotFoundError: print('no proc')\n"
        "print(hasattr(os, 'pipe'), hasattr(select, 'poll'), hasattr(ctypes.CDLL(None), 'getpid'))\n"
    )
    said = run(python, "-c", look).stdout.splitlines()
    assert said == [f"darwin Darwin{' False' * 12}", "no proc", "True True True"]


def test_what_is_taken_away_is_what_macos_lacks() -> None:
    """As Python's documentation has it: a few of each kind, and some that both have."""
    lacking = {name for module in without_linux.MODULES for name in without_linux.lacking(module)}
    assert {
        "pipe2",
        "pidfd_open",
        "sched_getaffinity",
        "epoll",
        "SO_PEERCRED",
        "prlimit",
        "SIGPWR",
    } <= lacking
    assert not lacking & {
        "pipe",
        "poll",
        "O_CLOEXEC",
        "O_NOFOLLOW",
        "openpty",
        "SIGTSTP",
        "flock",
        "sendfile",
    }


def test_the_units_of_the_orchestrators_side_pass(python: Path) -> None:
    check_suite(python, list(UNITS), 500)


@pytest.mark.timeout(700)
@sizes("whole", quick=False, deep=True)
def test_clients_commands_and_boards_pass(python: Path, whole: bool) -> None:
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed: install its server package")
    files = [f"tests/integration/test_{name}.py" for name in SUITES]
    some = " or ".join(f"(test_{name}.py and ({wanted}))" for name, wanted in SUITES.items())
    check_suite(python, [*files, "-k", f"not ({OF_LINUX})" if whole else some], 300 if whole else 30)


@pytest.mark.parametrize(
    "words",
    [
        "exec -- true",
        "exec --explain .",
        "exec --env local -- true",
        "environment check local",
        "serve",
        "up --no-web",
        "up --detach",
        "dispatch --board b",
        "worker run shell true",
        "worker list",
        "doctor",
        "doctor selfcheck",
        "config codex apply --environment holdfast",
    ],
)
def test_what_needs_a_sandbox_here_says_so_in_a_sentence(python: Path, tmp_path: Path, words: str) -> None:
    done = run(python, "-P", "-m", "holdfast", *words.split(), cwd=tmp_path)
    assert done.returncode != 0
    assert done.stdout == ""
    assert re.fullmatch(NEEDS, done.stderr), done.stderr
