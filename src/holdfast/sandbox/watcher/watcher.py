"""The watcher: a small process that hears of the watched calls of one command before they are made.

It reads what a call is about from the caller's memory, lets the call go on, and only then asks
what will have become of it (`foresight.py`): so it cannot hold up a command by looking at a disk that
hangs, and what a call changed meanwhile does not look like a denial. Evidence, not enforcement: the
memory can change after we looked, and the sandbox decides all the same.

A command has one listener, so where a broker is needed the watcher is that too (`broker.py`): what the broker
carries out never goes on, and what it refuses is told as it was refused.

What the kernel says about a call is received into memory that outlives us. Killed in between, our
successor finds the call there and answers it; no call is lost, the caller only waits. An answer that the
kernel takes proves that the caller was still waiting, hence that what we read was its own memory and not
that of another process with its number. Files are looked at as the command sees them, from its root on.

    standard input: a socket; first the scene with listener, root and memory, then reports go back on it

Standard library only, and little of it: one such process, a fork of the launcher, runs beside every watched
command.
"""

import contextlib
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
from holdfast.sandbox.kernel.kernel import OpenHow, openat2
from holdfast.sandbox.plan.plan import MAX_SOCKETS
from holdfast.sandbox.protocol.orders import receive_with_fds
from holdfast.sandbox.watcher import broker, foresight
from holdfast.sandbox.watcher.broker import (
    NOTICE,
    RECEIVE,
    RESPONSE,
    SEND,
    SET_FLAGS,
    SYNC_WAKE_UP,
    Broker,
    GrantedSocket,
    SocketRules,
    ioctl,
)
from holdfast.sandbox.watcher.foresight import Terrain, WatchScene
from holdfast.sandbox.watcher.memory import Memory
from holdfast.sandbox.watcher.notifyfilter import LISTEN, WRITE_INTENT, Aim, Call, PathArgument, list_watched

MAX_LINKS: Final = 8  # dangling links followed by hand
_O_PATH: Final = os.O_PATH | os.O_CLOEXEC
_IN_ROOT: Final = 0x10  # RESOLVE_IN_ROOT
_SPECIAL: Final = (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK)


class View:
    """The files as the command sees them, from its root on."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._hows = {
            follow: OpenHow(_O_PATH | (0 if follow else os.O_NOFOLLOW), 0, _IN_ROOT) for follow in (0, 1)
        }

    def _open(self, path: bytes, *, follow: bool) -> int:
        how = self._hows[follow]
        return openat2(self._root, path.lstrip(b"/") or b".", ctypes.addressof(how), ctypes.sizeof(how))

    def look(self, path: bytes, *, follow: bool, whole: bool) -> Terrain:
        """What is at this path, resolved as the kernel would.

        Unless the `whole` is wanted, what is not on a read-only mount is not looked at any further.
        """
        for _ in range(MAX_LINKS):
            try:
                fd = self._open(path, follow=follow)
            except OSError as exc:
                if exc.errno != errno.ENOENT:
                    return Terrain(decode_path(os.path.normpath(path)), exists=False, reachable=False)
            else:
                return self._describe(fd, whole=whole)
            target = self._read_dangling(path) if follow else None
            if target is None:
                break
            path = os.path.join(os.path.dirname(path.rstrip(b"/")), target)
        folder, name = os.path.split(path.rstrip(b"/"))
        try:
            fd = self._open(folder, follow=True)
        except OSError:
            return Terrain(decode_path(os.path.normpath(path)), exists=False, reachable=False)
        above = self._describe(fd, whole=whole, name=name)
        return above._replace(exists=False, special=False, directory=False)

    def _describe(self, fd: int, *, whole: bool, name: bytes = b"") -> Terrain:
        try:
            read_only = bool(os.fstatvfs(fd).f_flag & os.ST_RDONLY)
            if not (read_only or whole):
                return Terrain("")  # nothing here decides about it, whatever it is
            path = os.readlink(b"/proc/self/fd/%d" % fd)
            kind = stat.S_IFMT(os.fstat(fd).st_mode)
        finally:
            os.close(fd)
        resolved = decode_path(os.path.join(path, name) if name else path)
        return Terrain(
            resolved, special=kind in _SPECIAL, directory=kind == stat.S_IFDIR, read_only=read_only
        )

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
    """What the process is called; empty if it is gone."""
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


NAME: Final = b"holdfast-watch"  # how ps calls it
MAX_SCENE: Final = 128 * 1024  # bytes of the first message: some thousand paths
MAX_KINDS: Final = 512  # denials told apart; further ones are only counted
MAX_KIND_BYTES: Final = 512 * 1024  # of their paths
FLUSH_S: Final = 0.25  # how long a repetition may wait to be told
MAX_TOLD: Final = (
    32  # repetitions told at a time; a program that tries hundreds of paths is no flood for others
)
MEMORY_BYTES: Final = mmap.PAGESIZE
_CONTINUE: Final = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_ZERO: Final = bytes(NOTICE.size)
_AT_FDCWD: Final = -100 & 0xFFFFFFFF
_ADDRESS_BYTES: Final = 110  # struct sockaddr_un

_SOCKET: Final = "socket"  # how a refused unix socket is called in a report


def _rules_of(scene: WatchScene, pinned: tuple[int, ...]) -> SocketRules:
    held = dict(zip((path for path, replaceable in scene.sockets if replaceable), pinned, strict=True))
    granted = (GrantedSocket(os.fsencode(path), held.get(path)) for path, _ in scene.sockets)
    return SocketRules(scene.network_off, tuple(granted))


class _Asked(NamedTuple):
    """One path of a call as its caller wrote it, and from the root on."""

    written: bytes
    path: bytes
    follow: bool


class _Denied(NamedTuple):
    """What is told apart."""

    syscall: str
    access: str
    errno: str
    path: str


class _Kind:
    """A denial and how often it was not told yet."""

    __slots__ = ("asked", "comm", "count", "pid")

    def __init__(self) -> None:
        self.asked, self.comm, self.pid, self.count = "", "", 0, 0


class Watcher:
    """The loop: calls in, answers out, denials told."""

    def __init__(
        self, sock: socket.socket, scene: WatchScene, listener: int, root: int, memory: int, *pinned: int
    ) -> None:
        self._sock, self._scene, self._listener = sock, scene, listener
        self._shared = mmap.mmap(memory, MEMORY_BYTES)
        self._notice = ctypes.addressof(ctypes.c_char.from_buffer(self._shared))
        self._answer = ctypes.create_string_buffer(RESPONSE.size)
        self._response = ctypes.addressof(self._answer)
        self._memory, self._view = Memory(), View(root)
        self._writable = tuple(os.fsencode(path.rstrip("/") + "/") for path in scene.writable)
        self._spared = tuple(os.fsencode(path) for path in scene.fixed if path not in scene.writable)
        self._calls = list_watched(os.uname().machine)
        self._broker = Broker(listener, _rules_of(scene, pinned)) if scene.mounts else None
        self._listening = LISTEN.number(os.uname().machine)
        self._kinds: dict[_Denied, _Kind] = {}
        self._bytes = 0
        self._fresh: list[_Denied] = []  # to be told at once
        self._due: dict[_Denied, None] = {}
        self._next_flush = 0.0
        self._dropped = self._unread = 0
        self._counted = (0, 0)
        # A hint: the caller sleeps until we have answered. Halves the wait on a loaded machine; Linux 6.6.
        ioctl(listener, SET_FLAGS, SYNC_WAKE_UP)
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._poll.register(sock, select.POLLIN)

    def run(self) -> None:
        """Until the command has ended, or nobody wants to know any more."""
        if self._shared[:8] != _ZERO[:8]:
            self._serve()  # what a predecessor left
        while True:
            waits = self._broker is not None and self._broker.waits
            if waits and self._broker is not None:
                self._broker.let_go()
            for fd, event in self._poll.poll(FLUSH_S * 1000 if self._due or waits else None):
                if fd != self._listener:
                    return
                if event & select.POLLIN:
                    if ioctl(fd, RECEIVE, self._notice) == 0:
                        self._serve()
                    else:
                        self._shared[: NOTICE.size] = _ZERO  # the caller was killed meanwhile
                else:
                    self._flush(MAX_KINDS)  # every process that could call has ended
                    return
            if self._due and time.monotonic() >= self._next_flush:
                self._flush()

    def _serve(self) -> None:
        """The call in our memory: read, answer, judge."""
        id_, pid, _, number, _, _, *args = NOTICE.unpack_from(self._shared)
        call = self._calls.get(number)
        if self._broker is not None and self._broker.serves(number):
            self._carry_out(self._broker, id_, pid, number, args)
            return
        asked: list[_Asked] | foresight.Address = []
        flags, comm = 0, ""
        try:
            if call is not None:
                flags = self._flags(call, pid, args)
                asked = self._read_asked(call, pid, args, flags)
                comm = name_of(pid) if self._suspicious(asked) else ""
        except (OSError, ValueError):
            self._unread += 1  # gone, or nobody may read it
            call = None
        if number == self._listening:
            RESPONSE.pack_into(self._answer, 0, id_, 0, -errno.EBUSY, 0)  # as the kernel, and also without it
        else:
            RESPONSE.pack_into(self._answer, 0, id_, 0, 0, _CONTINUE)
        answered = ioctl(self._listener, SEND, self._response) == 0
        self._shared[: NOTICE.size] = _ZERO
        if call is None or not answered:
            return
        try:
            self._judge(call, asked, flags, pid, comm)
        except (OSError, ValueError):
            self._unread += 1

    def _carry_out(self, broker: Broker, id_: int, pid: int, number: int, args: list[int]) -> None:
        """What the broker does of it, and what it refuses, or the sandbox does."""
        call, comm = self._calls[number], name_of(pid)
        asked: list[_Asked] | foresight.Address = []
        with contextlib.suppress(OSError, ValueError):
            asked = self._read_asked(call, pid, args, 0)
        refused = broker.serve(id_, pid, number, args)
        self._shared[: NOTICE.size] = _ZERO
        if refused is not None:
            code, path = errno.errorcode[refused.errno], decode_path(refused.path)
            self._denied(_Denied(call.name, _SOCKET, code, path), path, pid, comm)
        else:
            with contextlib.suppress(OSError, ValueError):
                self._judge(call, asked, 0, pid, comm)

    # --- what it asks for

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
            self._from_root(
                self._memory.text(pid, args[place.path]),
                pid,
                _AT_FDCWD if place.directory is None else args[place.directory],
                follow=self._follows(call, place, flags),
            )
            for place in call.places
            if args[place.path]  # without a path it is about a descriptor
        ]

    @staticmethod
    def _follows(call: Call, place: PathArgument, flags: int) -> bool:
        if call.aims[0] is Aim.OPEN:
            return not (flags & os.O_NOFOLLOW or (flags & os.O_CREAT and flags & os.O_EXCL))
        return place.follow and not flags & call.unfollow

    @staticmethod
    def _from_root(written: bytes, pid: int, directory: int, *, follow: bool) -> _Asked:
        if written.startswith(b"/"):
            return _Asked(written, written, follow)
        number = directory & 0xFFFFFFFF  # the kernel reads no more of it
        link = b"cwd" if number == _AT_FDCWD else b"fd/%d" % number
        return _Asked(written, os.path.join(os.readlink(b"/proc/%d/%b" % (pid, link)), written), follow)

    def _suspicious(self, asked: list[_Asked] | foresight.Address) -> bool:
        """Worth the caller's name, before it is gone?"""
        if isinstance(asked, foresight.Address):
            return bool(asked.host) and not asked.loopback
        return any(
            not one.path.startswith(self._writable)
            or one.path.startswith(self._spared)
            or b"/../" in one.path
            for one in asked
        )

    # --- what becomes of it

    def _judge(
        self, call: Call, asked: list[_Asked] | foresight.Address, flags: int, pid: int, comm: str
    ) -> None:
        aim = call.aims[0]
        if isinstance(asked, foresight.Address):
            found = foresight.predict_connect(asked, self._scene) if aim is Aim.CONNECT else None
            if found is not None:
                key = _Denied(call.name, foresight.access(aim, exists=True), found, asked.host)
                self._denied(key, asked.host, pid, comm)
        elif aim is Aim.LISTEN:
            self._denied(_Denied(call.name, foresight.access(aim, exists=True), "EBUSY", ""), "", pid, comm)
        elif len(call.aims) == 2 and len(asked) == 2:
            source, target = (self._look(one, wanted) for one, wanted in zip(asked, call.aims, strict=True))
            moved = foresight.predict_move(source, target, self._scene)
            if moved is not None:
                at, wanted, code = moved
                key = _Denied(call.name, foresight.access(wanted, exists=at.exists), code, at.path)
                self._denied(key, decode_path(asked[0 if at is source else 1].written), pid, comm)
        else:
            for one in asked:
                at = self._look(one, aim)
                found = foresight.predict(aim, flags, at, self._scene)
                if found is not None:
                    key = _Denied(call.name, foresight.access(aim, exists=at.exists), found, at.path)
                    self._denied(key, decode_path(one.written), pid, comm)

    def _look(self, asked: _Asked, aim: Aim) -> Terrain:
        moves = aim in (Aim.REMOVE, Aim.CREATE)
        at = self._view.look(asked.path, follow=asked.follow, whole=moves or not self._scene.mounts)
        if aim is Aim.REMOVE and at.path in self._scene.fixed:
            # It is the mount around a mount point that is asked to let go of it.
            around = self._view.look(os.path.dirname(asked.path.rstrip(b"/")), follow=True, whole=True)
            at = at._replace(read_only=around.read_only)
        return at

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

    def _flush(self, most: int = MAX_TOLD) -> None:
        """Tell what is new, and at most so many of the rest; what does not fit into the socket waits."""
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
            if not self._tell(told):
                return
            del self._due[key]
            kind.count = 0
        if self._counted != (self._dropped, self._unread):
            counted = self._dropped, self._unread
            if self._tell({"dropped": counted[0], "unread": counted[1]}):
                self._counted = counted

    def _tell(self, message: dict[str, object]) -> bool:
        try:
            self._sock.send(json.dumps(message).encode(), socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True


def become(fd: int) -> NoReturn:
    """Be the watcher on this socket, in a fork of the launcher, of whose descriptors nothing is kept."""
    code = 1
    try:
        os.setsid()
        kernel.die_with_parent(signal.SIGKILL)
        os.dup2(fd, 0)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(null, 1)
        os.dup2(null, 2)
        kernel.close_from(3)
        gc.enable()  # it may run for days
        with open("/proc/self/comm", "wb") as name:
            name.write(NAME)
        sock = socket.socket(fileno=0)
        data, fds = receive_with_fds(sock, MAX_SCENE, 3 + MAX_SOCKETS)
        if len(fds) >= 3:
            scene = foresight.decode(data)
            if scene.mounts:
                broker.hold_back()
            Watcher(sock, scene, *fds).run()
        code = 0
    finally:
        os._exit(code)  # whatever it was, it must not return into the launcher's loop
