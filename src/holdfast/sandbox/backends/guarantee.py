"""One guarantee of the sandbox, and how far each backend keeps it. Pure module."""

import enum
from dataclasses import dataclass
from typing import Final

BACKENDS: Final = ("namespaces", "bwrap", "landlock")


class GuaranteeLevel(enum.StrEnum):
    HOLDS = "holds"
    PARTLY = "partly"
    NOT = "no"


@dataclass(frozen=True, slots=True)
class Holding:
    """How far a guarantee holds, and how, or why not."""

    verdict: GuaranteeLevel
    why: str


@dataclass(frozen=True, slots=True)
class GuaranteeRow:
    """One guarantee. Without `attempts` it is shown by tests of its own, or not at all."""

    id: str
    promise: str
    namespaces: Holding
    bwrap: Holding
    landlock: Holding
    attempts: tuple[str, ...] = ()

    def under(self, backend: str) -> Holding:
        """How far it holds with one of `BACKENDS`."""
        columns = (self.namespaces, self.bwrap, self.landlock)
        return dict(zip(BACKENDS, columns, strict=True))[backend]


def holds(why: str) -> Holding:
    return Holding(GuaranteeLevel.HOLDS, why)


def partly(why: str) -> Holding:
    return Holding(GuaranteeLevel.PARTLY, why)


def no(why: str) -> Holding:
    return Holding(GuaranteeLevel.NOT, why)


def tried(ids: str) -> tuple[str, ...]:
    """Ids of attempts, written one after the other."""
    return tuple(ids.split())
