"""What the start of a command loads: that is most of the time that a short one takes."""

import subprocess
import sys
from pathlib import Path

from holdfast.board.store import open_store
from tests.support.patience import patient

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
