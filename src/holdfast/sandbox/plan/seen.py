"""What the file system held at the paths of a policy when somebody looked. Pure module."""

import enum
from collections.abc import Mapping
from typing import Final

from holdfast.sandbox.policy.policy import BoundGlob
from holdfast.values import value


class Found(enum.Enum):
    MISSING = enum.auto()
    OUT_OF_SIGHT = enum.auto()  # a directory on the way may not be searched by us
    FILE = enum.auto()  # anything that is not a directory
    DIRECTORY = enum.auto()


@value
class Crossing:
    """A symbolic link on the way: where it really lies, and its text."""

    at: str
    target: str


@value
class Sight:
    """Where a path really leads. The part that is missing is attached as written."""

    real: str
    found: Found
    links: tuple[Crossing, ...] = ()
    names: int = 1  # hard links of a file

    @property
    def exists(self) -> bool:
        return self.found in (Found.FILE, Found.DIRECTORY)


@value
class Match:
    """Something that a deny pattern matches; a link is masked where it leads."""

    glob: BoundGlob
    path: str
    sight: Sight


@value
class GitDir:
    """A directory that a protected `.git` file points to, or that such a directory shares."""

    pointer: str
    path: str


_NONE: Final[Mapping[str, Sight]] = {}


@value
class Seen:
    """`sights` has every path of the bound rules, the roots of patterns, and the git directories."""

    cwd: str
    sights: Mapping[str, Sight] = _NONE
    matches: tuple[Match, ...] = ()
    gitdirs: tuple[GitDir, ...] = ()
