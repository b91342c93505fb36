"""`holdfast up --detach`: start it in the background, and return once all of it is there."""

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.agents.supervisor import daemons
from holdfast.agents.worker import book
from holdfast.commands.boarding import Answer
from holdfast.commands.up_running import NOTIFY, conflict
from holdfast.errors import OperationFailed
from holdfast.sandbox.plan import prerequisites

READY_S: Final = 60.0  # for four interpreters, on a machine that is busy with agents
LOOK_S: Final = 0.1  # between looks at whether it has ended instead
LOG: Final = "up.log"
_LOG_TAIL: Final = 2000


def start(home: Path, typed: Sequence[str]) -> Answer:
    """Raises Conflict when it runs already, OperationFailed when it does not start; its log says why."""
    book.WorkerRecords(home).prepare()
    if (running := conflict(home)) is not None:
        raise running
    argv = [*prerequisites.command(), "up", "--home", str(home), *typed]
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard,
    ):
        heard.bind(f"{folder}/ready")
        heard.settimeout(LOOK_S)
        process = _spawned(argv, home / LOG, f"{folder}/ready")
        _wait(process, heard, home / LOG)
    shown = [
        one.card.address for one in daemons.find_by_role(home, daemons.DASHBOARD) if one.card is not None
    ]
    text = [f"holdfast runs in the background, pid {process.pid}; its log is {home / LOG}"]
    text += [f"dashboard    {address}   (holdfast open)" for address in shown]
    text.append("to end it: holdfast down, with --workers while workers run")
    return {"kind": "detached", "pid": process.pid, "dashboard": shown, "log": str(home / LOG), "text": text}


def _spawned(argv: Sequence[str], log: Path, ready: str) -> "subprocess.Popen[bytes]":
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603 - our own interpreter, our own arguments
            argv,
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            env={**os.environ, NOTIFY: ready},
        )
    finally:
        os.close(fd)


def _wait(process: "subprocess.Popen[bytes]", heard: socket.socket, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError):
            if b"READY=1" in heard.recv(4096).splitlines():
                return
        if process.poll() is not None:
            said = book.tail(log, _LOG_TAIL).decode("utf-8", "replace").strip()
            raise OperationFailed(f"`holdfast up` does not start: {said or process.returncode}")
    process.terminate()
    raise OperationFailed(f"`holdfast up` is not ready within {READY_S:g} s", remedy=f"see {log}")
