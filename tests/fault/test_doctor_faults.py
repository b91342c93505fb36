"""A host that refuses, and the doctor: the cause is named, what is lost decides, and repaired it is good.

The faults are those of `test_setup_failures`. A place has a `codex` in it that only says its version: what
the real one does under the same faults is shown in `tests/interop/test_doctor_assert_faults.py`. AppArmor's
own refusals cannot be made here, no kernel of ours has it; they are known by their texts alone.
"""

import contextlib
import errno
import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from holdfast.doctor.facts.rules import FindingSeverity
from holdfast.sandbox.reasons import fingerprints
from holdfast.sandbox.reasons.fingerprint_table import SETUP_ROWS
from tests.fault.test_setup_failures import (
    CASES,
    ELSEWHERE,
    HIDES,
    PR_CAPBSET_DROP,
    ROWS,
    Row,
    Tier,
    remedy,
)
from tests.support import identity, warm
from tests.support.exec_command import WAIT_S, Place, place
from tests.support.faults import NONE, Fault, refused
from tests.support.root_only import root_only
from tests.support.rooted import REASON, rooted
from tests.support.tiers import DEEP

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's"),
]

DOCTOR: Final = ("doctor", "--json")
ASSERT: Final = ("doctor", "assert", "--agent", "holdfast", "--json")
SEEN: Final = re.compile(r"(?P<stage>[\w-]+)(?:: (?P<errno>E[A-Z0-9]+))?, .* \[(?P<id>[\w.]+)\]")
ABOUT: Final = ("sandbox.", "agent.", "temporary")  # a small disk of this machine is not our business
REPAIRED: Final = {"user namespace EPERM", "no pivot_root"}  # tried in every run, the others in `make deep`
CPU_S: Final = 2.0

# Causes in the table that no row shows to the doctor, and why.
NOT_HERE: Final = {
    cause: why for cause, why in ELSEWHERE.items() if cause not in ("proc.absent", "caps.refused")
}
NOT_HERE.update(
    dict.fromkeys(
        (
            "bwrap.arguments",
            "bwrap.view",
            "bwrap.arg0",
            "bwrap.shell",
            "bwrap.mkdir",
            "bwrap.source",
            "bwrap.exec",
        ),
        "about one policy or command, no fault of the host",
    ),
    **{"bwrap.setuid": "needs a set-user-id bubblewrap", "bwrap.other": "what nobody can explain"},
)


@dataclass(frozen=True)
class Said:
    """What one command printed, and its exit code."""

    tree: dict[str, Any]
    code: int

    def finding(self, id_: str) -> dict[str, Any]:
        [one] = [finding for finding in self.tree["findings"] if finding["id"] == id_]
        return dict(one)

    def bad(self) -> set[str]:
        """What is worse than a note, of what these tests are about."""
        worse = [one for one in self.tree["findings"] if one["severity"] in ("degraded", "broken")]
        return {one["id"] for one in worse if one["id"].startswith(ABOUT)}

    def checked(self) -> "Said":
        """The same, if the worst finding decides the exit code, and every cause comes with its remedy."""
        worst = max(FindingSeverity[one["severity"].upper()] for one in self.tree["findings"])
        assert self.code == max(0, worst - 1), self
        for one in self.tree["findings"]:
            assert one["fingerprint"] is None or one["remedy"] == remedy(one["fingerprint"]), one
        return self


@contextlib.contextmanager
def clinic(uid: int, bwrap: str | None = None) -> Iterator[Place]:
    """A place with programs of its own in front of the others: a Codex, and a bubblewrap if one is given."""
    with place(uid) as where, contextlib.ExitStack() as stack:
        (where.top / "bin").mkdir()
        programs = {where.top / "bin" / "codex": "echo codex-cli 0.166.0"}
        if bwrap:
            tools = stack.enter_context(rooted())
            programs[tools / "bwrap"] = bwrap
            (where.top / "tools").symlink_to(tools)
        for program, script in programs.items():
            program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
            program.chmod(0o755)
        where.own()
        yield where


def ask(where: Place, fault: Fault, *commands: tuple[str, ...], path: str = ":/usr/bin:/bin") -> list[Said]:
    """One after the other, each under the fault."""
    env = where.env() | {"PATH": f"{where.top}/bin:{where.top}/tools{path}"}
    return [_asked(where, fault, words, env) for words in commands]


def _asked(where: Place, fault: Fault, words: tuple[str, ...], env: dict[str, str]) -> Said:
    if fault.needs_exec:
        done = subprocess.run(
            fault.wrap(where.uid, [where.python, "-m", "holdfast", *words]),
            cwd=where.workspace,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    else:
        done = warm.of(where.uid).run(words, env=env, cwd=where.workspace, timeout=WAIT_S, fault=fault)
    assert "Traceback" not in done.stderr
    [tree] = done.stdout.splitlines()
    return Said(json.loads(tree), done.returncode)


def errnos(fault: Fault) -> set[int]:
    """What the kernel can have answered."""
    kinds = {
        errno.ENOSPC: fault.limits,
        errno.EROFS: fault.read_only,
        errno.ENOENT: fault.covered,
        errno.EPERM: (*fault.covered, *fault.without, *(one for one in fault.landlock if one == "write")),
        errno.EACCES: tuple(one for one in fault.landlock if one == "read"),
        errno.E2BIG: tuple(one for one in fault.landlock if one == "scope"),
    }
    return {code for code, parts in kinds.items() if parts} | {
        rule.errno for rule in fault.calls if rule.call != "clone3"
    }


def named(one: dict[str, Any], cause: str, fault: Fault, *, errno_told: bool = True) -> None:
    """The finding names this cause, with a stage and an errno that mean it."""
    assert one["fingerprint"] == cause, one
    seen = SEEN.fullmatch(one["evidence"])
    assert seen is not None, one
    assert seen["id"] == cause
    if seen["errno"] is None:
        assert not errno_told, one
        return
    code = getattr(errno, seen["errno"])
    assert code in errnos(fault), one
    if one["id"] not in ("sandbox.bwrap", "agent.codex.sandbox"):  # there it is by the text
        known = fingerprints.by_errno(seen["stage"], code)
        assert known is not None
        assert known.id == cause


def codex_cause(row: Row) -> str | None:
    """Why the sandbox of Codex does not start, which is made of bubblewrap: it does without a fresh /proc."""
    return None if row.bwrap == "proc.masked" else row.bwrap


def lost(row: Row, uid: int) -> set[str]:
    """The findings that must be worse than a note."""
    tier = row.tier_of(uid)
    return {
        *({"sandbox.none"} if tier is Tier.NOTHING else ()),
        *({"sandbox.hosts-by-name"} if tier is Tier.LANDLOCK else ()),
        *({"sandbox.user_namespace"} if tier not in (Tier.NAMESPACES, Tier.AS_ROOT) else ()),
        *({"sandbox.weakened.landlock", "sandbox.weakened.sockets"} if tier is Tier.BWRAP else ()),
        *(f"sandbox.weakened.{word}" for word in row.weakened),
        *({"agent.codex.sandbox"} if codex_cause(row) else ()),
        *({"temporary", "agent.codex.state"} if "read" in row.fault.landlock else ()),
    }


def check_doctor(said: Said, row: Row, uid: int) -> None:
    assert said.bad() == lost(row, uid)
    tier = row.tier_of(uid)
    if tier is Tier.NOTHING:
        assert row.id is not None
        named(said.finding("sandbox.none"), row.id, row.fault)
    elif tier is not Tier.NAMESPACES:
        assert row.id is not None
        named(said.finding("sandbox.user_namespace"), row.id, row.fault)
    if tier is not Tier.NOTHING:
        used = {Tier.NAMESPACES: "user_namespace"}.get(tier, tier.name.lower())
        assert "is the one that is used" in said.finding(f"sandbox.{used}")["title"]
    for word in row.weakened:
        cause = row.landlock if word == "landlock" else row.id
        assert cause is not None
        # The errno is known from a look of its own alone, which a busy machine may cut short.
        named(said.finding(f"sandbox.weakened.{word}"), cause, row.fault, errno_told=word == "landlock")
    if row.landlock:
        named(said.finding("sandbox.landlock"), row.landlock, row.fault)
    if cause := codex_cause(row):
        for id_ in ("sandbox.bwrap", "agent.codex.sandbox"):
            named(said.finding(id_), cause, row.fault, errno_told=False)


def check_assertion(said: Said, row: Row, uid: int) -> None:
    tier, [run] = row.tier_of(uid), said.tree["runs"]
    if tier is Tier.NOTHING:
        assert (said.code, said.tree["verdict"], run["enforcement"]) == (1, "fail", None)
        assert [one["fingerprint"] for one in said.tree["fingerprints"]] == [row.id]
        return
    # Where nothing can be written anyway, no refusal shows that the sandbox does it.
    judged = (2, "unknown") if "read" in row.fault.landlock else (0, "pass")
    assert (said.code, said.tree["verdict"]) == judged
    held = run["enforcement"]
    assert (held["fingerprint"], held["missing"]) == (row.id, [])
    assert Tier(held["backend"]) is (Tier.NAMESPACES if tier is Tier.AS_ROOT else tier)
    assert held["backend"] in run["note"]
    assert row.id is None or row.id in run["note"]


def cases() -> Iterator[Any]:
    """Every fault as a user; as root the first that leads to each tier, the others in `make deep`.

    What `exec` makes of every one of them as root is in `test_setup_failures`.
    """
    seen: set[Tier] = set()
    case: Any
    for case in CASES:
        row, uid = case.values
        again = not uid and row.tier_of(uid) in seen and identity.USER in row.users
        if not uid:
            seen.add(row.tier_of(uid))
        yield pytest.param(row, uid, id=case.id, marks=[*case.marks, DEEP] if again else case.marks)


@pytest.mark.parametrize(("row", "uid"), list(cases()))
def test_the_fault_is_named_and_what_is_lost_decides(row: Row, uid: int) -> None:
    with clinic(uid) as where:
        doctor, asserted = ask(where, row.fault, DOCTOR, ASSERT)
    check_doctor(doctor.checked(), row, uid)
    check_assertion(asserted, row, uid)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=row.marks if row.name in REPAIRED else [*row.marks, DEEP])
        for row in ROWS
        if row.fault is not NONE
    ],
)
def test_nothing_is_left_of_a_fault_that_is_repaired(row: Row) -> None:
    uid = row.users[-1]
    with clinic(uid) as where:
        _, asserted = ask(where, row.fault, DOCTOR, ASSERT)
        doctor, *asserted_again = ask(where, NONE, DOCTOR, *([ASSERT] if asserted.code else []))
    assert doctor.checked().bad() == set()
    assert [one.tree["verdict"] for one in asserted_again] == ["pass"] * len(asserted_again)


def test_capabilities_that_cannot_be_dropped_are_named() -> None:
    fault = Fault(calls=refused("prctl", errno.EPERM, equals=PR_CAPBSET_DROP))
    with clinic(identity.SELF) as where:
        doctor, asserted = ask(where, fault, DOCTOR, ASSERT)
    named(doctor.checked().finding("sandbox.user_namespace"), "caps.refused", fault)
    [run] = asserted.tree["runs"]
    assert (run["enforcement"]["backend"], run["enforcement"]["fingerprint"]) == ("bwrap", "caps.refused")


def test_where_no_message_can_be_sent_the_doctor_still_answers() -> None:
    """Our launcher cannot work there, so of a server only bubblewrap's word is known; `exec` needs none."""
    fault = Fault(calls=refused("sendto", errno.EPERM))
    with clinic(identity.USER) as where:
        doctor, asserted = ask(where, fault, DOCTOR, ASSERT)
        assert doctor.checked().code == 2
        assert doctor.finding("sandbox.none")["fingerprint"] == "lo.newaddr"
        named(doctor.finding("agent.codex.sandbox"), "lo.newaddr", fault)
        assert (asserted.code, asserted.tree["verdict"]) == (0, "pass")
        doctor, asserted = ask(where, NONE, DOCTOR, ASSERT)
        assert (doctor.checked().bad(), asserted.code) == (set(), 0)


@pytest.mark.parametrize(
    ("script", "path", "cause"),
    [
        pytest.param(None, "", "bwrap.missing", id="no bwrap"),
        pytest.param(
            HIDES.format("--perms"),
            ":/usr/bin:/bin",
            "bwrap.option",
            id="no --perms",
            marks=root_only(REASON),
        ),
    ],
)
def test_a_bubblewrap_that_is_missing_or_too_old_is_named_and_costs_nothing(
    script: str | None, path: str, cause: str
) -> None:
    """We confine without it, and Codex brings its own."""
    with clinic(identity.USER, script) as where:
        doctor, asserted = ask(where, NONE, DOCTOR, ASSERT, path=path)
    assert doctor.checked().bad() == set()
    assert (doctor.finding("sandbox.bwrap")["fingerprint"], asserted.code) == (cause, 0)


def test_every_known_cause_is_shown_to_the_doctor_or_says_why_not() -> None:
    rows = {cause for row in ROWS for cause in (row.id, row.landlock, codex_cause(row)) if cause}
    shown = rows | {"caps.refused", "lo.newaddr", "bwrap.missing", "bwrap.option"}
    assert {row.id for row in SETUP_ROWS} == shown | NOT_HERE.keys()


def test_the_doctor_takes_less_than_two_seconds() -> None:
    """Of a processor, with its start: on a busy machine the clock says nothing."""
    with clinic(identity.SELF) as where:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = where.call([where.python, "-m", "holdfast", *DOCTOR])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert json.loads(done.out)["findings"]
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < CPU_S
