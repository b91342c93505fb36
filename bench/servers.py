"""The servers under measurement: how each is started, found, weighed and ended."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from bench.client import Failed
from tools.get_codex import installed

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "bench" / "results"
READY_WITHIN_S: Final = 30.0
STOP_WITHIN_S: Final = 5.0
STDERR_TAIL: Final = 2000


class Side(StrEnum):
    REFERENCE = "codex"
    OURS = "holdfast"
    SWEREX = "swe-rex"
    FLOOR = "posix_spawn"
    PYTHON = "python"  # without a program to run
    BWRAP = "bwrap"  # alone, hiding nothing
    SRT = "srt"  # Anthropic's sandbox-runtime
    RAW = "raw"  # our server without our client
    HERMES = "hermes"  # the board's peer
    MENDED = "hermes-mended"  # ... without the check that makes it lose what it wrote
    SMALL = "1,000 tasks"  # ourselves, on a small board


@dataclass(frozen=True, slots=True)
class Spec:
    """How to start one server; it prints its URL as the first line of its stdout."""

    side: Side
    argv: tuple[str, ...]


class Server(NamedTuple):
    spec: Spec
    pid: int
    url: str


class Identity(NamedTuple):
    """A process that cannot be confused with a later one of the same pid."""

    pid: int
    started: str


def reference(binary: str) -> Spec:
    return Spec(Side.REFERENCE, (binary, "exec-server", "--listen", "ws://127.0.0.1:0"))


def ours(python: str) -> Spec:
    return Spec(Side.OURS, (program(python), "-m", "holdfast", "serve", "--listen", "ws://127.0.0.1:0"))


def profiled(spec: Spec, directory: Path) -> Spec:
    """Our server under cProfile, which writes its statistics when the server ends."""
    python, *module = spec.argv
    target = directory / f"{spec.side}.prof"
    return replace(spec, argv=(python, "-m", "cProfile", "-o", os.fspath(target), *module))


def find_codex(wanted: str | None) -> str:
    """The reference binary: as given, else from CODEX_BIN, else from `.agents-cli/`, else from PATH.

    The native binary is preferred to the script of its npm package, which would add the start of Node.
    """
    if wanted := wanted or os.environ.get("CODEX_BIN"):
        return program(wanted)
    if native := installed():
        return os.fspath(native)
    if found := shutil.which("codex"):
        return found
    raise Failed(
        "the reference `codex` was not found; give --codex PATH or CODEX_BIN, or use --holdfast-only"
    )


def program(name: str) -> str:
    """Its absolute path with links kept: an interpreter finds its environment by the name it was called."""
    if found := shutil.which(name):
        return os.path.abspath(found)
    raise Failed(f"there is no program {name}")


def version(binary: str) -> str:
    done = subprocess.run(
        [binary, "--version"], capture_output=True, text=True, timeout=READY_WITHIN_S, check=False
    )
    return done.stdout.strip()


def environment(home: Path) -> dict[str, str]:
    """Nothing of the caller's own settings reaches a server under measurement."""
    codex_home = home / ".codex"
    codex_home.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.fspath(home),
        "CODEX_HOME": os.fspath(codex_home),
        "LANG": "C.UTF-8",
    }


@contextlib.contextmanager
def running(spec: Spec, home: Path) -> Iterator[Server]:
    """The server until the end of the block, with everything it started."""
    env = environment(home)
    errors = home / "stderr.log"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            spec.argv,
            env=env,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        line = first_line(process, time.monotonic() + READY_WITHIN_S)
        if not line.startswith("ws://"):
            tail = errors.read_text("utf-8", "replace")[-STDERR_TAIL:]
            raise Failed(f"{spec.side} did not print its URL but {line!r}; its stderr:\n{tail}")
        yield Server(spec, process.pid, line)
    finally:
        stop(process)


def first_line(process: subprocess.Popen[bytes], deadline: float) -> str:
    """The first line of its stdout, or what there was of it at the end of output or at the deadline."""
    assert process.stdout is not None
    descriptor, line = process.stdout.fileno(), b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(descriptor, 1) if ready else b""
        if not chunk:
            break
        line += chunk
    return line.decode("utf-8", "replace").strip()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Asks, waits, then kills the group and whatever of the tree left the group."""
    family = tree(process.pid)
    process.terminate()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        print(f"{process.args!r} ignored SIGTERM for {STOP_WITHIN_S} s", file=sys.stderr)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for member in family:
        if identity(member.pid) == member:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)
    process.wait(STOP_WITHIN_S)
    if process.stdout is not None:
        process.stdout.close()


def identity(pid: int) -> Identity | None:
    """Who has this pid now; nobody, if it is free or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else Identity(pid, fields[19])


def tree(root: int) -> list[Identity]:
    """The process and its living descendants, parents first."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop(0)
        if (who := identity(pid)) is None:
            continue
        found.append(who)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                waiting += [int(child) for child in task.read_text("ascii").split()]
    return found


def standalone_bytes(root: int) -> int:
    """What the tree would hold alone on a machine: all pages of the server, the private ones of its helpers.

    Private pages alone would not do: pages of a program file count as private only while nobody else maps
    that file, so a second instance anywhere makes a server look smaller by the size of its code.
    """
    helpers = sum(rollup(member.pid, "Private_Clean:", "Private_Dirty:") for member in tree(root)[1:])
    return rollup(root, "Rss:") + helpers


def rollup(pid: int, *fields: str) -> int:
    """Bytes in these fields of the process's memory summary; none once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(fields))
