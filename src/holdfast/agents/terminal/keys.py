"""Typing into a worker's terminal without doing harm. Pure module.

Text is typed only if the worker waits for text, and silence alone is not enough evidence for that. The text
goes in as one paste, so that no line of it submits the rest. Enter follows later and separately, because a
program that gets both at once takes Enter for a part of the paste. Then we check that the program took the
text. Nothing is ever typed at a password prompt.

The caller drives `Delivery`: it passes in what the worker shows, and gets back what to write or how long to
wait.
"""

import enum
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.agents.evidence.evidence import (
    Evidence,
    Source,
    Want,
    Wants,
    WorkerState,
    WorkerStatus,
    Working,
)
from holdfast.agents.evidence.holdups import is_unknown_dialog
from holdfast.errors import InvalidRequest, UsageError

ENTER_AFTER_S: Final = 0.3  # after the text is shown; earlier, a program may take it as part of the paste
SHOWN_WITHIN_S: Final = (
    2.0  # a busy program draws typed text within this time; if not, Enter is pressed anyway
)
CHANGED_WITHIN_S: Final = 5.0  # after Enter
ENTER_AGAIN_S: Final = 1.5  # if the text is still in the input line
MAX_PRESSES: Final = 3  # of Enter
FOOT_LINES: Final = 6  # non-empty lines, around the input line
MAX_LINE: Final = 4095  # bytes of a line that a terminal in canonical mode keeps; the rest is lost
MAX_TEXT: Final = 256 * 1024  # bytes of one paste: a prompt, not a file

_PASTE_START, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
_ENTER: Final = b"\r"
_CONTROL: Final = re.compile(r"[^\S \n\t]|[\x00-\x08\x0e-\x1f\x7f-\x9f]")

KEYS: Final = {
    "enter": _ENTER,
    "tab": b"\t",
    "shift-tab": b"\x1b[Z",
    "escape": b"\x1b",
    "space": b" ",
    "backspace": b"\x7f",
    "delete": b"\x1b[3~",
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    "home": b"\x1b[H",
    "end": b"\x1b[F",
    "page-up": b"\x1b[5~",
    "page-down": b"\x1b[6~",
    **{f"ctrl-{chr(code | 0x60)}": bytes([code]) for code in range(1, 27)},
    **{chr(code): bytes([code]) for code in range(0x21, 0x7F)},
}
_INTERRUPTS: Final = frozenset(("escape", "ctrl-c"))
_TEXT_FOR: Final = frozenset((Want.PROMPT, Want.QUESTION))
_KEYS_FOR: Final = _TEXT_FOR | {Want.DECISION, Want.TRUST, Want.LOGIN, Want.EDITOR, Want.PAGER}


def encode_click(words: str, lines: Sequence[str]) -> bytes:
    """Encode a click on the first character of these words (SGR 1006).

    Empty unless exactly one line shows them, exactly once.
    """
    found = [(row, line) for row, line in enumerate(lines, 1) if words in line]
    if len(found) != 1 or found[0][1].count(words) != 1:
        return b""
    row, line = found[0]
    before = [char for char in line[: line.index(words)] if not unicodedata.combining(char)]
    column = 1 + sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in before)
    return f"\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m".encode()


def refuse_text(status: WorkerStatus, *, screen: Evidence | None, password: bool) -> None:
    """Raise unless text may be typed. `screen` is what it shows right now: newer than any status.

    Raises:
        InvalidRequest: the worker does not accept text in its state, or only silence suggests that it does.
    """
    _refuse_ended(status)
    _refuse_password(status, password=password)
    want = status.detail if status.state is WorkerState.WAITING else ""
    if screen is not None and isinstance(screen.claim, Wants) and want:
        want = screen.claim.want if screen.claim.want not in _TEXT_FOR else want
    if want not in _TEXT_FOR or (screen is not None and isinstance(screen.claim, Working)):
        raise InvalidRequest(
            f"the worker is {_describe(status)} and does not take text", remedy=_REMEDIES.get(want, _WAIT)
        )
    _refuse_unrecognised(status, screen)


def refuse_key(name: str, status: WorkerStatus, *, screen: Evidence | None, password: bool) -> None:
    """Raise unless this key may be pressed. Escape and Ctrl-C may also interrupt a working worker.

    Raises:
        UsageError: there is no such key.
        InvalidRequest: the worker does not accept keys in its state.
    """
    if name not in KEYS:
        raise UsageError(
            f"no key is called {name!r}", remedy=f"Keys are {', '.join(list(KEYS)[:15])}, ctrl-a …"
        )
    _refuse_ended(status)
    if name in _INTERRUPTS and status.state is not WorkerState.STARTING:
        return
    _refuse_password(status, password=password)
    if status.state is not WorkerState.WAITING or status.detail not in _KEYS_FOR:
        raise InvalidRequest(f"the worker is {_describe(status)} and does not take keys", remedy=_WAIT)
    if screen is None or not is_unknown_dialog(screen):  # a user who sends a key to it has seen it
        _refuse_unrecognised(status, screen)


_WAIT: Final = "Wait until it waits for input, or interrupt it with the key escape or ctrl-c."
_ATTACH: Final = "Attach to its terminal and answer there."
_REMEDIES: Final[dict[str, str]] = {
    Want.DECISION: "Answer the question it asks: approve, deny, or send the key of a choice.",
    Want.TRUST: "Decide whether the directory is trusted, with the key of a choice or attached.",
    Want.LOGIN: _ATTACH,
    Want.STDIN_EOF: "Start it with stdin closed, or with the data it is to read.",
    Want.EDITOR: _ATTACH,
    Want.PAGER: "Send the key q to leave the pager.",
    Want.NETWORK: "Answer whether it may reach that host: approve or deny.",
}


def _refuse_ended(status: WorkerStatus) -> None:
    if status.state.ended:
        raise InvalidRequest(f"the worker is {_describe(status)}", remedy="Start another one.")


def _refuse_password(status: WorkerStatus, *, password: bool) -> None:
    if password or status.detail == Want.PASSWORD:
        raise InvalidRequest(
            "the worker's terminal asks for a password: nothing is typed there", remedy=_ATTACH
        )


def _refuse_unrecognised(status: WorkerStatus, screen: Evidence | None) -> None:
    """Raise if only an unchanging screen suggests waiting: it may show a dialog that no record describes."""
    is_guess = not status.evidence or status.evidence[0].source >= Source.STABILITY
    if is_guess or (screen is not None and is_unknown_dialog(screen)):
        raise InvalidRequest("the worker waits, but nothing says for what", remedy=_ATTACH)


def _describe(status: WorkerStatus) -> str:
    return f"{status.state} ({status.detail})" if status.detail else str(status.state)


def encode_paste(text: str, *, bracketed: bool, canonical: bool) -> bytes:
    """Encode a text as the bytes to type, without the Enter that submits it.

    Raises:
        UsageError: it is empty, holds control characters, or is more than the terminal accepts at once; or it
            has several lines and the program does not distinguish a paste.
    """
    if _CONTROL.search(text):
        raise UsageError(
            "the text holds control characters", remedy="Send keys by their names, one at a time."
        )
    data = text.encode("utf-8", "replace")
    if not data.strip():
        raise UsageError("there is no text to type")
    if len(data) > MAX_TEXT:
        raise UsageError(
            f"the text has more than {MAX_TEXT} bytes", remedy="Write it to a file and name that file."
        )
    if bracketed:
        return _PASTE_START + data.replace(b"\n", b"\r") + _PASTE_END
    if b"\n" in data:
        raise UsageError(
            "the program does not tell a paste from typed lines, so each line would be submitted alone",
            remedy="Send one line at a time.",
        )
    if canonical and len(data) > MAX_LINE:
        raise UsageError(f"the terminal keeps {MAX_LINE} bytes of a line and would lose the rest")
    return data


class Outcome(enum.StrEnum):
    SUBMITTED = "submitted"
    TYPED = "typed, not submitted"  # no sign that it was taken: it may still be in the input line


@dataclass(frozen=True, slots=True)
class Write:
    data: bytes


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Check again when something changes, and at this time at the latest."""

    until: float


Step: TypeAlias = Write | WaitFor | Outcome


@dataclass(frozen=True, slots=True)
class Shown:
    """What a worker shows that helps to tell whether it took the typed text.

    `screen` and `foot` are digests of the whole screen and of its last lines, where the input is. `works`
    means that it was seen at work since Enter. `unread` is the input that no process has read yet: a terminal
    echoes typed text by itself, so an echo alone proves nothing.
    """

    screen: bytes
    foot: bytes = b""
    works: bool = False
    unread: int = 0


class Delivery:
    """Delivers one text: call `step` after each write and each look, until it returns an outcome.

    For a program that `shows_work` the text counts as submitted when the program is seen at work, or when its
    input line is as empty as before. For any other program, a changed screen must suffice.
    """

    def __init__(self, data: bytes, *, shows_work: bool = False) -> None:
        self.entered_at: float | None = None  # when Enter was first pressed
        self._data = data
        self._shows_work = shows_work
        self._state = "text"
        self._at = 0.0  # of the last write
        self._seen_at: float | None = None  # when the text was first seen
        self._empty = b""  # the foot before anything was typed …
        self._typed = Shown(b"")  # … and what was seen before Enter
        self._presses = 0

    def step(self, now: float, seen: Shown) -> Step:
        match self._state:
            case "text":
                self._state, self._at = "shown", now
                self._empty, self._typed = seen.foot, seen
                return Write(self._data)
            case "shown":
                if self._seen_at is None and seen.screen != self._typed.screen:
                    self._seen_at = now
                due = self._at + SHOWN_WITHIN_S if self._seen_at is None else self._seen_at + ENTER_AFTER_S
                return self._press(now, seen) if now >= due else WaitFor(due)
            case _:
                return self._judge(now, seen)

    def _press(self, now: float, seen: Shown) -> Write:
        self._state, self._at, self._typed = "entered", now, seen
        self._presses += 1
        self.entered_at = now if self.entered_at is None else self.entered_at
        return Write(_ENTER)

    def _judge(self, now: float, seen: Shown) -> Step:
        if not seen.unread and self._is_taken(seen):
            return Outcome.SUBMITTED
        if self._presses < MAX_PRESSES:
            due = self._at + ENTER_AGAIN_S
            # The text is still there though all input was read: Enter was taken for a part of the text.
            stands = seen.foot == self._typed.foot != self._empty and not seen.unread
            if now >= due and stands:
                return self._press(now, seen)
            if now < due:
                return WaitFor(due)
        late = self._at + CHANGED_WITHIN_S
        return Outcome.TYPED if now >= late else WaitFor(late)

    def _is_taken(self, seen: Shown) -> bool:
        if not self._shows_work:
            return seen.screen != self._typed.screen
        return seen.works or (seen.foot == self._empty != self._typed.foot)
