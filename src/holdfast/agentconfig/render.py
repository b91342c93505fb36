"""Owned keys as TOML text, and the comment lines that mark what we did to a file. Pure module.

A block stands between two comment lines; the first carries a digest of what we wrote between them, so
that a later change by somebody else is noticed. What we take out of the user's content stays where it
was as a comment below a line that says why, and can be put back byte for byte.
"""

import hashlib
import re
from typing import Final, NamedTuple

from holdfast.agentconfig.settings import BLOCKS, Key, Value

FORMAT: Final = 1  # of the marks; any older one is migrated
OUT: Final = "#: "  # in front of each line that was taken out

_DIGEST_CHARS: Final = 12  # enough to notice a change; nobody is kept from making one
_NAMES: Final = "|".join(BLOCKS)
_DIGEST: Final = rf"[0-9a-f]{{{_DIGEST_CHARS}}}"
_BEGIN: Final = re.compile(rf"# >>> holdfast ({_NAMES}) v(\d{{1,4}})(?: ({_DIGEST}))? >>>.*")
_END: Final = re.compile(rf"# <<< holdfast ({_NAMES}) v(\d{{1,4}}) <<<")
_RECORD: Final = re.compile(r"# holdfast v\d{1,4} took out (\d{1,6}) lines?: .*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_UNSAFE: Final = re.compile(r'["\\\x00-\x1f\x7f]')
_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class Begin(NamedTuple):
    """The first line of a block."""

    name: str
    version: int
    digest: str | None


def string(text: str) -> str:
    """A basic string."""
    escaped = _UNSAFE.sub(lambda found: _SHORT.get(found[0], f"\\u{ord(found[0]):04X}"), text)
    return f'"{escaped}"'


def key(path: Key) -> str:
    """A dotted key; what is not a plain word is quoted."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else string(part) for part in path)


def value(of: Value) -> str:
    """A value on one line."""
    match of:
        case bool():
            return "true" if of else "false"
        case int():
            return str(of)
        case str():
            return string(of)
        case tuple():
            return f"[{', '.join(map(string, of))}]"


def block(name: str, body: list[str], newline: str) -> str:
    """A whole block, each line with its end."""
    inner = "".join(line + newline for line in body)
    begin = f"# >>> holdfast {name} v{FORMAT} {digest(inner)} >>> written by holdfast, again at every apply"
    return f"{begin}{newline}{inner}# <<< holdfast {name} v{FORMAT} <<<{newline}"


def digest(body: str) -> str:
    """Of the lines between the marks. Codex turns CRLF into LF, which changes nothing of ours."""
    return hashlib.sha256(body.replace("\r\n", "\n").encode()).hexdigest()[:_DIGEST_CHARS]


def record(source: str, reason: str, newline: str) -> str:
    """These whole lines as comments, below a line that says why."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", source)
    counted = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
    why = f"# holdfast v{FORMAT} took out {counted}: {reason}{newline}"
    return why + "".join(OUT + line for line in lines)


def as_begin(comment: str) -> Begin | None:
    """Is this comment line the begin of a block, of any version?"""
    found = _BEGIN.fullmatch(comment.rstrip("\r\n"))
    return Begin(found[1], int(found[2]), found[3]) if found else None


def as_end(comment: str) -> str | None:
    """Is this comment line the end of a block? The name of that block."""
    found = _END.fullmatch(comment.rstrip("\r\n"))
    return found[1] if found else None


def as_record(comment: str) -> int | None:
    """Does this comment line say what was taken out below? The number of lines."""
    found = _RECORD.fullmatch(comment.rstrip("\r\n"))
    return int(found[1]) if found else None
