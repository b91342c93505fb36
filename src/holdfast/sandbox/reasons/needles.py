"""What a text must hold for a regular expression to fit it. Pure module.

Finding a word is a hundred times cheaper than trying a pattern at every position, and hardly any line of
a log holds the words of an error. Only what our tables use is understood; anything else makes no promise.
"""

from typing import Final

NOTHING: Final[frozenset[str]] = frozenset()
_LOOKAROUND: Final = ("(?=", "(?!", "(?<=", "(?<!")


def needles(pattern: str) -> frozenset[str]:
    """Words in lower case, one of which is in every fitting text in lower case; empty if that is unsure."""
    return _alternatives(pattern, 0)[0]


def _alternatives(pattern: str, at: int) -> tuple[frozenset[str], int]:
    branches = []
    while True:
        best, at = _sequence(pattern, at)
        branches.append(best)
        if at == len(pattern) or pattern[at] == ")":
            return frozenset().union(*branches) if all(branches) else NOTHING, at
        at += 1


def _sequence(pattern: str, at: int) -> tuple[frozenset[str], int]:
    best, run = NOTHING, ""
    while at < len(pattern) and pattern[at] not in "|)":
        char, inner, at = _atom(pattern, at)
        least, at = _quantifier(pattern, at)
        if char and least is None:
            run += char
            continue
        best = _surer(best, run + char if least else run)
        run = ""
        if least != 0 and inner:
            best = max(best, inner, key=_length)
    return _surer(best, run), at


def _surer(best: frozenset[str], run: str) -> frozenset[str]:
    return max(best, frozenset([run.lower()]), key=_length) if run else best


def _length(words: frozenset[str]) -> int:
    return min(map(len, words), default=0)


def _atom(pattern: str, at: int) -> tuple[str, frozenset[str], int]:
    """The character it stands for, or what a group needs; nothing of both for a class or an anchor."""
    char = pattern[at]
    if char == "(":
        start = at + 1
        if pattern.startswith("(?P<", at):
            start = pattern.index(">", at) + 1
        elif pattern.startswith("(?", at):
            start = at + (4 if pattern.startswith("(?<", at) else 3)
        inner, end = _alternatives(pattern, start)
        return "", NOTHING if pattern.startswith(_LOOKAROUND, at) else inner, end + 1
    if char == "[":
        at += 2 if pattern.startswith("[^", at) else 1
        first = at
        while at == first or pattern[at] != "]":
            at += 2 if pattern[at] == "\\" else 1
        return "", NOTHING, at + 1
    if char == "\\":
        escaped = pattern[at + 1]
        return "" if escaped.isalnum() else escaped, NOTHING, at + {"u": 6, "x": 4}.get(escaped, 2)
    return "" if char in ".^$" else char, NOTHING, at + 1


def _quantifier(pattern: str, at: int) -> tuple[int | None, int]:
    """How often the atom before `at` comes at least; None for exactly once."""
    char = pattern[at : at + 1]
    if char == "{":
        end = pattern.index("}", at)
        least, at = int(pattern[at + 1 : end].split(",")[0]), end + 1
    elif char in ("?", "*", "+"):
        least, at = int(char == "+"), at + 1
    else:
        return None, at
    return least, at + pattern.startswith("?", at)
