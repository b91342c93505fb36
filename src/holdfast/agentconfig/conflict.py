"""What was found in the user's content that concerns us, and what was done about it. Pure module."""

import enum
from dataclasses import dataclass

from holdfast.agentconfig.document import Plain
from holdfast.agentconfig.settings import PROFILE, Key
from holdfast.errors import InvalidRequest


class ConflictKind(enum.StrEnum):
    """How user content and owned keys met; the value is a word for machines."""

    REPLACED = "replaced"  # an owned key set by the user: taken out, ours is in force
    REWRITTEN = "rewritten"  # an inline table: taken out, its other keys carried into the block
    RIVAL = "rival"  # the other vocabulary: taken out, it would silence ours
    STRICTER = "stricter"  # the user asked for less than the decision, and gets that
    MERGED = "merged"  # writable roots of the user, kept before ours
    RELATIVE_ROOT = "relative-root"  # of those, one that depended on where the file lies; must it exist?
    PROFILE = "profile"  # `profile = ...`, with which Codex does not start
    UNSUPPORTED = "unsupported"  # a value with which Codex does not start
    LEGACY = "legacy"  # set by an older program, not by the user: removed or taken out
    EDITED = "edited"  # a block of ours that somebody changed: our keys are written anew
    OLD_FORMAT = "old-format"  # a block of ours in another version: written anew
    UNPAIRED = "unpaired"  # a begin or end mark without its other half
    STALE = "stale"  # taken out once, and set again since: the new one counts
    DAMAGED = "damaged"  # taken out once, and no longer readable: left as a comment


@dataclass(frozen=True, slots=True)
class Conflict:
    """One meeting. `line` counts in the text as the user knows it, without our blocks."""

    kind: ConflictKind
    key: Key
    line: int
    detail: str


@dataclass(frozen=True, slots=True)
class Intent:
    """What the user had asked for under a key that is now ours; no value where it may be a secret."""

    key: Key
    value: Plain
    line: int


class ReservedName(InvalidRequest):
    """The user has a permission profile of the name that we need; nothing is merged into it."""

    def __init__(self, line: int) -> None:
        super().__init__(
            f"line {line}: a permission profile of the user is called {PROFILE!r}",
            remedy="give that profile another name, there and in default_permissions",
        )
        self.line = line
