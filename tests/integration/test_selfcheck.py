"""The escape suite against namespaces, as root with and without one for users, as a user; against
bubblewrap; and against Landlock alone.

And once with no sandbox at all, to show that the attempts can succeed.
"""

import fcntl
import functools
import json
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pytest

from holdfast.doctor.attempts import Attempt, Guarantee
from holdfast.doctor.shortfalls import declared, shortfalls
from holdfast.sandbox import landlock
from tests.support.escapes import MODES, Mode, Row, attempts_of, suite

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
    pytest.mark.skipif(os.getuid() != 0, reason="trying every identity needs root"),
    pytest.mark.timeout(330),  # the first test of a mode waits for the whole suite
]

CONFINED: Final = [mode for mode in MODES.values() if mode.confined]
FREE: Final = next(mode for mode in MODES.values() if not mode.confined)
MUST_BITE: Final = 100  # of the attempts that are made without a sandbox


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """Outside of the directories for temporary files, which policies often leave writable."""
    base = Path("/var/lib") / f"holdfast-test-{uuid.uuid4().hex}"
    base.mkdir()
    yield base
    shutil.rmtree(base)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all workers of this run have."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@functools.cache
def made(mode: Mode, place: Path, shared: Path) -> dict[str, Row]:
    """Once per mode in all workers; whoever comes second waits. Empty if it failed."""
    kept = shared / f"escapes-{mode.name}.json"
    with open(kept.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text("{}")  # if it fails, it fails once
            kept.write_text(json.dumps({id_: asdict(row) for id_, row in tried(mode, place).items()}))
        return {id_: Row(**row) for id_, row in json.loads(kept.read_text()).items()}


def tried(mode: Mode, place: Path) -> dict[str, Row]:
    folder = place / mode.name
    folder.mkdir()
    os.chown(folder, mode.uid, mode.uid)
    found = suite(mode, folder)
    assert list(folder.iterdir()) == []
    return found


def rows(mode: Mode, place: Path, shared: Path) -> dict[str, Row]:
    found = made(mode, place, shared)
    assert found, "the suite of this mode did not come to its end"
    return found


@pytest.mark.parametrize(
    ("mode", "attempt"),
    [
        pytest.param(mode, attempt, id=f"{mode.name}-{attempt.id}")
        for mode in CONFINED
        for attempt in attempts_of(mode)
    ],
)
def test_the_sandbox_holds_and_does_not_hinder(
    mode: Mode, attempt: Attempt, place: Path, shared: Path
) -> None:
    row = rows(mode, place, shared)[attempt.id]
    if row.verdict == "skipped":
        pytest.skip(row.text)
    if mode.alone and (known := shortfalls(attempt.id, privileged=mode.uid == 0, closed=not mode.deeper)):
        assert row.verdict == "broken", "it holds: take it off the list"
        pytest.xfail("; ".join(sorted(known)))
    abi = landlock.abi() if mode.landlock else 0
    excuses = declared(attempt.id, mode.way, privileged=mode.uid == 0, abi=abi)
    if row.verdict == "broken" and excuses and not mode.alone:
        pytest.xfail("; ".join(sorted(excuses)))
    assert row.verdict == "held", row.text


def test_without_a_sandbox_the_attempts_succeed(place: Path, shared: Path) -> None:
    succeeded = {id_ for id_, row in rows(FREE, place, shared).items() if row.verdict == "broken"}
    assert len(succeeded) >= MUST_BITE
    by_guarantee = {one.guarantee for one in attempts_of(FREE) if one.id in succeeded}
    assert by_guarantee == set(Guarantee) - {Guarantee.USABLE}


def test_without_a_sandbox_the_witnesses_see_what_happens(place: Path, shared: Path) -> None:
    text = "\n".join(row.text for row in rows(FREE, place, shared).values())
    for seen in (
        "a process outside was ended",
        "a secret was read",
        "a tcp connection arrived",
        "a unix connection arrived",
        "a unix (abstract) connection arrived",
        "a udp datagram arrived",
        "a unix datagram arrived",
        "a named pipe was written to",
        "outside/file",
    ):
        assert seen in text, seen
