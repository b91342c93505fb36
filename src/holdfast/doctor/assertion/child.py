"""Runs one program to its end, within bounds of time and output, and leaves nothing of its group behind."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_OUTPUT: Final = 1 << 20  # of each stream; what comes after that is read and dropped
_READ: Final = 65536


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended; `code` is None if it had to be killed."""

    code: int | None
    out: str
    err: str


def run(argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], seconds: float) -> Ended:
    """Without input.

    Raises:
        OSError: it cannot be started.
    """
    until = time.monotonic() + seconds
    process = subprocess.Popen(  # noqa: S603 - the operator's own programs
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        cwd=cwd,
        start_new_session=True,
    )
    if process.stdout is None or process.stderr is None:
        raise AssertionError("asked for pipes")
    kept = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    out, err = kept.values()
    code: int | None = None
    try:
        with selectors.DefaultSelector() as selector:
            for file in kept:
                selector.register(file, selectors.EVENT_READ)
            while selector.get_map() and (left := until - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    data = os.read(key.fd, _READ)
                    if data:
                        kept[key.fd] += data[: max(0, MAX_OUTPUT - len(kept[key.fd]))]
                    else:
                        selector.unregister(key.fd)
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(max(0.0, until - time.monotonic()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stderr.close()
    return Ended(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
