"""Count the modules that take part in a confined start and in a task, and write down what was counted.

python -m tools.walks [COMMIT ...]

Each commit [default: HEAD] is unpacked and runs with a profile function in every process. A module takes part
if one of its functions is called for the walk; being imported does not count. A module is called back if it
calls another one that calls it again before it returns. The table, where rows of other commits are kept, and
the modules of the last commit go to docs/records/walks.md.
"""

import argparse
import contextlib
import io
import itertools
import json
import mmap
import os
import re
import signal
import subprocess
import sysconfig
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import fixtures
from bench.confined import confined_start
from bench.measures import Contest, Plan
from bench.servers import ours, running

ROOT: Final = Path(__file__).resolve().parent.parent
RECORD: Final = ROOT / "docs" / "records" / "walks.md"
ONCE: Final = Plan(warm=0, starts=1)
TASK_WITHIN_S: Final = 120.0
QUIET: Final = "HOLDFAST_WALKS_QUIET"  # in the environment of a process that only asks how it went
LIBRARY: Final = (
    "light.py"  # stands for parts of the standard library, which makes objects of everybody's classes
)
SLOTS: Final = 1024  # processes are told apart by their pid, modulo this
NAME_BYTES: Final = 128
# The part a process plays: the first of these words that is in its command line.
ROLES: Final = ("task create", "dispatch", "supervise", "launcher", "fsworker", "watcher", "serve", "host")
# Marks live in memory that all processes share: a sandbox closes descriptors, or gives them to somebody else.
HOOK: Final = """
def _mark_calls():
    import mmap, os, sys, threading
    if os.environ.get({quiet!r}):
        return
    try:
        with open({marks!r}, "r+b") as file:
            area = mmap.mmap(file.fileno(), 0)
    except OSError:
        return
    places = {places!r}
    size = {size}
    command = " ".join(sys.orig_argv[1:])
    name = next((role for role in {roles!r} if role in command), command).encode()[-{name_bytes}:]
    name += bytes({name_bytes} - len(name))
    def find_caller(frame, place):
        while frame is not None and places.get(frame.f_code.co_filename, place) == place:
            frame = frame.f_back
        return frame
    def on_call(frame, event, _argument):
        if event != "call":
            return
        place = places.get(frame.f_code.co_filename)
        if place is None or frame.f_code.co_name == "<module>":
            return
        if (caller := find_caller(frame, place)) is not None:
            between = places[caller.f_code.co_filename]
            above = find_caller(caller, between)
            if above is not None and places[above.f_code.co_filename] == place:
                area[{pairs} + place * {count} + between] = area[0]
        slot = 1 + os.getpid() % {slots} * size
        if area[slot + {name_bytes} + place] == area[0]:
            return
        above = frame.f_back
        while above is not None:
            if above.f_code.co_filename.startswith("<frozen importlib"):
                return
            above = above.f_back
        area[slot : slot + len(name)] = name
        area[slot + {name_bytes} + place] = area[0]
    threading.setprofile(on_call)
    sys.setprofile(on_call)
_mark_calls()
"""


@dataclass
class Walk:
    """The modules of one walk, in all and by process."""

    modules: set[str] = field(default_factory=set)
    called_back: list[tuple[str, str]] = field(default_factory=list)  # a module, and by which other one
    processes: dict[str, set[str]] = field(default_factory=dict)


class Marked:
    """A copy of the package of one commit, in an environment of its own, that marks the modules it calls."""

    def __init__(self, folder: Path, commit: str) -> None:
        archive = subprocess.run(
            ["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        source = folder / "src"
        self.files = sorted((source / "holdfast").rglob("*.py"))
        self._source = source
        self._size = NAME_BYTES + len(self.files)
        marks = folder / "marks"
        self._pairs = 1 + SLOTS * self._size
        marks.write_bytes(bytes(self._pairs + len(self.files) ** 2))
        with marks.open("r+b") as file:
            self._area = mmap.mmap(file.fileno(), 0)
        hook = HOOK.format(
            quiet=QUIET,
            marks=str(marks),
            places={str(path): place for place, path in enumerate(self.files)},
            size=self._size,
            name_bytes=NAME_BYTES,
            slots=SLOTS,
            roles=ROLES,
            pairs=self._pairs,
            count=len(self.files),
        )
        first = source / "holdfast" / "__init__.py"
        first.write_text(first.read_text("utf-8") + hook, "utf-8")
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        packages = next((folder / "venv").glob("lib/python3*/site-packages"))
        (packages / "walks.pth").write_text(f"{source}\n{sysconfig.get_path('purelib')}\n", "utf-8")

    def begin(self) -> None:
        """Forget what was called so far."""
        self._area[0] += 1

    def end(self) -> Walk:
        walk, now = Walk(), self._area[0]
        for slot in range(1, self._pairs, self._size):
            marks = self._area[slot + NAME_BYTES : slot + self._size]
            called = {self._name(place) for place, mark in enumerate(marks) if mark == now}
            if called:
                name = self._area[slot : slot + NAME_BYTES].rstrip(b"\0").decode("utf-8", "replace")
                walk.processes.setdefault(name, set()).update(called)
                walk.modules |= called
        names = [self._name(place) for place in range(len(self.files))]
        for place, pair in enumerate(itertools.product(names, names)):
            if self._area[self._pairs + place] == now and LIBRARY not in pair:
                walk.called_back.append(pair)
        return walk

    def _name(self, place: int) -> str:
        return str(self.files[place].relative_to(self._source / "holdfast"))

    def run(self, *arguments: str, home: Path, quiet: bool = False) -> str:
        return subprocess.run(
            [self.python, "-P", "-m", "holdfast", *arguments],
            env=environment(home) | ({QUIET: "1"} if quiet else {}),
            cwd=home,
            check=True,
            capture_output=True,
            text=True,
        ).stdout


def environment(home: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HOLDFAST_HOME": str(home / "home"),
        "LANG": "C.UTF-8",
    }


def walk_start(marked: Marked, folder: Path) -> Walk:
    """A confined `process/start` on a new connection, until its end is told; the server runs and is warm."""
    home = folder / "server"
    home.mkdir()
    made = folder / "files"
    made.mkdir()
    with running(ours(str(marked.python)), home) as server:
        contest = Contest(server, ONCE, fixtures.make(made), home)
        confined_start(contest)
        marked.begin()
        confined_start(contest)
        return marked.end()


def walk_task(marked: Marked, folder: Path) -> Walk:
    """`task create` to done, from the start of the dispatcher on."""
    home = folder / "tasks"
    home.mkdir()
    marked.run("board", "create", "main", home=home, quiet=True)
    marked.begin()
    with dispatching(marked, home):
        body = ("--assignee", "script", "--body", "echo hi > f", "--json")
        created = marked.run("task", "create", "A walk", "--board", "main", *body, home=home)
        task = json.loads(created)
        task_id = task.get("id") or task["task"]["id"]
        deadline = time.monotonic() + TASK_WITHIN_S
        while '"done"' not in marked.run("task", "show", task_id, "--json", home=home, quiet=True):
            if time.monotonic() > deadline:
                raise SystemExit(f"the task of {folder} is not done after {TASK_WITHIN_S:g} s")
            time.sleep(0.2)
        return marked.end()


@contextlib.contextmanager
def dispatching(marked: Marked, home: Path) -> Iterator[None]:
    command = [str(marked.python), "-P", "-m", "holdfast", "dispatch", "--board", "main", "--max-load", "0"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment(home), cwd=home, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()
        for pid in daemons(marked.python):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def daemons(python: Path) -> list[int]:
    """Processes that this interpreter runs."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(str(python).encode()):
                found.append(int(entry.name))
    return found


def lines_of(files: list[Path]) -> int:
    return sum(len(path.read_text("utf-8").splitlines()) for path in files)


def describe(walk: Walk) -> str:
    parts = (f"{name} {len(modules)}" for name, modules in sorted(walk.processes.items()))
    return f"{len(walk.modules)} ({', '.join(parts)})"


def read_rows(text: str) -> dict[str, str]:
    """The rows of a page, by their commits."""
    return {match[1]: match[0] for match in re.finditer(r"^\| ([0-9a-f]{7,40}) \|.*$", text, re.MULTILINE)}


def page(rows: Iterable[str], start: Walk, task: Walk) -> str:
    def listed(walk: Walk) -> str:
        modules = "\n".join(f"- `{module}`" for module in sorted(walk.modules))
        back = "\n".join(f"- `{module}`, by `{other}`" for module, other in walk.called_back) or "- none"
        return f"{modules}\n\nCalled back:\n\n{back}"

    return f"""# How many modules a start and a task cross

Counted by `python -m tools.walks`: a module counts when one of its functions is called, in any process; being
imported does not count. A module that two processes call counts once in the sum and in each of them. A module
is called back if it calls another one that calls it again before it returns.

A start is one `process/start`, with its connection and its end; a task is `task create` to done, with the
start of the dispatcher.

| commit | modules in all | a confined start | a task |
|---|---:|---|---|
{chr(10).join(rows)}

## A confined start

{listed(start)}

## A task

{listed(task)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("commits", nargs="*", default=["HEAD"])
    rows = read_rows(RECORD.read_text("utf-8"))
    for commit in parser.parse_args().commits:
        short = subprocess.run(
            ["git", "rev-parse", "--short", commit], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()
        with tempfile.TemporaryDirectory(prefix="holdfast-walks-", dir="/var/tmp") as name:
            folder = Path(name)
            folder.chmod(0o755)
            marked = Marked(folder, commit)
            start, task = walk_start(marked, folder), walk_task(marked, folder)
            rows[short] = f"| {short} | {len(marked.files)} | {describe(start)} | {describe(task)} |"
            print(rows[short], flush=True)
    RECORD.write_text(page(rows.values(), start, task), "utf-8")


if __name__ == "__main__":
    main()
