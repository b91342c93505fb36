"""What programs ask their terminal, and what ours answers. Pure module.

Several agent CLIs wait for these answers when they start. An answer says as little as is needed to go on, and
never holds anything that the worker chose, except a mode number: an answer is typed into whatever reads next.
Questions without an answer are the ones that ask for a feature that we do not have (kitty's keyboard and
pictures: silence means no) or for what is none of the worker's business (the clipboard, the title).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_ANSWERS: Final = 4096  # bytes typed in reply to one read: a terminal's input holds no more

_FOREGROUND: Final = "d0d0/d0d0/d0d0"
_BACKGROUND: Final = "0000/0000/0000"  # dark, so that programs choose colours for a dark screen
_KNOWN_MODES: Final = frozenset((1, 25, 47, 1000, 1002, 1003, 1004, 1006, 1047, 1049, 2004))
_CSI_QUERIES: Final = (
    (re.compile(rb"0?c"), "attributes"),
    (re.compile(rb">[0-9;]*c"), "secondary-attributes"),
    (re.compile(rb"=[0-9;]*c"), "unit"),
    (re.compile(rb"5n"), "condition"),
    (re.compile(rb"6n"), "cursor"),
    (re.compile(rb"\?6n"), "extended-cursor"),
    (re.compile(rb"\?996n"), "colour-scheme"),
    (re.compile(rb"\??[0-9;]*n"), "other-status"),
    (re.compile(rb">[0-9]*q"), "version"),
    (re.compile(rb"\?([0-9]{1,5})\$p"), "private-mode"),
    (re.compile(rb"([0-9]{1,5})\$p"), "mode"),
    (re.compile(rb"\?u"), "keyboard"),
    (re.compile(rb"18t"), "size"),
    (re.compile(rb"(?:1[1-9]|2[01])(?:;[0-9;]*)?t"), "window"),
    (re.compile(rb"\?[0-9]*S|\?[0-9]+;[0-9;]*S"), "graphics"),
    (re.compile(rb"[01]?x"), "parameters"),
    (re.compile(rb"\?4m|\?[0-9]+m"), "key-modifiers"),
    (re.compile(rb"[0-9;]*\*y|[0-9;]*\$u|[0-9;]*\$w"), "other-report"),
)
_ASKABLE: Final = frozenset(b"4 5 10 11 12 13 14 17 19 21 22 52 60 61".split())  # colours, and the clipboard
_COLOURS: Final = {b"10": _FOREGROUND, b"11": _BACKGROUND, b"12": _FOREGROUND}


@dataclass(frozen=True, slots=True)
class Query:
    """One question. `argument` is digits only."""

    name: str
    argument: str = ""
    terminator: bytes = b"\x1b\\"


@dataclass(frozen=True, slots=True)
class TerminalView:
    """What the answers depend on: where the cursor is (from 1), how large the screen, which modes are on."""

    row: int = 1
    column: int = 1
    rows: int = 40
    columns: int = 120
    modes: frozenset[int] = frozenset()


def csi_query(body: bytes) -> Query | None:
    """The question in what follows CSI, if it is one."""
    if body[-1:] not in b"cnpqutSxmyw":
        return None
    for pattern, name in _CSI_QUERIES:
        found = pattern.fullmatch(body)
        if found is not None:
            return Query(name, found[1].decode("ascii") if found.re.groups else "")
    return None


def dcs_query(body: bytes) -> Query | None:
    """The question in a device control string: a capability or a setting."""
    if body.startswith(b"+q"):
        return Query("capability")
    return Query("setting") if body.startswith(b"$q") else None


def escape_query(body: bytes) -> Query | None:
    return Query("attributes") if body == b"Z" else None


def osc_query(code: bytes, rest: bytes, *, terminator: bytes) -> Query | None:
    """The question in an operating system command."""
    if code == b"7501" and rest.startswith(b"?"):
        return Query("program-status", terminator=terminator)
    if code == b"99" and re.search(rb"(?:^|:)p=\?", rest.partition(b";")[0]):
        return Query("notifications")
    if rest != b"?" and not rest.endswith(b";?") and not rest.startswith(b"?"):
        return None
    if code in _COLOURS and rest == b"?":
        return Query("colour", code.decode("ascii"), terminator)
    return Query("other-setting") if code in _ASKABLE else None


def answer(query: Query, view: TerminalView) -> bytes:
    """What a terminal of ours replies; nothing to what it does not know."""
    match query.name:
        case "attributes":
            text = "\x1b[?62;22c"  # a VT220 with colours
        case "secondary-attributes":
            text = "\x1b[>1;10;0c"
        case "unit":
            text = "\x1bP!|00000000\x1b\\"
        case "condition":
            text = "\x1b[0n"
        case "cursor":
            text = f"\x1b[{view.row};{view.column}R"
        case "extended-cursor":
            text = f"\x1b[?{view.row};{view.column}R"
        case "colour-scheme":
            text = "\x1b[?997;1n"
        case "version":
            text = "\x1bP>|holdfast\x1b\\"
        case "private-mode":
            mode = int(query.argument)
            known = 1 if mode in view.modes else 2
            text = f"\x1b[?{mode};{known if mode in _KNOWN_MODES else 0}$y"
        case "mode":
            text = f"\x1b[{int(query.argument)};0$y"
        case "size":
            text = f"\x1b[8;{view.rows};{view.columns}t"
        case "colour":
            colour = _COLOURS[query.argument.encode("ascii")]
            return f"\x1b]{query.argument};rgb:{colour}".encode("ascii") + query.terminator
        case "program-status":
            return b"\x1b]7501;?" + query.terminator
        case "capability":
            text = "\x1bP0+r\x1b\\"
        case "setting":
            text = "\x1bP0$r\x1b\\"
        case _:
            text = ""
    return text.encode("ascii")


def answers(queries: Iterable[Query], view: TerminalView) -> bytes:
    """The replies to one read, in order, as far as they fit."""
    replies = b""
    for query in queries:
        reply = answer(query, view)
        if len(replies) + len(reply) > MAX_ANSWERS:
            break
        replies += reply
    return replies
