"""Paths of another machine, whatever this one is."""

from pathlib import PurePosixPath, PureWindowsPath

import pytest

from holdfast.errors import RemoteProtocolError, UsageError
from holdfast.wire.paths import RemotePath, to_native, to_uri
from tests.support.rows import every_row


@every_row(
    ("path", "uri"),
    [
        ("/srv/a b", "file:///srv/a%20b"),
        ("/", "file:///"),
        ("/srv//x/../y/", "file:///srv/y"),
        ("/odd\udce9", "file:///odd%E9"),
        ("/C:/x", "file:///%00/bad/path/L0M6L3g"),
        (PurePosixPath("/srv/x"), "file:///srv/x"),
        ("C:\\Users\\me", "file:///C:/Users/me"),
        ("c:/Users", "file:///C:/Users"),
        (PureWindowsPath("D:/data"), "file:///D:/data"),
        ("\\\\Server\\share\\x", "file://server/share/x"),
    ],
)
def test_a_native_path_has_a_uri(path: RemotePath, uri: str) -> None:
    assert to_uri(path).uri == uri


@every_row(
    "path",
    [
        "",
        "srv/x",
        "./x",
        "~/x",
        "C:x",
        PureWindowsPath("/x"),
        "/a\0b",
        "file:///srv/x",
        "FILE:/srv",
        "file:%00",
    ],
)
def test_what_is_no_absolute_path_is_refused_with_a_remedy(path: RemotePath) -> None:
    with pytest.raises(UsageError) as caught:
        to_uri(path)
    assert caught.value.remedy


def test_the_remedy_for_a_uri_is_the_path_it_stands_for() -> None:
    with pytest.raises(UsageError) as caught:
        to_uri("file:///srv/a%20b")
    assert "/srv/a b" in (caught.value.remedy or "")


@every_row(
    ("uri", "path"),
    [
        ("file:///srv/a%20b", "/srv/a b"),
        ("file:///odd%E9", "/odd\udce9"),
        ("file:///%00/bad/path/L0M6L3g", "/C:/x"),
        ("file:///C:/", "C:\\"),
        ("file:///C:/Users/m%20e", "C:\\Users\\m e"),
        ("file://server/share/x", "\\\\server\\share\\x"),
    ],
)
def test_a_uri_is_shown_as_its_machine_spells_it(uri: str, path: str) -> None:
    assert to_native(uri) == path


@every_row("uri", ["", "/srv/x", "http://x/", "file:///a%00b", "file:///%00/bad/path/XABcAA"])
def test_what_a_server_may_not_call_a_path(uri: str) -> None:
    with pytest.raises(RemoteProtocolError):
        to_native(uri)
