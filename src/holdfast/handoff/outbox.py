"""The dispatcher's side of a run's files: those in its workspace, and the grant in its own directory.

    .holdfast/
      .gitignore        ignores all files here, as none is part of the work
      run.json          the grant without its token (that is in the run's own directory), replaced atomically
      outbox/ID.json    an envelope, put there atomically by the worker; ID.bad if it was invalid
      answers/ID.json   its answer, put there atomically before the envelope is removed

The worker owns all of it and may be hostile. Directories are opened one below the other without following
links, names are used relative to the directory that was really opened, and only regular files are read. So
whatever is linked, swapped or planted here, nothing outside is read or written.

The run's own directory (`local/rundirs.py` says where) has the grant with the token, and `board.sock`, which
takes envelopes of its task while the dispatcher lives.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.errors import INTERNAL, OperationFailed, RemoteProtocolError
from holdfast.handoff import envelope
from holdfast.handoff.envelope import ID, MAX_ENVELOPE, Envelope, Grant, HandoffAnswer
from holdfast.local import rundirs
from holdfast.local.atomicfile import open_folder, replace_at

GRANT: Final = "run.json"
SOCKET: Final = "board.sock"
MAX_NAMES: Final = (
    4096  # entries of an outbox looked at in one go: a worker cannot keep us reading its directory
)
MAX_AT_ONCE: Final = 256  # envelopes carried out in one go, so that other workspaces get their turn
NO_NAME: Final = "the name of a report's file has 1 to 64 letters, digits, - or _ before .json"

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a named pipe must not block us
_NO_FILE: Final = (errno.ELOOP, errno.EACCES, errno.ENXIO)  # a link, no permission, a socket


def put_grant(run: str, grant: Grant) -> Path:
    """Write the grant that this run's worker signs with; return its path.

    Raises:
        OperationFailed: it cannot be written.
    """
    return rundirs.put(run, GRANT, msgspec.json.encode(grant))


def place_of(workspace: Path) -> Path:
    """The directory for the envelopes of a worker in this workspace, for the grant."""
    return workspace / ".holdfast" / "outbox"


def lay_out(workspace: Path, grant: Grant) -> Path:
    """Create everything that a worker needs for its report; return the path of run.json.

    Files of an earlier run stay. Obstacles, such as a link, are moved aside or removed.

    Raises:
        OperationFailed: the workspace is no directory, is a link, or cannot be written.
    """
    try:
        with open_folder(str(workspace)) as top, _make_folder(top, ".holdfast") as own:
            for name in ("outbox", "answers"):
                with _make_folder(own, name):
                    pass
            _put(own, ".gitignore", b"*\n", durable=False)
            _put(own, "run.json", msgspec.json.encode(grant), durable=True)
    except OSError as exc:
        raise OperationFailed(f"cannot prepare {workspace} for a report: {exc.strerror}") from None
    return workspace / ".holdfast" / "run.json"


def ingest(
    workspace: Path,
    carry_out: Callable[[Envelope], HandoffAnswer],
    refused: Callable[[str, str], None] = lambda _file, _reason: None,
) -> int:
    """Carry out and answer the envelopes in the outbox, the oldest first; return how many.

    `refused` is called for every rejected file, with the reason, before it is answered and moved aside; after
    a crash it may be called twice. A file name that no envelope can have is reported once and never answered.

    A file is removed once its answer is written. After a kill the same file is read again, which is harmless,
    because its envelope has an id. A file that is not an envelope is answered as well, and kept as ID.bad; so
    is one for which the answer is an internal error.

    Raises:
        HoldfastError: `carry_out` or `refused` cannot tell the result; the file stays for the next call.
    """
    with contextlib.ExitStack() as opened:
        try:
            top = opened.enter_context(open_folder(str(workspace)))
            own = opened.enter_context(open_folder(".holdfast", top))
            outbox = opened.enter_context(open_folder("outbox", own))
            answers = opened.enter_context(_make_folder(own, "answers"))
            names, strange = _list_waiting(outbox)
        except OSError:  # it does not exist (any more), or is not what we made
            return 0
        for name in strange:
            refused(name, NO_NAME)
            with contextlib.suppress(OSError):
                _move_aside(outbox, name)
        return sum(_one(outbox, answers, name, carry_out, refused) for name in names)


def _one(
    outbox: int,
    answers: int,
    name: str,
    carry_out: Callable[[Envelope], HandoffAnswer],
    refused: Callable[[str, str], None],
) -> int:
    id = name.removesuffix(".json")
    try:
        letter = _read(outbox, name)
        if letter.id != id:
            raise RemoteProtocolError("the envelope has another id than its file")
    except OSError:  # gone, or we lack a resource: it is read again later
        return 0
    except RemoteProtocolError as exc:
        answer, bad = envelope.refusal(id, exc), True
    else:
        answer = carry_out(letter)
        bad = (
            answer.error is not None and answer.error.code == INTERNAL.rpc
        )  # an internal error: nothing is discarded
    if answer.error is not None:
        refused(name, answer.error.message)
    try:
        _put(answers, f"{id}.json", msgspec.json.encode(answer), durable=False)
        if bad:
            _move_aside(outbox, name, f"{id}.bad")
        else:
            os.unlink(name, dir_fd=outbox)
    except OSError:  # no room, or the worker is in the way: it is done, and will be answered again
        return 0
    return 1


def _list_waiting(outbox: int) -> tuple[list[str], list[str]]:
    """Names of envelopes by modification time, and of files that were meant to be envelopes.

    Names that begin with a dot are files being written, or files moved aside.
    """
    found, strange = [], []
    with os.scandir(outbox) as entries:
        for number, entry in enumerate(entries):
            if number >= MAX_NAMES:
                break
            if not entry.name.endswith(".json") or entry.name.startswith("."):
                continue
            if not ID.fullmatch(entry.name.removesuffix(".json")):
                strange.append(entry.name)
            else:
                with contextlib.suppress(OSError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
    return [name for _, name in sorted(found)[:MAX_AT_ONCE]], strange[:MAX_AT_ONCE]


def _read(folder: int, name: str) -> Envelope:
    """Raises RemoteProtocolError if it is not an envelope, OSError if it cannot be read."""
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except OSError as exc:
        if exc.errno in _NO_FILE:
            raise RemoteProtocolError("this is no regular file that can be read") from None
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise RemoteProtocolError("this is no regular file")
        if status.st_size > MAX_ENVELOPE:
            raise RemoteProtocolError(f"an envelope has at most {MAX_ENVELOPE} bytes")
        with open(fd, "rb", closefd=False) as file:
            return envelope.decode(file.read(MAX_ENVELOPE + 1))
    finally:
        os.close(fd)


def _put(folder: int, name: str, data: bytes, *, durable: bool) -> None:
    """Replace a file atomically. A link of that name is replaced, not followed."""
    try:
        replace_at(folder, name, data, durable=durable)
    except IsADirectoryError:
        _move_aside(folder, name)
        replace_at(folder, name, data, durable=durable)


def _move_aside(folder: int, name: str, new: str | None = None) -> None:
    """Rename it to `new` if no directory has that name, else to a random hidden name."""
    try:
        os.rename(name, new or f".{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=folder)
    except (IsADirectoryError, NotADirectoryError, FileExistsError):
        os.rename(name, f".{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=folder)


@contextlib.contextmanager
def _make_folder(above: int, name: str) -> Iterator[int]:
    """Open the directory of this name; create it if missing. Anything else of that name is moved aside."""
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            _move_aside(above, name)
            os.mkdir(name, 0o700, dir_fd=above)
    with open_folder(name, above) as fd:
        yield fd
