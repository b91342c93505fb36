"""What the start of a command loads: that is most of the time that a short one takes."""

import json
import re
import subprocess
import sys
from pathlib import Path

from holdfast.board.store import open_store
from tests.support.patience import patient
from tests.support.rows import every_row

WAIT_S = patient(60)
PROGRAM = ("-P", "-c", "from holdfast.entry import main; main()")
SLOW = {
    "asyncio",
    "ssl",
    "rich",
    "yaml",
    "httpx2",
    "websockets",
    "psycopg",
    "holdfast.client",
    "holdfast.exec.run",
}


def test_a_command_of_the_board_loads_neither_a_loop_nor_a_network(tmp_path: Path) -> None:
    address = str(tmp_path / "board.db")
    with open_store(address) as store:
        store.create_board("b")
    code = (
        "import sys; from holdfast.cli import cli; "
        f"cli(['task', 'list', '--board', 'b', '--store', {address!r}], standalone_mode=False); "
        "print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines())
    assert "holdfast.board.store" in loaded
    assert loaded & SLOW == set()


def test_serve_has_its_address_before_it_loads_an_event_loop() -> None:
    code = (
        "import sys; from holdfast.commands.daemons import serving; from holdfast.entry import main; "
        "serving._announce = lambda address, hint: print(*sys.modules, 'all', sep='\\n', flush=True); "
        "sys.argv = ['holdfast', 'serve', '--listen', 'ws://127.0.0.1:0', '--log-format=json']; main()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as served:
        try:
            said = served.stdout
            assert said is not None
            loaded = set(iter(lambda: said.readline().strip(), "all"))
        finally:
            served.terminate()
    assert "holdfast.server.edges.binding" in loaded
    assert loaded & {"click", "asyncio", "logging", "websockets", "msgspec"} == set()


ENDING = """
import atexit, sys, threading, time
import holdfast.cli
from holdfast.entry import main

def command(prog_name):
    atexit.register(lambda: print("tidied", end=" "))
    go = threading.Event()
    threading.Thread(target=lambda: (go.wait(), print("joined", end=" "))).start()
    threading.Timer(0.1, go.set).start()
    print("said", end=" ")
    sys.exit({code})

holdfast.cli.cli = command
sys.argv = ["holdfast", "status"]
main()
"""


@every_row(
    ("code", "status", "told"),
    [("0", 0, ""), ("7", 7, ""), ("None", 0, ""), ("'sorry'", 1, "sorry\n")],
)
def test_a_command_ends_early_and_loses_nothing(code: str, status: int, told: str) -> None:
    argv = [sys.executable, "-c", ENDING.replace("{code}", code)]
    done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "said joined tidied ", told)


def run_with(
    streams: str, *words: str | bytes, buffered: bool = True, program: tuple[str, ...] = PROGRAM
) -> "subprocess.CompletedProcess[str]":
    """The command with its standard streams as a shell would make them."""
    env = {} if buffered else {"PYTHONUNBUFFERED": "1"}
    argv = ["sh", "-c", f'"$@" {streams}', "sh", sys.executable, *program, *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False)


@every_row("buffered", [True, False])
def test_output_that_cannot_be_written_is_one_line_and_an_exit_code(buffered: bool) -> None:
    full = (74, "", "holdfast: cannot write standard output: No space left on device\n")
    for words in (["--version"], ["--help"], ["task", "list", "--json"], ["exec", "--help"]):
        done = run_with(">/dev/full", *words, buffered=buffered)
        assert (done.returncode, done.stdout, done.stderr) == full, words
    done = run_with(">/dev/full", program=("-c", ENDING.replace("{code}", "0")), buffered=buffered)
    assert (done.returncode, done.stdout, done.stderr) == full


@every_row(
    ("streams", "words", "code"),
    [
        (">&-", ["--version"], 0),
        (">&-", ["--help"], 0),
        (">&-", ["board", "list", "--store", "/nonexistent"], 3),
        (">&- 2>&-", ["board", "list", "--store", "/nonexistent"], 3),
        ("<&-", ["doctor", "explain"], 1),
    ],
)
def test_a_stream_that_is_closed_is_an_empty_one(streams: str, words: list[str], code: int) -> None:
    done = run_with(streams, *words)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


@every_row("words", [["--version"], ["--help"]])
def test_a_reader_that_has_enough_is_no_mistake(words: list[str]) -> None:
    done = run_with("| true", *words)
    assert done.stderr == ""


@every_row(
    ("words", "told"),
    [
        ([b"\xff"], "holdfast: \\xff is not UTF-8\n"),
        (["x", "--body", b"a\xffb"], "holdfast: a\\xffb is not UTF-8\n"),
    ],
)
def test_an_argument_that_is_no_text_is_named(words: list[str | bytes], told: str, tmp_path: Path) -> None:
    address = str(tmp_path / f"{len(words)}.db")
    with open_store(address) as store:
        store.create_board("b")
    done = run_with("", "task", "create", *words, "--board", "b", "--store", address)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
    done = run_with("", "task", "create", *words, "--board", "b", "--store", address, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["exit"]) == (2, 2)


@every_row(
    "words",
    [
        ["task", "list"],
        ["worker", "run", "shell", "true"],
        ["config", "codex", "plan"],
        ["mcp"],
        ["handoff", "show"],
        ["exec", "--", "true"],
    ],
)
def test_a_directory_that_is_gone_is_said(words: list[str], tmp_path: Path) -> None:
    gone = tmp_path / words[0]
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'cd "$1" && rmdir "$1" && shift && "$@"', "sh", gone, sys.executable, *PROGRAM, *words],
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "holdfast: the current directory does not exist any more"


def test_a_variable_that_is_no_text_is_named(tmp_path: Path) -> None:
    env = {b"HOLDFAST_HOME": bytes(tmp_path) + b"/\xff"}
    argv = [sys.executable, *PROGRAM, "status", "--json"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    assert "HOLDFAST_HOME is not UTF-8" in json.loads(done.stdout)["error"]["message"]


def test_a_file_of_the_host_that_cannot_be_used_is_named() -> None:
    done = run_with("", "web", "--home", f"/{'a' * 300}")
    assert done.returncode == 71
    assert re.fullmatch(r"holdfast: /a+/\S+: File name too long\n", done.stderr), done.stderr
