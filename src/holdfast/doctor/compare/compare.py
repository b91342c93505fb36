"""Run a command beside the sandbox and inside it, and observe the surroundings of each.

A probe that takes the same way through the launcher observes the surroundings. First all probes run, then the
command plain, then the command confined. They do not run at the same time: two instances would compete for
ports, locks and files, and their differences would say nothing about the sandbox. The plain one is first,
because what fails there is not caused by the sandbox. The price is that the second run finds what the first
one left; the command's help says so.
"""

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

import msgspec

from holdfast import decoding
from holdfast.confine.launch import LauncherClient
from holdfast.confine.starts import Command, Confinement, Exit, StartFailed
from holdfast.confine.verdict import enforcement_report
from holdfast.doctor.compare import circumstances
from holdfast.doctor.compare.equivalence import (
    HARMLESS,
    CapturedStream,
    Circumstances,
    Comparison,
    Observation,
    Ran,
    Value,
    compare,
    is_harmless,
    of_status,
)
from holdfast.errors import UsageError
from holdfast.exec.outcome import NOT_EXECUTABLE, NOT_FOUND
from holdfast.exec.run import ResolvedWish, scene_of
from holdfast.exec.wish import Wish
from holdfast.sandbox.limits import Limits
from holdfast.sandbox.policy.paths import absolute
from holdfast.server.executor import Executor
from holdfast.wire.processes import EnforcementReport

KILL_S: Final = 5.0  # from SIGKILL to the report of the end; longer only if it hangs in the kernel
LINGER_S: Final = 2.0  # for output of processes that outlived the command; what is under way arrives at once
_READ_BYTES: Final = 64 * 1024  # one pipe's worth
TIMEOUT_S: Final = 60.0  # for the command, on either side
MAX_OUTPUT: Final = 1 << 20  # bytes of each stream that are searched for the first difference
PROBE_S: Final = 20.0  # a probe takes a tenth of a second, on a busy machine a few seconds
MIN_SECRET: Final = 6  # characters: a shorter value occurs in too many other words
Told: TypeAlias = Callable[
    [tuple[str, ...]], Awaitable[str]
]  # returns what a command prints; empty if it cannot run

_SOURCE: Final = Path(circumstances.__file__).read_text("utf-8")
_PYTHONS: Final = ("/usr/bin/python3", "/usr/local/bin/python3")  # if our own interpreter is not visible
_STATE: Final = (".cache", ".config", ".local/share", ".local/state")
_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - looked at, nothing is kept there


@dataclass(frozen=True, slots=True)
class Captured:
    """How it ended. Without an `end` its time was over and it was killed."""

    end: Exit | None
    stdout: CapturedStream
    stderr: CapturedStream


async def capture(
    launcher: LauncherClient,
    command: Command,
    *,
    owner: int,
    confinement: Confinement | None,
    limit_s: float,
    keep: int,
    tty: bool = False,
    joined: bool = False,
    limits: Limits | None = None,
) -> Captured:
    """Run a command to its end or its limit; when this returns or raises, its process group is gone.

    `owner` must belong to this command alone. With `tty` it has a terminal of its own. `tty` and `joined`
    make both outputs one, which is then `stdout`.

    Raises:
        StartFailed, SetupFailed: as `Launcher.start` does.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Exit] = loop.create_future()
    started = False
    end: Exit | None = None
    ours, theirs = _terminal() if tty else _pipes(joined=joined)
    sinks = [_Sink(loop, fd, keep) for fd in ours]
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                try:
                    await launcher.start(
                        command,
                        owner=owner,
                        streams=theirs,
                        tty=tty,
                        state=None,
                        on_exit=lambda told: None if ended.done() else ended.set_result(told),
                        confinement=confinement,
                        limits=limits,
                    )
                    started = True
                finally:
                    for fd in set(theirs):
                        os.close(fd)
                end = await asyncio.shield(ended)
    finally:
        await _clear(launcher, owner, ended, sinks, started=started)
    streams = [sink.stream() for sink in sinks]
    return Captured(end, streams[0], streams[1] if len(streams) > 1 else CapturedStream())


async def _clear(
    launcher: LauncherClient,
    owner: int,
    ended: "asyncio.Future[Exit]",
    sinks: "list[_Sink]",
    *,
    started: bool,
) -> None:
    if started:
        launcher.end_owner(owner)  # the command, or processes that outlived it
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                await asyncio.shield(ended)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                for sink in sinks:
                    await sink.ended.wait()
    for sink in sinks:
        sink.close()


class _Sink:
    """Reads one stream; keeps its beginning, and counts and digests the whole."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, keep: int) -> None:
        self.ended = asyncio.Event()
        self._loop, self._fd, self._keep = loop, fd, keep
        self._kept, self._size, self._digest = bytearray(), 0, hashlib.blake2b(digest_size=16)
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._hear)

    def _hear(self) -> None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # a terminal reports in this way that its other end is closed
        if not data:
            self.close()
            return
        self._size += len(data)
        self._digest.update(data)
        self._kept += data[: max(0, self._keep - len(self._kept))]

    def close(self) -> None:
        if not self.ended.is_set():
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self.ended.set()

    def stream(self) -> CapturedStream:
        return CapturedStream(bytes(self._kept), self._size, self._digest.digest() if self._size else b"")


def _pipes(*, joined: bool) -> tuple[list[int], tuple[int, int, int]]:
    pairs = [os.pipe2(os.O_CLOEXEC) for _ in range(1 if joined else 2)]
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return [ours for ours, _ in pairs], (null, pairs[0][1], pairs[-1][1])


def _terminal() -> tuple[list[int], tuple[int, int, int]]:
    ours, theirs = os.openpty()
    return [ours], (theirs, theirs, theirs)


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison, and what confined the command."""

    found: Comparison
    enforcement: EnforcementReport

    def report(self) -> dict[str, object]:
        return self.found.report() | {"enforcement": msgspec.to_builtins(self.enforcement)}


def run(wish: Wish, argv: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> Compared:
    """Run a command twice, without input: plain, then confined.

    Raises:
        HoldfastError: the wish is invalid or cannot be enforced; then nothing was run.
    """
    if not argv or not argv[0]:
        raise UsageError("no command given: holdfast doctor compare [OPTIONS] -- COMMAND")
    scene = scene_of(wish, os.environ)
    scene.make_missing()
    environ = dict(os.environ) if wish.cwd is None else {**os.environ, "PWD": scene.cwd}
    named = [absolute(path, os.getcwd()) for path in (*wish.allow_write, *wish.deny)]
    return asyncio.run(_run(scene, environ, tuple(argv), list_places(scene.cwd, environ, named), timeout_s))


async def _run(
    scene: ResolvedWish, environ: dict[str, str], argv: tuple[str, ...], paths: list[str], timeout_s: float
) -> Compared:
    executor, plain = Executor(scene.environ, choice=scene.choice), LauncherClient()
    executor.open()
    try:
        sandbox = await executor.sandboxes.confine(
            scene.bound, cwd=scene.cwd, loopback_ports=scene.loopback_ports
        )
        with Landmarks() as landmarks:
            question = landmarks.question(paths, {*environ, *scene.environ})
            beside = Side(plain, None, scene.cwd, environ)
            inside = Side(executor.launcher, sandbox.confinement, scene.cwd, scene.environ)
            seen = [await side.look(question) for side in (beside, inside)]
            first = Observation(seen[0], await beside.run(argv, timeout_s))
            await plain.aclose()  # and with it processes that outlived the command
            second = Observation(seen[1], await inside.run(argv, timeout_s))
    finally:
        await plain.aclose()
        await executor.aclose()
    found = compare(first, second, secrets=_secrets(environ))
    return Compared(found, enforcement_report(sandbox.enforcement))


def list_places(cwd: str, environ: Mapping[str, str], named: Iterable[str]) -> list[str]:
    """The places where programs write, if they exist, and those that the options name."""
    home = environ.get("HOME", "")
    places = [cwd, os.path.join(cwd, ".git"), home, *(os.path.join(home, name) for name in _STATE)]
    places += [environ.get("TMPDIR", ""), *_TEMPORARY]
    there = (path for path in places if path.startswith("/") and os.path.lexists(path))
    return list(dict.fromkeys((*there, *named)))


def _secrets(environ: Mapping[str, str]) -> list[str]:
    """Values that a command may print, the longest first: one may be part of another."""
    found = {value for name, value in environ.items() if not is_harmless(name) and len(value) >= MIN_SECRET}
    return sorted(found, key=len, reverse=True)


def _parse(told: str) -> dict[str, dict[str, Value]] | None:
    """The answer of a probe; None if there is none."""
    _, mark, line = told.rpartition(circumstances.MARK)
    if not mark:
        return None
    try:
        groups = decoding.decode(line.partition("\n")[0], dict[str, dict[str, Value] | None])
    except msgspec.MsgspecError:
        return None
    return {group: fields for group, fields in groups.items() if fields is not None}


class Landmarks:
    """Objects of this machine that a probe may find: a port, an abstract socket, and this process."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._tcp = self._open.enter_context(socket.socket())
        self._unix = self._open.enter_context(socket.socket(socket.AF_UNIX))
        self._name = f"holdfast-{secrets.token_hex(8)}"

    def __enter__(self) -> Self:
        try:
            self._tcp.bind(("127.0.0.1", 0))
            self._unix.bind(f"\0{self._name}")
            for sock in (self._tcp, self._unix):
                sock.listen()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def question(self, paths: list[str], variables: Iterable[str], *, quiet: bool = False) -> str:
        """The question for the probes of all sides: they share the key of the digests, which is not kept.

        With `quiet` processes that work in those directories cannot see the probe's attempts.
        """
        return json.dumps(
            {
                "paths": paths,
                "quiet": quiet,
                "port": self._tcp.getsockname()[1],
                "abstract": self._name,
                "observer": os.getpid(),
                "key": secrets.token_hex(16),
                "harmless": [*HARMLESS, *filter(is_harmless, variables)],
            }
        )


async def look(told: Told, question: str) -> Circumstances:
    """The surroundings of commands that run this way; fewer facts if the probe cannot run."""
    seen: dict[str, dict[str, Value]] = {}
    program = f"{_SOURCE}\nmain({question!r})\n"
    for python in (sys.executable, *_PYTHONS):
        found = _parse(await told((python, "-I", "-S", "-B", "-c", program)))
        if found is not None:
            seen = found
            break
    status = await told(("cat", "/proc/self/status"))
    for group, fields in of_status(status).items() if status else ():
        seen.setdefault(group, {}).update(fields)
    return seen


class Side:
    """One way to run commands, with a terminal of their own or without."""

    def __init__(
        self,
        launcher: LauncherClient,
        confinement: Confinement | None,
        cwd: str,
        environ: dict[str, str],
        *,
        tty: bool = False,
    ) -> None:
        self._launcher, self._confinement, self._tty = launcher, confinement, tty
        self._cwd, self._environ = cwd, environ
        self._started = 0

    async def look(self, question: str) -> Circumstances:
        """The surroundings of a command here; fewer facts if the probe cannot run."""
        return await look(self._read_output, question)

    async def run(self, argv: tuple[str, ...], timeout_s: float) -> Ran:
        try:
            done = await self._capture(argv, timeout_s)
        except StartFailed as exc:
            code = NOT_FOUND if exc.errno == errno.ENOENT else NOT_EXECUTABLE
            return Ran(code, note=os.strerror(exc.errno))
        if done.end is None:
            return Ran(None, done.stdout, done.stderr)
        number = done.end.code - 128
        note = signal.Signals(number).name if number in set(signal.Signals) else ""
        return Ran(done.end.code, done.stdout, done.stderr, note)

    async def _read_output(self, argv: tuple[str, ...]) -> str:
        try:
            done = await self._capture(argv, PROBE_S)
        except StartFailed:
            return ""
        return done.stdout.kept.decode("utf-8", "replace")

    async def _capture(self, argv: tuple[str, ...], limit_s: float) -> Captured:
        self._started += 1
        return await capture(
            self._launcher,
            Command(argv, argv[0], self._cwd, self._environ),
            owner=self._started,
            confinement=self._confinement,
            limit_s=limit_s,
            keep=MAX_OUTPUT,
            tty=self._tty,
        )
