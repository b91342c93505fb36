"""What the escape suite found, as a table of guarantees by backend. Pure module."""

import enum
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Final

from holdfast.doctor.escape.attempts import ATTEMPTS, Attempt, Guarantee
from holdfast.errors import UsageError
from holdfast.sandbox.backends.guarantees import GUARANTEES

SCHEMA_VERSION: Final = 1
_ORDINARY_WORK: Final = "ordinary-work"
_LEFT_OUT: Final = "left out"
_NO_ATTEMPT: Final = "no attempt can show it"


class CheckState(enum.StrEnum):
    """What can be said of one guarantee with one backend."""

    HELD = "held"
    PARTLY = "partly"  # this and the next as declared: nobody was promised more
    NOT_HELD = "not held"
    BROKEN = "BROKEN"
    UNTRIED = "not tried"


@dataclass(frozen=True, slots=True)
class ScoredAttempt:
    """One attempt and what came of it. `excuses` are the reasons for which it may fail here."""

    id: str
    verdict: str  # of selfcheck.Verdict
    text: str
    excuses: tuple[str, ...] = ()

    @property
    def escaped(self) -> bool:
        return self.verdict == "broken" and not self.excuses


@dataclass(frozen=True, slots=True)
class Column:
    """One backend as one user. Where nothing could be tried, `reason` says why."""

    user: str
    backend: str
    way: str = ""
    tried: tuple[ScoredAttempt, ...] = ()
    reason: str = ""
    remedy: str | None = None
    wanted: bool = False  # asked for by name

    @property
    def name(self) -> str:
        return f"{self.backend} as {self.user}"

    @property
    def ran(self) -> bool:
        return any(one.verdict != "skipped" for one in self.tried)


@dataclass(frozen=True, slots=True)
class Line:
    """One guarantee, and the attempts that show it."""

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


def chosen(patterns: Sequence[str]) -> tuple[Attempt, ...]:
    """The attempts whose id, or whose guarantee's id, matches one of these; all if there are none.

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
    """What is known of one guarantee with one backend."""
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
    """Everything that was not refused as it should be, or did not work, and has no excuse."""
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
    """The table without what was left out, the reasons for what is not held in it, and what escaped."""
    rows = [(line.id, [cell(line, column) for column in columns]) for line in LINES]
    reasons = {id_: {found.reason for found in cells} for id_, cells in rows}
    if {_LEFT_OUT} in reasons.values():  # only some were wanted: what has no attempt was not among them
        rows = [row for row in rows if not reasons[row[0]] <= {_LEFT_OUT, _NO_ATTEMPT}]
    table = [["", *(column.user for column in columns)], ["", *(column.backend for column in columns)]]
    table += [[id_, *(found.state.value for found in cells)] for id_, cells in rows]
    widths = [max(map(len, words)) for words in zip(*table, strict=True)]
    text = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) for row in table]
    return [*(row.rstrip() for row in text), *_reasons(columns, rows), *_ending(columns)]


def _reasons(columns: Sequence[Column], rows: Sequence[tuple[str, list[Cell]]]) -> list[str]:
    """Each reason once, with the backends and the guarantees that it is about."""
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


def _ending(columns: Sequence[Column]) -> list[str]:
    if found := escapes(columns):
        return ["", "not as it should be:", *(f"  {column.name}: {one.text}" for column, one in found)]
    if not any(column.ran for column in columns):
        return ["", "nothing could be tried"]
    made = sum(one.verdict != "skipped" for column in columns for one in column.tried)
    return ["", f"{made} attempts: everything holds as declared"]
