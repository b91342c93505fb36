"""What the protocol's file methods cannot do, done by a POSIX shell on the other machine. Pure module.

The file methods have no modes, no links and no renaming, and cannot list a name that is not UTF-8. Of a mode
only two facts are kept: whether a file is executable, and whether only its owner may access it. The rest is
left to the umask of the process that creates the file.
"""

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.errors import RemoteProtocolError

# One letter for each path: directory, link, other, or a file: plain, executable (x), private (p) or both (q).
_LIST: Final = r"""find -H "$1" \
  -type d -exec printf 'd%s\000' {} + -o \
  -type l -exec printf 'l%s\000' {} + -o \
  ! -type f -exec printf 'o%s\000' {} + -o \
  ! \( -perm -0040 -o -perm -0020 -o -perm -0010 -o -perm -0004 -o -perm -0002 -o -perm -0001 \) \
    \( -perm -0100 -exec printf 'q%s\000' {} + -o -exec printf 'p%s\000' {} + \) -o \
  -perm -0100 -exec printf 'x%s\000' {} + -o \
  -exec printf 'f%s\000' {} +"""

# `put FILE MODE PLACE` prints nothing, or one line with the file that could not be put there and the reason.
_PUT: Final = rb"""put() {
  why=$({
    if [ -d "$3" ]; then echo "Is a directory" >&2; false
    else { [ -z "$2" ] || chmod "$2" "$1"; } && mv -f "$1" "$3"; fi
  } 2>&1) || printf '%s %s\n' "$1" "$(printf %s "$why" | tr '\n' ' ')"
}
"""
_FAILED: Final = re.compile(rb"([0-9]+) (.*)")


@dataclass(frozen=True, slots=True)
class FileMode:
    """The part of a file's mode that is kept."""

    executable: bool = False
    private: bool = False

    @classmethod
    def of(cls, bits: int) -> "FileMode":
        return cls(bool(bits & 0o100), not bits & 0o077)

    def bits(self) -> int:
        """The mode to request when such a file is created; the umask is applied to it."""
        bits = 0o777 if self.executable else 0o666
        return bits & 0o700 if self.private else bits

    def change(self) -> str:
        """The argument for chmod; empty if nothing is to be changed."""
        return ",".join(["+x"] * self.executable + ["go="] * self.private)


class FileKind(enum.Enum):
    FILE = "a file"
    DIRECTORY = "a directory"
    LINK = "a link"
    OTHER = "neither a file nor a directory"


@dataclass(frozen=True, slots=True)
class ListedFile:
    """An entry below the root of a list, by its relative path; `mode` is None unless it is a file."""

    path: str
    kind: FileKind
    mode: FileMode | None = None


_KINDS: Final = {
    b"d": (FileKind.DIRECTORY, None),
    b"l": (FileKind.LINK, None),
    b"o": (FileKind.OTHER, None),
    b"f": (FileKind.FILE, FileMode()),
    b"x": (FileKind.FILE, FileMode(executable=True)),
    b"p": (FileKind.FILE, FileMode(private=True)),
    b"q": (FileKind.FILE, FileMode(executable=True, private=True)),
}


def list_command(root: str) -> list[str]:
    """The command that lists everything at and below `root`, which is relative to the command's directory."""
    return ["/bin/sh", "-c", _LIST, "sh", root]


def parse_list(output: bytes, root: str) -> list[ListedFile]:
    """Parse the command's output. The root itself is included only if it is not a directory.

    Raises:
        RemoteProtocolError: the output is not such a list, or names an entry that is not below the root.
    """
    if output and not output.endswith(b"\0"):
        raise RemoteProtocolError("the list of files ends in the middle of a name")
    found = []
    for item in output.split(b"\0")[:-1]:
        path = item[1:].decode("utf-8", "surrogateescape")
        if item[:1] not in _KINDS or not (path == root or path.startswith(root + "/")):
            raise RemoteProtocolError("the list of files is none")
        kind, mode = _KINDS[item[:1]]
        below = path[len(root) + 1 :]
        if below or kind is not FileKind.DIRECTORY:
            found.append(ListedFile(check_way(below) if below else "", kind, mode))
    return found


def check_way(path: str) -> str:
    """Check a relative path to a file, as the other machine names it.

    Raises:
        RemoteProtocolError: it leads elsewhere than below the directory.
    """
    if any(name in ("", ".", "..") for name in path.split("/")):
        raise RemoteProtocolError("the server named a file that is not below the directory")
    return path


def put_script(moves: Iterable[tuple[int, FileMode, str]]) -> bytes:
    """A script that sets the modes of numbered files and moves them to their places, one after the other."""
    lines = [_PUT]
    for number, mode, place in moves:
        lines.append(b"put %d '%b' %b\n" % (number, mode.change().encode(), _quote(place)))
    return b"".join(lines)


def parse_failures(output: bytes) -> dict[int, str]:
    """Parse which files the script could not put in place, and why."""
    matches = filter(None, map(_FAILED.fullmatch, output.splitlines()))
    return {int(match[1]): match[2].decode("utf-8", "replace").strip() for match in matches}


def _quote(text: str) -> bytes:
    return b"'" + text.encode("utf-8", "surrogateescape").replace(b"'", b"'\\''") + b"'"
