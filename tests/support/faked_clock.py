"""A program of ours whose wall clock others set while it runs; its steady clock is the machine's.

    python -m tests.support.faked_clock WORDS…

runs `holdfast WORDS…`. The clock is libfaketime's, by `environment`. With the steady clock left alone, its
version of the call behind `time.sleep` refuses every sleep, so that is another one here.
"""

import runpy
import sys
import threading
import time
from pathlib import Path


def library() -> Path | None:
    """Of libfaketime, if it is installed."""
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


def environment(found: Path, offset: Path) -> dict[str, str]:
    """What such a program needs; the file `offset` says by how much its clock is wrong, see `set_clock`."""
    return {
        "LD_PRELOAD": str(found),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def set_clock(offset: Path, by_s: int) -> None:
    beside = offset.with_suffix(".new")
    beside.write_text(f"{by_s:+d}\n", "ascii")
    beside.replace(offset)


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


if __name__ == "__main__":
    time.sleep = _sleep  # type: ignore[assignment]  # nobody here sleeps for an index
    sys.argv[0] = "holdfast"
    runpy.run_module("holdfast", run_name="__main__")
