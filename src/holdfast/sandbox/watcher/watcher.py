"""The watcher: a small process that is notified of the watched calls of one command before they are made.

The watcher reads a call's arguments from the caller's memory and checks whether the sandbox may refuse it
(`foresight.py`). Then it lets the call go on. For a suspected call it reads the kernel's answer as the
caller returns (`answers.py`), and reports a denial only if that was a refusal. If the answer cannot be read,
the call is reported as foreseen and not confirmed. Reports are evidence, not enforcement: the sandbox
decides in any case. The memory can change after we looked, but not the answer.

A command has one listener, so where a broker is needed the watcher is the broker too (`broker.py`). A call
that the broker carries out never goes on, and a call that it refuses is reported as refused.

The kernel's notification of a call is received into memory that outlives us. If we are killed in between,
our successor finds the call there and answers it. No call is lost; the caller only waits. An answer that the
kernel accepts proves that the caller was still waiting. So what we read was the caller's own memory and not
that of another process with the same pid. Files are looked at as the command sees them, from its root on.

    standard input: a socket; first the scene with listener, root and memory, then reports go back on it

Standard library only, and little of it: one such process, a fork of the launcher, runs beside every watched
command.
"""

import ctypes
import errno
import gc
import json
import mmap
import os
import select
import signal
import socket
import stat
import sys
import time
from typing import Final, NamedTuple, NoReturn

from holdfast.sandbox.kernel import kernel
from holdfast.sandbox.kernel.kernel import open_in_root
from holdfast.sandbox.plan.plan import MAX_SOCKETS
from holdfast.sandbox.protocol.orders import receive_with_fds
from holdfast.sandbox.watcher import broker, foresight
from holdfast.sandbox.watcher.answers import Answers
from holdfast.sandbox.watcher.broker import (
    NOTICE,
    RECEIVE,
    RESPONSE,
    SEND,
    SET_FLAGS,
    SYNC_WAKE_UP,
    Answered,
    Broker,
    CallRefusal,
    GrantedSocket,
    SocketRules,
    ioctl,
    still_waits,
)
from holdfast.sandbox.watcher.foresight import Suspect, Terrain, WatchScene
from holdfast.sandbox.watcher.memory import Memory
from holdfast.sandbox.watcher.notifyfilter import LISTEN, WRITE_INTENT, Aim, Call, PathArgument, list_watched

MAX_LINKS: Final = 8  # dangling links that we follow ourselves
# Paths that lead nowhere for the command either; EXDEV: a descriptor below /proc, which means ours there.
_NOWHERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EXDEV)
_SPECIAL: Final = (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK)


class View:
    """The files as the command sees them, from its root on."""

    def __init__(self, root: int) -> None:
        self._root = root

    def _open(self, path: bytes, *, follow: bool) -> int:
        return open_in_root(path, self._root, follow=follow)

    def look(self, path: bytes, *, follow: bool, whole: bool) -> Terrain:
        """What is at this path, resolved as the kernel would.

        Unless `whole` is set, a file on a writable mount is not inspected any further.
        """
        for _ in range(MAX_LINKS):
            try:
                fd = self._open(path, follow=follow)
            except OSError as exc:
                if exc.errno != errno.ENOENT:
                    return self._look_around(path, exc, follow=follow)
            else:
                return self._describe(fd, whole=whole)
            target = self._read_dangling(path) if follow else None
            if target is None:
                break
            path = os.path.join(os.path.dirname(path.rstrip(b"/")), target)
        folder, name = os.path.split(path.rstrip(b"/"))
        try:
            fd = self._open(folder, follow=True)
        except OSError as exc:
            return self._look_around(path, exc, follow=follow)
        above = self._describe(fd, whole=whole, name=name)
        return above._replace(exists=False, special=False)

    def _look_around(self, path: bytes, failed: OSError, *, follow: bool) -> Terrain:
        """What can be said after a failed look; if access is denied, the last visible directory on the way.

        Raises:
            OSError: our own error, which is not what the command will get.
        """
        if failed.errno in _NOWHERE:
            return Terrain(decode_path(os.path.normpath(path)), exists=False)
        if failed.errno != errno.EACCES:
            raise failed
        seen: bytes = b"/"
        rest: tuple[bytes, ...] = ()
        for _ in range(MAX_LINKS):
            seen, rest = self._climb(path)
            target = self._read_dangling(os.path.join(seen, rest[0])) if follow or len(rest) > 1 else None
            if target is None:
                break
            path = os.path.join(seen, target, *rest[1:])
        below = rest[: rest.index(b"..")] if b".." in rest else rest  # a ".." cannot lead back out of there
        whole = os.path.normpath(os.path.join(seen, *below))
        return Terrain(decode_path(whole), exists=False, shut=True)

    def _climb(self, path: bytes) -> tuple[bytes, tuple[bytes, ...]]:
        """The last directory on the way to a path that we can look at, and the rest of the path."""
        rest: tuple[bytes, ...] = ()
        while path.strip(b"/"):
            path, name = os.path.split(path.rstrip(b"/"))
            rest = (name, *rest)
            try:
                fd = self._open(path, follow=True)
            except OSError:
                continue
            try:
                return os.readlink(b"/proc/self/fd/%d" % fd), rest
            finally:
                os.close(fd)
        return b"/", rest or (b".",)

    def _describe(self, fd: int, *, whole: bool, name: bytes = b"") -> Terrain:
        try:
            read_only = bool(os.fstatvfs(fd).f_flag & os.ST_RDONLY)
            if not (read_only or whole):
                return Terrain("")  # nothing here decides on it, whatever it is
            path = os.readlink(b"/proc/self/fd/%d" % fd)
            kind = stat.S_IFMT(os.fstat(fd).st_mode)
        finally:
            os.close(fd)
        resolved = decode_path(os.path.join(path, name) if name else path)
        return Terrain(resolved, special=kind in _SPECIAL, read_only=read_only)

    def _read_dangling(self, path: bytes) -> bytes | None:
        try:
            fd = self._open(path, follow=False)
        except OSError:
            return None
        try:
            return os.readlink(b"", dir_fd=fd)
        except OSError:
            return None
        finally:
            os.close(fd)


def name_of(pid: int) -> str:
    """The name of the process; empty if it is gone."""
    try:
        fd = os.open(b"/proc/%d/comm" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return decode_path(os.read(fd, 64).rstrip(b"\n"))
    except OSError:
        return ""
    finally:
        os.close(fd)


def decode_path(data: bytes) -> str:
    """A path as text that can be sent, whatever its bytes."""
    return data.decode("utf-8", "backslashreplace")


NAME: Final = b"holdfast-watch"  # name in ps
MAX_SCENE: Final = 128 * 1024  # bytes of the first message: some thousand paths
MAX_KINDS: Final = 512  # distinct denials; further ones are only counted
MAX_KIND_BYTES: Final = 512 * 1024  # of their paths
FLUSH_S: Final = 0.25  # how long the report of a repetition may be delayed
MAX_TOLD: Final = (
    32  # repetitions reported at a time: a program that tries hundreds of paths must not flood others
)
MEMORY_BYTES: Final = mmap.PAGESIZE
_CONTINUE: Final = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_ZERO: Final = bytes(NOTICE.size)
_AT_FDCWD: Final = -100 & 0xFFFFFFFF
_ADDRESS_BYTES: Final = 110  # struct sockaddr_un

_SOCKET: Final = "socket"  # the access of a refused unix socket in a report


def _rules_of(scene: WatchScene, pinned: tuple[int, ...]) -> SocketRules:
    held = dict(zip((path for path, replaceable in scene.sockets if replaceable), pinned, strict=True))
    granted = (GrantedSocket(os.fsencode(path), held.get(path)) for path, _ in scene.sockets)
    return SocketRules(scene.network_off, tuple(granted), scene.asks)


class _Asked(NamedTuple):
    """One path of a call as its caller wrote it, and as an absolute path."""

    written: bytes
    path: bytes
    follow: bool


class _Denied(NamedTuple):
    """The key of distinct denials."""

    syscall: str
    access: str
    errno: str
    path: str
    predicted: bool  # the kernel's answer is unknown


class _Suspected(NamedTuple):
    """A call that was let go on, or is being carried out, until its answer is known."""

    syscall: str
    suspects: tuple[Suspect, ...]
    pid: int
    comm: str


class _Kind:
    """One kind of denial, and how many of it were not reported yet."""

    __slots__ = ("asked", "comm", "count", "pid")

    def __init__(self) -> None:
        self.asked, self.comm, self.pid, self.count = "", "", 0, 0


class Watcher:
    """The loop: receives calls, answers them, reports denials."""

    def __init__(
        self, sock: socket.socket, scene: WatchScene, listener: int, root: int, memory: int, *pinned: int
    ) -> None:
        self._sock, self._scene, self._listener = sock, scene, listener
        self._shared = mmap.mmap(memory, MEMORY_BYTES)
        self._notice = ctypes.addressof(ctypes.c_char.from_buffer(self._shared))
        self._answer = ctypes.create_string_buffer(RESPONSE.size)
        self._response = ctypes.addressof(self._answer)
        self._memory, self._view = Memory(), View(root)
        self._calls = list_watched(os.uname().machine)
        self._broker = Broker(listener, _rules_of(scene, pinned)) if scene.mounts else None
        self._listening = LISTEN.number(os.uname().machine)
        self._answers = Answers()
        self._returning: dict[int, _Suspected] = {}  # by thread
        self._connecting: dict[int, _Suspected] = {}  # by call
        self._kinds: dict[_Denied, _Kind] = {}
        self._bytes = 0
        self._fresh: list[_Denied] = []  # to be reported at once
        self._due: dict[_Denied, None] = {}
        self._next_flush = 0.0
        self._dropped = self._unread = 0
        self._counted = (0, 0)
        # A hint: the caller sleeps until we have answered. Halves the wait on a loaded machine; Linux 6.6.
        ioctl(listener, SET_FLAGS, SYNC_WAKE_UP)
        self._poll = select.poll()
        self._poll.register(self._answers.fd, select.POLLIN)
        self._poll.register(listener, select.POLLIN)
        self._poll.register(sock, select.POLLIN)

    def run(self) -> None:
        """Serve until the command has ended, or the receiver of the reports is gone."""
        if self._shared[:8] != _ZERO[:8]:
            self._serve()  # a call that a predecessor left
        while True:
            waits = self._broker is not None and self._broker.waits
            if waits and self._broker is not None:
                self._broker.let_go()
            for fd, event in self._poll.poll(FLUSH_S * 1000 if self._due or waits else None):
                if fd == self._answers.fd:
                    self._take_answers()
                elif fd != self._listener:
                    return
                elif event & select.POLLIN:
                    if ioctl(fd, RECEIVE, self._notice) == 0:
                        self._serve()
                    else:
                        self._shared[: NOTICE.size] = _ZERO  # the caller was killed meanwhile
                else:
                    self._take_connected()
                    self._sock.setblocking(
                        True
                    )  # every process that could make calls has ended: none waits for us
                    self._flush(MAX_KINDS, flags=0)
                    return
            self._take_connected()
            if self._due and time.monotonic() >= self._next_flush:
                self._flush()

    def _serve(self) -> None:
        """Read the call in our memory, check it, and answer it."""
        id_, pid, _, number, _, _, *args = NOTICE.unpack_from(self._shared)
        call = self._calls.get(number)
        suspected = self._suspect(call, pid, args) if call is not None else None
        if self._broker is not None and self._broker.serves(number):
            self._carry_out(self._broker, id_, pid, number, args, suspected)
            return
        confirmed = suspected is not None and self._expect(id_, suspected)
        if number == self._listening:
            RESPONSE.pack_into(self._answer, 0, id_, 0, -errno.EBUSY, 0)  # as the kernel answers
        else:
            RESPONSE.pack_into(self._answer, 0, id_, 0, 0, _CONTINUE)
        answered = ioctl(self._listener, SEND, self._response) == 0
        self._shared[: NOTICE.size] = _ZERO
        if not answered or suspected is None or confirmed:
            return
        if number == self._listening:
            self._told(suspected, "EBUSY")
        else:
            self._told(suspected, suspected.suspects[0].errnos[0], predicted=True)

    def _expect(self, id_: int, suspected: _Suspected) -> bool:
        """Arrange to read the kernel's answer to this call; return False if that is impossible."""
        pid = suspected.pid
        if suspected.suspects[0].aim is Aim.LISTEN:
            return False  # we answer it ourselves
        joined = self._answers.expects(pid) or self._answers.expect(
            pid, lambda: still_waits(self._listener, id_)
        )
        if joined:
            self._returning[pid] = suspected
        return joined

    def _carry_out(
        self, broker: Broker, id_: int, pid: int, number: int, args: list[int], suspected: _Suspected | None
    ) -> None:
        """Let the broker carry out the call; report it if the broker or the sandbox refuses."""
        comm = name_of(pid) if suspected is None else suspected.comm
        outcome = broker.serve(id_, pid, number, args)
        self._shared[: NOTICE.size] = _ZERO
        match outcome:
            case CallRefusal(path, code):
                shown = decode_path(path)
                key = _Denied(self._calls[number].name, _SOCKET, errno.errorcode[code], shown, False)
                self._denied(key, shown, pid, comm)
            case Answered(code) if suspected is not None and code:
                self._told(suspected, errno.errorcode.get(code, ""))
            case None if suspected is not None:
                self._connecting[id_] = suspected

    def _take_answers(self) -> None:
        for pid, code in self._answers.collect():
            suspected = self._returning.pop(pid, None)
            if suspected is not None and code:
                self._told(suspected, errno.errorcode.get(code, ""))

    def _take_connected(self) -> None:
        if self._broker is None or not self._connecting:
            return
        for id_, code in self._broker.take_answered().items():
            suspected = self._connecting.pop(id_, None)
            if suspected is not None and code:
                self._told(suspected, errno.errorcode.get(code, ""))

    # --- the arguments of a call

    def _flags(self, call: Call, pid: int, args: list[int]) -> int:
        if call.flags is None:
            return os.O_CREAT if call.name == "creat" else 0
        if call.name == "openat2":
            return int.from_bytes(self._memory.read(pid, args[call.flags], 8), sys.byteorder)
        return args[call.flags]

    def _read_asked(
        self, call: Call, pid: int, args: list[int], flags: int
    ) -> list[_Asked] | foresight.Address:
        aim = call.aims[0]
        if aim is Aim.LISTEN or (aim is Aim.OPEN and call.flags is not None and not flags & WRITE_INTENT):
            return []
        if aim in (Aim.CONNECT, Aim.BIND):
            place = call.places[0].path
            length = args[place + 1] & 0xFFFFFFFF
            address = foresight.address_of(self._memory.read(pid, args[place], min(length, _ADDRESS_BYTES)))
            if aim is Aim.CONNECT or not address.path:
                return address
            return [self._from_root(address.path, pid, _AT_FDCWD, follow=False)]
        return [
            self._from_root(*self._read_place(place, pid, args), follow=self._follows(call, place, flags))
            for place in call.places
            if args[place.path]  # without a path the call is about a descriptor
        ]

    def _read_place(self, place: PathArgument, pid: int, args: list[int]) -> tuple[bytes, int, int]:
        directory = _AT_FDCWD if place.directory is None else args[place.directory]
        return self._memory.text(pid, args[place.path]), pid, directory

    @staticmethod
    def _follows(call: Call, place: PathArgument, flags: int) -> bool:
        if call.aims[0] is Aim.OPEN:
            return not (flags & os.O_NOFOLLOW or (flags & os.O_CREAT and flags & os.O_EXCL))
        return place.follow and not flags & call.unfollow

    @staticmethod
    def _from_root(written: bytes, pid: int, directory: int, *, follow: bool) -> _Asked:
        if written.startswith(b"/"):
            return _Asked(written, written, follow)
        number = directory & 0xFFFFFFFF  # the kernel uses only these bits
        link = b"cwd" if number == _AT_FDCWD else b"fd/%d" % number
        return _Asked(written, os.path.join(os.readlink(b"/proc/%d/%b" % (pid, link)), written), follow)

    # --- before the answer: what the sandbox may refuse

    def _suspect(self, call: Call, pid: int, args: list[int]) -> _Suspected | None:
        """The parts of a call that the sandbox may refuse; None if there are none."""
        try:
            flags = self._flags(call, pid, args)
            suspects = self._find_suspects(call, self._read_asked(call, pid, args, flags))
            if suspects and call.origin is not None and not self._scene.mounts:
                origin = self._from_root(*self._read_place(call.origin, pid, args), follow=False)
                if self._look(origin, Aim.OPEN).shut:
                    return None  # refused by a mode, before Landlock is consulted
            return _Suspected(call.name, suspects, pid, name_of(pid)) if suspects else None
        except (OSError, ValueError):
            self._unread += 1  # the process is gone, or its memory may not be read
            return None

    def _find_suspects(self, call: Call, asked: list[_Asked] | foresight.Address) -> tuple[Suspect, ...]:
        """The suspects of a call; for a move, the target comes before the source."""
        if isinstance(asked, foresight.Address):
            reached = call.aims[0] is Aim.CONNECT
            found = [foresight.suspect_connect(asked, self._scene)] if reached else []
        elif call.aims[0] is Aim.LISTEN:
            found = [Suspect(Aim.LISTEN, "", "", True, ("EBUSY",))]
        else:
            looked = [(aim, one, self._look(one, aim)) for aim, one in zip(call.aims, asked, strict=False)]
            if not self._scene.mounts and any(at.shut for _, _, at in looked):
                return ()  # refused by a mode, before Landlock is consulted about any of them
            dotted = any(os.path.basename(one.path.rstrip(b"/")) in (b".", b"..") for one in asked)
            found = [
                foresight.suspect(
                    aim,
                    at._replace(dotted=dotted),
                    decode_path(one.written),
                    self._scene,
                    moves=call.moves,
                )
                for aim, one, at in looked
            ]
        return tuple(one for one in reversed(found) if one is not None)

    def _look(self, asked: _Asked, aim: Aim) -> Terrain:
        entry = aim in (Aim.REMOVE, Aim.CREATE)
        path = asked.path.rstrip(b"/") if entry else asked.path  # a final slash is checked last
        at = self._view.look(path, follow=asked.follow, whole=entry or not self._scene.mounts)
        if entry and at.path in self._scene.fixed:
            # The mount around a mount point decides whether the mount point can go.
            around = self._view.look(os.path.dirname(path), follow=True, whole=True)
            at = at._replace(read_only=around.read_only)
        return at

    # --- after the answer: reports

    def _told(self, suspected: _Suspected, code: str, *, predicted: bool = False) -> None:
        """The kernel gave this answer, or is expected to: report it if it refuses what was suspected."""
        one = foresight.blame(code, suspected.suspects)
        if one is not None:
            key = _Denied(suspected.syscall, one.access, code, one.path, predicted)
            self._denied(key, one.asked, suspected.pid, suspected.comm)

    def _denied(self, key: _Denied, asked: str, pid: int, comm: str) -> None:
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= MAX_KINDS or self._bytes + len(key.path) > MAX_KIND_BYTES:
                self._dropped += 1
                return
            kind = self._kinds[key] = _Kind()
            self._bytes += len(key.path)
            self._fresh.append(key)
            self._next_flush = 0.0
        kind.asked, kind.pid, kind.comm, kind.count = asked, pid, comm or name_of(pid), kind.count + 1
        self._due[key] = None

    def _flush(self, most: int = MAX_TOLD, flags: int = socket.MSG_DONTWAIT) -> None:
        """Report new kinds, and at most `most` of the others; what does not fit into the socket waits."""
        self._next_flush = time.monotonic() + FLUSH_S
        fresh, self._fresh = self._fresh, []
        for key in dict.fromkeys([*fresh, *list(self._due)[:most]]):
            kind = self._kinds[key]
            told = {
                **key._asdict(),
                "asked": kind.asked,
                "pid": kind.pid,
                "comm": kind.comm,
                "count": kind.count,
            }
            if not self._tell(told, flags):
                return
            del self._due[key]
            kind.count = 0
        if self._counted != (self._dropped, self._unread):
            counted = self._dropped, self._unread
            if self._tell({"dropped": counted[0], "unread": counted[1]}, flags):
                self._counted = counted

    def _tell(self, message: dict[str, object], flags: int) -> bool:
        try:
            self._sock.send(json.dumps(message).encode(), flags)
        except OSError:
            return False
        return True


def become(fd: int) -> NoReturn:
    """Run as the watcher on this socket, in a fork of the launcher; close the launcher's descriptors."""
    code = 1
    try:
        os.setsid()
        kernel.die_with_parent(signal.SIGKILL)
        os.dup2(fd, 0)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(null, 1)
        os.dup2(null, 2)
        kernel.close_from(3)
        gc.enable()  # this process may run for days
        with open("/proc/self/comm", "wb") as name:
            name.write(NAME)
        sock = socket.socket(fileno=0)
        data, fds = receive_with_fds(sock, MAX_SCENE, 3 + MAX_SOCKETS)
        if len(fds) >= 3:
            broker.hold_back()  # even without a broker: we may only look where the command may
            Watcher(sock, foresight.decode(data), *fds).run()
        code = 0
    finally:
        os._exit(code)  # no exception may return into the launcher's loop
