"""The results of the escape suite, as a table of guarantees by backend. Pure module."""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Final

from holdfast.doctor.escape.attempts import ATTEMPTS, Attempt, Guarantee
from holdfast.errors import UsageError
from holdfast.sandbox.backends.guarantees import GUARANTEES
from holdfast.sandbox.plan.select import Way

SCHEMA_VERSION: Final = 1
_ORDINARY_WORK: Final = "ordinary-work"
_LEFT_OUT: Final = "left out"
_NO_ATTEMPT: Final = "no attempt can show it"


class Shortfall(enum.StrEnum):
    """What a backend cannot stop, and what it hinders.

    None of these can be closed with the means at hand without closing more. They are reported to the user who
    starts a command (for Landlock alone by `losses.py`), and by this check.
    """

    METADATA = "Landlock does not guard mode, group and times, and no work goes on without chmod"
    VISIBLE = "without a PID namespace the host's processes have names, though nobody can touch them"
    SHARED_MEMORY = "without a mount namespace /dev/shm is the host's, and multiprocessing needs it"
    BOUNDING_SET = "only the privileged may lower it; with no_new_privs nothing can be gained from it"
    CLOSED = "nothing can be created directly in a directory that holds something protected"
    SOCKETS = "without a network namespace every socket would be in the host's network"
    TERMINALS = "a process that may open new terminals may open all of the host's"
    SYSTEM_V = "without an IPC namespace System V memory would be the host's"
    PIPES = "read-only mounts keep nobody from writing into a pipe, and Landlock is not in force"
    UNIX_PATHS = "unix sockets cannot be made, because no broker tells those of the host from its own"
    FIRST_PROCESS = "process 1 is a shell with exactly the rights of the command: nothing is gained from it"
    OLD_PROC = "a fresh /proc could not be mounted, so the host's processes have names"
    LO_DOWN = "lo is down in the network namespace"


ALONE: Final[Mapping[str, frozenset[Shortfall]]] = {
    id_: frozenset(reasons)
    for ids, reasons in (
        (
            "chmod-outside fchmod-outside chown-outside utime-outside locked-chmod secret-chmod",
            (Shortfall.METADATA,),
        ),
        ("proc-of-outside fd-of-outside pidfd-of-outside process-list", (Shortfall.VISIBLE,)),
        ("shared-memory-of-host", (Shortfall.SHARED_MEMORY,)),
        ("none-left set-user-id-program", (Shortfall.BOUNDING_SET,)),
        (
            "use-multiprocessing-fork use-multiprocessing-spawn use-files use-many-files use-hard-links "
            "use-beside-protected use-links use-modes use-nameless use-large-file use-locks use-git "
            "use-sqlite use-exec-own use-pipes use-watching",
            (Shortfall.CLOSED,),
        ),
        ("use-multiprocessing-forkserver use-node", (Shortfall.CLOSED, Shortfall.SOCKETS)),
        ("use-loopback use-loopback-udp use-unix-server", (Shortfall.SOCKETS,)),
        ("use-own-terminal", (Shortfall.TERMINALS,)),
        ("use-sysv-memory", (Shortfall.SYSTEM_V,)),
    )
    for id_ in ids.split()
}


def find_shortfalls(attempt: str, *, privileged: bool, closed: bool) -> frozenset[Shortfall]:
    """Why this attempt must fail by Landlock alone; empty if it must not.

    `closed` means that it starts in a directory that contains something protected.
    """
    reasons = ALONE.get(attempt, frozenset())
    if privileged:
        reasons -= {Shortfall.BOUNDING_SET}
    return reasons if closed else reasons - {Shortfall.CLOSED}


_FIRST: Final = frozenset(
    ["root-of-first", "cwd-of-first", "mem-of-first", "fd-of-first", "environ-of-first", "namespace-of-first"]
)
_NEEDS_LANDLOCK: Final = {  # the minimal ABI
    "pipe-of-host": (1, Shortfall.PIPES),
}
_WEAKENED: Final = {  # the word that a weakened start reports
    "proc": (frozenset(["process-list", "proc-of-outside", "fd-of-outside"]), Shortfall.OLD_PROC),
    "loopback": (
        frozenset(["use-loopback", "use-loopback-udp", "use-localhost", "use-node"]),
        Shortfall.LO_DOWN,
    ),
    "sockets": (frozenset(["use-multiprocessing-forkserver", "use-unix-server"]), Shortfall.UNIX_PATHS),
}


def find_excuses(
    attempt: str, way: Way, *, privileged: bool, abi: int, weakened: Collection[str] = ()
) -> frozenset[Shortfall]:
    """Why this attempt may fail on a host with this Landlock ABI; empty if there is no excuse.

    `weakened` are the words of the start about itself.
    """
    reasons = {reason for word, (ids, reason) in _WEAKENED.items() if word in weakened and attempt in ids}
    if way is Way.LANDLOCK:
        return find_shortfalls(attempt, privileged=privileged, closed=True) | reasons
    if way is Way.BWRAP and attempt in _FIRST:
        reasons.add(Shortfall.FIRST_PROCESS)
    needed, reason = _NEEDS_LANDLOCK.get(attempt, (0, Shortfall.PIPES))
    if needed > (0 if "landlock" in weakened else abi):
        reasons.add(reason)
    return frozenset(reasons)


class CheckState(enum.StrEnum):
    """The state of one guarantee with one backend."""

    HELD = "held"
    PARTLY = "partly"  # this and the next are as declared: no more was promised
    NOT_HELD = "not held"
    BROKEN = "BROKEN"
    UNTRIED = "not tried"


@dataclass(frozen=True, slots=True)
class ScoredAttempt:
    """One attempt and its result. `excuses` are the reasons for which it may fail here."""

    id: str
    verdict: str  # of selfcheck.AttemptVerdict
    text: str
    excuses: tuple[str, ...] = ()

    @property
    def escaped(self) -> bool:
        return self.verdict == "broken" and not self.excuses


@dataclass(frozen=True, slots=True)
class Column:
    """One backend as one user. If nothing could be tried, `reason` says why."""

    user: str
    backend: str
    way: str = ""
    tried: tuple[ScoredAttempt, ...] = ()
    reason: str = ""
    remedy: str | None = None
    wanted: bool = False  # requested by name

    @property
    def name(self) -> str:
        return f"{self.backend} as {self.user}"

    @property
    def ran(self) -> bool:
        return any(one.verdict != "skipped" for one in self.tried)


@dataclass(frozen=True, slots=True)
class Line:
    """One guarantee, and the attempts that test it."""

    id: str
    promise: str
    attempts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Cell:
    state: CheckState
    reason: str = ""


def _lines() -> tuple[Line, ...]:
    rows = [Line(row.id, row.promise, frozenset(row.attempts)) for row in GUARANTEES]
    named = frozenset[str]().union(*(row.attempts for row in rows))
    rest = frozenset(one.id for one in ATTEMPTS) - named
    return (*rows, Line(_ORDINARY_WORK, Guarantee.USABLE.value.capitalize(), rest))


LINES: Final = _lines()


def choose_attempts(patterns: Sequence[str]) -> tuple[Attempt, ...]:
    """The attempts with an id, or a guarantee's id, that matches a pattern; all if there are no patterns.

    Raises:
        UsageError: a pattern matches nothing.
    """
    if not patterns:
        return ATTEMPTS
    guarantees = {id_: line.id for line in LINES for id_ in line.attempts}
    found: set[str] = set()
    for pattern in patterns:
        matching = {
            one.id
            for one in ATTEMPTS
            if fnmatchcase(one.id, pattern) or fnmatchcase(guarantees[one.id], pattern)
        }
        if not matching:
            raise UsageError(
                f"--only {pattern}: no attempt and no guarantee has such a name",
                remedy="the names of the guarantees are in the first column of the table, "
                f"such as {LINES[0].id} or {_ORDINARY_WORK}",
            )
        found |= matching
    return tuple(one for one in ATTEMPTS if one.id in found)


def cell(line: Line, column: Column) -> Cell:
    """The state of one guarantee with one backend."""
    if column.reason:
        return Cell(CheckState.UNTRIED, column.reason)
    if not line.attempts:
        return Cell(CheckState.UNTRIED, _NO_ATTEMPT)
    made = [one for one in column.tried if one.id in line.attempts]
    if not made:
        return Cell(CheckState.UNTRIED, _LEFT_OUT)
    if escaped := [one.id for one in made if one.escaped]:
        return Cell(CheckState.BROKEN, ", ".join(escaped))
    if short := [one for one in made if one.verdict == "broken"]:
        some = any(one.verdict == "held" for one in made)
        reason = "; ".join(sorted({text for one in short for text in one.excuses}))
        return Cell(CheckState.PARTLY if some else CheckState.NOT_HELD, reason)
    skipped = "; ".join(sorted({one.text for one in made if one.verdict == "skipped"}))
    return Cell(
        CheckState.UNTRIED if all(one.verdict == "skipped" for one in made) else CheckState.HELD, skipped
    )


def escapes(columns: Sequence[Column]) -> list[tuple[Column, ScoredAttempt]]:
    """Every attempt that was not refused as required, or did not work, and has no excuse."""
    return [(column, one) for column in columns for one in column.tried if one.escaped]


def exit_code(columns: Sequence[Column]) -> int:
    """0: all as declared, 1: something was not, 2: nothing, or not all that was named, could be tried."""
    if escapes(columns):
        return 1
    if not any(column.ran for column in columns):
        return 2
    return 2 if any(column.wanted and not column.ran for column in columns) else 0


def report(columns: Sequence[Column]) -> dict[str, object]:
    """Plain values, for JSON."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "columns": [
            {
                "user": column.user,
                "backend": column.backend,
                "way": column.way or None,
                "attempts": len(column.tried),
                "reason": column.reason or None,
                "remedy": column.remedy,
            }
            for column in columns
        ],
        "guarantees": [
            {
                "id": line.id,
                "promise": line.promise,
                "cells": [
                    asdict(found) | {"state": found.state.value.lower()}
                    for found in (cell(line, column) for column in columns)
                ],
            }
            for line in LINES
        ],
        "escapes": [
            {"user": column.user, "backend": column.backend, "attempt": one.id, "text": one.text}
            for column, one in escapes(columns)
        ],
    }


def lines(columns: Sequence[Column]) -> list[str]:
    """The table without what was left out, the reasons for what does not hold, and the escapes."""
    rows = [(line.id, [cell(line, column) for column in columns]) for line in LINES]
    reasons = {id_: {found.reason for found in cells} for id_, cells in rows}
    if {_LEFT_OUT} in reasons.values():  # some were selected: hide guarantees without attempts
        rows = [row for row in rows if not reasons[row[0]] <= {_LEFT_OUT, _NO_ATTEMPT}]
    table = [["", *(column.user for column in columns)], ["", *(column.backend for column in columns)]]
    table += [[id_, *(found.state.value for found in cells)] for id_, cells in rows]
    widths = [max(map(len, words)) for words in zip(*table, strict=True)]
    text = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) for row in table]
    return [*(row.rstrip() for row in text), *_reasons(columns, rows), *_summarise(columns)]


def _reasons(columns: Sequence[Column], rows: Sequence[tuple[str, list[Cell]]]) -> list[str]:
    """Each reason once, with the backends and the guarantees that it concerns."""
    told: list[str] = []
    for title, states in (
        ("not held, as declared", (CheckState.PARTLY, CheckState.NOT_HELD)),
        ("not tried", (CheckState.UNTRIED,)),
    ):
        about: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
        for id_, cells in rows:
            for column, found in zip(columns, cells, strict=True):
                if found.state in states:
                    names, ids = about.setdefault(found.reason, ({}, {}))
                    names[column.name], ids[id_] = None, None
        told += ["", f"{title}:"] if about else []
        for reason, (names, ids) in about.items():
            what = "everything" if len(ids) == len(rows) > 1 else ", ".join(ids)
            told.append(f"  {what} ({', '.join(names)}): {reason}")
    return told + [
        f"  try: {remedy}" for remedy in dict.fromkeys(one.remedy for one in columns if one.remedy)
    ]


def _summarise(columns: Sequence[Column]) -> list[str]:
    if found := escapes(columns):
        return ["", "not as it should be:", *(f"  {column.name}: {one.text}" for column, one in found)]
    if not any(column.ran for column in columns):
        return ["", "nothing could be tried"]
    made = sum(one.verdict != "skipped" for column in columns for one in column.tried)
    return ["", f"{made} attempts: everything holds as declared"]
