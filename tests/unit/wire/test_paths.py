"""Path URIs: canonical text, native paths, and the lexical operations on both conventions."""

import base64

import pytest

from holdfast.errors import UsageError
from holdfast.wire.paths import HOST_OS, Convention, ForeignPath, PathUri, uri_of
from tests.support.rows import every_row


def opaque(raw: bytes) -> str:
    return "file:///%00/bad/path/" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


DEVICE = opaque("\\\\.\\COM1".encode("utf-16-le"))
NOWHERE = opaque(b"a")


@every_row(
    ("text", "canonical"),
    [
        ("file:///", "file:///"),
        ("file:///srv/a", "file:///srv/a"),
        ("file:///srv/a/", "file:///srv/a/"),
        ("file:///srv/.git/...", "file:///srv/.git/..."),
        ("FILE:///srv", "file:///srv"),
        ("file:/srv", "file:///srv"),
        ("file:srv", "file:///srv"),
        ("file:", "file:///"),
        ("file://localhost/srv", "file:///srv"),
        ("file://LOCALHOST/srv", "file:///srv"),
        ("file://loc%61lhost", "file:///"),
        ("file:///a/../b/./c", "file:///b/c"),
        ("file:///a/%2E%2E/b/%2e/c", "file:///b/c"),
        ("file:///a/b/..", "file:///a/"),
        ("file:///a/b/.", "file:///a/b/"),
        ("file:///a//../b", "file:///a/b"),
        ("file:///../..", "file:///"),
        ("file:////srv", "file:///srv"),
        ("file://///srv", "file:///srv"),
        ("file:///..//srv", "file:///srv"),
        ("file:///a//b", "file:///a//b"),
        ("file:///srv/a\\b", "file:///srv/a/b"),
        ("file:\\\\server\\share", "file://server/share"),
        ("file:///a b", "file:///a%20b"),
        ("file:///é", "file:///%C3%A9"),
        ("file:///a^b|c[d]`{}\"<>'~\x7f/", "file:///a^b|c[d]%60%7B%7D%22%3C%3E'~%7F/"),
        ("file:///%ff", "file:///%ff"),
        ("file:///a%2fb", "file:///a%2fb"),
        ("file:///a%5Cb", "file:///a%5Cb"),
        ("file:///srv/100%", "file:///srv/100%"),
        ("file:///srv/%zz", "file:///srv/%zz"),
        (" file:///srv ", "file:///srv"),
        ("file:///srv\n", "file:///srv"),
        ("\0file:///srv\x08", "file:///srv"),
        ("fi\tle:///s\nrv", "file:///srv"),
        ("file:///c:/Users/x", "file:///C:/Users/x"),
        ("file:///c:", "file:///C:"),
        ("file:////c:/x", "file:///C:/x"),
        ("file:///c%3A/x", "file:///C%3A/x"),
        ("file:///C:/../..", "file:///C:/"),
        ("file:///C:/../D:/x", "file:///C:/D:/x"),
        ("file:///ab:/x", "file:///ab:/x"),
        ("file://c:/x", "file:///C:/x"),
        ("file://c|/x", "file:///C:/x"),
        ("file:c|/x", "file:///C:/x"),
        ("file:/c|/x", "file:///C:/x"),
        ("file:///c|/x", "file:///c|/x"),
        ("file:///c|/a b", "file:///c|/a%20b"),
        ("file://localhost/c|", "file:///c|"),
        ("file://server/c|/x", "file:///C:/x"),
        ("file://server/C:/x", "file:///C:/x"),
        ("file://server//a:", "file:///A:"),
        ("file://server//a|/x", "file:///A:/x"),
        ("file://server/c|/../x", "file:///C:/x"),
        ("file://SERVER/Share/X", "file://server/Share/X"),
        ("file://server", "file://server/"),
        ("file://server/../x", "file://server/x"),
        (opaque(b"/C:"), "file:///%00/bad/path/L0M6"),
    ],
)
def test_text_has_one_canonical_form_that_parses_to_itself(text: str, canonical: str) -> None:
    parsed = PathUri.parse(text)
    assert (parsed.uri, str(parsed)) == (canonical, canonical)
    assert PathUri.parse(canonical).uri == canonical


@every_row(
    ("text", "message"),
    [
        ("/srv", "invalid URI: relative URL without a base"),
        ("srv", "invalid URI: relative URL without a base"),
        ("", "invalid URI: relative URL without a base"),
        ("\\\\srv\\share", "invalid URI: relative URL without a base"),
        ("\xa0file:///srv", "invalid URI: relative URL without a base"),
        ("\ufefffile:///srv", "invalid URI: relative URL without a base"),
        ("C:\\x", "unsupported path URI scheme `c`"),
        ("http://x/y", "unsupported path URI scheme `http`"),
        ("Vscode-Remote://x", "unsupported path URI scheme `vscode-remote`"),
        ("file:///a?x", "query parameters are not allowed in path URIs"),
        ("file:///a?x#y", "query parameters are not allowed in path URIs"),
        ("file:///%00?", "query parameters are not allowed in path URIs"),
        ("file:///a#x?y", "fragments are not allowed in path URIs"),
        ("file:///a%00b", f"'file:///a%00b' is invalid on '{HOST_OS}'"),
        ("file:///a\0b", f"'file:///a%00b' is invalid on '{HOST_OS}'"),
        ("file:///c:/%00", f"'file:///c:/%00' is invalid on '{HOST_OS}'"),
        ("file://user@host/x", "invalid URI: invalid international domain name"),
        ("file://host:80/x", "invalid URI: invalid international domain name"),
        ("file://a b/x?y", "invalid URI: invalid international domain name"),
        ("file://%ff/x", "invalid URI: invalid international domain name"),
        ("file:///\ud800", "path contains a lone surrogate"),
    ],
)
def test_what_is_no_path_uri_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        PathUri.parse(text)
    assert str(refusal.value) == message


@every_row(
    "tail", ["", "L0M!", "L0M=", "L0N6L", "L0M6/", "L0M6/x", "L0M6Lx", "Y", "_+8", "%59Q", "../path/", "é"]
)
def test_a_malformed_opaque_payload_is_refused(tail: str) -> None:
    with pytest.raises(ForeignPath):
        PathUri.parse("file:///%00/bad/path/" + tail)


@every_row(
    ("uri", "path"),
    [
        ("file:///", "/"),
        ("file:///srv/project/.git", "/srv/project/.git"),
        ("file:///srv//a/", "/srv/a"),
        ("file:///a%20b/%C3%A9", "/a b/é"),
        ("file:///%ff", "/\udcff"),
        ("file:///x%231%3F2%253%252F", "/x#1?2%3%2F"),
        ("file:///100%/%zz", "/100%/%zz"),
        ("file:///tmp/%2e%2e%2fetc", "/etc"),
        ("file:///tmp%2F.%2F", "/tmp"),
        ("file:///a%5Cb", "/a\\b"),
        ("file:///c|/x", "/c|/x"),
        (opaque(b"/C:"), "/C:"),
        (opaque(b"/C:/x\xff"), "/C:/x\udcff"),
    ],
)
def test_a_posix_uri_becomes_a_tidy_path_with_every_byte(uri: str, path: str) -> None:
    assert PathUri.parse(uri).native() == path


@every_row(
    "uri",
    [
        "file:///C:/x",
        "file:///C%3A/x",
        "file://server/share",
        NOWHERE,
        DEVICE,
        opaque(b"/a\0b"),
        opaque(b"/tmp"),
        opaque(b"/C:/x/"),
        opaque(b"/C:/../tmp"),
    ],
)
def test_a_uri_without_a_path_on_this_host_is_refused_when_used(uri: str) -> None:
    with pytest.raises(ForeignPath) as refusal:
        PathUri.parse(uri).native()
    assert str(refusal.value) == f"'{uri}' is invalid on '{HOST_OS}'"


def test_the_refusal_names_the_operating_system_it_is_given() -> None:
    assert str(ForeignPath("file:///C:/x", "macos")) == "'file:///C:/x' is invalid on 'macos'"


@every_row(
    ("path", "uri"),
    [
        ("/", "file:///"),
        ("/srv/project", "file:///srv/project"),
        ("//srv/./a/../b/", "file:///srv/b"),
        ("/a b/é/\udcff", "file:///a%20b/%C3%A9/%FF"),
        ('/%?#\\`{}"<>', "file:///%25%3F%23%5C%60%7B%7D%22%3C%3E"),
        ("/!$&'()*+,-.:;=@[]^_|~", "file:///!$&'()*+,-.:;=@[]^_|~"),
        ("/srv/C:", "file:///srv/C:"),
        ("/c|", "file:///c|"),
        ("/C:", "file:///%00/bad/path/L0M6"),
        ("/srv/\0/\udcfb\udcff", "file:///%00/bad/path/L3Nydi8AL_v_"),
    ],
)
def test_a_native_path_becomes_a_uri_or_an_opaque_one(path: str, uri: str) -> None:
    assert uri_of(path) == uri
    assert PathUri.from_native(path).uri == uri
    assert PathUri.parse(uri).uri == uri


@pytest.mark.parametrize("path", ["", "srv", "./srv", "/\ud800"])
def test_what_is_no_absolute_native_path_is_refused(path: str) -> None:
    with pytest.raises(UsageError):
        uri_of(path)


@every_row(
    ("uri", "convention"),
    [
        ("file:///", Convention.POSIX),
        ("file:///home/c:", Convention.POSIX),
        ("file:///C:/srv", Convention.WINDOWS),
        ("file:///d:", Convention.WINDOWS),
        ("file://server/share", Convention.WINDOWS),
        (opaque(b"/a\0"), Convention.POSIX),
        (DEVICE, Convention.WINDOWS),
        (opaque("C:\\\ud800".encode("utf-16-le", "surrogatepass")), Convention.WINDOWS),
        (opaque(b"C:\\x"), None),
        (opaque("C:".encode("utf-16-le") + b"x"), None),
        (NOWHERE, None),
    ],
)
def test_the_convention_is_read_off_the_shape(uri: str, convention: Convention | None) -> None:
    assert PathUri.parse(uri).convention is convention


@every_row(
    ("left", "right", "equal"),
    [
        ("file:///srv", "file://localhost/srv", True),
        ("file:///srv", "file:///SRV", False),
        ("file:///a", "file:///%61", False),
        ("file:///C:/Users/x", "file:///c:/USERS/%58", True),
        ("file:///C:/é", "file:///C:/É", False),
        ("file:///C:/a/b", "file:///C:/a%2Fb", False),
        ("file://Server/Share", "file://server/sHARE", True),
        ("file://server/share", "file://other/share", False),
        (opaque(b"/C:/a"), opaque(b"/C:/A"), False),
    ],
)
def test_equality_follows_the_convention(left: str, right: str, equal: bool) -> None:
    one, other = PathUri.parse(left), PathUri.parse(right)
    assert (one == other) is equal
    assert len({one, other}) == (1 if equal else 2)


def test_a_path_uri_is_immutable_and_is_no_string() -> None:
    path = PathUri.parse("file:///srv")
    with pytest.raises(AttributeError):
        path.uri = "file:///etc"  # type: ignore[misc]
    assert path != "file:///srv"
    assert repr(path) == "PathUri('file:///srv')"
    assert not hasattr(path, "__dict__")


@every_row(
    ("uri", "basename", "parent"),
    [
        ("file:///", None, None),
        ("file:///srv", "srv", "file:///"),
        ("file:///srv/a%20b/", "a b", "file:///srv"),
        ("file:///srv//%ff", "\udcff", "file:///srv"),
        ("file:///C:/", "C:", None),
        ("file:///C:/Users", "Users", "file:///C:"),
        ("file://server/", None, None),
        ("file://server/share", "share", None),
        ("file://server/share/x", "x", "file://server/share"),
        (opaque(b"/C:/x"), None, None),
    ],
)
def test_basename_is_decoded_and_parent_stops_at_the_anchor(
    uri: str, basename: str | None, parent: str | None
) -> None:
    path = PathUri.parse(uri)
    above = path.parent()
    assert (path.basename(), above and above.uri) == (basename, parent)


@every_row(
    ("base", "path", "joined"),
    [
        ("file:///srv/", "", "file:///srv/"),
        ("file:///srv/src", "../tests/./a//b/", "file:///srv/tests/a/b"),
        ("file:///srv", "../../../etc", "file:///etc"),
        ("file:///srv", "x#1?2%3\\4", "file:///srv/x%231%3F2%253%5C4"),
        ("file:///srv/a%2Fb", "c", "file:///srv/a%2Fb/c"),
        ("file:///srv", "\udcff", "file:///srv/%FF"),
        ("file:///srv", "/tmp/../x/", "file:///x"),
        ("file:///srv", "C:/x", "file:///srv/C:/x"),
        ("file:///srv", "../C:/\udcff", opaque(b"/C:/\xff")),
        (opaque(b"/C:"), "", opaque(b"/C:")),
        (opaque(b"/C:"), "/tmp", "file:///tmp"),
        ("file:///C:/a/b", "..\\..\\..\\x/y", "file:///C:/x/y"),
        ("file:///C:/a/b", "\\x", "file:///C:/x"),
        ("file:///C:/a", "c:\\x\\..\\y\\", "file:///C:/y"),
        ("file:///C:/a", "d:/", "file:///D:"),
        ("file:///C:/a", "c:x", "file:///C:/a/x"),
        ("file:///C:/a", "\\\\Server\\share\\..\\x", "file://server/share/x"),
        ("file:///C:/a", "\\\\?\\D:\\x", "file:///D:/x"),
        ("file:///C:/a", "\\\\.\\unc\\server\\share\\x", "file://server/share/x"),
        ("file:///C:/a", "\\\\.\\COM1", DEVICE),
        ("file:///C:/a", "\\\\localhost\\x", opaque("\\\\localhost\\x".encode("utf-16-le"))),
        ("file:///C:/a", "\\\\a b\\x", opaque("\\\\a b\\x".encode("utf-16-le"))),
        ("file:///C:/a", "\\\\a\\C:", opaque("\\\\a\\C:".encode("utf-16-le"))),
        ("file://server/share/a", "..\\..\\x", "file://server/share/x"),
        ("file://server/share/a", "/x", "file://server/share/x"),
        (DEVICE, "C:\\x", "file:///C:/x"),
    ],
)
def test_join_reads_the_text_by_the_convention_of_the_base(base: str, path: str, joined: str) -> None:
    assert PathUri.parse(base).join(path).uri == joined


@every_row(
    ("base", "path"),
    [
        ("file:///srv", "a\0b"),
        ("file:///srv", "\ud800"),
        (opaque(b"/C:"), "x"),
        (NOWHERE, "x"),
        (NOWHERE, "/x"),
        (DEVICE, "x"),
        ("file:///C:/a", "D:x"),
        ("file:///C:/a", "a\0b"),
        ("file:///C:/a", "\\\\server"),
        ("file:///C:/a", "\\\\\\x"),
        ("file:///C:/a", "\udcff"),
        ("file://server/share", "C:x"),
        ("file://server/", "x"),
    ],
)
def test_join_refuses_what_it_cannot_place(base: str, path: str) -> None:
    with pytest.raises(UsageError):
        PathUri.parse(base).join(path)


@every_row(
    ("base", "path", "relative"),
    [
        ("file:///", "file:///srv/a", "srv/a"),
        ("file:///srv", "file:///srv", ""),
        ("file:///srv/", "file:///srv", ""),
        ("file:///srv", "file:///srv//a%20b/%ff/", "a b/\udcff"),
        ("file:///%73rv", "file:///srv/a", "a"),
        ("file:///srv", "file:///srv-other/a", None),
        ("file:///srv/a", "file:///srv", None),
        ("file:///srv", "file:///SRV/a", None),
        ("file:///srv", "file:///srv/%2F..%2Fetc", None),
        ("file:///srv%2Fa", "file:///srv%2Fa/b", None),
        ("file:///srv", "file:///srv/%5C..%5Cetc", "\\..\\etc"),
        ("file:///C:/a", "file:///c:/A/b", "b"),
        ("file:///C:/a", "file:///C:/a2/b", None),
        ("file:///C:/a", "file:///D:/a/b", None),
        ("file:///C:/a", "file:///C:/a/%5C..%5Cb", None),
        ("file://server/share", "file://SERVER/Share/x", "x"),
        ("file://server/share", "file://other/share/x", None),
        ("file:///", "file:///C:/a", None),
        ("file:///", opaque(b"/C:/a"), None),
        (opaque(b"/C:"), opaque(b"/C:/a"), None),
        (NOWHERE, NOWHERE, ""),
        (NOWHERE, "file:///", None),
    ],
)
def test_containment_goes_by_whole_names_and_fails_closed(base: str, path: str, relative: str | None) -> None:
    outer, inner = PathUri.parse(base), PathUri.parse(path)
    assert inner.relative_to(outer) == relative
