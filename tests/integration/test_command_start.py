"""What the start of a command loads: that is most of the time that a short one takes."""

import subprocess
import sys
from pathlib import Path

from holdfast.board.store import open_store
from tests.support.patience import patient
from tests.support.rows import every_row

WAIT_S = patient(60)
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


def test_output_that_nobody_takes_is_still_told() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", ENDING.replace("{code}", "0")],
            env={},  # with buffers
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    assert done.returncode == 120
    assert "No space left" in done.stderr
