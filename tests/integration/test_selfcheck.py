"""The escape suite against namespaces, as root with and without one for users, as a user; against
bubblewrap; and against Landlock alone.

And once with no sandbox at all, to show that the attempts can succeed.
"""

import shutil
import sys
from typing import Final

import pytest

from holdfast.doctor.escape.attempts import Guarantee
from holdfast.doctor.escape.scorecard import find_excuses, find_shortfalls
from holdfast.sandbox.kernel import landlock
from tests.support import identity
from tests.support.escapes import MODES, Mode, Row, attempts_of, suite
from tests.support.root_only import root_only
from tests.support.tiers import DEEP

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
    pytest.mark.timeout(330),  # each waits for a whole suite
]

CONFINED: Final = [mode for mode in MODES.values() if mode.confined]
FREE: Final = [mode for mode in MODES.values() if not mode.confined]
# That attempts can succeed is shown once, by root where root runs the tests.
AGAIN: Final = [mode for mode in FREE if identity.AS_ROOT and not mode.root]
MUST_BITE: Final = 100  # of the attempts that are made without a sandbox, as anybody


def as_params(modes: list[Mode]) -> list[object]:
    as_root = root_only("to be tried as root")
    return [
        pytest.param(mode, id=mode.name, marks=[as_root] if mode.root else [DEEP] if mode in AGAIN else [])
        for mode in modes
    ]


def tried(mode: Mode) -> dict[str, Row]:
    """Outside of the directories for temporary files, which policies often leave writable."""
    folder = identity.folder_for(mode.uid)
    try:
        found = suite(mode, folder)
        assert list(folder.iterdir()) == []
    finally:
        shutil.rmtree(folder)
    return found


def complaint(mode: Mode, row: Row) -> str | None:
    """What is not as it was declared about this attempt."""
    if mode.alone and find_shortfalls(row.id, privileged=mode.root, closed=not mode.deeper):
        return (
            None if row.verdict == "broken" else f"{row.verdict}, though declared lost: take it off the list"
        )
    abi = landlock.abi() if mode.landlock else 0
    weakened = ("sockets",) if mode.bwrap else ()
    excuses = find_excuses(row.id, mode.way, privileged=mode.root, abi=abi, weakened=weakened)
    if row.verdict == "broken" and excuses and not mode.alone:
        return None
    return None if row.verdict == "held" else f"{row.verdict}: {row.text}"


@pytest.mark.parametrize("mode", as_params(CONFINED))
def test_the_sandbox_holds_and_does_not_hinder(mode: Mode) -> None:
    rows = tried(mode)
    assert set(rows) == {attempt.id for attempt in attempts_of(mode)}
    skipped = {row.id: row.text for row in rows.values() if row.verdict == "skipped"}
    told = {id_: complaint(mode, row) for id_, row in rows.items() if id_ not in skipped}
    wrong = {id_: said for id_, said in told.items() if said is not None}
    assert not wrong, "\n".join(f"{id_}: {said}" for id_, said in wrong.items())
    if skipped:
        pytest.skip(
            "the rest holds; not tried: " + "; ".join(f"{id_}: {why}" for id_, why in skipped.items())
        )


SEEN: Final = (
    "a process outside was ended",
    "a secret was read",
    "a tcp connection arrived",
    "a unix connection arrived",
    "a unix (abstract) connection arrived",
    "a unix (of ours) connection arrived",
    "a udp datagram arrived",
    "a unix datagram arrived",
    "a named pipe was written to",
    "outside/file",
)


@pytest.mark.parametrize("mode", as_params(FREE))
def test_without_a_sandbox_the_attempts_succeed_and_the_witnesses_see_it(mode: Mode) -> None:
    rows = tried(mode)
    succeeded = {id_ for id_, row in rows.items() if row.verdict == "broken"}
    assert len(succeeded) >= MUST_BITE
    by_guarantee = {one.guarantee for one in attempts_of(mode) if one.id in succeeded}
    assert by_guarantee == set(Guarantee) - {Guarantee.USABLE}
    text = "\n".join(row.text for row in rows.values())
    assert [seen for seen in SEEN if seen not in text] == []
