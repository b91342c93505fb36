"""Copies of files, links and whole directories."""

import errno
import os
import stat
from contextlib import suppress
from typing import Final

from holdfast.errors import InvalidRequest
from holdfast.server.files.contents import READ_FLAGS, WRITE_FLAGS, write_all
from holdfast.server.files.files import make_directories, protocol_errors
from holdfast.wire.files import CopyParams
from holdfast.wire.structs import Empty

_RANGE_BYTES: Final = 1 << 30  # per call; the kernel copies without bringing the bytes here
_BLOCK_BYTES: Final = 256 * 1024  # where it cannot
_NO_RANGES: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})


@protocol_errors
def copy(params: CopyParams) -> Empty:
    """Copy a file over another, recreate a link, or merge a directory into another."""
    source, destination = params.source_path.native(), params.destination_path.native()
    mode = os.lstat(source).st_mode
    if stat.S_ISDIR(mode):
        if not params.recursive:
            raise InvalidRequest("fs/copy requires recursive: true when sourcePath is a directory")
        _refuse_overlap(source, destination)
        _copy_tree(source, destination)
    elif stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), destination)
    elif stat.S_ISREG(mode):
        _copy_file(source, destination)
    else:
        raise InvalidRequest("fs/copy only supports regular files, directories, and symlinks")
    return Empty()


def _refuse_overlap(source: str, destination: str) -> None:
    real = os.path.realpath(source, strict=True)
    target = os.path.realpath(destination)  # whose last names may be missing
    if os.path.commonpath([real, target]) == real:
        raise InvalidRequest("fs/copy cannot copy a directory to itself or one of its descendants")


def _copy_tree(source: str, destination: str) -> None:
    pending = [(source, destination)]
    while pending:
        here, there = pending.pop()
        make_directories(there)
        with os.scandir(here) as listing:
            entries = list(listing)
        for entry in entries:
            target = os.path.join(there, entry.name)
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), target)
            elif entry.is_dir(follow_symlinks=False):
                pending.append((entry.path, target))
            elif entry.is_file(follow_symlinks=False):
                _copy_file(entry.path, target)


def _copy_file(source: str, destination: str) -> None:
    """Copy bytes and permissions; a file onto itself stays as it is, a failed new copy is removed."""
    reader = os.open(source, READ_FLAGS | os.O_NOFOLLOW)
    try:
        status = os.fstat(reader)
        writer, is_new = _open_destination(destination, status.st_mode & 0o777)
        try:
            _fill(reader, writer, status)
        except BaseException:
            if is_new:
                with suppress(OSError):
                    os.unlink(destination)
            raise
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _open_destination(path: str, mode: int) -> tuple[int, bool]:
    with suppress(FileExistsError):
        return os.open(path, WRITE_FLAGS | os.O_CREAT | os.O_EXCL, mode), True
    return os.open(path, WRITE_FLAGS | os.O_CREAT, mode), False


def _fill(reader: int, writer: int, source: os.stat_result) -> None:
    target = os.fstat(writer)
    if os.path.samestat(source, target):
        return
    if not stat.S_ISREG(target.st_mode):
        _transfer(reader, writer)
        return
    permissions = stat.S_IMODE(source.st_mode)
    if (source.st_uid, source.st_gid) != (target.st_uid, target.st_gid):
        permissions &= ~(stat.S_ISUID | stat.S_ISGID)  # else a copy would lend its new owner's rights
    os.fchmod(writer, permissions)  # first, so that nobody reads what the source did not show
    os.ftruncate(writer, _transfer(reader, writer))
    if permissions & (stat.S_ISUID | stat.S_ISGID):
        os.fchmod(writer, permissions)  # writing takes these bits away from ordinary users


def _transfer(reader: int, writer: int) -> int:
    """Copy to the end of `reader`; how many bytes that was."""
    copied = 0
    try:
        while count := os.copy_file_range(reader, writer, _RANGE_BYTES):
            copied += count
    except OSError as exc:
        if copied or exc.errno not in _NO_RANGES:
            raise
    # Files that do not know their size, as in /proc, look empty to copy_file_range.
    while block := os.read(reader, _BLOCK_BYTES):
        write_all(writer, block)
        copied += len(block)
    return copied
