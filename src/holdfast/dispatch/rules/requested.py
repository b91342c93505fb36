"""What a person or the checks said about the work, in words for the next run. Pure module."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.board.rules.rows import Comment, Detail
from holdfast.board.rules.transitions import Move

MAX_WORDS: Final = 16_000  # characters of all of it; with a task's body it still fits into a prompt
MAX_ONE: Final = 6_000  # of one comment: the end of a check's output is there
MAX_LINE: Final = 300  # of a line of the diff
FILE: Final = ".holdfast/reviewed.patch"  # in the workspace: what was reviewed
_ELSEWHERE: Final = (
    f"The work was done on another machine and is not here; its diff is in {FILE}: apply it first."
)
_SENT_BACK: Final = frozenset({Move.UNBLOCK, Move.RETRY})
_HUNK: Final = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def changes(who: str, comments: Sequence[Comment], diff: str, *, here: bool) -> str:
    """The changes that a review asked for, each with the line of the reviewed diff that it is about.

    `here`: the work that was reviewed is in the workspace; otherwise it was done on another host.
    """
    where = "Make them in this workspace, where the work still is." if here else _ELSEWHERE
    parts = [f"# Changes that {who} asked for\n{where}", *(_one(comment, diff) for comment in comments)]
    return _cut("\n\n".join(parts), MAX_WORDS)


def answer(detail: Detail) -> str:
    """What a person said who sent the task back to work, with the question of a worker that it answers."""
    newest = next((event for event in reversed(detail.events) if event.kind in _SENT_BACK), None)
    said = None if newest is None else newest.payload.get("reason")
    if newest is None or not isinstance(said, str):
        return ""
    asked = [run.summary for run in detail.runs if run.outcome == "blocked"][-1:]
    question = asked[0] if asked and newest.kind == Move.UNBLOCK else None
    head = f"# What {newest.actor} {'answered' if question else 'said when sending it back to work'}"
    quoted = [_quoted(_cut(question, MAX_ONE))] if question else []
    return "\n\n".join([head, *quoted, _cut(said, MAX_ONE)])


def diff_line(diff: str, path: str, line: int) -> str | None:
    """The line of a file after the change, with its sign, if the diff shows it."""
    return next((text for name, number, text in _lines(diff) if (name, number) == (path, line)), None)


def _lines(diff: str) -> Iterator[tuple[str, int, str]]:
    """Every line that a diff shows of files as they are after it."""
    path, number, inside = "", 0, False
    for text in diff.splitlines():
        if text.startswith("diff --git "):
            inside = False
        elif not inside and text.startswith("+++ "):
            path = text[4:].removeprefix("b/").rstrip("\t")
        elif match := _HUNK.match(text):
            number, inside = int(match[1]), True
        elif inside and text[:1] in ("+", " ", ""):
            yield path, number, text
            number += 1


def _one(comment: Comment, diff: str) -> str:
    if not comment.path or comment.line is None:
        return _quoted(_cut(comment.body, MAX_ONE))
    about = diff_line(diff, comment.path, comment.line)
    shown = "" if about is None else f"\n    {about[:MAX_LINE]}"
    return f"## {comment.path}:{comment.line}{shown}\n{_quoted(_cut(comment.body, MAX_ONE))}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[… cut]"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
