"""Explain mode: strace around a worker from its first call on, and what it saw.

Inside of the sandbox nobody may trace, and from outside one can only join a process that is there. So the
worker is started through a shell that stops itself; strace joins it, and then it goes on. strace writes into
a pipe of ours: there is nothing to bound or to remove, and it ends with us. A worker whose strace ends goes
on without; so does one that strace may not join. `off` then says why.
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

JOIN_S: Final = 10.0  # a start waits so long for strace, on a busy machine; then it is joined later
ANSWER_S: Final = 10.0  # for strace to join, or to say why not
LAST_S: Final = 5.0  # for strace to tell what it still knows when the worker has ended
MAX_KINDS: Final = 256  # of denials between two looks: a reader learns nothing from more
LOOK_S: Final = 0.02
_READ_BYTES: Final = 1 << 16
_PLACED: Final = ("write", "create", "remove")  # what is watched, and tells where it leads

_SHELL: Final = "/bin/sh"
_MARK: Final = "holdfast-explain"
_SCRIPT: Final = 'unset $1; shift; kill -STOP $$; exec "$@"'
_ADDED: Final = ("PWD", "OLDPWD", "SHLVL")  # by shells, to every environment
_HELD: Final = f"{_SHELL}\0-c\0{_SCRIPT}\0{_MARK}\0".encode()


def held(argv: Sequence[str], variables: Collection[str]) -> tuple[str, ...]:
    """A command that stops before it begins; `variables` are the names in its environment."""
    unset = " ".join(name for name in _ADDED if name not in variables)
    return (_SHELL, "-c", _SCRIPT, _MARK, unset, *argv)


def release(leader: int) -> None:
    """Let a worker begin that was left stopped, if it was."""
    if (pid := _stopped(leader)) is not None:
        _continue(pid)


class Explaining:
    """strace around one worker. `off` says why there is none, or not any more."""

    def __init__(self, policy: Policy, *, cwd: str, environment: Mapping[str, str]) -> None:
        self.off: str | None = None
        # It runs outside the sandbox, so the worker's own PATH does not count.
        self._strace = find_program("strace", os.environ.get("PATH", os.defpath), [cwd])
        if self._strace is None:
            self.off = "strace is not installed, or only where workers could replace it"
        self._bound = bind(policy.wish, Where(cwd, (cwd,), environment.get("TMPDIR")))
        self._lines = Strace(self._bound, os.path.lexists)
        self._watched = True
        self._found: dict[tuple[str, str, str, str], Denied] = {}
        self._nowhere: list[Denied] = []  # refused, at a path of which strace does not know where it begins
        self._places: dict[tuple[str, str, int], UnconfirmedCall] = {}  # and where it does: the watcher knows
        self._over = False
        self._said = ""
        self._process: Subprocess | None = None
        self._joining: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    def sees(self, refusal: Refusal) -> bool:
        """Whether strace tells this too: then it need not be taken from the watcher."""
        on = self._process is not None and self.off is None
        return on and tells(refusal.syscall, refusal.access, refusal.errno, refusal.asked)

    def place(self, call: UnconfirmedCall) -> None:
        """The watcher cannot see how a call ends that strace follows; strace not, where its path begins."""
        if len(self._places) >= MAX_KINDS:
            self._places.pop(next(iter(self._places)))
        self._places[call.syscall, call.asked, call.pid] = call

    def take(self) -> list[Denied]:
        """What was refused since the last time, each kind once, with its count."""
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
        """Join the worker below this process, which was started `held`; it goes on in any case.

        Whether it is watched as well is known by then.
        """
        self._watched = watched
        self._joining = asyncio.get_running_loop().create_task(self._join(leader))
        await asyncio.wait({self._joining}, timeout=JOIN_S)

    async def settled(self) -> None:
        """When the worker has ended: until strace has told the rest."""
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=LAST_S)
        await self.aclose()
        self._over = True

    async def aclose(self) -> None:
        """End strace; a worker that still runs goes on without."""
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
        """None when strace has joined; else why not."""
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
        """Terminated, strace lets go of what it traces; so it does when killed."""
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
        if await process.wait() != 0:  # not because all that it traced has ended
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
    """The worker that waits below this process to be let go."""
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
    """Empty for one that is gone."""
    return _read(pid, "comm").decode("utf-8", "replace").rstrip("\n")


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(_READ_BYTES)
    return b""
