"""How long a person waits for a command line to begin: ours beside the reference, in turns."""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence

from bench.client import Failed
from bench.confined import workspace
from bench.measures import MS, Contest
from bench.servers import Side, environment

RUN_WITHIN_S = 30.0


def exec_true(contest: Contest) -> list[float]:
    """`exec -- true` of ours, `sandbox -- true` of the reference: from the call to its end, in ms."""
    argv = [contest.server.spec.argv[0], "sandbox"]
    if contest.server.spec.side is Side.OURS:
        argv = [_holdfast(contest), "exec"]
    return [_life(contest, (*argv, "--", "true")) for _ in range(contest.plan.starts)]


def version_ratio(contest: Contest) -> list[float]:
    """`holdfast --version`, in starts of the bare interpreter."""
    return _pairs(contest, (_holdfast(contest), "--version"), _bare(contest))


def import_ratio(contest: Contest) -> list[float]:
    """`import holdfast`, in starts of the bare interpreter."""
    return _pairs(contest, (contest.server.spec.argv[0], "-c", "import holdfast"), _bare(contest))


def list_ratio(contest: Contest) -> list[float]:
    """`holdfast task list` of an empty board, in starts of the bare interpreter."""
    holdfast = _holdfast(contest)
    if not (contest.home / "board" / "board.db").exists():
        _life(contest, (holdfast, "board", "create", "bench"))
    return _pairs(contest, (holdfast, "task", "list", "--board", "bench"), _bare(contest))


def bwrap_ratio(contest: Contest) -> list[float]:
    """`holdfast exec -- true`, in runs of a bubblewrap that hides nothing."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise Failed("there is no program bwrap")
    return _pairs(
        contest, (_holdfast(contest), "exec", "--", "true"), (bwrap, "--dev-bind", "/", "/", "true")
    )


def _holdfast(contest: Contest) -> str:
    """The command as it is installed beside the interpreter."""
    return os.path.join(os.path.dirname(contest.server.spec.argv[0]), "holdfast")


def _bare(contest: Contest) -> tuple[str, ...]:
    return (contest.server.spec.argv[0], "-c", "pass")


def _pairs(contest: Contest, ours: Sequence[str], other: Sequence[str]) -> list[float]:
    return [_life(contest, ours) / _life(contest, other) for _ in range(contest.plan.starts)]


def _life(contest: Contest, argv: Sequence[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        argv,
        cwd=workspace(contest),
        env=environment(contest.home) | {"HOLDFAST_HOME": os.fspath(contest.home / "board")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=RUN_WITHIN_S,
        check=False,
    )
    took = (time.perf_counter() - began) * MS
    if done.returncode != 0:
        raise Failed(f"{' '.join(argv)} failed: {done.stderr.decode('utf-8', 'replace')[-300:]}")
    return took
