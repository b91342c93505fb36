"""An environment of ours in Codex's `environments.toml`, beside environments of the user. Pure module.

One entry between two marks at the end of the file, and, if it is to be the default, one line between two
marks at its top, where no table can absorb it. Everything else keeps its bytes. A conflicting entry of the
same name, or another default, is never replaced: it is a decision of the user or of another program.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.agentconfig.document import Document, Item, LineKind, scan
from holdfast.agentconfig.removal import splice
from holdfast.agentconfig.settings import render_value
from holdfast.errors import InvalidRequest

FILE: Final = "environments.toml"
ENTRIES: Final = ("environments",)
DEFAULT: Final = ("default",)

_BEGIN: Final = "# >>> holdfast {} >>> written by holdfast, again at every apply"
_END: Final = "# <<< holdfast {} <<<"
_ENTRY: Final = "entry"
_FIRST: Final = "choice"


@dataclass(frozen=True, slots=True)
class Environment:
    """A server of ours as an entry for Codex: at `url` with a token, or `argv` for Codex to start."""

    id: str
    argv: tuple[str, ...] = ()
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    default: bool = False  # used where no environment is named

    def lines(self) -> list[str]:
        """The lines of its entry."""
        values: dict[str, str | tuple[str, ...]] = {"id": self.id}
        if self.url is not None:
            values["url"] = self.url
            if self.token is not None:
                values["auth_bearer_token"] = self.token
        else:
            values |= {"program": self.argv[0], "args": self.argv[1:]}
        return ["[[environments]]", *(f"{key} = {render_value(value)}" for key, value in values.items())]


def apply(text: str, wish: Environment) -> str:
    """Add the environment to this text; applying again changes nothing.

    Raises:
        Unparsable: the text is not TOML.
        InvalidRequest: an entry or a default that is not ours conflicts; the message names it.
    """
    rest = strip(text)
    document = scan(rest)
    _ensure_free(document, wish)
    newline = document.newline
    body = rest if not rest or rest.endswith("\n") else rest + newline
    entry = _block(_ENTRY, wish.lines(), newline)
    if wish.default:
        first = _block(_FIRST, [f"default = {render_value(wish.id)}"], newline)
        body = splice(body, [(document.top, document.top, first)])
    return body + entry


def strip(text: str) -> str:
    """Remove everything of ours from the text; keep what others wrote between our marks.

    Raises:
        Unparsable: it is not TOML.
    """
    document = scan(text)
    return splice(text, [(item.start, item.end, "") for item in _ours(document)])


def has_entry(text: str) -> bool:
    """Whether the text has an entry of ours."""
    return any(item.kind is LineKind.TABLES for item in _ours(scan(text)))


def _block(name: str, lines: list[str], newline: str) -> str:
    return "".join(line + newline for line in (_BEGIN.format(name), *lines, _END.format(name)))


def _ours(document: Document) -> Iterator[Item]:
    """Our marks, and between them the first table, or the line about the default."""
    opened, tables = "", 0
    for item in document.items:
        mark = document.source(item).strip() if item.kind is LineKind.COMMENT else ""
        for name in (_ENTRY, _FIRST):
            if mark in (_BEGIN.format(name), _END.format(name)):
                opened, tables = (name if mark == _BEGIN.format(name) else ""), 0
                yield item
        if item.kind in (LineKind.TABLE, LineKind.TABLES):
            tables += 1
        if (opened == _ENTRY and _is_entry(item) and tables == 1) or (
            opened == _FIRST and item.kind is LineKind.ASSIGNMENT and item.path == DEFAULT
        ):
            yield item


def _is_entry(item: Item) -> bool:
    return item.kind in (LineKind.TABLES, LineKind.ASSIGNMENT) and item.table == ENTRIES


def _ensure_free(document: Document, wish: Environment) -> None:
    for item in document.items:
        line = document.line(item)
        if item.kind is LineKind.ASSIGNMENT and item.path == ENTRIES and not item.table:
            raise InvalidRequest(
                f"line {line}: environments is one value, to which no entry can be added",
                remedy="write each of them as a table [[environments]]",
            )
        if item.path == (*ENTRIES, "id") and item.value is not None and item.value.string == wish.id:
            raise InvalidRequest(
                f"line {line}: there is an environment {wish.id} that is not ours",
                remedy="give ours another name: --environment NAME",
            )
        if wish.default and item.kind is LineKind.ASSIGNMENT and item.path == DEFAULT:
            raise InvalidRequest(
                f"line {line}: the file has a default already",
                remedy="take that line out, or leave --environment-default out",
            )
