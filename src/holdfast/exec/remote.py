"""One command on another machine, for the person at the keyboard: what `holdfast exec --env` does.

It looks like a command that runs here: live output, our standard input, a terminal on a terminal, signals,
the exit code. The limits of the protocol are visible: the two outputs come by two channels, so their relative
order may differ, and the descendants of an unconfined command that outlive it are not ended.
"""

import asyncio
import contextlib
import errno
import itertools
import os
import re
import signal
import termios
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import structs

from holdfast.client.environment import Environment
from holdfast.client.environments import reach
from holdfast.client.events.ordering import Event, Exited, Output
from holdfast.client.policy import Policy
from holdfast.client.process import Process
from holdfast.client.recovery import LinkState
from holdfast.errors import HoldfastError, InvalidRequest, NotFound, OperationFailed, UsageError
from holdfast.exec.asking import TerminalAnswerer
from holdfast.exec.outcome import (
    NOT_EXECUTABLE,
    NOT_FOUND,
    Ending,
    ExecFailure,
    build_failure,
    lose_output,
)
from holdfast.exec.wish import Preset, Wish
from holdfast.local.relay import (
    ENDING,
    STDERR,
    STDOUT,
    Course,
    OwnTerminal,
    describe_unwritten,
    in_foreground,
    occupy_standard_descriptors,
    on_terminal,
)
from holdfast.local.streams import Writer, peek, read_input
from holdfast.local.tasks import TaskSet
from holdfast.sandbox.limits import Limits, exit_code
from holdfast.sandbox.policy.hostwish import ASK_S
from holdfast.sandbox.policy.paths import is_file_to_make, is_pattern, parent
from holdfast.sandbox.policy.policy import Access, Where, bind
from holdfast.wire.network import PolicyQuestion
from holdfast.wire.paths import PathUri, to_native, to_uri
from holdfast.wire.processes import NetworkReport

_STOP_S: Final = 2.0  # a user who pressed Control-Z waits for a prompt
_LOOK_S: Final = 10.0  # a shell that looks up a name, on a busy machine
LATE_S: Final = 0.5  # output may follow the exit; a process that is silent this long only holds a pipe open
_DECISIONS: Final[dict[str, bool | Literal["pattern"]]] = {"host": True, "pattern": "pattern"}
_ERRNO: Final = re.compile(r"\(os error ([0-9]+)\)")
_ENDLESS: Final = "holdfast: this server cannot tell the command that its input has ended\n"


def refuse_local_options(given: Mapping[str, bool]) -> None:
    """Raises: UsageError: an option is given that means nothing on another machine."""
    for option, is_given in given.items():
        if is_given:
            raise UsageError(
                f"{option} is about this machine and cannot be used with --env",
                remedy="run holdfast over there, or leave the option out",
            )


def execute(where: str, wish: Wish, argv: Sequence[str]) -> Ending:
    """Run a command there with our standard streams; the ending holds any failure."""
    occupy_standard_descriptors()
    try:
        if not argv or not argv[0]:
            raise UsageError("no command given: holdfast exec [OPTIONS] -- COMMAND")
        return asyncio.run(_execute(where, wish, argv))
    except HoldfastError as exc:
        return build_failure(exc)


async def _execute(where: str, wish: Wish, argv: Sequence[str]) -> Ending:
    run = _Remote()
    try:
        async with reach(where) as environment:
            cwd = _directory(environment, wish.cwd)
            if wish.cwd is not None and not await _is_directory(environment, cwd):
                raise UsageError(f"{cwd} is not a directory over there")
            policy = _policy(wish, environment, cwd)
            await _make_missing(environment, cwd, policy, wish.allow_write)
            return await run.run(environment, argv, cwd, policy, wish.limits)
    except asyncio.CancelledError:
        if run.course.stopped_by is None:
            raise
        return Ending(128 + run.course.stopped_by)


# --- the policy, in terms of the other machine


def _directory(environment: Environment, cwd: str | None) -> str:
    base = environment.info.cwd
    if cwd is not None:
        with contextlib.suppress(UsageError):
            return to_native(to_uri(cwd).uri)
    if base is None:
        raise UsageError("the server does not say where it is", remedy="give --cwd, an absolute path there")
    return to_native(PathUri.parse(base).join(cwd or "").uri)


def _policy(wish: Wish, environment: Environment, cwd: str) -> Policy:
    if wish.profile is not None:
        policy = _profile(wish.profile, environment, cwd)
    elif wish.preset is Preset.READ_ONLY:
        policy = Policy.read_only()
    elif wish.preset is Preset.WORKSPACE_WRITE:
        policy = Policy.workspace_write(cwd)
    else:
        policy = Policy.full_access()
    if wish.network is not None:
        policy = policy.with_network(wish.network)
    base = to_uri(cwd)
    for path in wish.allow_read:
        policy = policy.allow_read(to_native(base.join(path).uri))
    for path in wish.allow_socket:
        policy = policy.allow_socket(to_native(base.join(path).uri))
    for rule in wish.allow_host:
        policy = policy.allow_host(rule)
    for preset in wish.allow_net:
        policy = policy.allow_net(preset)
    for limit in wish.net_limit:
        policy = policy.limit_net(limit)
    for rule in wish.deny_host:
        policy = policy.deny_host(rule)
    if wish.allow_private:
        policy = policy.allow_private()
    if wish.ask_network:
        policy = policy.ask_network()
    for text in wish.secrets:
        policy = policy.keep_secret(text)
    for path in wish.allow_write:
        policy = policy.allow_write(to_native(base.join(path).uri))
    for path in wish.deny:
        policy = policy.deny(path if is_pattern(path) else to_native(base.join(path).uri))
    return policy


def _account(told: NetworkReport) -> dict[str, Any]:
    """Convert a report to the form that the broker on this machine uses."""
    sent = [structs.asdict(row) for row in told.sent]
    for row in sent:
        row["sent"], row["received"] = row.pop("bytes_sent"), row.pop("bytes_received")
    return {"sent": sent, "refused": [structs.asdict(row) for row in told.refused], "dropped": told.dropped}


async def _make_missing(environment: Environment, cwd: str, policy: Policy, allowed: Sequence[str]) -> None:
    """Create paths that are granted and missing, as on this machine.

    Raises:
        UsageError: one cannot be created.
    """
    bound = bind(policy.wish, Where(cwd, (cwd,)))
    for asked in allowed:
        path = to_native(to_uri(cwd).join(asked).uri)
        if bound.explain(parent(path), Access.WRITE).allowed or await environment.files.exists(path):
            continue
        try:
            if is_file_to_make(asked):
                await environment.files.write(path, b"")
            else:
                await environment.files.make_directory(path)
        except HoldfastError as exc:
            raise UsageError(f"--allow-write {path}: cannot make it over there: {exc}") from None


def _profile(path: str, environment: Environment, cwd: str) -> Policy:
    home = environment.info.user_home_dir
    if home is not None and home.startswith("file:"):
        home = to_native(home)
    try:
        return Policy.from_toml(Path(path), root=cwd, home=home)
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a TOML file") from None


# --- the run


class _Remote:
    """The command on the other machine, as the receiver of our signals."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._environment: Environment | None = None
        self._process: Process | None = None
        self._exited: Exited | None = None
        self._work = TaskSet()
        self.course = _Course(self._loop, self)
        self._free = asyncio.Event()  # set while no question is shown on our terminal
        self._free.set()
        self._numbers = itertools.count(1)
        self._answerer: TerminalAnswerer | None = None

    def give_up(self) -> None:
        """Cancel our task: there is no connection or process to pass a signal on to."""
        if self._task is not None:
            self._task.cancel()

    async def run(
        self,
        environment: Environment,
        argv: Sequence[str],
        cwd: str,
        policy: Policy,
        limits: Limits | None,
    ) -> Ending:
        tty = on_terminal()
        with OwnTerminal() if tty else contextlib.nullcontext() as terminal:
            self.course.terminal = terminal
            first = None if tty or environment.info.capabilities.holdfast_close_stdin else peek()
            try:
                process = await environment.start(
                    argv,
                    cwd=cwd,
                    policy=policy,
                    tty=tty,
                    stdin=first != b"",
                    more_env=_terminal_name(tty),
                    limits=limits,
                    decide=self._decide if policy.wish.hosts.ask_s else None,
                )
            except (OperationFailed, InvalidRequest, NotFound) as exc:
                absent = await _is_absent(environment, argv[0], cwd, policy, exc)
                return _not_started(exc, argv[0], absent=absent)
            self._environment, self._process = environment, process
            self.course.begin()
            try:
                return await self._attend(process, first, tty=tty)
            finally:
                self._work.cancel()
                if self._answerer is not None:
                    self._answerer.close()

    # --- questions about hosts

    async def _decide(self, question: PolicyQuestion) -> bool | Literal["pattern"]:
        if self._answerer is None:
            dumb = os.environ.get("TERM", "dumb") == "dumb"
            self._answerer = TerminalAnswerer(self._loop, self._hold, self._release, dumb=dumb)
        number = next(self._numbers)
        told: asyncio.Future[str] = self._loop.create_future()
        asked = {
            "id": number,
            "host": question.host,
            "port": question.port,
            "pattern": question.pattern or None,
            "program": question.program or None,
            "limit_s": ASK_S,
        }
        try:
            self._answerer.ask(asked, told.set_result)
            return _DECISIONS.get(await told, False)
        finally:
            self._answerer.withdraw(number)

    def _hold(self) -> None:
        self._free.clear()
        if self.course.terminal is not None:
            self.course.terminal.lend()

    def _release(self) -> None:
        self._free.set()
        if self.course.terminal is not None:
            self.course.terminal.regain()

    def _is_ours(self) -> bool:
        terminal = self.course.terminal
        return self._free.is_set() and (terminal.is_ours() if terminal else in_foreground())

    # --- its streams

    async def _attend(self, process: Process, first: bytes | None, *, tty: bool) -> Ending:
        if tty:
            self._loop.add_signal_handler(signal.SIGWINCH, self._resize)
            self._resize()
        terminal = self.course.terminal
        if terminal is not None:
            terminal.on_taken = self._resize
        stop = read_input(
            self._loop,
            lambda data: self._feed(process, data),
            first,
            is_ours=self._is_ours,
        )
        writer, fd = Writer(self._loop), STDOUT
        try:
            async for event in self._events(process):
                if isinstance(event, Output):
                    await self._free.wait()
                    fd = STDERR if event.stream == "stderr" else STDOUT
                    await writer.write(fd, event.data)
                elif isinstance(event, Exited):
                    self._exited = event
                    self.course.end()
        except OSError as exc:  # the reader is gone; closing the environment ends the command
            ending = Ending(128 + (signal.SIGHUP if tty else signal.SIGPIPE), process.enforcement)
            lost = describe_unwritten(fd, exc, tty=tty)
            return ending if lost is None else lose_output(ending, lost)
        finally:
            stop()
        end = self._exited
        if end is None:
            raise AssertionError("a process closes after its exit")
        denied = bool(end.sandbox_denied) and end.denial is None
        code = end.code
        if end.limit is not None:
            code, denied = exit_code(end.limit, code), False
        return Ending(
            code,
            process.enforcement,
            end.denial,
            end.usage,
            unexplained=denied,
            reached=end.limit,
            traffic=None if end.network is None else _account(end.network),
        )

    async def _events(self, process: Process) -> AsyncIterator[Event]:
        events = aiter(process)
        while True:
            try:
                async with asyncio.timeout(None if self._exited is None else LATE_S):
                    event = await anext(events)
            except (StopAsyncIteration, TimeoutError):
                return
            yield event

    async def _feed(self, process: Process, data: bytes) -> None:
        if data:
            await process.write(data)
            return
        try:
            await process.close_stdin()
        except InvalidRequest:
            if not self._can_close():
                os.write(STDERR, _ENDLESS.encode())

    def _can_close(self) -> bool:
        environment = self._environment
        return environment is not None and environment.info.capabilities.holdfast_close_stdin

    def _resize(self) -> None:
        if self._process is not None:
            with contextlib.suppress(termios.error):
                rows, cols = termios.tcgetwinsize(STDOUT)
                self._do(self._process.resize(rows, cols))

    def pass_on(self, signum: int) -> None:
        connected = self._environment is not None and self._environment.state is LinkState.CONNECTED
        if self._process is None or not connected:
            self.course.stopped_by = signum
            self.give_up()
        else:
            self._do(self._signal(self._process, signum))

    async def _signal(self, process: Process, signum: int) -> None:
        try:
            await process.signal(signal.Signals(signum).name)
        except InvalidRequest:  # a server that knows only SIGINT
            if signum in ENDING:
                await process.terminate()

    def kill(self) -> None:
        if self._process is not None:
            self._do(self._process.terminate())

    def stop_first(self, then: Callable[[], None]) -> None:
        """Stop the command, if possible now, call `then`, and continue the command afterwards."""

        async def stop() -> None:
            if self._process is None:
                return
            with contextlib.suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await self._process.signal("SIGTSTP")
            then()
            await self._process.signal("SIGCONT")

        self._do(stop())

    def _do(self, work: Coroutine[None, None, None]) -> None:
        async def quietly() -> None:
            with contextlib.suppress(HoldfastError):  # the command has ended, or the server cannot
                await work

        self._work.start(quietly())


class _Course(Course):
    """The course of a remote command, which a coroutine waits for.

    A command with pipes on the other machine is stopped with us. On a terminal, Control-Z is a key like any
    other: it is sent there, and the programs that run there decide whether it stops something.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, remote: _Remote) -> None:
        self._remote = remote
        super().__init__(loop, remote)

    def stop(self) -> None:
        super().stop()
        self._remote.give_up()

    def suspend(self) -> None:
        if self.running and not self.ended:
            self._remote.stop_first(lambda: self._stop_ourselves(os.getpid(), signal.SIGTSTP))
        else:
            super().suspend()


def _terminal_name(tty: bool) -> dict[str, str]:
    name = os.environ.get("TERM")
    return {"TERM": name} if tty and name else {}


async def _is_absent(
    environment: Environment, program: str, cwd: str, policy: Policy, exc: HoldfastError
) -> bool:
    """Whether EACCES means a missing program: a directory of PATH that may not be searched also causes it."""
    number = _ERRNO.search(str(exc))
    if "/" in program or number is None or int(number[1]) != errno.EACCES:
        return False
    look = ["/bin/sh", "-c", 'command -v -- "$1"', "sh", program]
    try:
        found = await environment.run(look, cwd=cwd, policy=policy, timeout_s=_LOOK_S)
    except (HoldfastError, TimeoutError):
        return False  # no such shell there: keep the first error
    return found.code != 0 and not found.stdout


def _not_started(exc: HoldfastError, program: str, *, absent: bool) -> Ending:
    """Report a failed start as a shell and env(1) do."""
    number = _ERRNO.search(str(exc))
    if number is None:
        raise exc
    missing = absent or int(number[1]) == errno.ENOENT
    what = "command not found" if missing else os.strerror(int(number[1]))
    return Ending(NOT_FOUND if missing else NOT_EXECUTABLE, failure=ExecFailure(f"{program}: {what}"))


async def _is_directory(environment: Environment, path: str) -> bool:
    try:
        return (await environment.files.stat(path)).is_directory
    except HoldfastError:
        return False
