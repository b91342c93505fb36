"""Reads the tables of a record and reports what is wrong, where, and what is allowed. Pure module.

Signs are words with wildcards, not regular expressions, so no output of a worker can make matching slow.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from holdfast import decoding
from holdfast.agents.evidence.evidence import Failure
from holdfast.errors import UsageError

MAX_ROWS: Final = 100  # of one list in a record
MAX_WORDS: Final = 300  # characters of one sign
MAX_GAPS: Final = 3  # wildcards in a sign
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# Variables that affect us, the dynamic loader, an interpreter or a shell before the CLI itself runs.
_OURS: Final = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|PWD|TMPDIR|TERM|ENV|IFS|BASH_ENV|GCONV_PATH|LOCPATH|NODE_OPTIONS"
    r"|XDG_RUNTIME_DIR|SSH_AUTH_SOCK|DBUS_\w+|LD_\w+|PYTHON\w+|PERL\w+|RUBY\w+|HOLDFAST_\w+",
    re.IGNORECASE,
)
_BRACED: Final = re.compile(r"\{([a-z_]+)\}")
ARGUMENT_WORDS: Final = ("prompt", "model", "unattended", "state")
PROVIDER_WORDS: Final = ("base", "key", "model", "state")
MCP_WORDS: Final = ("command", "options", "argv", "state")

T = TypeVar("T", bound=msgspec.Struct)
_ALL_WORDS: Final = {*ARGUMENT_WORDS, *PROVIDER_WORDS, *MCP_WORDS, "home", "work"}


class RecordReader:
    """Validates the values of one record; errors name the place."""

    def __init__(self, where: str) -> None:
        self._where = where

    def wrong(self, key: str, what: str, allowed: str | Collection[str] = "") -> UsageError:
        allowed = allowed if isinstance(allowed, str) else f"one of: {', '.join(sorted(allowed))}"
        return UsageError(f"{self._where} {key}".rstrip() + f": {what}", remedy=allowed or None)

    def convert(self, tree: object, kind: type[T], key: str) -> T:
        if not isinstance(tree, dict):
            raise self.wrong(key, "is not a table")
        known = kind.__struct_fields__
        for name in tree:
            if name not in known:
                raise self.wrong(f"{key}.{name}".lstrip("."), "is not known", known)
        try:
            made = decoding.convert(tree, kind)
        except msgspec.ValidationError as exc:
            what, _, place = str(exc).partition(" - at `$")
            inner = place.rstrip("`").replace("[...]", "")
            raise self.wrong(f"{key}{inner}".lstrip("."), what) from None
        for name in known:
            value = getattr(made, name)
            if isinstance(value, list | dict) and len(value) > MAX_ROWS:
                raise self.wrong(f"{key}.{name}".lstrip("."), f"has more than {MAX_ROWS} rows")
        return made

    def choose(self, key: str, value: str, allowed: Collection[str]) -> str:
        if value not in allowed:
            raise self.wrong(key, f"`{value}` is not known", allowed)
        return value

    def failure(self, key: str, value: str) -> Failure | None:
        return Failure(self.choose(key, value, [one.value for one in Failure])) if value else None

    def templates(self, key: str, texts: Sequence[str], words: Collection[str]) -> tuple[str, ...]:
        for text in texts:
            if "\0" in text:
                raise self.wrong(key, "holds a NUL character")
            for word in _BRACED.findall(text):
                if word in _ALL_WORDS and word not in words:
                    raise self.wrong(key, f"{{{word}}} has no meaning here", [f"{{{one}}}" for one in words])
        return tuple(texts)

    def variables(
        self, key: str, table: Mapping[str, str], words: Collection[str] = (), but: str = ""
    ) -> dict[str, str]:
        for name, value in table.items():
            if not _VARIABLE.fullmatch(name):
                raise self.wrong(f"{key}.{name}", "is not the name of a variable")
            if _OURS.fullmatch(name) and name != but:
                raise self.wrong(f"{key}.{name}", "is not the record's to set", "variables of the CLI itself")
            self.templates(f"{key}.{name}", [value], words)
        return dict(table)

    def files(self, key: str, table: Mapping[str, str], words: Collection[str]) -> dict[str, str]:
        for path, text in table.items():
            if is_unsafe(path):
                raise self.wrong(f"{key}.{path}", "is not a path below the state directory")
            self.templates(f"{key}.{path}", [text], words)
        return dict(table)

    def pattern(self, key: str, words: str, gaps: Mapping[str, str] = {}) -> re.Pattern[str]:
        """Compile words as they appear on the screen or in the output.

        `*` matches anything within the line. A leading `^` and a trailing `$` anchor to the line's ends.
        """
        if not words.strip("^$* ") or len(words) > MAX_WORDS or "\n" in words:
            raise self.wrong(key, f"are not words of one line, at most {MAX_WORDS} characters")
        start, end = words.startswith("^"), words.endswith("$")
        made, free, seen = "", 0, set[str]()
        for part in re.split(r"(\*|\{[a-z_]+\})", words[start : len(words) - end]):
            if part == "*" or part == "{cause}":
                free += 1
            if part == "*":
                made += r"[^\n]{0,200}?"
            elif part[1:-1] in gaps and part.startswith("{"):
                if part in seen:
                    raise self.wrong(key, f"{part} is there twice")
                seen.add(part)
                made += gaps[part[1:-1]]
            elif _BRACED.fullmatch(part) and gaps:
                raise self.wrong(key, f"{part} has no meaning here", [f"{{{one}}}" for one in gaps])
            else:
                made += re.escape(part)
        if free > MAX_GAPS:
            raise self.wrong(key, f"has more than {MAX_GAPS} places where anything may stand")
        return re.compile(("^ *" if start else "") + made + (" *$" if end else ""), re.MULTILINE)


def is_unsafe(path: str) -> bool:
    """Return whether it is anything but a plain relative path to something below."""
    parts = path.split("/")
    return any(part in ("", ".", "..") or "\0" in part for part in parts) or len(path) > 1000
