"""What a program must read although the policy hides something above it, as narrow grants. Pure module.

A policy may hide the directory in which the program itself lies: `/tmp` with a checkout in it, a home with an
interpreter in it. Without more the program ends with "Permission denied" before its first instruction. So
what it needs is granted, below what is hidden, and never what is hidden itself.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.sandbox.plan.planner import Sight
from holdfast.sandbox.policy.paths import name, parent, within
from holdfast.sandbox.policy.policy import Access

# A link is only seen where the directory that holds it is: these hold nothing but programs.
_OF_PROGRAMS: Final = ("bin", ".bin", "sbin", "Scripts")


@dataclass(frozen=True, slots=True)
class Refused:
    """`path` is needed and stays hidden, because `hidden` is denied and no narrow grant would show it."""

    path: str
    hidden: str

    def words(self) -> str:
        return f"{self.path} cannot be read: {self._place()}"

    def _place(self) -> str:
        return "it is denied" if self.path == self.hidden else f"inside {self.hidden}, which is denied"


@dataclass(frozen=True, slots=True)
class Uncovered:
    grants: tuple[str, ...]  # to be read as well, shallow first
    refused: tuple[Refused, ...]


def uncover(
    needed: Mapping[str, Sight],
    table: Mapping[str, Access],
    *,
    around: str,
    never: Collection[str] = (),
) -> Uncovered:
    """What to allow so that the `needed` paths are readable under the rules of `table`, by real path.

    A grant that would also show what lies beside `around`, the workspace, is refused, and so is any below a
    denied path of `never`: what is needed was read from files that an earlier worker may have written.
    """
    refused: dict[str, Refused] = {}
    grants: set[str] = set()
    for path, sight in needed.items():
        top = _denier(table, sight.real) if sight.exists else None
        if top is None:
            continue
        if top in never or _is_wide(sight.real, top, table, around):
            refused[path] = Refused(path, top)
        else:
            grants.add(sight.real)
    links = [(path, link.at) for path, sight in needed.items() if sight.exists for link in sight.links]
    for _, at in links:
        top, folder = _denier(table, at), parent(at)
        if top is None or top in never or name(folder) not in _OF_PROGRAMS:
            continue
        if not _is_wide(folder, top, table, around):
            grants.add(folder)
    for path, at in links:
        top = _denier(table, at)
        if top is not None and not any(within(parent(at), grant) for grant in grants):
            refused.setdefault(path, Refused(at, top))
    return Uncovered(_outermost(grants), tuple(refused.values()))


def _is_wide(grant: str, top: str, table: Mapping[str, Access], around: str) -> bool:
    """Would it show more than a program: all that is hidden, or the neighbours of the workspace?"""
    beside = parent(around)
    return within(top, grant) or (within(beside, grant) and _denier(table, beside) == top)


def _denier(table: Mapping[str, Access], path: str) -> str | None:
    """The path of the rule that denies this one; None if it can be read."""
    while path not in table:
        if path == "/":
            return "/"
        path = parent(path)
    return path if table[path] is Access.DENY else None


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for path in sorted(paths):
        if not any(within(path, top) for top in kept):
            kept.append(path)
    return tuple(kept)
