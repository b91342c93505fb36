"""The broker: carries out `connect` and `bind` for a command, so that it reaches no unix socket of the host.

The command waits in its call. We take its socket (`pidfd_getfd`), copy the address once, decide on what we
hold, make the call ourselves with what we hold, and answer with the outcome. The command's own call never
goes on: whatever another thread puts at the descriptor or into the memory meanwhile does not change what was
decided.

Two kinds of unix sockets may be reached: those that the command bound, and those that its plan grants. The
former are known by their inode, which a descriptor of ours pins, so that its number cannot be reused.
Addresses of other families are not our concern: the network namespace decides, and a socket stays in the one
that it was made in.

We lend no rights. Paths are looked up below the caller's root, through its mounts. A name is created there
with its umask. We have the caller's user, and no more privileges than it has. We keep three capabilities of
our own, to look at the caller and at its socket and to take its root, where the kernel requires them.

A broker that dies is not replaced: the kernel answers its callers, and later ones, with ENOSYS.

Standard library only, and little of it: the owner of the command forks it, at the command's first such call.
"""

import _thread
import contextlib
import ctypes
import errno
import gc
import os
import resource
import select
import signal
import stat
import struct
import time
from ctypes import c_int, c_uint, c_ulong, c_void_p
from typing import Final, NamedTuple, NoReturn

from holdfast.sandbox.kernel import kernel, seccomp
from holdfast.sandbox.kernel.kernel import named, numbered, open_in_root
from holdfast.sandbox.watcher.memory import Memory
from holdfast.sandbox.watcher.sockaddr import Abstract, Autobind, InPath, encode_unix, is_of_host, parse_unix

NAME: Final = b"holdfast-broker"  # name in ps
MAX_BOUND: Final = 1024  # known sockets of one command; each costs us a descriptor
MAX_WAITING: Final = 128  # waiting connections at a time; each costs us a thread
LOOK_S: Final = 0.25  # how long the connection of a killed caller may still succeed
BREAK_OFF: Final = signal.SIGUSR1
INSIST_S: Final = 2.0  # wait for a listener that is about to open; a process under load takes some time
MAX_VAIN: Final = 3  # failures in a row, after which no listener is expected any more
INSIST_FIRST_S, INSIST_LAST_S = 0.002, 0.05  # between two attempts
STACK_BYTES: Final = 256 * 1024  # of the thread of a waiting connection
SPARE_FDS: Final = 2 * MAX_WAITING + 64  # a waiting connection holds its socket and its target

# linux/seccomp.h
RECEIVE, SEND, _ID_VALID, SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082102, 0x40082104
SYNC_WAKE_UP: Final = 1
NOTICE: Final = struct.Struct("=QIIiIQ6Q")  # struct seccomp_notif: id, pid, flags, struct seccomp_data
RESPONSE: Final = struct.Struct("=QqiI")
_ID: Final = struct.Struct("=Q")
# linux/socket.h, asm-generic/socket.h, linux/un.h, linux/pidfd.h
_AF_UNIX, _SOCK_STREAM, _SOCK_DGRAM = 1, 1, 2
_SOL_SOCKET, _SO_TYPE, _SO_DOMAIN = 1, 3, 39
_MAX_ADDRESS: Final = 128  # struct sockaddr_storage
_SIOCUNIXFILE: Final = 0x89E0
_PIDFD_THREAD: Final = os.O_EXCL  # Linux 6.9
_O_PATH: Final = os.O_PATH | os.O_CLOEXEC
# linux/capability.h
_CAP_NET_ADMIN, _CAP_SYS_CHROOT, _CAP_SYS_PTRACE = 12, 18, 19
# linux/sock_diag.h, linux/unix_diag.h
_NETLINK, _SOCK_DIAG, _BY_FAMILY, _SHOW_VFS, _VFS = 16, 4, 20, 2, 1
_DIAG_REQUEST: Final = struct.Struct("=IHHIIBBHIIIII")
_DIAG_ANSWER: Final = 16 + 16  # struct nlmsghdr, struct unix_diag_msg
_ATTRIBUTE: Final = struct.Struct("=HHII")  # the one attribute that we ask for

ioctl = ctypes.CFUNCTYPE(c_int, c_int, c_ulong, c_void_p, use_errno=True)(
    ("ioctl", ctypes.CDLL(None, use_errno=True))
)
_connect = named("connect", c_int, c_void_p, c_uint)
_bind = named("bind", c_int, c_void_p, c_uint)
_getsockopt = named("getsockopt", c_int, c_int, c_int, c_void_p, c_void_p)
_pidfd_open = numbered(434, c_int, c_uint)
_pidfd_getfd = numbered(438, c_int, c_int, c_uint)


class SocketRules(NamedTuple):
    """What a plan says about sockets."""

    own_network: bool  # the command has its own network namespace, and so its own abstract names
    granted: tuple["GrantedSocket", ...] = ()
    asks: bool = False  # a person is asked about hosts; a listener opens after an attempt (`_insist`)


class GrantedSocket(NamedTuple):
    """A unix socket of the host that may be reached.

    If the command could put another socket in its place, only the one that existed before the command began.
    """

    path: bytes
    pinned: int | None = None  # a descriptor of that socket


class CallRefusal(NamedTuple):
    """What was refused, for a report."""

    path: bytes
    errno: int


class Answered(NamedTuple):
    """A call that was carried out: the errno that the caller got, or 0."""

    errno: int


class Broker:
    """Serves one listener. All decisions are made on one thread; other threads only wait for connections."""

    def __init__(self, listener: int, rules: SocketRules) -> None:
        self._listener, self._rules = listener, rules
        machine = seccomp.ARCHITECTURES[os.uname().machine].numbers
        self._calls = {machine["connect"]: self._connect_for, machine["bind"]: self._bind_for}
        self._memory = Memory()
        self._bound: dict[tuple[int, int], int] = {}  # device and inode -> the descriptor that pins them
        self._waiting: dict[int, int] = {}  # id of a call -> the thread that waits for it
        self._vain = 0  # connections to hosts that were retried in vain since the last success
        self._answered: dict[int, int] = {}  # calls that waited: id -> errno; read by `take_answered`
        self._lock = _thread.allocate_lock()
        self._answer = ctypes.create_string_buffer(RESPONSE.size)

    def serves(self, number: int) -> bool:
        return number in self._calls

    def serve(self, id_: int, pid: int, number: int, args: list[int]) -> CallRefusal | Answered | None:
        """Carry out the call or refuse it; return None if a thread still waits for the outcome."""
        fds: list[int] = []
        try:
            waits = self._calls[number](id_, pid, args, fds)
        except _Refused as exc:
            self._send(id_, exc.errno)
            return CallRefusal(exc.path, exc.errno)
        except OSError as exc:
            code = exc.errno or errno.EIO
            self._send(id_, code)
            return Answered(code)
        finally:
            for fd in fds:
                os.close(fd)
        return None if waits else Answered(0)

    def take_answered(self) -> dict[int, int]:
        """The calls that waited and were answered since the last time, with their errnos."""
        with self._lock:
            taken, self._answered = self._answered, {}
        return taken

    def _send(self, id_: int, code: int) -> None:
        """Answer with this errno, or with 0. An answer to a caller that was killed meanwhile is lost."""
        with self._lock:
            RESPONSE.pack_into(self._answer, 0, id_, 0, -code, 0)
            ioctl(self._listener, SEND, ctypes.addressof(self._answer))

    # --- the arguments of a call

    def _take(self, id_: int, pid: int, args: list[int], fds: list[int]) -> tuple[int, bytes]:
        """The socket of a call and its address; `fds` collects descriptors to close.

        A descriptor opened by a pid belongs to the caller only if the caller still waits afterwards.
        """
        try:
            process = _pidfd_open(pid, _PIDFD_THREAD)
        except OSError as exc:
            if exc.errno != errno.EINVAL:
                raise
            process = _pidfd_open(_leader_of(pid), 0)
        fds.append(process)
        sock = _pidfd_getfd(process, args[0] & 0xFFFFFFFF, 0)
        fds.append(sock)
        length = args[2] & 0xFFFFFFFF
        if length > _MAX_ADDRESS:
            raise OSError(errno.EINVAL, "too long")
        address = self._memory.read(pid, args[1], length) if length else b""
        if len(address) != length:
            raise OSError(errno.EFAULT, "not readable")
        return sock, address

    def _still_waits(self, id_: int) -> None:
        """Raises OSError if the caller is gone, since its pid may then belong to another process."""
        if not still_waits(self._listener, id_):
            raise OSError(errno.ESRCH, "it is gone")

    # --- connect

    def _connect_for(self, id_: int, pid: int, args: list[int], fds: list[int]) -> bool:
        sock, address = self._take(id_, pid, args, fds)
        if _option(sock, _SO_DOMAIN) == _AF_UNIX:
            address = self._find_unix(id_, pid, address, fds)
        else:
            self._still_waits(id_)
        insists = self._insists(address) and _option(sock, _SO_TYPE) == _SOCK_STREAM
        if _option(sock, _SO_TYPE) == _SOCK_DGRAM or not (os.get_blocking(sock) or insists):
            _connect(sock, address, len(address))
            self._send(id_, 0)
            return False
        if len(self._waiting) >= MAX_WAITING:
            raise OSError(errno.EAGAIN, "too many wait")
        held = fds[:]
        try:
            with self._lock:
                self._waiting[id_] = _thread.start_new_thread(self._wait, (id_, sock, address, held))
        except RuntimeError:
            raise OSError(errno.EAGAIN, "no thread") from None
        fds.clear()
        return True

    @property
    def waits(self) -> bool:
        """Whether a thread waits for a connection."""
        return bool(self._waiting)

    def let_go(self) -> None:
        """Cancel connections whose caller was killed. Must be called every `LOOK_S`."""
        with self._lock:
            for id_, thread in self._waiting.items():
                if not still_waits(self._listener, id_):
                    signal.pthread_kill(thread, BREAK_OFF)

    def _wait(self, id_: int, sock: int, address: bytes, held: list[int]) -> None:
        code = 0
        try:
            if self._insists(address):
                self._insist(id_, sock, address)
            else:
                _connect(sock, address, len(address))
        except OSError as exc:
            code = exc.errno or errno.EIO
        for fd in held:
            os.close(fd)
        with self._lock:
            del self._waiting[id_]
            if len(self._answered) < MAX_WAITING:
                self._answered[id_] = code  # before the caller goes on, and perhaps ends
        self._send(id_, code)

    def _insists(self, address: bytes) -> bool:
        """Whether to retry a refused connection: not after several that failed in a row."""
        return self._rules.asks and self._vain < MAX_VAIN and is_of_host(address)

    def _insist(self, id_: int, sock: int, address: bytes) -> None:
        """Connect to a host's address; while no socket listens there, retry until one does.

        The process that serves names notices the attempt, and listens there while a person is asked.

        Raises:
            OSError: the kernel refused it, or the connection is in progress.
        """
        pause_s, until = INSIST_FIRST_S, time.monotonic() + INSIST_S
        while True:
            try:
                _connect(sock, address, len(address))
                self._vain = 0
                return
            except OSError as exc:
                if exc.errno == errno.EINPROGRESS:
                    if not _has_failed(sock):
                        self._vain = 0
                        raise
                elif exc.errno != errno.ECONNREFUSED:
                    raise
                else:
                    late = time.monotonic() > until
                    self._vain += late
                    if late or not still_waits(self._listener, id_):
                        raise
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, INSIST_LAST_S)

    def _find_unix(self, id_: int, pid: int, data: bytes, fds: list[int]) -> bytes:
        """The address to connect to instead of this one."""
        asked = parse_unix(data)
        if isinstance(asked, Abstract):
            self._still_waits(id_)
            if not self._rules.own_network:
                raise _Refused(errno.ECONNREFUSED, b"@" + asked.name)
            return data
        if not isinstance(asked, InPath):
            raise OSError(errno.EINVAL, "no address")
        path, root = _from_root(pid, asked.path, fds)
        target = self._granted_by_name(path)
        if target is None:
            target = open_in_root(path, root, follow=True)
        fds.append(target)
        self._still_waits(id_)
        found = os.fstat(target)
        if not stat.S_ISSOCK(found.st_mode):
            raise OSError(errno.ECONNREFUSED, "no socket")
        identity = found.st_dev, found.st_ino
        if identity not in self._bound and not self._is_granted(identity):
            raise _Refused(errno.EACCES, path)
        return encode_unix(b"/proc/self/fd/%d" % target)

    def _granted_by_name(self, path: bytes) -> int | None:
        """A granted socket can be reached by its name even if the command does not see it."""
        for granted in self._rules.granted:
            if granted.path == os.path.normpath(path):
                return _open_granted(granted)
        return None

    def _is_granted(self, identity: tuple[int, int]) -> bool:
        for granted in self._rules.granted:
            with contextlib.suppress(OSError):
                fd = _open_granted(granted)
                found = os.fstat(fd)
                os.close(fd)
                if (found.st_dev, found.st_ino) == identity:
                    return True
        return False

    # --- bind

    def _bind_for(self, id_: int, pid: int, args: list[int], fds: list[int]) -> bool:
        sock, address = self._take(id_, pid, args, fds)
        if _option(sock, _SO_DOMAIN) == _AF_UNIX:
            self._bind_unix(id_, pid, sock, address, fds)
        else:
            self._still_waits(id_)
            _bind(sock, address, len(address))
        self._send(id_, 0)
        return False

    def _bind_unix(self, id_: int, pid: int, sock: int, data: bytes, fds: list[int]) -> None:
        asked = parse_unix(data)
        if isinstance(asked, Abstract | Autobind):
            self._still_waits(id_)
            if isinstance(asked, Abstract) and not self._rules.own_network:
                # A name of the host: other programs would take the answering process for a service of the
                # host.
                raise _Refused(errno.EPERM, b"@" + asked.name)
            _bind(sock, data, len(data))
            return
        if asked is None:
            raise OSError(errno.EINVAL, "no address")
        path, root = _from_root(pid, asked.path, fds)
        place = os.open(b"/proc/%d/cwd" % pid, _O_PATH | os.O_DIRECTORY)
        fds.append(place)
        users = os.open(b"/proc/%d/ns/user" % pid, os.O_RDONLY | os.O_CLOEXEC)
        fds.append(users)
        umask = _umask_of(pid)
        self._still_waits(id_)
        self._make_room()
        _bind_as(_Surroundings(users, root, place, umask), sock, data)
        made = _file_of(sock, root, path, own_network=self._rules.own_network)
        if made is not None:
            found = os.fstat(made)
            self._bound[found.st_dev, found.st_ino] = made

    def _make_room(self) -> None:
        if len(self._bound) < MAX_BOUND:
            return
        for identity, fd in list(self._bound.items()):
            if os.fstat(fd).st_nlink == 0:  # no path leads to it any more
                os.close(self._bound.pop(identity))
        if len(self._bound) >= MAX_BOUND:
            raise OSError(errno.ENOBUFS, "too many sockets")

    # --- the loop

    def run(self) -> None:
        """Serve until every process that could make calls has ended."""
        notice = ctypes.create_string_buffer(NOTICE.size)
        zero, at = bytes(NOTICE.size), ctypes.addressof(notice)
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        ioctl(self._listener, SET_FLAGS, SYNC_WAKE_UP)  # a hint: the caller sleeps until we have answered
        while True:
            ready = poll.poll(LOOK_S * 1000 if self.waits else None)
            if not ready:
                self.let_go()
                continue
            if not ready[0][1] & select.POLLIN:
                return
            ctypes.memmove(at, zero, len(zero))
            if ioctl(self._listener, RECEIVE, at) != 0:
                continue  # the caller was killed meanwhile
            id_, pid, _, number, _, _, *args = NOTICE.unpack_from(notice)
            if number in self._calls:
                self.serve(id_, pid, number, args)
            else:
                self._send(id_, errno.ENOSYS)


def still_waits(listener: int, id_: int) -> bool:
    """Whether the caller of this call still waits for its answer, and so was not killed."""
    known = ctypes.create_string_buffer(_ID.pack(id_), _ID.size)
    return bool(ioctl(listener, _ID_VALID, ctypes.addressof(known)) == 0)


class _Refused(Exception):
    """Refused by a rule of ours."""

    def __init__(self, code: int, path: bytes) -> None:
        super().__init__(code, path)
        self.errno, self.path = code, path


def _has_failed(sock: int) -> bool:
    """Whether a non-blocking connection was refused meanwhile; the next attempt returns the error."""
    asked = select.poll()
    asked.register(sock, select.POLLOUT)
    return any(found & (select.POLLERR | select.POLLHUP) for _, found in asked.poll(0))


def _option(sock: int, option: int) -> int:
    value, size = c_int(), c_uint(4)
    _getsockopt(sock, _SOL_SOCKET, option, ctypes.byref(value), ctypes.byref(size))
    return value.value


def _leader_of(pid: int) -> int:
    """The process that a thread belongs to; before Linux 6.9 only a process could be opened."""
    return int(_status(pid, b"Tgid:"))


def _umask_of(pid: int) -> int:
    return int(_status(pid, b"Umask:"), 8)


def _status(pid: int, field: bytes) -> bytes:
    with open(b"/proc/%d/status" % pid, "rb") as file:
        for line in file:
            if line.startswith(field):
                return line.split()[1]
    raise OSError(errno.ESRCH, "it is gone")


def _from_root(pid: int, path: bytes, fds: list[int]) -> tuple[bytes, int]:
    """The path from the caller's root on, and a descriptor of that root."""
    root = os.open(b"/proc/%d/root" % pid, _O_PATH | os.O_DIRECTORY)
    fds.append(root)
    if not path.startswith(b"/"):
        path = os.path.join(os.readlink(b"/proc/%d/cwd" % pid), path)
    return path, root


def _open_granted(granted: GrantedSocket) -> int:
    return kernel.open_path(os.fsdecode(granted.path)) if granted.pinned is None else os.dup(granted.pinned)


class _Surroundings(NamedTuple):
    """The surroundings of a caller: user namespace, root and directory as descriptors, and its umask."""

    users: int
    root: int
    place: int
    umask: int


def _bind_as(caller: _Surroundings, sock: int, address: bytes) -> None:
    """Bind to exactly this address, which the socket will report as its own, as the caller would.

    A child of ours does it with the caller's root, so that the kernel resolves the path through the caller's
    mounts. For that the child enters the caller's user namespace. It has no privileges any more when it
    binds.

    Raises:
        OSError: the kernel refused it.
    """

    def act() -> None:
        if not os.path.samestat(os.fstat(caller.users), os.stat("/proc/self/ns/user")):
            kernel.enter(caller.users, kernel.CLONE_NEWUSER)
        else:
            kernel.keep_capabilities((_CAP_SYS_CHROOT,), use=(_CAP_SYS_CHROOT,))
        os.fchdir(caller.root)
        os.chroot(".")
        os.fchdir(caller.place)
        kernel.keep_capabilities((), use=())
        os.umask(caller.umask)
        _bind(sock, address, len(address))

    kernel.in_child(act)


def _file_of(sock: int, root: int, path: bytes, *, own_network: bool) -> int | None:
    """The file that this socket has just been bound to; None if it cannot be determined.

    A lookup by name alone could find another file: the command may have put one there meanwhile.
    """
    with contextlib.suppress(OSError):
        return _ask_for_file(sock)
    with contextlib.suppress(OSError), _Privilege(_CAP_NET_ADMIN):
        return _ask_for_file(sock)
    if own_network:
        return None
    try:
        fd = open_in_root(path, root, follow=False)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        found = os.fstat(fd)
        device = os.major(found.st_dev) << 20 | os.minor(found.st_dev)
        if _inode_of(os.fstat(sock).st_ino) == (found.st_ino & 0xFFFFFFFF, device):
            return fd
    os.close(fd)
    return None


def _ask_for_file(sock: int) -> int:
    fd = ioctl(sock, _SIOCUNIXFILE, None)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "the kernel does not tell")
    return int(fd)


def _inode_of(sock: int) -> tuple[int, int] | None:
    """The file that the unix socket with this number, in our network namespace, is bound to.

    The kernel reports the lower half of its inode number, and its device.
    """
    import _socket

    request = _DIAG_REQUEST.pack(
        *(_DIAG_REQUEST.size, _BY_FAMILY, 1, 1, 0),
        *(_AF_UNIX, 0, 0, 0xFFFFFFFF, sock, _SHOW_VFS, 0xFFFFFFFF, 0xFFFFFFFF),
    )
    asked = _socket.socket(_NETLINK, _socket.SOCK_RAW, _SOCK_DIAG)
    try:
        asked.sendto(request, (0, 0))
        answer = asked.recv(4096)
    finally:
        asked.close()
    at = _DIAG_ANSWER
    if struct.unpack_from("=IH", answer)[1] != _BY_FAMILY:
        return None
    while at + _ATTRIBUTE.size <= len(answer):
        length, kind, inode, device = _ATTRIBUTE.unpack_from(answer, at)
        if kind == _VFS:
            return inode, device
        at += max(4, length + 3 & ~3)
    return None


class _Privilege:
    """`with _Privilege(number):` use a capability that we may have and otherwise do not use."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> None:
        kernel.keep_capabilities(_KEPT, use=(*_USED, self._number))

    def __exit__(self, *_: object) -> None:
        kernel.keep_capabilities(_KEPT, use=_USED)


_USED: Final = (_CAP_SYS_PTRACE,)
_KEPT: Final = (*_USED, _CAP_NET_ADMIN, _CAP_SYS_CHROOT)


def become(listener: int, rules: SocketRules) -> NoReturn:
    """Run as the broker on this listener, in a fork of the command's owner."""
    code = 1
    try:
        os.setsid()
        kernel.die_with_parent(signal.SIGKILL)
        kept = {listener, *(one.pinned for one in rules.granted if one.pinned is not None)}
        kernel.close_others(kept)
        os.chdir("/")
        with open("/proc/self/comm", "wb") as name:
            name.write(NAME)
        gc.enable()
        hold_back()
        Broker(listener, rules).run()
        code = 0
    finally:
        os._exit(code)  # no exception may return into the owner's loop


def hold_back() -> None:
    """Give up privileges that the command does not have, and those that we do not need. Raises OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_BOUND + SPARE_FDS
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    _thread.stack_size(STACK_BYTES)
    signal.signal(BREAK_OFF, _do_nothing)
    signal.siginterrupt(BREAK_OFF, True)
    kernel.keep_capabilities(_KEPT, use=_USED)
    # We are the peer of its connections: a server that checks its peer must see that we are confined.
    kernel.refuse_new_privileges()
    kernel.install_filter(seccomp.no_programs(os.uname().machine))


def _do_nothing(signum: int, frame: object) -> None:
    """Do nothing: the signal only serves to interrupt a system call of its thread."""
