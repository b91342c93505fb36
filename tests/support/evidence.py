"""Evidence written as a table: seconds, source, claim, and what was seen."""

from typing import TypeAlias

from holdfast.agents.evidence.evidence import Claim, Denied, Evidence, Source

Row: TypeAlias = tuple[float, Source, Claim] | tuple[float, Source, Claim, str]


def story(*rows: Row) -> list[Evidence]:
    return [Evidence(row[1], row[0], row[2], row[3] if len(row) == 4 else "") for row in rows]


def refused(path: str, *, access: str = "create", fatal: bool = False, count: int = 1) -> Denied:
    """A refusal with everything that explains it."""
    return Denied(
        access,
        path,
        "EROFS",
        "mkdir",
        rule="the home is read-only",
        grant=f"--write {path}",
        fatal=fatal,
        count=count,
    )
