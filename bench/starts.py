"""How long a person waits for a command line to begin: ours beside its peers, in turns."""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence

from bench.client import Failed
from bench.confined import workspace
from bench.measures import MS, Contest
from bench.servers import Side, environment
from tools.get_agents import FOLDER, installed

RUN_WITHIN_S = 30.0


def exec_true(contest: Contest) -> list[float]:
    """`exec -- true` of ours, `sandbox -- true` of the reference: from the call to its end, in ms."""
    argv = [contest.server.spec.argv[0], "sandbox"]
    if contest.server.spec.side is Side.OURS:
        argv = [_holdfast(contest), "exec"]
    return _lives(contest, (*argv, "--", "true"))


def show_version(contest: Contest) -> list[float]:
    return _lives(contest, (_holdfast(contest), "--version"))


def import_package(contest: Contest) -> list[float]:
    return _lives(contest, (contest.server.spec.argv[0], "-c", "import holdfast"))


def list_tasks(contest: Contest) -> list[float]:
    """`holdfast task list` of an empty board."""
    holdfast = _holdfast(contest)
    if not (contest.home / "board" / "board.db").exists():
        _life(contest, (holdfast, "board", "create", "bench"))
    return _lives(contest, (holdfast, "task", "list", "--board", "bench"))


def bare_python(contest: Contest) -> list[float]:
    """The interpreter that runs ours, doing nothing."""
    return _lives(contest, (contest.server.spec.argv[0], "-c", "pass"))


def bwrap_true(contest: Contest) -> list[float]:
    """A bubblewrap that hides nothing around `true`: what is hard to beat, in ms."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise Failed("there is no program bwrap")
    return _lives(contest, (bwrap, "--dev-bind", "/", "/", "true"))


def srt_true(contest: Contest) -> list[float]:
    """`srt true` with the settings it has by itself, in ms. The ripgrep it wants is the one codex brings."""
    srt = installed("srt")
    if srt is None:
        raise Failed("srt is not installed: python -m tools.get_agents srt")
    ripgrep = shutil.which("rg") or next(FOLDER.glob("codex/**/codex-path/rg"), None)
    if ripgrep is None:
        raise Failed("srt needs the program rg")
    return _lives(contest, (os.fspath(srt), "true"), programs=os.path.dirname(ripgrep))


def _holdfast(contest: Contest) -> str:
    """The command as it is installed beside the interpreter."""
    return os.path.join(os.path.dirname(contest.server.spec.argv[0]), "holdfast")


def _lives(contest: Contest, argv: Sequence[str], programs: str = "") -> list[float]:
    return [_life(contest, argv, programs) for _ in range(contest.plan.starts)]


def _life(contest: Contest, argv: Sequence[str], programs: str = "") -> float:
    """Milliseconds from the call to its end; `programs` is one more folder on the PATH."""
    settings = environment(contest.home) | {"HOLDFAST_HOME": os.fspath(contest.home / "board")}
    if programs:
        settings["PATH"] += os.pathsep + programs
    began = time.perf_counter()
    done = subprocess.run(
        argv,
        cwd=workspace(contest),
        env=settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=RUN_WITHIN_S,
        check=False,
    )
    took = (time.perf_counter() - began) * MS
    if done.returncode != 0:
        raise Failed(f"{' '.join(argv)} failed: {done.stderr.decode('utf-8', 'replace')[-300:]}")
    return took
