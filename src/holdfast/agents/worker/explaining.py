"""Explain mode: runs strace on a worker from its first system call on, and collects what it saw.

Inside the sandbox no process may trace, and from outside strace can only attach to an existing process. So
the worker is started through a shell that stops itself. strace attaches to it, and then the worker continues.
strace writes into a pipe of ours, so there is no file to bound or remove, and strace ends with us. If strace
ends or may not attach, the worker runs without it, and `off` says why.
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL
from asyncio.subprocess import Process as Subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from holdfast.agents.evidence.evidence import MAX_SEEN, Denied
from holdfast.agents.worker.procwatch import tree
from holdfast.agents.worker.refusals import MAX_LINE, Strace, command_line, tells
from holdfast.client.policy import Policy
from holdfast.local.programs import find_program
from holdfast.sandbox.policy.policy import Where, bind
from holdfast.wire.processes import DeniedCall as Refusal
from holdfast.wire.processes import UnconfirmedCall

JOIN_S: Final = 10.0  # how long a start waits for strace, on a busy machine; it may attach later
ANSWER_S: Final = 10.0  # for strace to attach, or to say why not
LAST_S: Final = 5.0  # for strace to write the rest of its output when the worker has ended
MAX_KINDS: Final = 256  # of denials between two looks: more would not help a reader
LOOK_S: Final = 0.02
_READ_BYTES: Final = 1 << 16
_PLACED: Final = ("write", "create", "remove")  # kinds of access that the watcher sees and can locate

_SHELL: Final = "/bin/sh"
_MARK: Final = "holdfast-explain"
_SCRIPT: Final = 'unset $1; shift; kill -STOP $$; exec "$@"'
_ADDED: Final = ("PWD", "OLDPWD", "SHLVL")  # variables that shells add to every environment
_HELD: Final = f"{_SHELL}\0-c\0{_SCRIPT}\0{_MARK}\0".encode()


def held(argv: Sequence[str], variables: Collection[str]) -> tuple[str, ...]:
    """Return a command that stops itself before it begins; `variables` are the names in its environment."""
    unset = " ".join(name for name in _ADDED if name not in variables)
    return (_SHELL, "-c", _SCRIPT, _MARK, unset, *argv)


def release(leader: int) -> None:
    """Continue a worker that was left stopped before it began, if it is."""
    if (pid := _stopped(leader)) is not None:
        _continue(pid)


class Explaining:
    """strace of one worker. `off` says why there is none, or no longer one."""

    def __init__(self, policy: Policy, *, cwd: str, environment: Mapping[str, str]) -> None:
        self.off: str | None = None
        # strace runs outside the sandbox, so the worker's own PATH must not be used.
        self._strace = find_program("strace", os.environ.get("PATH", os.defpath), [cwd])
        if self._strace is None:
            self.off = "strace is not installed, or only where workers could replace it"
        self._bound = bind(policy.wish, Where(cwd, (cwd,), environment.get("TMPDIR")))
        self._lines = Strace(self._bound, os.path.lexists)
        self._watched = True
        self._found: dict[tuple[str, str, str, str], Denied] = {}
        self._nowhere: list[Denied] = []  # denials with a relative path and an unknown base directory
        self._places: dict[tuple[str, str, int], UnconfirmedCall] = {}  # the base directory, by the watcher
        self._over = False
        self._said = ""
        self._process: Subprocess | None = None
        self._joining: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    def sees(self, refusal: Refusal) -> bool:
        """Return whether strace reports this refusal, too; then the watcher's report is not needed."""
        on = self._process is not None and self.off is None
        return on and tells(refusal.syscall, refusal.access, refusal.errno, refusal.asked)

    def place(self, call: UnconfirmedCall) -> None:
        """Note where the path of a call begins: strace cannot see that.

        The watcher, in turn, cannot see the result of a call that strace follows.
        """
        if len(self._places) >= MAX_KINDS:
            self._places.pop(next(iter(self._places)))
        self._places[call.syscall, call.asked, call.pid] = call

    def take(self) -> list[Denied]:
        """Return the denials since the last call, each kind once, with its count."""
        waiting, self._nowhere = self._nowhere, []
        for denied in waiting:
            place = self._places.get((denied.syscall, denied.path, denied.pid))
            if place is not None:
                rule, grant = place.rule or "", place.grant or ""
                self._count(replace(denied, path=place.path, access=place.access, rule=rule, grant=grant))
            elif self._over:
                self._count(denied)
            else:
                self._nowhere.append(denied)
        found, self._found = self._found, {}
        return list(found.values())

    async def begin(self, leader: int, *, watched: bool) -> None:
        """Attach to the worker below this process, which was started `held`; it continues in any case.

        `watched` says whether the watcher of refusals works, too.
        """
        self._watched = watched
        self._joining = asyncio.get_running_loop().create_task(self._join(leader))
        await asyncio.wait({self._joining}, timeout=JOIN_S)

    async def settled(self) -> None:
        """After the worker has ended: wait until strace has written the rest."""
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=LAST_S)
        await self.aclose()
        self._over = True

    async def aclose(self) -> None:
        """End strace; a running worker continues without it."""
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.wait({self._joining})
        if self._reading is not None and not self._reading.done():
            await self._end()

    async def _join(self, leader: int) -> None:
        while (pid := _stopped(leader)) is None:
            if not tree(leader):
                self.off = "the worker ended before strace could join it"
                return
            await asyncio.sleep(LOOK_S)
        try:
            self.off = await self._attach(pid)
        finally:
            _continue(pid)

    async def _attach(self, pid: int) -> str | None:
        """Attach strace; return None, or why it failed."""
        reader, writer = os.pipe()
        argv = command_line(pid, f"/proc/self/fd/{writer}", strace=self._strace or "")
        try:
            self._process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=writer,
                pass_fds=(writer,),
                env={"LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError as exc:
            os.close(reader)
            return f"strace cannot be started: {exc.strerror}"
        finally:
            os.close(writer)
        self._reading = asyncio.get_running_loop().create_task(self._read(reader, self._process))
        try:
            async with asyncio.timeout(ANSWER_S):
                while _tracer(pid) != self._process.pid:
                    if self._reading.done():
                        return self.off or "strace does not join it"
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            await self._end()
            return f"strace did not join within {ANSWER_S:.0f} s"
        return None

    async def _end(self) -> None:
        """End strace with SIGTERM, then SIGKILL; either way it detaches from the traced processes."""
        if self._process is None or self._reading is None:
            return
        for signum in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signum)
            done, _ = await asyncio.wait({self._reading}, timeout=LAST_S)
            if done:
                return

    async def _read(self, fd: int, process: Subprocess) -> None:
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(fd, "rb", 0)
        )
        rest = b""
        try:
            while data := await stream.read(_READ_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(line.decode("utf-8", "replace"))
                rest = rest[:MAX_LINE]
        finally:
            transport.close()
        if await process.wait() != 0:  # 0 means that all traced processes have ended
            self.off = f"strace ended: {self._said or f'exit code {process.returncode}'}"

    def _hear(self, line: str) -> None:
        if line.startswith("strace: "):
            self._said = line.removeprefix("strace: ")[:MAX_SEEN]
            return
        denied = self._lines.feed(line)
        if denied is None:
            return
        if not denied.path.startswith("/") and self._watched and denied.access in _PLACED:
            if len(self._nowhere) < MAX_KINDS:
                self._nowhere.append(replace(denied, comm=_name(denied.pid)))
            return
        self._count(replace(denied, comm=_name(denied.pid)))

    def _count(self, denied: Denied) -> None:
        key = (denied.syscall, denied.access, denied.errno, denied.path)
        known = self._found.get(key)
        if known is not None:
            self._found[key] = replace(known, count=known.count + 1)
        elif len(self._found) < MAX_KINDS:
            self._found[key] = denied


def _stopped(leader: int) -> int | None:
    """Return the stopped worker below this process that waits to be continued."""
    for process in tree(leader):
        if process.state == "T" and _read(process.pid, "cmdline").startswith(_HELD):
            return process.pid
    return None


def _continue(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGCONT)


def _tracer(pid: int) -> int:
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"TracerPid:"):
            return int(line.split()[1])
    return 0


def _name(pid: int) -> str:
    """Return the name of a process; empty if it is gone."""
    return _read(pid, "comm").decode("utf-8", "replace").rstrip("\n")


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(_READ_BYTES)
    return b""
