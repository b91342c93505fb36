"""The plain file methods, on real files in a temporary directory."""

import errno
import os
import socket
import stat
import threading
from pathlib import Path

import msgspec
import pybase64
import pytest

from holdfast.errors import HoldfastError, InvalidRequest, NotFound, OperationFailed, UsageError, face
from holdfast.server.files import files
from holdfast.server.files.contents import SMALL_BYTES
from holdfast.server.files.files import remove_tree
from holdfast.wire.files import (
    CopyParams,
    CreateDirectoryParams,
    DirectoryEntry,
    LinkAwareParams,
    Metadata,
    PathParams,
    RemoveParams,
    WriteFileParams,
)
from holdfast.wire.paths import PathUri
from holdfast.wire.structs import Empty
from tests.support.descriptors import none_left_open
from tests.support.patience import patient
from tests.support.rows import every_row


def uri(path: Path) -> PathUri:
    return PathUri.from_native(str(path))


def read(path: Path) -> bytes:
    answer = msgspec.json.decode(files.read_file(LinkAwareParams(uri(path))), type=dict[str, str])
    assert answer.keys() == {"dataBase64"}
    return pybase64.b64decode(answer["dataBase64"], validate=True)


def write(path: Path, data: bytes) -> Empty:
    return files.write_file(WriteFileParams(uri(path), pybase64.b64encode_as_string(data)))


def metadata(path: Path) -> Metadata:
    return files.get_metadata(LinkAwareParams(uri(path)))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5000, 768 * 1024 - 1, 768 * 1024, 768 * 1024 + 1, 2_000_003])
def test_bytes_written_are_read_back(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    assert write(tmp_path / "f", data) == Empty()
    assert read(tmp_path / "f") == data
    assert os.listdir(tmp_path) == ["f"]


def test_a_file_that_does_not_know_its_size_is_read_to_its_end() -> None:
    assert read(Path("/proc/self/status")).startswith(b"Name:")


def test_a_read_follows_links(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "link").symlink_to("f")
    assert read(tmp_path / "link") == b"x"


def test_reads_refuse_what_is_no_regular_file_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", Path("/dev/null")):
        with pytest.raises(InvalidRequest, match=f"path `{path}` is not a file"):
            read(path)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("!", "Invalid symbol 33, offset 0."),
        ("Y Q=", "Invalid symbol 32, offset 1."),
        ("YWJ-", "Invalid symbol 45, offset 3."),
        ("é", "Invalid symbol 195, offset 0."),
        ("YQ", "Invalid padding"),
        ("YQ=", "Invalid padding"),
    ],
)
def test_bad_base64_is_refused_and_nothing_is_created(tmp_path: Path, text: str, detail: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        files.write_file(WriteFileParams(uri(tmp_path / "f"), text))
    assert str(caught.value) == f"fs/writeFile requires valid base64 dataBase64: {detail}"
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("text", ["YR==", "YWK=", "YQ==\n", "YQ==YQ==", "====", "YW=j", "Y", "YWJj="])
def test_sloppy_base64_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidRequest):
        files.write_file(WriteFileParams(uri(tmp_path / "f"), text))


def test_a_write_with_a_missing_parent_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        write(tmp_path / "no" / "f", b"x")


def test_a_write_onto_a_directory_fails(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed):
        write(tmp_path, b"x")


@pytest.mark.parametrize("data", [b"", b"short", b"a longer text than before"])
def test_an_existing_file_keeps_its_inode_mode_and_other_names(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"before, some text")
    path.chmod(0o640)
    os.link(path, tmp_path / "other")
    inode = path.stat().st_ino
    write(path, data)
    assert (tmp_path / "other").read_bytes() == data
    assert (path.stat().st_ino, stat.S_IMODE(path.stat().st_mode)) == (inode, 0o640)


def test_a_link_is_written_through_even_if_its_target_is_missing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write(tmp_path / "link", b"one")
    write(tmp_path / "link", b"two")
    assert (tmp_path / "target").read_bytes() == b"two"
    assert (tmp_path / "link").is_symlink()


def test_a_new_file_gets_the_ordinary_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "f", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


def test_a_write_to_a_device_goes_through_and_to_a_fifo_without_reader_fails_at_once(tmp_path: Path) -> None:
    assert write(Path("/dev/null"), b"x") == Empty()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OperationFailed):
        write(tmp_path / "fifo", b"x")


def make(path: Path, *, recursive: bool | None = None) -> Empty:
    return files.create_directory(CreateDirectoryParams(uri(path), recursive))


def test_nested_directories_are_made_and_making_them_again_is_fine(tmp_path: Path) -> None:
    for _ in range(2):
        assert make(tmp_path / "a" / "b" / "c") == Empty()
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_a_single_directory_needs_its_parent_and_must_be_new(tmp_path: Path) -> None:
    assert make(tmp_path / "a", recursive=False) == Empty()
    with pytest.raises(OperationFailed):
        make(tmp_path / "a", recursive=False)
    with pytest.raises(NotFound):
        make(tmp_path / "b" / "c", recursive=False)


def test_a_file_or_a_dangling_link_in_the_way_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("f", "f/x", "dangling", "dangling/x"):
        with pytest.raises(OperationFailed):
            make(tmp_path / name)


def test_a_parent_that_vanishes_meanwhile_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def vanishing(path: str) -> None:
        mkdir(path)
        os.rmdir(path)

    monkeypatch.setattr(os, "mkdir", vanishing)
    with pytest.raises(NotFound):
        make(tmp_path / "a" / "b")


def test_concurrent_creators_of_one_tree_do_not_fail_each_other(tmp_path: Path) -> None:
    gate = threading.Barrier(4)
    failures: list[HoldfastError] = []

    def create() -> None:
        gate.wait(timeout=patient(5))
        try:
            for level in range(50):
                make(tmp_path / f"{level}" / "b" / "c")
        except HoldfastError as exc:
            failures.append(exc)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=patient(5))
    assert failures == []


def test_metadata_of_files_and_directories(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    os.utime(tmp_path / "f", ns=(0, 1_700_000_000_123_999_999))
    assert metadata(tmp_path / "f") == Metadata(
        is_directory=False,
        is_file=True,
        is_symlink=False,
        size=5,
        created_at_ms=0,
        modified_at_ms=1_700_000_000_123,
    )
    assert metadata(tmp_path).is_directory
    os.utime(tmp_path / "f", ns=(0, -1_500_000_000))
    assert metadata(tmp_path / "f").modified_at_ms == 0


def test_metadata_follows_links_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("f")
    (tmp_path / "dangling").symlink_to("nowhere")
    seen = metadata(tmp_path / "link")
    assert (seen.is_file, seen.is_symlink, seen.size) == (True, True, 5)
    with pytest.raises(NotFound):
        metadata(tmp_path / "dangling")


def test_special_files_are_neither_files_nor_directories(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    seen = metadata(tmp_path / "fifo")
    assert (seen.is_file, seen.is_directory) == (False, False)


def test_canonicalize_resolves_links_and_demands_existence(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").touch()
    (tmp_path / "link").symlink_to("d")
    (tmp_path / "loop").symlink_to("loop")
    real = Path(os.path.realpath(tmp_path))
    found = files.canonicalize(PathParams(uri(tmp_path / "link" / "f")))
    assert found.path == uri(real / "d" / "f").uri
    for name, error in (("no", NotFound), ("loop", OperationFailed), ("d/f/x", OperationFailed)):
        with pytest.raises(error):
            files.canonicalize(PathParams(uri(tmp_path / name)))


def test_a_listing_classifies_links_by_target_and_omits_broken_ones(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "f").touch()
    os.mkfifo(tmp_path / "fifo")
    for name, target in (("ld", "d"), ("lf", "f"), ("dangling", "nowhere"), ("loop", "loop")):
        (tmp_path / name).symlink_to(target)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).touch()
    listing = files.read_directory(PathParams(uri(tmp_path)))
    assert sorted(listing.entries, key=lambda entry: entry.file_name) == [
        DirectoryEntry("d", is_directory=True, is_file=False),
        DirectoryEntry("f", is_directory=False, is_file=True),
        DirectoryEntry("fifo", is_directory=False, is_file=False),
        DirectoryEntry("ld", is_directory=True, is_file=False),
        DirectoryEntry("lf", is_directory=False, is_file=True),
        DirectoryEntry("\N{REPLACEMENT CHARACTER}", is_directory=False, is_file=True),
    ]


def test_only_directories_within_the_limit_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    with pytest.raises(OperationFailed):
        files.read_directory(PathParams(uri(tmp_path / "a")))
    monkeypatch.setattr(files, "MAX_DIRECTORY_ENTRIES", 3)
    assert len(files.read_directory(PathParams(uri(tmp_path))).entries) == 3
    monkeypatch.setattr(files, "MAX_DIRECTORY_ENTRIES", 2)
    with pytest.raises(OperationFailed, match="returned 3 entries; limit is 2"):
        files.read_directory(PathParams(uri(tmp_path)))


def remove(path: Path, *, recursive: bool | None = None, force: bool | None = None) -> Empty:
    return files.remove(RemoveParams(uri(path), recursive, force))


def test_a_tree_is_removed_but_not_what_its_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "f").touch()
    (tmp_path / "t" / "a" / "b").mkdir(parents=True)
    (tmp_path / "t" / "a" / "link").symlink_to("../../keep")
    (tmp_path / "t" / "f").touch()
    os.mkfifo(tmp_path / "t" / "fifo")
    remove(tmp_path / "t")
    assert os.listdir(tmp_path) == ["keep"]
    assert os.listdir(tmp_path / "keep") == ["f"]


def test_removing_a_link_keeps_its_target(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    remove(tmp_path / "link")
    assert os.listdir(tmp_path) == ["d"]


def test_removing_what_is_not_there_is_fine_unless_force_is_off(tmp_path: Path) -> None:
    assert remove(tmp_path / "no" / "where") == Empty()
    with pytest.raises(NotFound):
        remove(tmp_path / "no", force=False)


def test_without_recursive_only_an_empty_directory_goes(tmp_path: Path) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    with pytest.raises(OperationFailed):
        remove(tmp_path / "d", recursive=False)
    remove(tmp_path / "d" / "e", recursive=False)
    assert os.listdir(tmp_path / "d") == []


def test_the_root_is_never_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "remove_tree", lambda path: pytest.fail("emptied the machine"))
    with pytest.raises(HoldfastError):
        remove(Path("/"))


FOREIGN = PathUri.parse("file:///C:/x")


@every_row(
    "call",
    [
        lambda: files.read_file(LinkAwareParams(FOREIGN)),
        lambda: files.write_file(WriteFileParams(FOREIGN, "")),
        lambda: files.create_directory(CreateDirectoryParams(FOREIGN)),
        lambda: files.get_metadata(LinkAwareParams(FOREIGN)),
        lambda: files.canonicalize(PathParams(FOREIGN)),
        lambda: files.read_directory(PathParams(FOREIGN)),
        lambda: files.remove(RemoveParams(FOREIGN)),
    ],
)
def test_a_path_of_another_platform_is_an_invalid_request(call: object) -> None:
    assert callable(call)
    with pytest.raises(InvalidRequest, match="'file:///C:/x' is invalid on 'linux'"):
        call()


def test_every_link_aware_method_can_be_told_not_to_follow(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    below = uri(tmp_path / "link" / "f")
    for call in (
        lambda: files.read_file(LinkAwareParams(below, follow_symlinks=False)),
        lambda: files.write_file(WriteFileParams(below, "", follow_symlinks=False)),
        lambda: files.create_directory(CreateDirectoryParams(below, follow_symlinks=False)),
        lambda: files.get_metadata(LinkAwareParams(below, follow_symlinks=False)),
        lambda: files.remove(RemoveParams(below, recursive=False, follow_symlinks=False)),
        lambda: files.remove(RemoveParams(below, follow_symlinks=False)),
    ):
        with pytest.raises(OperationFailed):
            call()
    assert files.write_file(WriteFileParams(uri(tmp_path / "d" / "f"), "", False)) == Empty()


def test_a_native_path_is_no_uri(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        PathUri.parse(str(tmp_path))


def test_errors_have_the_codes_of_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "sock"))
        for name, code in (("no", -32004), (".", -32600), ("f/x", -32603), ("sock", -32603)):
            with pytest.raises(HoldfastError) as caught:
                read(tmp_path / name)
            assert face(caught.value).rpc == code


def test_only_a_small_file_is_read_at_once(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x" * SMALL_BYTES)
    large.write_bytes(b"x" * (SMALL_BYTES + 1))
    params = LinkAwareParams(PathUri.from_native(str(small)))
    assert files.read_small_file(params) == files.read_file(params)
    assert files.read_small_file(LinkAwareParams(PathUri.from_native(str(large)))) is None
    assert files.read_small_file(LinkAwareParams(params.path, follow_symlinks=False)) is None


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one ")
    real = os.fstat

    def grow(fd: int) -> os.stat_result:
        seen = real(fd)
        with path.open("ab") as file:
            file.write(b"more ")
        return seen

    monkeypatch.setattr("os.fstat", grow)
    seen = read(path)
    monkeypatch.undo()
    assert seen == path.read_bytes()


def test_everything_below_goes_but_nothing_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "f").touch()
    (tmp_path / "t" / "a" / "b").mkdir(parents=True)
    (tmp_path / "t" / "c").mkdir()
    (tmp_path / "t" / "a" / "link").symlink_to("../../keep")
    (tmp_path / "t" / "f").touch()
    os.mkfifo(tmp_path / "t" / "fifo")
    with none_left_open():
        remove_tree(str(tmp_path / "t"))
    assert os.listdir(tmp_path) == ["keep"]
    assert os.listdir(tmp_path / "keep") == ["f"]


def test_a_tree_deeper_than_the_interpreter_recurses_is_removed(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_PATH)
    for _ in range(400):
        os.mkdir("d" * 20, dir_fd=here)  # together longer than any path may be
        inner = os.open("d" * 20, os.O_PATH, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    remove_tree(str(tmp_path / ("d" * 20)))
    assert os.listdir(tmp_path) == []


def test_what_others_remove_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "t" / name).mkdir(parents=True)
    (tmp_path / "t" / "f").touch()
    unlink, rmdir = os.unlink, os.rmdir

    def raced_unlink(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        rmdir("a", dir_fd=dir_fd)
        unlink(name, dir_fd=dir_fd)

    def raced_rmdir(name: str, *, dir_fd: int | None = None) -> None:
        rmdir(name, dir_fd=dir_fd)
        if name == "b":
            rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", raced_unlink)
    monkeypatch.setattr(os, "rmdir", raced_rmdir)
    remove_tree(str(tmp_path / "t"))
    assert os.listdir(tmp_path) == []


def test_a_directory_swapped_for_a_link_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "precious").touch()
    (tmp_path / "t" / "d").mkdir(parents=True)
    (tmp_path / "t" / "f").touch()
    unlink = os.unlink

    def swapping(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        os.rmdir("d", dir_fd=dir_fd)
        os.symlink(tmp_path / "keep", "d", dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", swapping)
    with none_left_open(), pytest.raises(OSError, match="Not a directory"):
        remove_tree(str(tmp_path / "t"))
    assert os.listdir(tmp_path / "keep") == ["precious"]


def copy(source: Path, destination: Path, *, recursive: bool = True) -> Empty:
    here, there = (PathUri.from_native(str(path)) for path in (source, destination))
    return files.copy(CopyParams(here, there, recursive))


def test_a_file_is_copied_over_another_with_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "a").chmod(0o640)
    (tmp_path / "b").write_bytes(b"old and longer")
    for target in ("b", "c"):
        assert copy(tmp_path / "a", tmp_path / target, recursive=False) == Empty()
        assert (tmp_path / target).read_bytes() == b"new"
        assert stat.S_IMODE((tmp_path / target).stat().st_mode) == 0o640


def test_a_copy_writes_through_a_link_at_the_destination(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "link").symlink_to("target")
    copy(tmp_path / "a", tmp_path / "link")
    assert (tmp_path / "target").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_a_file_copied_onto_itself_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"precious")
    os.utime(tmp_path / "a", ns=(1, 1))
    (tmp_path / "link").symlink_to("a")
    for target in ("a", "link"):
        copy(tmp_path / "a", tmp_path / target)
        assert (tmp_path / "a").stat().st_mtime_ns == 1
        assert (tmp_path / "a").read_bytes() == b"precious"


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS])
def test_bytes_are_copied_by_hand_where_the_kernel_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def unsupported(*_: object) -> int:
        raise OSError(code, "no")

    monkeypatch.setattr(os, "copy_file_range", unsupported)
    (tmp_path / "a").write_bytes(b"x" * 600_000)
    copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"x" * 600_000


def test_a_file_that_looks_empty_but_is_not_is_copied(tmp_path: Path) -> None:
    copy(Path("/proc/self/status"), tmp_path / "status")
    assert (tmp_path / "status").read_bytes().startswith(b"Name:")


def test_a_copy_that_fails_leaves_no_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").write_bytes(b"old")
    monkeypatch.setattr(os, "copy_file_range", full)
    for target in ("b", "c"):
        with pytest.raises(OperationFailed):
            copy(tmp_path / "a", tmp_path / target)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert (tmp_path / "b").read_bytes() == b"old"


def test_a_set_user_id_bit_survives_only_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "a").chmod(0o4755)
    copy(tmp_path / "a", tmp_path / "same")
    assert stat.S_IMODE((tmp_path / "same").stat().st_mode) == 0o4755

    real = os.fstat
    inode = (tmp_path / "a").stat().st_ino

    def another_owner(fd: int) -> os.stat_result:
        seen = real(fd)
        if seen.st_ino != inode:
            return seen
        values = list(seen)
        values[stat.ST_UID] += 1
        return os.stat_result(values)

    monkeypatch.setattr(os, "fstat", another_owner)
    copy(tmp_path / "a", tmp_path / "other")
    monkeypatch.undo()
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o755


def test_a_copy_onto_a_device_goes_through_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    before = os.stat("/dev/null").st_mode
    assert copy(tmp_path / "a", Path("/dev/null")) == Empty()
    assert os.stat("/dev/null").st_mode == before


def test_errors_of_a_file_copy(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "d").mkdir()
    for source, destination, error in (
        ("a", "no/b", NotFound),
        ("no", "b", NotFound),
        ("a", "d", OperationFailed),
        ("a", "a/x", OperationFailed),
    ):
        with pytest.raises(error):
            copy(tmp_path / source, tmp_path / destination)


def test_a_link_stays_a_link_and_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for link, target in (("link", "d"), ("dangling", "nowhere")):
        (tmp_path / link).symlink_to(target)
        copy(tmp_path / link, tmp_path / f"{link}2")
        assert os.readlink(tmp_path / f"{link}2") == target
        with pytest.raises(OperationFailed):
            copy(tmp_path / link, tmp_path / f"{link}2")


def test_a_tree_is_merged_with_its_links_and_without_special_files(tmp_path: Path) -> None:
    source, target = tmp_path / "s", tmp_path / "t" / "new"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "f").write_bytes(b"x")
    (source / "sub" / "up").symlink_to("..")
    (source / "dangling").symlink_to("nowhere")
    os.mkfifo(source / "fifo")
    (target / "sub").mkdir(parents=True)
    (target / "sub" / "kept").touch()
    copy(source, target)
    assert sorted(os.listdir(target)) == ["dangling", "sub"]
    assert sorted(os.listdir(target / "sub")) == ["f", "kept", "up"]
    assert (os.readlink(target / "sub" / "up"), os.readlink(target / "dangling")) == ("..", "nowhere")


def test_a_tree_needs_recursive(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidRequest, match="fs/copy requires recursive: true when sourcePath is a directory"
    ):
        copy(tmp_path, tmp_path / "x", recursive=False)


@pytest.mark.parametrize("destination", ["d", "d/sub", "d/new/er", "alias", "alias/new", "d/../d/x"])
def test_a_tree_is_not_copied_into_itself(tmp_path: Path, destination: str) -> None:
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "alias").symlink_to("d")
    with pytest.raises(InvalidRequest, match="cannot copy a directory to itself or one of its descendants"):
        copy(tmp_path / "d", tmp_path / destination)
    assert os.listdir(tmp_path / "d") == ["sub"]


def test_neighbours_and_ancestors_are_no_descendants(tmp_path: Path) -> None:
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "sub" / "f").touch()
    copy(tmp_path / "d", tmp_path / "d-2")
    copy(tmp_path / "d" / "sub", tmp_path / "d")
    assert (tmp_path / "d-2" / "sub" / "f").exists()
    assert (tmp_path / "d" / "f").exists()


def test_a_fifo_is_not_copied(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(
        InvalidRequest, match="fs/copy only supports regular files, directories, and symlinks"
    ):
        copy(tmp_path / "fifo", tmp_path / "x")


def test_paths_of_another_platform_are_invalid_requests(tmp_path: Path) -> None:
    here, foreign = PathUri.from_native(str(tmp_path)), PathUri.parse("file:///C:/x")
    for source, destination in ((here, foreign), (foreign, here)):
        with pytest.raises(InvalidRequest):
            files.copy(CopyParams(source, destination, recursive=True))
