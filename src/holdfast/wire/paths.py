"""`file:` URIs and the native paths that they represent. Pure module.

A `PathUri` is canonical text. Its platform follows from its form, never from the host that we run on; only
`native` requires a path of this host.
"""

import base64
import binascii
import enum
import re
import sys
from collections.abc import Iterable
from typing import Final, Protocol, Self, TypeAlias, runtime_checkable
from urllib.parse import quote_from_bytes, unquote_to_bytes

from holdfast.errors import RemoteProtocolError, UsageError

HOST_OS: Final = {"darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)

# Paths without a faithful URI are encoded as base64 after an encoded NUL, which no real path contains.
_OPAQUE: Final = "file:///%00/bad/path/"

_NATIVE_SAFE: Final = "/!$&'()*+,:;=@[]^|"
_URI_SAFE: Final = _NATIVE_SAFE + "%"  # existing escapes, valid or not, are kept

# The two usual cases, each decided by one match: text that is its own canonical form. A colon or a percent
# sign needs the full algorithm.
_NAME: Final = r"(?!\.\.?(?:/|\Z))[A-Za-z0-9!$&'()*+,\-.;=@\[\]^_|~]"
_PLAIN_URI: Final = re.compile(rf"file://(?!//)(?:/{_NAME}*)+")
_PLAIN_PATH: Final = re.compile(rf"(?:/{_NAME}+)+")

_UNTIDY: Final = re.compile(r"/\.{0,2}(?:/|\Z)")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_TRIMMED: Final = "".join(map(chr, range(0x21)))
_DROPPED: Final = str.maketrans("", "", "\t\n\r")
_DOT: Final = frozenset({".", "%2e"})
_DOTDOT: Final = frozenset({"..", ".%2e", "%2e.", "%2e%2e"})
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_DRIVE_ROOT: Final = re.compile(r"[A-Za-z]:/")
_DRIVE_OR_BAR: Final = re.compile(r"[A-Za-z][:|]")
_DRIVE_IN_URI: Final = re.compile(r"[A-Za-z](?::|%3[Aa])")
# The negated set of allowed characters; listing the others up to the last code point takes 4 ms at each
# start.
_BAD_HOST: Final = re.compile(r"[^!\"$&-.0-9;=A-Z_`a-z{}~]")


class ForeignPath(UsageError):
    """A well-formed path, but not one of this host."""

    def __init__(self, uri: str, os_name: str = HOST_OS) -> None:
        super().__init__(f"'{uri}' is invalid on '{os_name}'")


class Convention(enum.Enum):
    """The platform whose rules a path follows."""

    POSIX = enum.auto()
    WINDOWS = enum.auto()


class PathUri:
    """An absolute path of some platform. Create one with `parse` or `from_native`, never directly.

    POSIX paths are equal if their canonical text is; Windows paths regardless of ASCII case and
    of how a character is escaped.
    """

    # Not a dataclass: msgspec would decode one as an object and never call its hook.
    __slots__ = ("_uri",)

    def __init__(self, canonical: str) -> None:
        self._uri = canonical

    @property
    def uri(self) -> str:
        """The canonical text."""
        return self._uri

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the canonical form of `text`; raises `UsageError` if it is not a path URI."""
        return cls(text if _PLAIN_URI.fullmatch(text) else _canonical(text))

    @classmethod
    def from_native(cls, path: str) -> Self:
        """Return the URI of an absolute POSIX path, opaque if there is no faithful spelling."""
        return cls(uri_of(path))

    @property
    def convention(self) -> Convention | None:
        """The platform of this path; None for an opaque URI that holds no absolute path."""
        if self._is_opaque():
            return _convention_of(_payload(self._uri))
        if not self._uri.startswith("file:///"):
            return Convention.WINDOWS
        first = self._uri[8:].partition("/")[0]
        return Convention.WINDOWS if _DRIVE_IN_URI.fullmatch(first) else Convention.POSIX

    def native(self) -> str:
        """Return the POSIX path, or raise `ForeignPath`.

        Bytes that are not UTF-8 appear as surrogate escapes. The path is absolute and has no
        empty, `.` or `..` component, no trailing slash and no NUL, however the URI was written.
        """
        uri = self._uri
        if _PLAIN_URI.fullmatch(uri):
            return _tidy(uri[7:])
        if self.convention is not Convention.POSIX:
            raise ForeignPath(uri)
        if not self._is_opaque():
            return _tidy(_text(uri[7:]))
        path = _payload(uri).decode("utf-8", "surrogateescape")
        # A path with an ordinary spelling must use it; otherwise two URIs of one path would not be equal.
        if "\0" in path or uri_of(path) != uri:
            raise ForeignPath(uri)
        return path

    def basename(self) -> str | None:
        """The last name, decoded; None for a root and for an opaque URI."""
        if self._is_opaque():
            return None
        _, names = self._split()
        return _text(names[-1]) if names else None

    def parent(self) -> "PathUri | None":
        """The directory above; None for `/`, a drive, a share and an opaque URI."""
        if self._is_opaque():
            return None
        host, names = self._split()
        if len(names) <= self._floor():
            return None
        return PathUri(_assemble(host, names[:-1]))

    def join(self, path: str) -> "PathUri":
        """Join the native path text `path`, parsed by this URI's convention and relative to it.

        An absolute `path` replaces this one. `..` stops at the root, drive or share. Raises
        `ForeignPath` for NUL, another drive's relative path, or a relative path on an opaque URI.
        """
        if not path:
            return self
        convention = self.convention
        if "\0" in path or convention is None:
            raise ForeignPath(path if convention else self._uri)
        if convention is Convention.WINDOWS:
            return self._join_windows(path)
        if path.startswith("/"):
            return PathUri(uri_of(path))
        if self._is_opaque():
            raise ForeignPath(self._uri)
        names = _walk(self._split()[1], _quote(path), floor=0)
        if names and _DRIVE.fullmatch(names[0]):
            return PathUri(uri_of("/" + _text("/".join(names))))
        return PathUri(_assemble("", names))

    def relative_to(self, base: "PathUri") -> str | None:
        """The relative path from `base` down to here, joined with `/`, judged by text; None if there is none.

        A path with an encoded separator in a name is below no other, and no other is below it.
        """
        if self == base:
            return ""
        convention = self.convention
        if self._is_opaque() or base._is_opaque() or base.convention is not convention:
            return None
        (host, names), (base_host, base_names) = self._split(), base._split()
        mine, theirs = ([unquote_to_bytes(name) for name in side] for side in (names, base_names))
        separators = b"/\\" if convention is Convention.WINDOWS else b"/"
        if any(byte in name for name in (*mine, *theirs) for byte in separators):
            return None
        depth = len(theirs)
        if host != base_host or _fold(mine[:depth], convention) != _fold(theirs, convention):
            return None
        return b"/".join(mine[depth:]).decode("utf-8", "surrogateescape")

    def __str__(self) -> str:
        return self._uri

    def __repr__(self) -> str:
        return f"PathUri({self._uri!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PathUri):
            return NotImplemented
        return self._uri == other._uri or self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> str | tuple[bytes, ...]:
        if self._is_opaque() or self.convention is Convention.POSIX:
            return self._uri
        return tuple(unquote_to_bytes(part).lower() for part in self._uri[7:].split("/"))

    def _is_opaque(self) -> bool:
        return self._uri.startswith(_OPAQUE)

    def _floor(self) -> int:
        return 1 if self.convention is Convention.WINDOWS else 0

    def _split(self) -> tuple[str, list[str]]:
        host, _, path = self._uri[7:].partition("/")
        return host, [name for name in path.split("/") if name]

    def _join_windows(self, path: str) -> "PathUri":
        _encode(path, "strict")
        plain = _without_device_prefix(path.replace("\\", "/"))
        if plain is None:
            return PathUri(_opaque(path.encode("utf-16-le")))
        if plain.startswith("//"):
            host, share, *rest = (*plain[2:].split("/"), "")
            if not host or not share:
                raise ForeignPath(path)
            names = _walk([_quote(share)], _quote("/".join(rest)), floor=1)
            uri = _assemble(host.lower(), names)
            return PathUri(uri if _is_canonical(uri) else _opaque(path.encode("utf-16-le")))
        if _DRIVE_ROOT.match(plain):
            return PathUri(_assemble("", _walk([plain[:2].upper()], _quote(plain[2:]), floor=1)))
        host, names = self._split()
        if self._is_opaque() or not names:
            raise ForeignPath(self._uri)
        if _DRIVE.match(plain):
            if host or plain[:2].upper() != names[0]:
                raise ForeignPath(path)
            plain = plain[2:]
        elif plain.startswith("/"):
            names = names[:1]
        return PathUri(_assemble(host, _walk(names, _quote(plain), floor=1)))


def uri_of(path: str) -> str:
    """Return the URI text of an absolute POSIX path; bytes that are not UTF-8 are surrogate escapes."""
    if _PLAIN_PATH.fullmatch(path):
        return "file://" + path
    if not path.startswith("/"):
        raise UsageError("path is not absolute")
    path = _tidy(path)
    if "\0" in path or _DRIVE.fullmatch(path[1:].partition("/")[0]):
        return _opaque(_encode(path, "surrogateescape"))
    return "file://" + _quote(path)


def _tidy(path: str) -> str:
    return "/" + "/".join(_walk([], path, floor=0)) if _UNTIDY.search(path) else path


def _walk(names: Iterable[str], path: str, *, floor: int) -> list[str]:
    """Return `names` after following `path`, never shorter than `floor`."""
    walked = list(names)
    for step in path.split("/"):
        if step == "..":
            if len(walked) > floor:
                walked.pop()
        elif step not in ("", "."):
            walked.append(step)
    return walked


def _assemble(host: str, names: Iterable[str]) -> str:
    return f"file://{host}/{'/'.join(names)}"


def _encode(text: str, errors: str) -> bytes:
    try:
        return text.encode("utf-8", errors)
    except UnicodeEncodeError:
        raise UsageError("path contains a lone surrogate") from None


def _quote(path: str) -> str:
    return quote_from_bytes(_encode(path, "surrogateescape"), _NATIVE_SAFE)


def _text(quoted: str) -> str:
    return unquote_to_bytes(quoted).decode("utf-8", "surrogateescape")


def _fold(names: list[bytes], convention: Convention | None) -> list[bytes]:
    return [name.lower() for name in names] if convention is Convention.WINDOWS else names


def _opaque(raw: bytes) -> str:
    return _OPAQUE + base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _payload(uri: str) -> bytes:
    text = uri[len(_OPAQUE) :]
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as exc:
        raise ForeignPath(uri) from exc
    if not raw or _opaque(raw) != uri:
        raise ForeignPath(uri)
    return raw


def _convention_of(raw: bytes) -> Convention | None:
    if raw.startswith(b"/"):
        return Convention.POSIX
    start = raw[:4].decode("utf-16-le", "replace") if len(raw) % 2 == 0 else ""
    return Convention.WINDOWS if start == "\\\\" or _DRIVE.fullmatch(start) else None


def _without_device_prefix(path: str) -> str | None:
    """A Windows path in its ordinary spelling; None for a device that has none."""
    if not path.startswith(("//?/", "//./")):
        return path
    rest = path[4:]
    if rest[:4].upper() == "UNC/":
        return "//" + rest[4:]
    return rest if _DRIVE_ROOT.match(rest) else None


def _is_canonical(uri: str) -> bool:
    try:
        return _canonical(uri) == uri
    except UsageError:
        return False


def _canonical(text: str) -> str:
    """Canonicalize by WHATWG URL parsing, reduced to the `file` scheme."""
    text = text.strip(_TRIMMED).translate(_DROPPED)
    scheme = _SCHEME.match(text)
    if scheme is None:
        raise UsageError("invalid URI: relative URL without a base")
    if (name := scheme[1].lower()) != "file":
        raise UsageError(f"unsupported path URI scheme `{name}`")
    rest, fragment, _ = text[scheme.end() :].partition("#")
    rest, query, _ = rest.partition("?")
    rest = rest.replace("\\", "/")
    host, drive_may_follow = "", True
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        if _DRIVE_OR_BAR.fullmatch(host):
            host, rest = "", rest[2:]
        else:
            host, rest = _host(host), slash + tail
            # After an empty authority the old `c|` spelling of a drive is an ordinary name.
            drive_may_follow = host != ""
    rest = rest.removeprefix("/")
    if drive_may_follow and _DRIVE_OR_BAR.fullmatch(rest.partition("/")[0]):
        rest = f"{rest[0]}:{rest[2:]}"
    path = "/".join(_resolve(rest.split("/"))).lstrip("/")
    if host and _DRIVE_OR_BAR.fullmatch(path.partition("/")[0]):
        host, path = "", f"{path[0]}:{path[2:]}"
    if query:
        raise UsageError("query parameters are not allowed in path URIs")
    if fragment:
        raise UsageError("fragments are not allowed in path URIs")
    uri = f"file://{host}/{path}"
    if uri.startswith(_OPAQUE):
        _payload(uri)
    elif "%00" in path:
        raise ForeignPath(uri)
    if not host and _DRIVE_IN_URI.fullmatch(path.partition("/")[0]):
        return f"file:///{path[0].upper()}{path[1:]}"
    return uri


def _host(text: str) -> str:
    """Return the authority in lower case, empty for `localhost`; hosts beyond ASCII must be in punycode."""
    host = unquote_to_bytes(text).decode("utf-8", "replace").lower()
    if _BAD_HOST.search(host):
        raise UsageError("invalid URI: invalid international domain name")
    return "" if host == "localhost" else host


def _resolve(segments: list[str]) -> list[str]:
    names: list[str] = []
    for segment in segments:
        folded = segment.lower()
        if folded in _DOTDOT:
            if names and not (len(names) == 1 and _DRIVE.fullmatch(names[0])):
                names.pop()
        elif folded not in _DOT:
            names.append(quote_from_bytes(_encode(segment, "strict"), _URI_SAFE))
    if segments[-1].lower() in _DOT | _DOTDOT:
        names.append("")
    return names


@runtime_checkable
class PathLike(Protocol):
    """The interface of `pathlib`'s paths."""

    def __fspath__(self) -> str: ...


RemotePath: TypeAlias = str | PathLike

_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_ANY_DRIVE: Final = PathUri.parse("file:///C:/")  # an absolute Windows path replaces it
_URI: Final = re.compile(r"file:", re.IGNORECASE)


def to_uri(path: RemotePath) -> PathUri:
    """Convert a native absolute path to its URI.

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
    """Convert a URI of the other machine to the native path of that machine.

    Raises:
        RemoteProtocolError: it represents no path.
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
