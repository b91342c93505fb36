"""An environment of ours in Codex's `environments.toml`, beside those of others. Pure module.

One entry between two marks at the end of the file, and, where it is to be the default, one line between
two marks at its top, where no table can swallow it. Everything else keeps its bytes. What is in our way is
never replaced: an entry of the same name, or another default, is somebody's decision.
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
    """A server of ours as Codex shall know it: at `url` with a token, or a child `argv` of its own."""

    id: str
    argv: tuple[str, ...] = ()
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    default: bool = False  # also where nobody names an environment

    def lines(self) -> list[str]:
        """Its entry."""
        values: dict[str, str | tuple[str, ...]] = {"id": self.id}
        if self.url is not None:
            values["url"] = self.url
            if self.token is not None:
                values["auth_bearer_token"] = self.token
        else:
            values |= {"program": self.argv[0], "args": self.argv[1:]}
        return ["[[environments]]", *(f"{key} = {render_value(value)}" for key, value in values.items())]


def apply(text: str, wish: Environment) -> str:
    """This text with the environment in it; applying again changes nothing.

    Raises:
        Unparsable: the text is not TOML.
        InvalidRequest: something of somebody else is in the way, and which.
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
    """The text without anything of ours; what others wrote between our marks stays.

    Raises:
        Unparsable: it is not TOML.
    """
    document = scan(text)
    return splice(text, [(item.start, item.end, "") for item in _ours(document)])


def has_entry(text: str) -> bool:
    """Is there one of ours?"""
    return any(item.kind is LineKind.TABLES for item in _ours(scan(text)))


def _block(name: str, lines: list[str], newline: str) -> str:
    return "".join(line + newline for line in (_BEGIN.format(name), *lines, _END.format(name)))


def _ours(document: Document) -> Iterator[Item]:
    """Marks, and between them the first table, or the line about the default."""
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
