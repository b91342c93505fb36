"""A worker in a tmux pane, where a person finds it: the pane shows the worker's terminal and owns nothing."""

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from holdfast.errors import NotFound, OperationFailed

ANSWER_S: Final = 10.0
_UNNESTED: Final = ("TMUX", "TMUX_PANE")


async def show(home: Path, worker: str, *, socket: str | None = None) -> str:
    """Make a detached session with the worker's view in it; the pane's id.

    Raises:
        NotFound: tmux is not installed.
        OperationFailed: it refuses.
    """
    # -P: the pane starts in a directory that the worker owns, and nothing there is to be imported.
    view = [sys.executable, "-P", "-m", "holdfast", "worker", "attach", worker, "--home", str(home)]
    return await _tmux(
        socket,
        *("new-session", "-d", "-P", "-F", "#{pane_id}", "-s", session_name(worker), "-x", "120", "-y", "40"),
        f"exec {shlex.join(view)}",
        ";",
        *("set-option", "-t", session_name(worker), "remain-on-exit", "on"),
    )


def session_name(worker: str) -> str:
    return f"holdfast-{worker}"


async def _tmux(socket: str | None, *words: str) -> str:
    program = shutil.which("tmux")
    if program is None:
        raise NotFound(
            "tmux is not installed", remedy="install tmux, or use --tty and `holdfast worker attach`"
        )
    argv = [program, *(("-L", socket) if socket else ()), *words]
    return await asyncio.to_thread(_answer, argv)


def _answer(argv: list[str]) -> str:
    env = {name: value for name, value in os.environ.items() if name not in _UNNESTED}
    # Into files: the server that this may start holds on to what it inherits, and a pipe would never end.
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complaint:
        try:
            code = subprocess.run(  # noqa: S603 - tmux, with our own words
                argv,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=complaint,
                env=env,
                timeout=ANSWER_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise OperationFailed("tmux does not answer") from None
        for file in (said, complaint):
            file.seek(0)
        if code:
            raise OperationFailed(f"tmux: {complaint.read().decode('utf-8', 'replace').strip()}")
        return said.read().decode().strip()
