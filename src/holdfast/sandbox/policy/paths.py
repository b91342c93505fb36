"""Absolute paths as text: normalized, compared and measured without reading the disk. Pure module."""

from holdfast.errors import UsageError
from holdfast.light import Callable

# Names that users and tools give to files; any other path that is granted before it exists is a directory.
_FILE_NAMES = r".\.[A-Za-z]\w{0,4}$|(?:rc|_history|profile|_logout|lock)$|^\.(?:gitconfig|viminfo)$"


def absolute(path: str, cwd: str) -> str:
    """`path` as an absolute path, relative to `cwd` if need be; `.`, `..` and doubled slashes are resolved.

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
    """The directory that contains the path; for the root, the root."""
    return path.rpartition("/")[0] or "/"


def name(path: str) -> str:
    return path.rpartition("/")[2]


def depth(path: str) -> int:
    """Number of components: 0 for the root."""
    return 0 if path == "/" else path.count("/")


def within(path: str, top: str) -> bool:
    """Whether `path` is `top`, or lies below it."""
    return path == top or top == "/" or path.startswith(f"{top}/")


def is_file_name(path: str) -> bool:
    """Whether the path, judged by its name, is a file rather than a directory."""
    import re  # most starts do not need it

    return re.search(_FILE_NAMES, name(path)) is not None


def is_file_to_make(asked: str) -> bool:
    """Whether a missing granted path is created as a file; with a final slash it becomes a directory."""
    return not asked.endswith("/") and is_file_name(asked)


def grantable(path: str, exists: Callable[[str], bool], *, folder: bool = False, home: str = "") -> str:
    """The smallest path to grant so that something can be made at `path`; `path` itself if it exists.

    This is the first missing directory on the way: a grant creates it. To make something in an existing
    directory, that directory must be granted. There are two exceptions, for which `path` itself is granted:
    a `folder`, and a file in the `home` directory itself or above it, which no user grants as a whole for
    one file.
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
    """Whether the path is a pattern, which can match several paths."""
    return any(letter in path for letter in "*?[{")


def quote(path: str) -> str:
    """The path as one word of a shell."""
    import re

    plain = re.fullmatch(r"[\w@%+=:,./-]+", path, re.ASCII)
    return path if plain else "'" + path.replace("'", "'\"'\"'") + "'"
