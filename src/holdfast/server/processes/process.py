"""One process: its streams become numbered events, its input is fed, its end is reported once.

*Exited* and *closed* are two events. Exit comes from the launcher; close follows when both output streams
have ended too, which may be much later when a grandchild holds them. A process that was terminated closes
with its exit, even if other processes still hold its pipes.
"""

import asyncio
import errno
import fcntl
import functools
import os
import struct
import termios
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

import msgspec
import pybase64
from msgspec import structs

from holdfast.confine.starts import Exit
from holdfast.confine.verdict import (
    DenialVerdict,
    Judge,
    denial_of_host,
    denial_report,
    limit_report,
    network_report,
    prove_by_name,
)
from holdfast.confine.watching import CommandWatch
from holdfast.egress.traffic import RefusedHost, Traffic
from holdfast.errors import OperationFailed
from holdfast.server.processes.commands import CommandListener
from holdfast.server.processes.eventlog import EventLog
from holdfast.server.processes.spool import OutputSpool
from holdfast.wire.processes import DeniedCall, ProcessExited, ProcessUsage, WatchedCall
from holdfast.wire.rpc import notification

READ_BYTES: Final = 64 * 1024  # one chunk: large enough for throughput, small compared to the 1 MiB window
PIPE_BYTES: Final = 1024 * 1024  # lets a writer run ahead instead of switching contexts every 64 KiB
_F_SETPIPE_SZ: Final = 1031  # linux/fcntl.h
_CONTROL_D: Final = b"\x04"  # end of file on a terminal in its default mode
MAX_PENDING: Final = 128  # writes; beyond it the writer waits, which is the client's backpressure
MAX_REMEMBERED: Final = 4096  # write ids; a client has far fewer unanswered writes

_json = msgspec.json.Encoder()


class ProcessInput:
    """The write end of a pipe or terminal: ordered, bounded, each write taken once. Owns `fd` until `close`.

    `accepted` means queued. A write id that was accepted is acknowledged again without writing, so a
    client that lost the answer may safely repeat the request.
    """

    def __init__(self, fd: int, *, eof: bytes = b"") -> None:
        """`eof` is the end-of-file character of a terminal; a pipe is closed instead."""
        os.set_blocking(fd, False)
        self._fd = fd
        self._eof = eof
        self._pending: deque[bytes] = deque()
        self._accepted: OrderedDict[str, None] = OrderedDict()
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self._room.set()
        self._terminated = False
        self._ending = False
        self._watching = False

    @property
    def ended(self) -> bool:
        """True once end of file was requested and no write can follow."""
        return self._ending

    def has_accepted(self, write_id: str) -> bool:
        """Whether this write was accepted before."""
        return write_id in self._accepted

    async def write(self, write_id: str, data: bytes) -> None:
        """Queue `data` unless this id was accepted before; waits while the queue is full.

        Raises:
            OperationFailed: the process was terminated.
        """
        async with self._turn:
            if self.has_accepted(write_id):
                return
            while len(self._pending) >= MAX_PENDING and not self._terminated:
                self._room.clear()
                await self._room.wait()
            if self._terminated:
                raise OperationFailed("failed to write to process stdin")
            self._accepted[write_id] = None
            if len(self._accepted) > MAX_REMEMBERED:
                self._accepted.popitem(last=False)
            if data:
                self._pending.append(data)
                self._flush()

    def end(self) -> None:
        """Signal end of file to the process after everything queued is written."""
        if self._eof:
            if len(self._pending) < MAX_PENDING:  # full of unread input: another end of file changes nothing
                self._pending.append(self._eof)
        else:
            self._ending = True
        self._flush()

    def terminate(self) -> None:
        """Refuse new writes and drop queued ones, because the process is being killed."""
        self._terminated = True
        self._pending.clear()
        self._room.set()

    def close(self) -> None:
        """Close the descriptor. Later writes are accepted and discarded."""
        if self._fd >= 0:
            self._unwatch()
            os.close(self._fd)
            self._fd = -1
        self._pending.clear()
        self._room.set()

    def _flush(self) -> None:
        while self._pending and self._fd >= 0:
            data = self._pending.popleft()
            try:
                written = os.write(self._fd, data)
            except BlockingIOError:
                written = 0
            except OSError as exc:
                if exc.errno not in (errno.EPIPE, errno.EIO, errno.EBADF):
                    raise
                self.close()  # there is no reader any more
                return
            if written < len(data):
                self._pending.appendleft(data[written:])
                self._watch()
                return
            self._room.set()
        if self._fd < 0:
            self._pending.clear()
            self._room.set()
            return
        self._unwatch()
        if self._ending:
            self.close()

    def _watch(self) -> None:
        if not self._watching:
            asyncio.get_running_loop().add_writer(self._fd, self._flush)
            self._watching = True

    def _unwatch(self) -> None:
        if self._watching:
            asyncio.get_running_loop().remove_writer(self._fd)
            self._watching = False


def widen_pipe(fd: int) -> None:
    """Enlarge a pipe if possible: the kernel limits the total for ordinary users."""
    try:
        fcntl.fcntl(fd, _F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        return


def open_pipes(ours: list[int], theirs: list[int], *, stdin: bool) -> tuple[int, int, int]:
    """Create pipes for the streams; every descriptor is in one of the lists even if a later step fails."""
    for _ in ("stdout", "stderr"):
        read, write = os.pipe2(os.O_CLOEXEC)
        ours.append(read)
        theirs.append(write)
    widen_pipe(ours[0])
    if stdin:
        read, write = os.pipe2(os.O_CLOEXEC)
        ours.append(write)
    else:
        read = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    theirs.append(read)
    return read, theirs[0], theirs[1]


def set_window_size(fd: int, rows: int, cols: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


class SessionProcess:
    """A started command. `push` receives each event as a ready message, in order."""

    def __init__(
        self,
        process_id: str,
        *,
        push: Callable[[bytes], None],
        on_closed: Callable[["SessionProcess"], None],
        extended: bool,
        judge: Judge | None = None,
        spooled: bool = False,
    ) -> None:
        """`spooled`: its output is read as it comes, also while `push` must not be called."""
        self.process_id = process_id
        self.began = asyncio.get_running_loop().time()
        self.launch_id = 0
        self.pid: int | None = None
        self.log = EventLog()
        self.stdin: ProcessInput | None = None
        self.usage: Exit | None = None
        self.terminated = False
        self._push = push
        self._on_closed = on_closed
        self._extended = extended
        self._judge = judge
        self.verdict = DenialVerdict()
        self.watch: CommandWatch | None = None
        self.commands: CommandListener | None = None  # where its commands are run
        self.tell_host = self.on_denied  # is called with refused hosts
        self._counted_in: Traffic | None = None
        self._streams: dict[int, str] = {}
        self._terminal = -1
        self._paused = False
        self._attached = False
        self._early_exit: Exit | None = None
        self._late_exit: Exit | None = None
        self._spool = OutputSpool() if spooled else None
        self._denied: list[WatchedCall] = []
        self._changed = asyncio.Event()
        self._id_json = _json.encode(process_id)

    @functools.cached_property
    def traffic(self) -> Traffic:
        """Traffic by host name, of the process and its commands."""
        return Traffic(self.on_host_refused)

    # --- streams

    def attach_pipes(self, stdout: int, stderr: int, stdin: int | None) -> None:
        """Take over our ends of the child's pipes."""
        self._streams = {stdout: "stdout", stderr: "stderr"}
        if stdin is not None:
            self.stdin = ProcessInput(stdin)
        self._attach()

    def attach_terminal(self, master: int) -> None:
        """Take over the master of the child's terminal."""
        self._terminal = master
        self._streams = {master: "pty"}
        self.stdin = ProcessInput(os.dup(master), eof=_CONTROL_D)
        self._attach()

    def pause(self) -> None:
        """Stop reading output, so that the child waits, or spool it; nothing is dropped."""
        if not self._paused:
            self._paused = True
            if self._spool is None:
                self._stop_listening()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if self._spool is None:
                self._listen()
            else:
                self._unspool(self._spool)

    def _unspool(self, spool: OutputSpool) -> None:
        """Send the spooled output until paused again; after the last of it the exit, if that came too."""
        full = spool.full
        while spool and not self._paused:
            self._tell(*spool.take())
        if spool:
            return
        if full:
            self._listen()
        if self._late_exit is not None:
            end, self._late_exit = self._late_exit, None
            self.on_exited(end)
        self._close_if_over()

    def _attach(self) -> None:
        self._attached = True
        for fd in self._streams:
            os.set_blocking(fd, False)
        self._listen()
        if self._denied:
            asyncio.get_running_loop().call_soon(self._tell_denied)
        if self._early_exit is not None:
            asyncio.get_running_loop().call_soon(self.on_exited, self._early_exit)

    def _stop_listening(self) -> None:
        for fd in self._streams:
            asyncio.get_running_loop().remove_reader(fd)

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for fd in self._streams:
            loop.add_reader(fd, self._read, fd)

    def _read(self, fd: int) -> bool:
        """Read what is available as one event; False when there is nothing (more) to read now."""
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal's master answers EIO instead of end of file
        if not data:
            self._end_stream(fd)
            return False
        stream = self._streams[fd]
        if self._spool is not None and (self._paused or self._spool):
            self._spool.add(stream, data)
            if self._spool.full:
                self._stop_listening()
        else:
            self._tell(stream, data)
        return True

    def _tell(self, stream: str, data: bytes) -> None:
        seq = self.log.output(stream, data)
        self._push(
            b'{"method":"process/output","params":{"processId":%b,"seq":%d,"stream":"%b","chunk":"%b"}}'
            % (self._id_json, seq, stream.encode(), pybase64.b64encode(data))
        )
        self._wake()

    def _end_stream(self, fd: int) -> None:
        asyncio.get_running_loop().remove_reader(fd)
        del self._streams[fd]
        if fd == self._terminal:
            self._terminal = -1
        os.close(fd)
        self._close_if_over()

    def on_denied(self, denied: WatchedCall) -> None:
        """Take a report of the watcher."""
        self._denied.append(denied)
        if self._attached:
            self._tell_denied()  # before that, the answer to the start must be sent

    def on_command_denied(self, denied: DeniedCall) -> None:
        """Note that one of its commands was denied something."""
        known = None if self.watch is None else self.watch.denials.include(denied)
        if known is not None and not self.log.exited:
            self.on_denied(known)

    def count_in(self, account: Traffic) -> None:
        """Count its traffic in the account of another process, whose command it is."""
        account.join(self.traffic)
        self._counted_in = account

    def on_host_refused(self, refused: RefusedHost, count: int) -> None:
        """Note that it requested a refused host `count` more times."""
        if self.watch is None:
            return
        once = denial_of_host(self.process_id, refused, count, at_ms=time.time_ns() // 1_000_000)
        known = self.watch.denials.include(once)
        if known is not None and not self.log.exited:
            self.tell_host(known)

    def _tell_denied(self) -> None:
        waiting, self._denied = self._denied, []
        for denied in waiting:
            self._push(notification("process/denied", denied))

    # --- the end

    def on_ended(self, end: Exit) -> None:
        """End its commands, and report its exit after its watcher's last reports.

        The launcher has reaped it.
        """
        self._end_commands()
        if self.watch is None:
            self.on_exited(end)
        else:
            self.watch.finish(lambda: self.on_exited(end))

    def on_exited(self, end: Exit) -> None:
        """Report the exit.

        The launcher has reaped it. Output written before is numbered before the exit, unless paused.
        """
        if not self._attached:
            self._early_exit = end  # it ended before its start was answered; its output is sent first
            return
        self._tell_denied()  # these reports are not sent after the exit
        for fd in list(self._streams):
            for _ in range(PIPE_BYTES // READ_BYTES + 1):
                if (self._paused and self._spool is None) or not self._read(fd):
                    break
        if self._spool and not self.terminated:
            self._late_exit = end  # after the output that is still spooled
            return
        self.usage = end
        if self._counted_in is not None:
            self._counted_in.leave(self.traffic)
        if self._judge is not None:
            self.verdict = self._judge(end.code, self.log.read_retained())
            proven = prove_by_name(self.verdict.denial, end.traffic) if end.code != 0 else None
            if proven is not None and proven.witnessed:
                self.verdict = DenialVerdict(True, proven)
        seq = self.log.exit(end.code, denied=self.verdict.denied)
        params = ProcessExited(self.process_id, seq, end.code, self.verdict.denied)
        if self._extended:
            usage = ProcessUsage(end.user_ms, end.system_ms, end.peak_rss_bytes)
            denial, limit = denial_report(self.verdict.denial), limit_report(end.reached)
            own = "traffic" in vars(self) and (end.traffic is not None or self.traffic.counts_others)
            network = network_report(self.traffic.report() if own else None)
            params = structs.replace(params, usage=usage, denial=denial, limit=limit, network=network)
        self._push(notification("process/exited", params))
        self._wake()
        if self.terminated:
            for fd in list(self._streams):
                self._end_stream(fd)
        self._close_if_over()

    def terminate(self) -> None:
        """Note that it is being killed: it closes as soon as the exit is known."""
        self.terminated = True
        if self.stdin is not None:
            self.stdin.terminate()

    def discard(self) -> None:
        """Close every descriptor; nothing is reported from now on."""
        self._push = self._unheard
        if self._counted_in is not None:
            self._counted_in.leave(self.traffic)
        loop = asyncio.get_running_loop()
        for fd in self._streams:
            loop.remove_reader(fd)
            os.close(fd)
        self._streams = {}
        self._terminal = -1
        if self._spool is not None:
            self._spool.close()
        if self.stdin is not None:
            self.stdin.close()
        if self.watch is not None:
            self.watch.close()
        self._end_commands()
        self._wake()

    def _end_commands(self) -> None:
        if self.commands is not None:
            self.commands.close()

    @staticmethod
    def _unheard(_message: bytes) -> None:
        """Drop an event after the end of the session."""

    def _close_if_over(self) -> None:
        if self._streams or not self.log.exited or self.log.closed:
            return
        if self._spool is not None:
            if self._spool and not self.terminated:
                return  # the rest of its output is still spooled
            self._spool.close()
        seq = self.log.close()
        if self.stdin is not None:
            self.stdin.close()
        self._push(b'{"method":"process/closed","params":{"processId":%b,"seq":%d}}' % (self._id_json, seq))
        self._wake()
        self._on_closed(self)

    # --- what clients ask

    async def wait_for_news(self, after_seq: int, timeout_s: float) -> None:
        """Return when a read after `after_seq` need not wait, or when the time is over."""
        if timeout_s <= 0 or self.log.ready(after_seq):
            return
        try:
            async with asyncio.timeout(timeout_s):
                while not self.log.ready(after_seq):
                    await self._changed.wait()
        except TimeoutError:
            return

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def resize(self, rows: int, cols: int) -> bool:
        """Change the terminal's size; False if there is no terminal."""
        if self._terminal < 0:
            return False
        set_window_size(self._terminal, rows, cols)
        return True
