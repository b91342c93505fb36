"""Random programs of file work, confined and watched: what is told of them is what the kernel answered."""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import file_work
from tests.support.exec_command import Place
from tests.support.exec_command import place as place_of
from tests.support.file_work import Batch, Did
from tests.support.root_only import IDENTITIES
from tests.support.tiers import DEEP

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")]

PYTHON = "/usr/bin/python3"
BACKENDS = pytest.mark.parametrize("backend", ["namespaces", "landlock"])
INSIDE = ("--", PYTHON, "-I", "-B", "-c", file_work.PROGRAM)
CODE = 7
# With each backend, as root and as a user: 1,000 programs in all of the deep parts.
PARTS = [
    pytest.param(range(1), id="quick"),
    *(pytest.param(range(first, first + 5), id=f"from {first}", marks=DEEP) for first in range(0, 125, 5)),
]


def prepare(made: Place, seed: int) -> tuple[Batch, Path]:
    batch = file_work.make_batch(seed, made.top)
    file = made.outside / "programs.json"
    file_work.write_batch(batch, file, code=CODE)
    made.own()
    return batch, file


def run_watched(made: Place, seed: int, backend: str) -> tuple[Batch, list[Did], list[dict[str, Any]]]:
    batch, file = prepare(made, seed)
    done = made.run("--watch", "--json", "--backend", backend, *batch.flags, *INSIDE, str(file))
    report = json.loads(done.err.splitlines()[-1])
    assert (done.code, report["watch"]["on"], report["unconfirmed"]) == (CODE, True, 0), done.err
    return batch, file_work.read_done(done.out), report["denials"]


def run_traced(made: Place, seed: int, backend: str) -> tuple[list[Did], Counter[tuple[str, str]]]:
    """The same, with strace around everything and nobody who watches."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    batch, file = prepare(made, seed)
    traces = made.top / "traces"
    traces.mkdir()
    made.own()
    strace = ["strace", "-ff", "-qq", "-s", "4096", "-e", "signal=none"]  # all calls: some are too new for it
    command = made.command("--backend", backend, *batch.flags, *INSIDE, str(file))
    done = made.call(made.as_user([*strace, "-o", str(traces / "t"), *command]))
    assert done.code == CODE, done.err
    return file_work.read_done(done.out), file_work.count_traced(traces)


@BACKENDS
@pytest.mark.parametrize("uid", IDENTITIES)
@pytest.mark.parametrize("batches", PARTS)
def test_every_denial_that_is_told_was_one_and_none_is_missing_by_what_strace_sees(
    uid: int, backend: str, batches: range, record_property: Any
) -> None:
    """Each batch twice, in a fresh tree: watched, and with strace around it. A thread has one tracer."""
    denials = calls = 0
    for seed in batches:
        with place_of(uid) as made:
            batch, done, told = run_watched(made, seed, backend)
        expected = file_work.list_expected(done, batch, mounts=backend != "landlock")
        assert file_work.compare(expected, told) == [], f"batch {seed}"
        with place_of(uid) as made:
            traced, seen = run_traced(made, seed, backend)
        assert file_work.count_done(traced) == seen, f"batch {seed}"
        assert file_work.count_done(done) == seen, f"batch {seed}"
        denials, calls = denials + len(expected), calls + seen.total()
    assert denials
    record_property("programs of file work", len(batches) * file_work.PROGRAMS)
    record_property("calls that strace saw", calls)
    record_property("denials told", denials)
