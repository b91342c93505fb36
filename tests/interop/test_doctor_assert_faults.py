"""A host that refuses, and the boot assertion: it fails with the cause, and passes when the host is repaired.

The faults are those of `test_setup_failures`; here the real Codex runs into them. `codex doctor` sees none.
"""

import errno
import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.fault.test_setup_failures import ROWS, Row, Tier
from tests.support import assertion, identity
from tests.support.assertion import GOOD, Asserted, Bench
from tests.support.codex import requires_codex
from tests.support.faults import NONE, Fault, refused
from tests.support.tiers import DEEP

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's"),
]

# Where Codex's helper says another thing than bubblewrap by itself, or copes with it.
CODEX_SAYS: Final = {
    "covered entry of /proc": None,  # it goes on with the host's /proc
    "seccomp refused": "seccomp.refused",
    "inside a read-only Landlock sandbox": "fs.eacces",  # it cannot write its state in the first place
}
REPAIRED: Final = {"user namespace EPERM", "no pivot_root"}  # tried in every run, the others in `make deep`
_FIRST: Final = {
    CODEX_SAYS.get(row.name, row.bwrap): row.name for row in reversed(ROWS) if identity.SELF in row.users
}
# One for each cause is tried in every run, and all that Codex says otherwise; the rest in `make deep`.
EVERY_DAY: Final = {*_FIRST.values(), *CODEX_SAYS}
OURS: Final = [
    pytest.param(
        row,
        id=row.name,
        marks=row.marks if row.name in EVERY_DAY else [*row.marks, DEEP],
    )
    for row in ROWS
    if identity.SELF in row.users or row.marks
]


@pytest.fixture(scope="module")
def codex() -> Iterator[Bench]:
    """One for all: nothing in it is changed, and what was proven in it need not be proven again."""
    with assertion.bench(requires_codex()) as made:
        made.configure(GOOD)
        yield made


def under(bench: Bench, fault: Fault, *options: str) -> Asserted:
    return bench.run(*options, fault=fault)


@pytest.mark.parametrize("row", OURS)
def test_codex_on_a_host_that_refuses(codex: Bench, row: Row) -> None:
    cause = CODEX_SAYS.get(row.name, row.bwrap)
    done = under(codex, row.fault)
    if cause is None:
        assert done.code == 0, done
        return
    assert (done.code, done.tree["verdict"]) == (1, "fail"), done
    assert cause in done.causes(), done
    assert done.tree["fingerprints"][0]["remedy"]
    assert done.status("codex exec") == "skipped"


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=row.marks if row.name in REPAIRED else [*row.marks, DEEP])
        for row in ROWS
        if (identity.SELF in row.users or row.marks) and CODEX_SAYS.get(row.name, row.bwrap) is not None
    ],
)
def test_codex_on_a_host_that_was_repaired(codex: Bench, row: Row) -> None:
    """The failure leaves nothing that a later look would believe."""
    assert under(codex, row.fault).code == 1
    assert under(codex, NONE).code == 0


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name)
        for row in ROWS
        if identity.SELF in row.users and (row.tier_of(identity.SELF) is Tier.NOTHING or row.fault is NONE)
    ],
)
def test_our_own_sandbox_where_nothing_confines(row: Row) -> None:
    with assertion.bench() as bench:
        done = under(bench, row.fault)
        assert (done.code, done.causes()) == ((0, []) if row.id is None else (1, [row.id])), done
        assert under(bench, NONE).code == 0


def resources(bench: Bench) -> str:
    """Where Codex has the bubblewrap that it brings."""
    assert bench.binary is not None
    return str(bench.binary.resolve().parents[1] / "codex-resources")


def tools(bench: Bench) -> Path:
    """A PATH without bubblewrap."""
    folder = bench.base / "bin"
    folder.mkdir()
    for name in ("sh", "git"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    return folder


def test_no_bubblewrap_at_all(codex: Bench) -> None:
    path = str(tools(codex))
    fault = Fault(covered=(resources(codex),))
    done = codex.run(fault=fault, PATH=path)
    assert done.code == 1
    assert "bwrap.missing" in done.causes(), done
    assert codex.run(PATH=path).code == 0  # with the one that it brings


@pytest.mark.parametrize(
    ("says", "cause"),
    [
        ("setting up uid map: Permission denied", "uidmap.eacces"),
        ("loopback: Failed RTM_NEWADDR: Operation not permitted", "lo.newaddr"),
        ("setting up uid map: Operation not permitted", "uidmap.eperm"),
    ],
)
def test_a_bubblewrap_that_fails_as_it_does_under_apparmor(codex: Bench, says: str, cause: str) -> None:
    """Said by a stand-in: no kernel here does it."""
    stand_in, real = codex.base / "bwrap", codex.base / "real"
    shutil.copy("/usr/bin/bwrap", real)
    stand_in.write_text(
        f"#!/bin/sh\ncase $1 in --*help|--version) exec {real} $1;; esac\necho 'bwrap: {says}' >&2; exit 1\n"
    )
    stand_in.chmod(0o755)
    done = under(codex, Fault(replaced=(("/usr/bin/bwrap", str(stand_in)),)))
    assert done.code == 1
    assert cause in done.causes(), done
    assert codex.run().code == 0


def test_a_bubblewrap_whose_loopback_cannot_be_set_up(codex: Bench) -> None:
    """Only bubblewrap is under the fault: without `sendto` neither Codex nor we could say anything."""
    stand_in, real = codex.base / "bwrap-under-it", codex.base / "real-bwrap"
    shutil.copy("/usr/bin/bwrap", real)
    under_it = Fault(calls=refused("sendto", errno.EPERM)).wrap(identity.SELF, [str(real)])
    stand_in.write_text(f'#!/bin/sh\nexec {shlex.join(under_it)} "$@"\n')
    stand_in.chmod(0o755)
    done = under(codex, Fault(replaced=(("/usr/bin/bwrap", str(stand_in)),)))
    assert (done.code, done.tree["verdict"]) == (1, "fail"), done
    assert "lo.newaddr" in done.causes(), done
    assert codex.run().code == 0


def test_a_home_on_a_read_only_file_system(codex: Bench) -> None:
    done = under(codex, Fault(read_only=(str(codex.home),)))
    assert (done.code, done.failing()) == (1, [f"keeps its state in {codex.home}"]), done
    assert done.causes() == ["fs.erofs"]
    assert codex.run().code == 0


def test_people_are_told_the_cause_and_what_to_change(codex: Bench) -> None:
    row = next(row for row in ROWS if row.name == "limit of user namespaces")
    told = json.dumps(under(codex, row.fault).tree["fingerprints"])
    assert "max_user_namespaces" in told
