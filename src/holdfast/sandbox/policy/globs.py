r"""Deny patterns: bound to a literal directory and matched against paths. Pure module.

`*` and `?` stay inside one component, `**` crosses components, `[...]` is a class (negated by `!` or
`^`; an unclosed `[` is a literal), `{a,b}` are alternatives, `\` takes the next character literally. A
pattern that matches a directory matches everything below it.

Patterns come from outside, so matching must not be slow for any of them. Alternatives and a `**`
inside a component are expanded first. The rest needs no backtracking: between two stars the first place
that fits is as good as any other, and an atomic group expresses that in the regular expression.
"""

import itertools
import re
from collections.abc import Iterator

from holdfast.errors import UsageError
from holdfast.light import Final, value
from holdfast.sandbox.policy.paths import absolute, join, within

# The reference's spelling, in a pattern on the wire, of "below every workspace root".
PROJECT_ROOTS_PREFIX: Final = "codex-project-roots://"

MAX_PATTERN_CHARS: Final = 4096  # the maximum length of a path
MAX_ALTERNATIVES: Final = 256  # per pattern; nested braces multiply them

_SPECIAL: Final = frozenset("*?[]{}\\")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


@value
class Pattern:
    """A pattern below a literal directory. An empty tail means the directory itself."""

    root: str
    tail: str
    regex: re.Pattern[str]

    def matches(self, path: str) -> bool:
        """Whether the pattern matches this absolute path, or a directory above it."""
        if not within(path, self.root):
            return False
        if not self.tail or path == self.root:
            return not self.tail
        parts = path[len(self.root) :].strip("/").split("/")
        return any(self.regex.fullmatch("/".join(parts[:end])) for end in range(1, len(parts) + 1))

    @property
    def max_depth(self) -> int | None:
        """How far below its root a match can begin; None if unlimited."""
        parts = self.tail.split("/")
        return None if "**" in parts else len(parts)

    def __str__(self) -> str:
        """The pattern in a spelling that binds to the same pattern again."""
        root = re.sub(r"([*?\[\]{}\\])", r"\\\1", self.root)
        return join(root, self.tail) if self.tail else root


def bind_pattern(pattern: str, cwd: str, workspace_roots: tuple[str, ...]) -> tuple[Pattern, ...]:
    """Expand a pattern to plain ones, each below a literal directory.

    Raises:
        UsageError: it is not a valid pattern, or expands to too many.
    """
    if not pattern or "\0" in pattern or len(pattern) > MAX_PATTERN_CHARS:
        raise _invalid(pattern)
    roots: tuple[str, ...] = (cwd,)
    if pattern.startswith(PROJECT_ROOTS_PREFIX):
        pattern, roots = pattern.removeprefix(PROJECT_ROOTS_PREFIX).lstrip("/") or "**", workspace_roots
    elif pattern.startswith("/"):
        roots = ("/",)
    bound: list[Pattern] = []
    for plain in _plain(pattern):
        bound += (_below(root, plain) for root in roots)
        if len(bound) > MAX_ALTERNATIVES:
            raise _invalid(pattern)
    return tuple(bound)


def _invalid(pattern: str) -> UsageError:
    return UsageError(f"invalid deny-read glob pattern `{pattern[:80]}`")


def _plain(pattern: str) -> Iterator[str]:
    """Every pattern that this one stands for, without braces, and with `**` only as a whole component."""
    waiting = [pattern]
    while waiting:
        if len(waiting) > MAX_ALTERNATIVES:
            raise _invalid(pattern)
        current = waiting.pop()
        alternatives = _without_brace(current) or _without_inner_stars(current)
        if alternatives:
            waiting += reversed(alternatives)
        else:
            yield current


def _without_brace(pattern: str) -> list[str]:
    """The alternatives of the first brace; none if there is no brace."""
    start, edges, open_braces = -1, list[int](), 0
    for at, char in _outside_classes(pattern):
        if char == "{":
            open_braces += 1
            if open_braces == 1:
                start, edges = at, [at]
        elif char == "," and open_braces == 1:
            edges.append(at)
        elif char == "}" and open_braces:
            open_braces -= 1
            if not open_braces:
                edges.append(at)
                return [
                    pattern[:start] + pattern[left + 1 : right] + pattern[at + 1 :]
                    for left, right in itertools.pairwise(edges)
                ]
    if open_braces:
        raise _invalid(pattern)
    return []


def _without_inner_stars(pattern: str) -> list[str]:
    """The meanings of `a**b`: `a*b` and, across components, `a*/**/*b`; an empty list if there is none."""
    parts = pattern.split("/")
    for number, part in enumerate(parts):
        if part == "**":
            continue
        stars = [at for at, char in _outside_classes(part) if char == "*"]
        pair = next((at for at in stars if at + 1 in stars), None)
        if pair is not None:
            left, right = part[:pair], part[pair:].lstrip("*")
            across = [f"{left}*", "**", f"*{right}"]
            within_one = [f"{left}*{right}"]
            return [
                "/".join([*parts[:number], *middle, *parts[number + 1 :]]) for middle in (within_one, across)
            ]
    return []


def _outside_classes(text: str) -> Iterator[tuple[int, str]]:
    """Characters that may have a special meaning, with their positions: not escaped, not inside a class."""
    at = 0
    while at < len(text):
        end = _class_end(text, at) if text[at] == "[" else None
        if text[at] == "\\":
            at += 2
        elif end is not None:
            at = end + 1
        else:
            yield at, text[at]
            at += 1


def _class_end(text: str, at: int) -> int | None:
    """The position where the class that opens at `at` closes; None if it does not.

    A `]` that comes first belongs to the class; a slash ends it.
    """
    negated = text[at + 1 : at + 2] in ("!", "^")
    end = text.find("]", at + 3 if negated else at + 2)
    return None if end < 0 or "/" in text[at:end] else end


def _below(root: str, pattern: str) -> Pattern:
    """Move the leading literal components of the pattern to its root."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _invalid(pattern)
    literal: list[str] = []
    while parts and not _SPECIAL & set(_ESCAPED.sub("", parts[0])):
        literal.append(_ESCAPED.sub(r"\1", parts.pop(0)))
    try:
        regex = re.compile(_tail(parts), re.DOTALL)
    except re.error:
        raise _invalid(pattern) from None
    return Pattern(absolute("/".join(literal) or ".", root), "/".join(parts), regex)


def _tail(parts: list[str]) -> str:
    """A regular expression for the path below the root."""
    runs: list[list[str]] = [[]]
    for part in parts:
        if part == "**":
            runs.append([])
        else:
            runs[-1].append(_component(part))
    if len(runs) == 1:
        return "/".join(runs[0])
    first, *middle, last = runs
    between = "".join(f"(?>(?:[^/]+/)*?{''.join(f'{part}/' for part in run)})" for run in middle if run)
    end = "(?:[^/]+/)*" + "/".join(last) if last else ".+"
    return "".join(f"{part}/" for part in first) + between + end


def _component(part: str) -> str:
    chunks = [""]
    at = 0
    while at < len(part):
        char, end = part[at], _class_end(part, at) if part[at] == "[" else None
        if char == "*":
            chunks.append("")
        elif char == "?":
            chunks[-1] += "[^/]"
        elif end is not None:
            chunks[-1] += _class(part[at + 1 : end])
            at = end
        elif char == "\\":
            at += 1
            if at == len(part):
                raise _invalid(part)
            chunks[-1] += re.escape(part[at])
        else:
            chunks[-1] += re.escape(char)
        at += 1
    if len(chunks) == 1:
        return chunks[0]
    first, *middle, last = chunks
    return first + "".join(f"(?>[^/]*?{chunk})" for chunk in middle) + f"[^/]*{last}"


def _class(body: str) -> str:
    negated = body[0] in "!^"
    members = re.sub(r"([\\\[\]^&~|])", r"\\\1", body[1:] if negated else body)
    # Escape a range from or to `-`: a future Python may read `--` as a set difference.
    members = re.sub("--", lambda found: r"-\-" if found.start() else r"\--", members)
    # Like `?`, a class stays inside one component, even `[!a]` or `[+-9]`.
    return f"(?!/)[{'^' if negated else ''}{members}]"
