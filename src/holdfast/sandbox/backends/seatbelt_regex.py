r"""Paths and deny patterns as regular expressions of a Seatbelt profile. Pure module.

They stand in the text of the profile, between `#"` and `"`, and are only ever used to refuse. So what
cannot be spelled safely is spelled wider, never narrower: a quote or a backslash of a name becomes any
one character, and what is not printable ASCII becomes any run of such bytes. The text therefore holds
nothing but printable ASCII and no quote, and a backslash only before a mark that it makes literal.

The system matches bytes, so "one character" is one byte, or two to four that are not ASCII.
"""

import re
from collections.abc import Iterator
from typing import Final

from holdfast.sandbox.policy.globs import Pattern
from holdfast.sandbox.policy.paths import join

_END: Final = "($|/)"  # the thing itself, or all below it
_BYTE: Final = "[^/]"
_FOREIGN: Final = "[^ -~]"  # a byte outside of printable ASCII
_FOREIGN_CHARACTER: Final = f"{_FOREIGN}{_FOREIGN}{_FOREIGN}?{_FOREIGN}?"
_CHARACTER: Final = f"({_BYTE}|{_FOREIGN_CHARACTER})"
_ACROSS: Final = "([^/]+/)*"
_MARKS: Final = frozenset(".^$*+?()[]{}|")
_UNSPEAKABLE: Final = frozenset('"\\')
# Members of a class that mean the same in every dialect.
_PLAIN_CLASS: Final = re.compile(r"(?:[A-Za-z0-9](?:-[A-Za-z0-9])?|[_.,@%=~])+")


def metadata(root: str, name: str) -> str:
    """This name at the top of a directory and all below it, in upper and lower case alike.

    The usual file systems of macOS take `.GIT` for `.git`, so a name that is missing could be made so.
    """
    spelled = "".join(
        f"[{char.lower()}{char.upper()}]" if char.isascii() and char.isalpha() else _literal(char)
        for char in name
    )
    return f"^{join(_literal(root), spelled)}{_END}"


def denied(pattern: Pattern) -> str:
    """What the pattern matches, with all below it."""
    if not pattern.tail:
        return f"^{_literal(pattern.root)}{_END}" if pattern.root != "/" else "^/"
    return _below(pattern.root, pattern.tail.split("/"), _END)


def ancestors(pattern: Pattern) -> tuple[str, ...]:
    """The directories below the pattern's root that may hold a match: renamed, the match would be free."""
    parts = pattern.tail.split("/")
    return tuple(dict.fromkeys(_below(pattern.root, parts[:end], "$") for end in range(1, len(parts))))


def _below(root: str, parts: list[str], end: str) -> str:
    text = "^" + join(_literal(root), "")
    for part in parts[:-1]:
        text += _ACROSS if part == "**" else f"{_component(part)}/"
    return f"{text}{_BYTE}" if parts[-1] == "**" else f"{text}{_component(parts[-1])}{end}"


def _literal(text: str) -> str:
    return "".join(map(_spelled, text))


def _spelled(char: str) -> str:
    if char in _UNSPEAKABLE:
        return _BYTE
    if not " " <= char <= "~":
        return f"{_FOREIGN}+"
    return f"\\{char}" if char in _MARKS else char


def _component(part: str) -> str:
    return "".join(_pieces(part))


def _pieces(part: str) -> Iterator[str]:
    """One component of a pattern; the pattern was compiled before, so it is well-formed."""
    at = 0
    while at < len(part):
        char, end = part[at], _class_end(part, at) if part[at] == "[" else None
        if char == "*":
            yield f"{_BYTE}*"
        elif char == "?":
            yield _CHARACTER
        elif end is not None:
            yield _class(part[at + 1 : end])
            at = end
        elif char == "\\":
            at += 1
            yield _spelled(part[at])
        else:
            yield _spelled(char)
        at += 1


def _class_end(part: str, at: int) -> int | None:
    """Where the class that opens at `at` closes: a `]` that comes first belongs to it."""
    negated = part[at + 1 : at + 2] in ("!", "^")
    end = part.find("]", at + 3 if negated else at + 2)
    return end if end >= 0 else None


def _class(body: str) -> str:
    negated = body[0] in "!^"
    members = body[1:] if negated else body
    if not _PLAIN_CLASS.fullmatch(members):
        return _CHARACTER
    return f"([^/{members}]|{_FOREIGN_CHARACTER})" if negated else f"[{members}]"
