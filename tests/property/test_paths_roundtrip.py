"""Path URIs: nothing is lost between a native path, its URI, and back."""

import os
import posixpath

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.wire.paths import Convention, ForeignPath, PathUri, uri_of

NAMES = st.binary(min_size=1, max_size=8).filter(lambda raw: not {b"/"[0], 0} & {*raw})
ODD_NAMES = st.sampled_from([b".", b"..", b"", b"C:", b"c|", b"%2e", b"%2F", b"a b", b"\xff"])
NATIVE = st.lists(NAMES | ODD_NAMES, max_size=6).map(lambda names: os.fsdecode(b"/" + b"/".join(names)))
PIECES = st.sampled_from(
    [
        "/",
        "/",
        "\\",
        "..",
        ".",
        "%2e",
        "a",
        "B",
        "C:",
        "c|",
        "é",
        "%2f",
        "%5C",
        "%",
        "%00",
        " ",
        "\t",
        "server",
    ]
)
TEXTS = st.builds(
    lambda start, pieces: start + "".join(pieces),
    st.sampled_from(["file:///", "file://", "file:", "file://server/", "FILE:/", "file:///%00/bad/path/"]),
    st.lists(PIECES, max_size=8) | st.text(max_size=8),
)


def normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


@given(NATIVE)
@example("/C:/x")
@example("/a//../C:/\udcff/")
def test_a_native_path_survives_the_round_trip(path: str) -> None:
    uri = PathUri.from_native(path)
    assert PathUri.parse(uri.uri).uri == uri.uri
    assert uri.native() == normal(path)


@given(TEXTS)
@example("file:///a%2f..%2f..%2fC:")
def test_parsing_settles_at_once_and_native_paths_are_tidy(text: str) -> None:
    try:
        parsed = PathUri.parse(text)
    except UsageError:
        return
    assert PathUri.parse(parsed.uri).uri == parsed.uri
    assert parsed.uri.isascii()
    try:
        path = parsed.native()
    except ForeignPath:
        return
    assert path == normal(path)
    assert PathUri.parse(uri_of(path)).native() == path


@given(NATIVE, NATIVE)
def test_joining_posix_text_means_what_the_system_would_make_of_it(base: str, path: str) -> None:
    relative = path.lstrip("/")
    if PathUri.from_native(base).uri.startswith("file:///%00") and relative:
        return
    assert PathUri.from_native(base).join(relative).native() == normal(posixpath.join(base, relative))


@given(TEXTS, st.lists(st.sampled_from(["a", "..", ".", "b c", "é"]), max_size=4))
def test_going_down_can_be_told_from_going_out(text: str, steps: list[str]) -> None:
    try:
        base = PathUri.parse(text)
        below = base.join("/".join(step for step in steps if step != ".."))
    except UsageError:
        return
    way = below.relative_to(base)
    if way is not None:
        assert base.join(way).relative_to(base) == way
    above = below.parent()
    if above is not None and "%2f" not in text.lower() and "%5c" not in text.lower():
        assert below.relative_to(above) is not None
        assert above.relative_to(below) is None


@given(TEXTS)
@example("file:///C:/a%2f")
def test_only_windows_paths_are_equal_in_another_case_and_then_share_a_hash(text: str) -> None:
    try:
        one = PathUri.parse(text)
        other = PathUri.parse(one.uri.swapcase())
    except UsageError:
        return
    assert (one == other) is (one.uri == other.uri or one.convention is Convention.WINDOWS)
    if one == other:
        assert hash(one) == hash(other)
        assert other.relative_to(one) is not None
