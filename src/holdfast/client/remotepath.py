"""Paths of the other machine: native text for people, `file:` URIs on the wire. Pure module.

Which platform a path belongs to is read off its spelling, because this machine's own rules say nothing
about it: `/srv/x` is POSIX, `C:\\x` and `\\\\server\\share` are Windows.
"""

import re
from typing import Final, Protocol, TypeAlias, runtime_checkable
from urllib.parse import unquote_to_bytes

from holdfast.errors import RemoteProtocolError, UsageError
from holdfast.wire.paths import Convention, PathUri


@runtime_checkable
class PathLike(Protocol):
    """What `pathlib` makes."""

    def __fspath__(self) -> str: ...


RemotePath: TypeAlias = str | PathLike

_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_ANY_DRIVE: Final = PathUri.parse("file:///C:/")  # an absolute Windows path replaces it
_URI: Final = re.compile(r"file:", re.IGNORECASE)


def to_uri(path: RemotePath) -> PathUri:
    """The URI of a native absolute path.

    Raises:
        UsageError: it is relative, already a URI, empty, or holds a NUL.
    """
    text = path if isinstance(path, str) else path.__fspath__()
    if _URI.match(text):
        raise UsageError(f"`{text}` is a URI, not a path", remedy=_plain_spelling(text))
    if "\0" in text:
        raise UsageError("a path cannot contain a NUL", remedy="remove the NUL character from the path")
    if text.startswith("/"):
        return PathUri.from_native(text)
    if _WINDOWS.match(text):
        return _ANY_DRIVE.join(text)
    raise UsageError(
        f"`{text}` is not an absolute path",
        remedy="name it from the root of the other machine; `info.cwd` says where its server runs",
    )


def to_native(uri: str) -> str:
    """The path that a URI of the other machine stands for, as that machine spells it.

    Raises:
        RemoteProtocolError: it stands for none.
    """
    try:
        path = PathUri.parse(uri)
        if path.convention is not Convention.WINDOWS or "%00" in uri:  # the mark of an opaque URI
            return path.native()
    except UsageError as exc:
        raise RemoteProtocolError(f"the server named a path that is none: {exc}") from None
    host, _, names = path.uri.removeprefix("file://").partition("/")
    text = unquote_to_bytes(names).decode("utf-8", "surrogateescape").replace("/", "\\")
    return f"\\\\{host}\\{text}" if host else text


def _plain_spelling(uri: str) -> str:
    try:
        return f"write it as {to_native(uri)}"
    except RemoteProtocolError:
        return "write it as the other machine does, such as /srv/project"
