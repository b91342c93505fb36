"""Lists and scripts for a shell that is somewhere else."""

import pytest

from holdfast.client.copying.posix import (
    FileKind,
    FileMode,
    ListedFile,
    check_way,
    list_command,
    parse_failures,
    parse_list,
    put_script,
)
from holdfast.errors import RemoteProtocolError
from tests.support.rows import every_row


def test_a_list_says_what_everything_is() -> None:
    output = b"d.\0d./sub\0l./link\0o./pipe\0f./plain\0x./sub/run\0p./key\0q./sub/own\0"
    assert parse_list(output, ".") == [
        ListedFile("sub", FileKind.DIRECTORY),
        ListedFile("link", FileKind.LINK),
        ListedFile("pipe", FileKind.OTHER),
        ListedFile("plain", FileKind.FILE, FileMode()),
        ListedFile("sub/run", FileKind.FILE, FileMode(executable=True)),
        ListedFile("key", FileKind.FILE, FileMode(private=True)),
        ListedFile("sub/own", FileKind.FILE, FileMode(executable=True, private=True)),
    ]


def test_names_are_bytes() -> None:
    assert parse_list(b"f./a\xff\nb\0", ".") == [ListedFile("a\udcff\nb", FileKind.FILE, FileMode())]


def test_a_root_that_is_a_file_is_its_own_list() -> None:
    assert parse_list(b"x./run\0", "./run") == [ListedFile("", FileKind.FILE, FileMode(executable=True))]
    assert list_command("./run")[-1] == "./run"


@every_row(
    "output",
    [b"f./a", b"\0", b"z./a\0", b"f/etc/passwd\0", b"f./../a\0", b"f./a/../../b\0", b"f.//a\0", b"f./a/\0"],
)
def test_a_list_that_is_none_or_leads_elsewhere_is_refused(output: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_list(output, ".")


def test_a_way_leads_down() -> None:
    assert check_way("a/..b/c") == "a/..b/c"
    with pytest.raises(RemoteProtocolError):
        check_way("a/..")


@every_row(
    ("bits", "mode", "created", "change"),
    [
        (0o100644, FileMode(), 0o666, ""),
        (0o100755, FileMode(executable=True), 0o777, "+x"),
        (0o100600, FileMode(private=True), 0o600, "go="),
        (0o100700, FileMode(executable=True, private=True), 0o700, "+x,go="),
        (0o100604, FileMode(), 0o666, ""),
    ],
)
def test_of_a_mode_two_things_travel_and_the_umask_decides_the_rest(
    bits: int, mode: FileMode, created: int, change: str
) -> None:
    assert FileMode.of(bits) == mode
    assert mode.bits() == created
    assert mode.change() == change


def test_a_script_quotes_every_name() -> None:
    script = put_script([(0, FileMode(), "/a'; rm -rf \udcff"), (1, FileMode(True), "/b")])
    assert script.endswith(b"put 0 '' '/a'\\''; rm -rf \xff'\nput 1 '+x' '/b'\n")


def test_failures_are_told_by_number() -> None:
    assert parse_failures(b"3 mv: no\nnoise\n12 Is a directory \n") == {3: "mv: no", 12: "Is a directory"}
    assert parse_failures(b"") == {}
