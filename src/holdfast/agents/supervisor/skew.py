"""Whether a daemon runs the code that its client runs, and what to do when it does not. Pure module."""

from enum import StrEnum
from typing import Final

import msgspec

DOWN: Final = "holdfast down"


class Origin(msgspec.Struct, frozen=True):
    """Which code a process runs: `place` is the directory of the package, `build` changes with its files."""

    version: str
    place: str
    build: str


class SkewAction(StrEnum):
    """What a client does with the daemon that it finds."""

    USE = "use"
    REPLACE = "replace"
    TELL = "tell"


def difference(mine: Origin, theirs: Origin | None, *, there: bool) -> str | None:
    """What tells the daemon's code from the client's, in words; None when nothing does.

    `theirs` is None of a daemon that does not say; `there` is whether the daemon's place still exists.
    """
    if theirs is None:
        return "it does not say which version it is, so it is an older one"
    if not there:
        return f"it was installed in {theirs.place}, which is gone"
    if theirs.version != mine.version:
        return f"it is version {theirs.version} of {theirs.place}, and this is {mine.version}"
    if theirs.place != mine.place:
        return f"it was installed in {theirs.place}, and this in {mine.place}"
    if theirs.build != mine.build:
        return f"the files in {theirs.place} have changed since it was started"
    return None


def decide(differs: str | None, *, workers: int, dispatcher: bool) -> SkewAction:
    """Replace a daemon only where that loses nothing.

    Workers go on by themselves only while their exec server does, and a dispatcher would start the daemon of
    its own version again.
    """
    if differs is None:
        return SkewAction.USE
    return SkewAction.TELL if workers or dispatcher else SkewAction.REPLACE


def advice(what: str, differs: str, *, workers: int, dispatcher: bool) -> str:
    """For the user of a daemon that is not replaced: what differs, why it stays, and what to type."""
    because = f"{workers} workers run" if workers else "a dispatcher uses it"
    typed = f"{DOWN} --workers" if workers else DOWN
    again = ", then holdfast up" if dispatcher else ""
    told = f"the {what} runs other code than this command: {differs}"
    return f"{told}; it stays because {because}. To replace it: {typed}{again}"
