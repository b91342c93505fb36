"""Typing into a worker's terminal without doing harm. Pure module.

Text is typed only where the worker waits for text, for a reason better than silence. It goes in as one paste,
so that no line of it submits the rest; Enter follows later and apart, since a program that gets both at once
takes Enter for a part of the paste; then something must change. Nothing is ever typed at a password prompt.

`Delivery` is driven by its owner: it says what to write and how long to wait, and is told what was seen.
"""

import enum
import re
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

ENTER_AFTER_S: Final = 0.1  # a program that gets Enter sooner may take it for a part of the paste
SHOWN_WITHIN_S: Final = (
    2.0  # a busy program draws what was typed in this time; if not, Enter is tried all the same
)
CHANGED_WITHIN_S: Final = 5.0  # after Enter
MAX_LINE: Final = 4095  # bytes that a terminal keeps of a line that is read as a line; the rest is lost
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


def refuse_text(status: WorkerStatus, *, screen: Evidence | None, password: bool) -> None:
    """Nothing, where text may be typed. `screen` is what it shows right now: newer than any status.

    Raises:
        InvalidRequest: the worker is not in a state that takes text, or nothing but silence says that it is.
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
    """Nothing, where this key may be pressed. Escape and Ctrl-C also interrupt one that is at work.

    Raises:
        UsageError: there is no such key.
        InvalidRequest: the worker is not in a state that takes keys.
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
    """That the screen stands still is no reason to type: it may show a dialog that nobody has described."""
    is_guess = not status.evidence or status.evidence[0].source >= Source.STABILITY
    if is_guess or (screen is not None and is_unknown_dialog(screen)):
        raise InvalidRequest("the worker waits, but nothing says for what", remedy=_ATTACH)


def _describe(status: WorkerStatus) -> str:
    return f"{status.state} ({status.detail})" if status.detail else str(status.state)


def encode_paste(text: str, *, bracketed: bool, canonical: bool) -> bytes:
    """The bytes that enter a text, without the Enter that submits it.

    Raises:
        UsageError: it holds control characters, or more than the terminal takes at once.
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
    TYPED = "typed, not submitted"  # nothing changed after Enter: it may still stand in the input line


@dataclass(frozen=True, slots=True)
class Write:
    data: bytes


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Look again when something changes, and at this time at the latest."""

    until: float


Step: TypeAlias = Write | WaitFor | Outcome


class Delivery:
    """One text on its way: `step` is called after each write and each look, until there is an outcome."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._state = "text"
        self._at = 0.0  # of the last write
        self._before = b""  # what was seen before it

    def step(self, now: float, seen: bytes, *, unread: int = 0) -> Step:
        """`seen` is any digest of what the worker shows: its screen, title and status.

        `unread` is what its terminal holds that nobody took: the terminal itself shows what is typed.
        """
        match self._state:
            case "text":
                return self._write("shown", self._data, now, seen)
            case "shown":
                is_shown = seen != self._before and now >= self._at + ENTER_AFTER_S
                if is_shown or now >= self._at + SHOWN_WITHIN_S:
                    return self._write("changed", _ENTER, now, seen)
                until = ENTER_AFTER_S if seen != self._before else SHOWN_WITHIN_S
                return WaitFor(self._at + until)
            case _:
                if seen != self._before and not unread:
                    return Outcome.SUBMITTED
                late = self._at + CHANGED_WITHIN_S
                return Outcome.TYPED if now >= late else WaitFor(late)

    def _write(self, state: str, data: bytes, now: float, seen: bytes) -> Write:
        self._state, self._at, self._before = state, now, seen
        return Write(data)
