"""Orders to the launcher and its answers (datagrams with descriptors attached), and the report of a start.

The report is what the process around a command writes to its status pipe before the command runs, as words
that end with a NUL. If the set-up failed, it names the stage; if it succeeded, it says what came out weaker.
Our own backend also reports that the command runs. So a process killed before that is not mistaken for a
running command, and the reader need not wait for the end of the pipe. A job is forked before it becomes the
command: its word is "begins", and a failure reported after it is what counts. The other backends have no
process that could report this. There the pipe is closed by exec and ends without a failure.

Imported by the launcher, so: standard library only, and little of it. A process that sends no orders loads
no socket module.
"""

import errno
import os
import struct

from holdfast.light import TYPE_CHECKING, Final, Iterable, NamedTuple
from holdfast.sandbox.kernel.kernel import StageFailed

if TYPE_CHECKING:
    import _socket

START, SIGNAL, END_OWNER, BE_WATCHER = 1, 2, 3, 4
STARTED, EXITED = 1, 2

TTY, HAS_STATE, IN_MEMFD, USER_NAMESPACE, BWRAP, LANDLOCK, DEGRADED, WATCH = (1 << bit for bit in range(8))

# Only set by an owner for itself; never sent except to a spare of its own:
KEPT: Final = 1 << 8  # not confined, but ended like a confined command
JOB: Final = 1 << 9  # the process around the job leads the session of its terminal; report when the job stops

LIMITS: Final = "lim."  # prefix of the word in a start's event that says how its limits are enforced

_REQUEST: Final = struct.Struct(
    "<BIIHiIIII"
)  # op id owner flags signal argc envc, lengths of plan and payload
_EVENT: Final = struct.Struct("<BIIiiQQQ64s")  # op id pid errno status, user and system us, peak rss, stage

STATE_FD: Final = 9  # where a command finds the descriptor that restores its shell state
MAX_INLINE: Final = 64 * 1024  # below the default socket buffer; larger requests travel in a memfd
MAX_FDS: Final = (
    10  # stdin, stdout, stderr, shell state, job, watch; status, listeners, masks of a spare; memfd
)
MAX_RIGHTS: Final = 253  # linux/net/scm.h: per message
MAX_PAYLOAD: Final = 8 * 1024 * 1024  # more than the kernel takes as arguments and environment
MAX_REPORT: Final = 8192  # a few words and one path
_FAILED, _WEAKENED, _RUNS, _BEGINS = "failed", "weakened", "runs", "begins"
_LAST: Final = f"{_RUNS}\0".encode()


class Order(NamedTuple):
    """One order. A start comes with stdin, stdout, stderr; optionally shell state, job pipe, watch socket.

    BE_WATCHER comes with the watcher's socket, and is answered like a start.
    """

    op: int
    id: int = 0
    owner: int = 0
    flags: int = 0
    signal: int = 0
    cwd: bytes = b""
    program: bytes = b""
    argv: tuple[bytes, ...] = ()
    env: tuple[bytes, ...] = ()
    plan: bytes = b""  # the sandbox's plan; empty: run unconfined
    tool: bytes = b""  # the external program that confines, if any
    limits: bytes = b""  # resource limits (`sandbox/limits.py`); empty: none


class ConfinementKind(NamedTuple):
    """What a process around a command needs to have before anything is known about its files."""

    userns: bool
    network_off: bool


class Event(NamedTuple):
    """One report: STARTED with a pid, or with an errno and no pid; EXITED with status and usage.

    For a confined start, `stage` names the failed step of the set-up, or what came out weaker and how limits
    are enforced. For an end, it names the limit that was reached.
    """

    op: int
    id: int
    pid: int
    errno: int = 0
    status: int = 0
    user_us: int = 0
    system_us: int = 0
    peak_rss: int = 0
    stage: str = ""


def send_request(sock: "_socket.socket", request: Order, fds: tuple[int, ...] = ()) -> None:
    """Send one order. Raises OSError if the launcher is gone or the order is too large."""
    import _socket as socket  # the full `socket` module takes longer to load than an order takes to send

    fields = (
        (request.cwd, request.program, request.tool, request.limits, *request.argv, *request.env)
        if request.op == START
        else ()
    )
    payload = b"\0".join(fields) + request.plan
    if len(payload) > MAX_PAYLOAD:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    flags, memfd = request.flags, -1
    if len(payload) > MAX_INLINE:
        memfd = in_memory("holdfast-start", payload)
        flags |= IN_MEMFD
        fds = (*fds, memfd)
    try:
        header = _REQUEST.pack(
            request.op,
            request.id,
            request.owner,
            flags,
            request.signal,
            len(request.argv),
            len(request.env),
            len(request.plan),
            len(payload),
        )
        parts = [header] if memfd >= 0 else [header, payload]
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
        sock.sendmsg(parts, ancillary)
    finally:
        if memfd >= 0:
            os.close(memfd)


def unpack_event(data: bytes) -> Event:
    *numbers, stage = _EVENT.unpack(data)
    return Event._make((*numbers, stage.rstrip(b"\0").decode("ascii")))


def pack_event(event: Event) -> bytes:
    return _EVENT.pack(*event[:-1], event.stage.encode("ascii"))


def receive_event(sock: "_socket.socket", max_fds: int) -> tuple[Event, list[int]] | None:
    """The next report and the descriptors that came with it, or None if the launcher is gone."""
    data, fds = receive_with_fds(sock, _EVENT.size, max_fds)
    return (unpack_event(data), fds) if data else None


class DescriptorsLost(OSError):
    """A message came without all of its descriptors, because this process has no room for them.

    `data` is the message's text.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(errno.EMFILE, os.strerror(errno.EMFILE))
        self.data = data


def receive_with_fds(
    sock: "_socket.socket", size: int, max_fds: int, flags: int = 0
) -> tuple[bytes, list[int]]:
    """Receive one message with its descriptors as close-on-exec, which the library's `recv_fds` does not do.

    Descriptors for which there is no room are missing.
    """
    data, fds, _ = _receive(sock, size, max_fds, flags)
    return data, fds


def receive_all_fds(
    sock: "_socket.socket", size: int, max_fds: int, flags: int = 0
) -> tuple[bytes, list[int]]:
    """Receive one message with all of its descriptors.

    Raises:
        DescriptorsLost: there is no room for all of them.
        OSError: there is no message.
    """
    data, fds, whole = _receive(sock, size, max_fds, flags)
    if not whole:
        for fd in fds:
            os.close(fd)
        raise DescriptorsLost(data)
    return data, fds


def _receive(sock: "_socket.socket", size: int, max_fds: int, flags: int) -> tuple[bytes, list[int], bool]:
    import _socket as socket

    flags |= socket.MSG_CMSG_CLOEXEC
    data, ancillary, told, _ = sock.recvmsg(size, socket.CMSG_SPACE(max_fds * 4), flags)
    fds = [fd for _level, _kind, raw in ancillary for (fd,) in struct.iter_unpack("i", raw)]
    return data, fds, not told & socket.MSG_CTRUNC


def take_listeners(channel: "_socket.socket") -> list[int]:
    """The listening sockets sent on this channel, none if the sender was killed; the caller closes them.

    Those for names come first (`names.py`), in a message of their own. The channel is closed.
    """
    taken: list[int] = []
    channel.setblocking(False)
    try:
        while True:
            data, fds = receive_with_fds(channel, 1, MAX_RIGHTS)
            if not data:
                return taken
            taken += fds
    except OSError:
        return taken  # no further message was sent
    finally:
        channel.close()


def in_memory(name: str, data: bytes) -> int:
    """A file in memory with this content. Raises OSError."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd


def receive(sock: "_socket.socket") -> tuple[Order, list[int]] | None:
    """The next order with its descriptors, or None if the sender is gone.

    Raises:
        DescriptorsLost: it came without all of them; `id_of` gives the order's id.
    """
    data, fds = receive_all_fds(sock, _REQUEST.size + MAX_INLINE, MAX_FDS)
    if not data:
        return None
    op, id_, owner, flags, signum, argc, envc, plan_length, length = _REQUEST.unpack_from(data)
    payload = data[_REQUEST.size :]
    if flags & IN_MEMFD:
        memfd = fds.pop()
        payload = os.pread(memfd, length, 0)
        os.close(memfd)
    if op != START:
        return Order(op, id_, owner, flags, signum), fds
    end = len(payload) - plan_length
    fields = payload[:end].split(b"\0")
    cwd, program, tool, limits = fields[:4]
    argv, env = tuple(fields[4 : 4 + argc]), tuple(fields[4 + argc : 4 + argc + envc])
    return Order(op, id_, owner, flags, signum, cwd, program, argv, env, payload[end:], tool, limits), fds


def id_of(data: bytes) -> int:
    """The id of an order, from its first bytes."""
    return int(_REQUEST.unpack_from(data)[1])


class StartReport(NamedTuple):
    """The content of the status pipe."""

    weakened: tuple[str, ...] = ()
    failure: StageFailed | None = None
    runs: bool = False  # the process around the command reported that it runs


def encode_report(
    weakened: Iterable[str] = (),
    *,
    failure: StageFailed | None = None,
    runs: bool = False,
    begins: bool = False,
) -> bytes:
    """The bytes to write to the status pipe; empty if there is nothing to report."""
    fields = [field for word in weakened for field in (_WEAKENED, word)]
    if failure is not None:
        fields += [_FAILED, failure.stage, str(failure.errno), failure.path]
    elif runs or begins:
        fields.append(_RUNS if runs else _BEGINS)
    return "".join(f"{field}\0" for field in fields).encode("utf-8", "surrogateescape")


def is_complete(data: bytes) -> bool:
    """Whether the report is complete, even if the pipe has not ended."""
    return data.endswith(_LAST)


def decode_report(data: bytes) -> StartReport:
    """The report in what was read from the status pipe until its end.

    Raises:
        ValueError: these bytes are not a report.
    """
    fields = iter(data.decode("utf-8", "surrogateescape").split("\0")[:-1])
    weakened: list[str] = []
    runs = False
    for kind in fields:
        if kind == _WEAKENED:
            weakened.append(next(fields, ""))
        elif kind == _FAILED:
            stage, code, path = next(fields, ""), next(fields, ""), next(fields, "")
            return StartReport(tuple(weakened), StageFailed(stage, int(code), path))
        elif kind in (_RUNS, _BEGINS):
            runs = True
        else:
            raise ValueError("not a report")
    return StartReport(tuple(weakened), runs=runs)
