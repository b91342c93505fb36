"""Runs of lines that stand in two places of the source.

python -m tools.duplicates       list them; exit code 1 if there is one

Only what functions do counts: no comments, docstrings, imports, indentation, parameters or fields.
Six lines in a row are a run.
"""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
SRC: Final = ROOT / "src"
RUN: Final = 6  # lines
BRACKETS: Final = frozenset("()[]{},:")
DECLARES: Final = re.compile(
    r"\w+ : |(\w+) = \1 ,$|\*+ ?\w*,?"
)  # a parameter, a field, or one passed on as it is


class Line(NamedTuple):
    number: int
    text: str


class Duplicate(NamedTuple):
    here: str
    here_line: int
    there: str
    there_line: int
    lines: int


def lines_that_count(source: str) -> list[Line]:
    """Those that do something, without indentation and comments."""
    left_out: set[int] = set()
    logic: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            logic.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (is_text or isinstance(node, (ast.Import, ast.ImportFrom))):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    words: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (
            tokenize.COMMENT,
            tokenize.NL,
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.DEDENT,
        ):
            words[token.start[0]].append(token.string)
    counts = logic - left_out
    counted = ((number, " ".join(said)) for number, said in sorted(words.items()) if number in counts)
    return [
        Line(number, text)
        for number, text in counted
        if set(text) - BRACKETS - {" "} and not DECLARES.match(text)
    ]


def find(sources: Mapping[str, str], run: int = RUN) -> Iterator[Duplicate]:
    """Each pair of places once, as long as it goes."""
    lines = {name: lines_that_count(source) for name, source in sources.items()}
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, counted in lines.items():
        for at in range(len(counted) - run + 1):
            places[tuple(line.text for line in counted[at : at + run])].append((name, at))
    for (here, at), (there, other) in _pairs(places.values()):
        ours, theirs = lines[here], lines[there]
        if at and other and ours[at - 1].text == theirs[other - 1].text:
            continue  # the middle of a longer one
        length = 0
        while (
            at + length < len(ours)
            and other + length < len(theirs)
            and ours[at + length].text == theirs[other + length].text
        ):
            length += 1
        yield Duplicate(here, ours[at].number, there, theirs[other].number, length)


def _pairs(groups: Iterable[list[tuple[str, int]]]) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    for group in groups:
        for number, one in enumerate(group):
            for other in group[number + 1 :]:
                yield one, other


def of_source() -> list[Duplicate]:
    sources = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sorted(SRC.rglob("*.py"))}
    return sorted(find(sources))


def main() -> None:
    found = of_source()
    for one in found:
        print(f"{one.here}:{one.here_line} and {one.there}:{one.there_line}: {one.lines} lines")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
