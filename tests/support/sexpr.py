"""A reader of s-expressions, just enough to see the shape of a Seatbelt profile."""

from typing import Final, TypeAlias

Shape: TypeAlias = "str | tuple[Shape, ...]"
REGEX: Final = '#""'  # stands for every regular expression

_DELIMITERS: Final = frozenset('()"; \n\t')


def read(text: str, *, raw: bool = False) -> tuple[Shape, ...]:
    """All expressions of a text, with every regular expression made the same unless they are wanted `raw`.

    Raises:
        ValueError: brackets or quotes do not match.
    """
    stack: list[list[Shape]] = [[]]
    at = 0
    while at < len(text):
        char = text[at]
        if char == "(":
            stack.append([])
        elif char == ")":
            done = stack.pop()
            if not stack:
                raise ValueError("closes what was not opened")
            stack[-1].append(tuple(done))
        elif char == ";":
            at = text.index("\n", at)
        elif char == '"' or text.startswith('#"', at):
            opened = text.index('"', at) + 1
            closed = text.index('"', opened)
            stack[-1].append(REGEX if char == "#" and not raw else text[at : closed + 1])
            at = closed
        elif not char.isspace():
            end = at
            while end < len(text) and text[end] not in _DELIMITERS:
                end += 1
            stack[-1].append(text[at:end])
            at = end - 1
        at += 1
    if len(stack) != 1:
        raise ValueError("opens what is not closed")
    return tuple(stack[0])
