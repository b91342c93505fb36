"""Absolute paths as text: folded, compared and measured without looking at the disk. Pure module."""

from holdfast.errors import UsageError
from holdfast.light import Callable

# Names that people and tools give to files; anything else that is granted before it exists is a directory.
_FILE_NAMES = r".\.[A-Za-z]\w{0,4}$|(?:rc|_history|profile|_logout|lock)$|^\.(?:gitconfig|viminfo)$"


def absolute(path: str, cwd: str) -> str:
    """`path` from the root, taken against `cwd` if relative; `.`, `..` and doubled slashes folded.

    Raises:
        UsageError: it is empty, holds a NUL, or stays relative.
    """
    joined = path if path.startswith("/") else f"{cwd}/{path}"
    if not path or "\0" in joined or not (path.startswith("/") or cwd.startswith("/")):
        raise UsageError(f"`{path}` is not an absolute path")
    kept: list[str] = []
    for part in joined.split("/"):
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    return "/" + "/".join(kept)


def join(path: str, below: str) -> str:
    return f"{path.rstrip('/')}/{below}"


def parent(path: str) -> str:
    """The directory that holds it; the root holds itself."""
    return path.rpartition("/")[0] or "/"


def name(path: str) -> str:
    return path.rpartition("/")[2]


def depth(path: str) -> int:
    """Number of components: 0 for the root."""
    return 0 if path == "/" else path.count("/")


def within(path: str, top: str) -> bool:
    """Is `path` the same as `top`, or below it?"""
    return path == top or top == "/" or path.startswith(f"{top}/")


def is_file_name(path: str) -> bool:
    """Is it the name of a file rather than of a directory, as names go?"""
    import re  # most starts need none

    return re.search(_FILE_NAMES, name(path)) is not None


def is_file_to_make(asked: str) -> bool:
    """Is a missing path that is granted made as an empty file, not a directory? A final slash says no."""
    return not asked.endswith("/") and is_file_name(asked)


def grantable(path: str, exists: Callable[[str], bool], *, folder: bool = False, home: str = "") -> str:
    """The least to grant so that something can be made at `path`; itself if it is there.

    That is the first directory on the way that is missing: a grant makes it. What is made in a directory that
    exists needs that directory, unless it is a `folder` itself, or a file in the `home` itself or above it,
    which nobody grants as a whole for one file.
    """
    at, below = path, path
    while at != "/" and not exists(at):
        at, below = parent(at), at
    if at in (path, "/"):
        return path
    if below == path and is_file_name(path) and home and within(home, at):
        return path
    return at if is_file_name(below) or (below == path and not folder) else below


def is_pattern(path: str) -> bool:
    """Does it stand for several paths?"""
    return any(letter in path for letter in "*?[{")


def quote(path: str) -> str:
    """As one word of a shell."""
    import re

    plain = re.fullmatch(r"[\w@%+=:,./-]+", path, re.ASCII)
    return path if plain else "'" + path.replace("'", "'\"'\"'") + "'"
