"""python -m bench.masks: how long a command sees what replaced a denied file, before it is covered again.

A command of `holdfast exec` reads a denied file of its workspace as fast as it can, while somebody outside
renames a new one over it again and again. Of each new one the gap is the time from the rename to the last
moment at which the command began to read it and could; 0 if it never could. The first of a command is told
apart: only then a guard is forked for it.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_READER: Final = """
import json, os, sys, threading, time
seen = {}
def flood():
    while True:
        open("made", "w").close()
        os.rename("made", "moved")
if sys.argv[1] == "flood":
    threading.Thread(target=flood, daemon=True).start()
print("up", flush=True)
while not os.access("stop", os.F_OK):
    for _ in range(1000):
        began = time.monotonic()
        try:
            fd = os.open(".env", os.O_RDONLY)
        except OSError:
            continue
        seen[os.read(fd, 32).decode()] = began
        os.close(fd)
print(json.dumps(seen), flush=True)
os._exit(0)
"""
_PAUSE_S: Final = (0.005, 0.03)  # between two replacements


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    top = Path(tempfile.mkdtemp(prefix="holdfast-masks-", dir="/var/tmp"))
    try:
        (top / "ws").mkdir()
        yield top
    finally:
        shutil.rmtree(top)


def measure(replacements: int, *, flood: bool) -> list[float]:
    """The gaps of one command, in seconds, in the order of the replacements."""
    with _place() as top:
        workspace, secret = top / "ws", top / "ws" / ".env"
        secret.write_text("old", "ascii")
        command = [sys.executable, "-P", "-m", "holdfast", "exec", "--deny", str(secret), "--"]
        reader = ["/usr/bin/env", "python3", "-c", _READER, "flood" if flood else "quiet"]
        renamed: dict[str, float] = {}
        with subprocess.Popen([*command, *reader], cwd=workspace, stdout=subprocess.PIPE) as child:
            try:
                if child.stdout is None or child.stdout.readline() != b"up\n":
                    raise SystemExit("the command was not started")
                for number in range(replacements):
                    fresh = top / "fresh"
                    fresh.write_text(str(number), "ascii")
                    renamed[str(number)] = time.monotonic()
                    os.rename(fresh, secret)
                    time.sleep(random.uniform(*_PAUSE_S))  # noqa: S311 - not to be in step with anything
                (workspace / "stop").touch()
                seen: dict[str, float] = json.loads(child.stdout.readline())
            finally:
                child.kill()
    return [max(0.0, seen.get(number, 0.0) - at) for number, at in renamed.items()]


def describe(gaps: list[float]) -> str:
    ms = sorted(gap * 1000 for gap in gaps)
    cuts = statistics.quantiles(ms, n=100, method="inclusive")
    never = sum(not gap for gap in ms)
    return (
        f"p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms, most {ms[-1]:.2f} ms; never seen {never} of {len(ms)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.masks", description=__doc__)
    parser.add_argument("--replacements", type=int, default=200, help="of one command")
    parser.add_argument("--commands", type=int, default=20, help="whose first replacement is measured")
    options = parser.parse_args()
    for flood in (False, True):
        gaps = measure(options.replacements, flood=flood)
        print(f"{'flooding' if flood else 'reading'}: {describe(gaps[1:])}", flush=True)
        firsts = [measure(2, flood=flood)[0] for _ in range(options.commands)]
        print(f"{'flooding' if flood else 'reading'}, first: {describe(firsts)}", flush=True)


if __name__ == "__main__":
    main()
